package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/bench/rig"
	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

func stateRows() []row {
	return []row{
		{name: "restore", unit: "ns/key", bound: 130, what: "a table of 1 M text keys read back from a checkpoint's bytes", run: restore},
		{name: "memory-10m-keys", unit: "B/key", bound: 56, what: "10 M keys of 12 bytes and a counter, as they are in the heap", run: memory},
		{name: "gc-cpu-10m-keys", unit: "% of CPU", bound: 2, what: "garbage collection while 10 M such keys are counted", run: collection},
		{name: "merge-throughput", unit: "% of wall", bound: 10, what: "what merging in the background takes from counting 200 k keys, a checkpoint every 50 ms", run: merging},
		{name: "restart-1m-keys", unit: "s", bound: 1, what: "from a start with 1 M keys to the first committed epoch, at an interval of 100 ms", run: restart},
	}
}

// layouts are those of a text key and a counter.
func layouts() (table.Key, table.Value, error) {
	key, err := table.KeyOf[string]()
	if err != nil {
		return key, table.Value{}, err
	}
	value, err := table.ValueOf[int64]()
	return key, value, err
}

// keyed is a table that has counted every key once.
type keyed struct {
	key  table.Key
	tab  *table.Table[string, int64]
	hash [table.MaxBatch]uint64
	ids  [table.MaxBatch]uint32
	text [table.MaxBatch]string
}

func newKeyed() (*keyed, error) {
	key, value, err := layouts()
	if err != nil {
		return nil, err
	}
	return &keyed{key: key, tab: table.New[string, int64](key, value, 128)}, nil
}

// count counts keys from to to-1. Their texts are made as a decoder makes them.
func (k *keyed) count(from, to int) {
	for at := from; at < to; {
		n := min(table.MaxBatch, to-at)
		for i := range n {
			k.text[i] = fmt.Sprintf("ad-%09d", at+i)
		}
		k.add(n)
		at += n
	}
}

func (k *keyed) add(n int) {
	table.HashAll(k.key, k.text[:n], k.hash[:n])
	k.tab.Locate(k.hash[:n], k.text[:n], k.ids[:n])
	for _, id := range k.ids[:n] {
		id &^= table.Fresh
		*k.tab.Value(id)++
		k.tab.Touch(id)
	}
}

func restore(ctx context.Context, pairs int) (result, error) {
	k, err := newKeyed()
	if err != nil {
		return result{}, err
	}
	k.count(0, million)
	fz, err := k.tab.Freeze(table.NewPool(), true)
	if err != nil {
		return result{}, err
	}
	var b bytes.Buffer
	if err := fz.Encode(&b); err != nil {
		return result{}, err
	}
	fz.Release()
	key, value, err := layouts()
	if err != nil {
		return result{}, err
	}
	var per []float64
	for range pairs {
		if err := ctx.Err(); err != nil {
			return result{}, err
		}
		l, err := timed(func() error {
			tab := table.New[string, int64](key, value, 128)
			_, err := tab.Load(b.Bytes(), key.Schema(), value.Schema(), nil, nil)
			if err == nil && tab.Len() != million {
				err = fmt.Errorf("%d keys came back", tab.Len())
			}
			return err
		})
		if err != nil {
			return result{}, err
		}
		per = append(per, float64(l.cpu)/million)
	}
	return result{median(per), fmt.Sprintf("%.1f MB; load %s", float64(b.Len())/1e6, load())}, nil
}

// heap is what live objects take.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func memory(context.Context, int) (result, error) {
	before := heap()
	k, err := newKeyed()
	if err != nil {
		return result{}, err
	}
	k.count(0, 10*million)
	per := float64(heap()-before) / (10 * million)
	note := fmt.Sprintf("the table says %.1f", float64(k.tab.Bytes())/(10*million))
	runtime.KeepAlive(k)
	return result{per, note}, nil
}

// collection counts keys at random, each with a text of its own, and sees which
// part of the CPU time went into collecting garbage.
func collection(ctx context.Context, _ int) (result, error) {
	k, err := newKeyed()
	if err != nil {
		return result{}, err
	}
	k.count(0, 10*million)
	runtime.GC()
	rng := rand.New(rand.NewPCG(1, 2))
	gc, all := gcSeconds(), rig.CPU()
	began := time.Now()
	for n := 0; n < 20*million; n += table.MaxBatch {
		if err := ctx.Err(); err != nil {
			return result{}, err
		}
		for i := range k.text {
			k.text[i] = fmt.Sprintf("ad-%09d", rng.IntN(10*million))
		}
		k.add(table.MaxBatch)
	}
	share := 100 * (gcSeconds() - gc) / (rig.CPU() - all).Seconds()
	runtime.KeepAlive(k)
	return result{share, fmt.Sprintf("20 M counted in %.1f s; load %s", time.Since(began).Seconds(), load())}, nil
}

// gcSeconds is the CPU time of the garbage collector so far.
func gcSeconds() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	runtime.GC() // the figure is brought up to date by a collection
	metrics.Read(s)
	return s[0].Value.Float64()
}

// merging counts the same records with and without merges.
func merging(ctx context.Context, pairs int) (result, error) {
	recs := events(2*cold, false)
	const n = 24 * pregenerated
	var merges, full int
	run := func(l epoch.Limits, merges, full *int) func() error {
		return func() error {
			return inTemp(func(dir string) error { return counted(ctx, dir, recs, n, l, merges, full) })
		}
	}
	never := epoch.DefaultLimits()
	never.Slack, never.Parts = 1<<40, 1<<20
	var none, bases int
	as, bs, err := pairsOf(ctx, pairs, run(never, &none, &bases), run(epoch.DefaultLimits(), &merges, &full))
	if err != nil {
		return result{}, err
	}
	if merges == 0 || none > 0 {
		return result{}, fmt.Errorf("%d merges with the usual limits, %d without", merges, none)
	}
	loss := each(as, bs, func(a, b lap) float64 { return 100 * (1 - float64(a.wall)/float64(b.wall)) })
	more := each(as, bs, func(a, b lap) float64 { return 100 * (float64(b.cpu)/float64(a.cpu) - 1) })
	return result{median(loss), fmt.Sprintf("%d merges and %d bases in %d runs of %.1f s; CPU time %+.1f %%; load %s",
		merges, full, pairs+1, median(each(as, bs, func(_, b lap) float64 { return b.wall.Seconds() })), median(more), load())}, nil
}

// counted runs a counting job as control runs it.
func counted(ctx context.Context, dir string, recs []event, n int, l epoch.Limits, merges, full *int) error {
	key, value, err := layouts()
	if err != nil {
		return err
	}
	graph := plan.Graph{Job: "bench", KeyGroups: 128, Nodes: []plan.Node{
		{Op: plan.Source, ID: "events"},
		{Op: plan.KeyBy, Inputs: []int{0}, Key: key.Schema()},
		{Op: plan.Count, ID: "count", Inputs: []int{1}, Key: key.Schema(), Value: value.Schema()}}}
	src := cycle[event]{recs, n}
	return control.Run(ctx, control.Config{Graph: graph, StateDir: filepath.Join(dir, "state"), Interval: 50 * time.Millisecond, Limits: l,
		Observe: func(e control.Event) {
			if c := e.Checkpoint; c != nil {
				*full += len(c.Full)
				*merges += c.Merged
			}
		},
		Build: func(context.Context, []control.Participant) (control.Flow, error) {
			r := data.NewRun(data.Config{Parallelism: 1, Groups: 128, BatchLen: data.MaxBatch, ReadLen: 256, Names: []string{"events", "key-by", "count"}})
			data.NewSource(r, data.SourceConfig[event]{Step: 0, ID: "events", Now: time.Now,
				Open: func(ctx context.Context, split string, at []byte) (data.Reader[event], error) {
					return src.Open(ctx, split, at)
				}}, []string{"0"}, func(t *data.Task) data.Out[event] {
				fold := data.NewFold(data.At{Task: t, Step: 2}, data.FoldConfig[string, event, int64, int64]{ID: "count", Key: key, Value: value,
					Count: true, Make: func(_ string, n int64) int64 { return n }}, data.Tee[int64]{})
				return data.NewLocal(t, 1, key, func(e event) string { return e.Ad }, fold, fold)
			})
			return r, nil
		}}, nil)
}

// restart starts a job with 1 M keys again and again, and stops it once its
// first epoch is committed.
func restart(ctx context.Context, pairs int) (res result, err error) {
	recs := make([]event, million)
	for i := range recs {
		recs[i] = event{Ad: fmt.Sprintf("ad-%09d", i)}
	}
	err = inTemp(func(dir string) error {
		once := func(records int) (time.Duration, weir.Started, error) {
			job := weir.NewJob("bench")
			job.From("events", cycle[event]{recs, 1 << 40}).KeyBy(func(e event) string { return e.Ad }).Count("count", weir.EachBarrier()).
				Filter(func(weir.Pair[string, int64]) bool { return false }).To("out", weir.Each(emit))
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			began := time.Now()
			var took time.Duration
			var start weir.Started
			err := job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.Interval(100*time.Millisecond), weir.Parallelism(1),
				weir.OnStart(func(s weir.Started) { start = s }),
				weir.OnCheckpoint(func(c weir.Checkpoint) {
					if took == 0 && c.Records >= int64(records) {
						took = time.Since(began)
						stop()
					}
				}))
			return took, start, err
		}
		if _, _, err := once(million); err != nil {
			return err
		}
		var took []float64
		var restored time.Duration
		for range pairs {
			d, s, err := once(0)
			if err != nil {
				return err
			}
			if s.Keys != million {
				return errors.New("the restart didn't find its keys")
			}
			took, restored = append(took, d.Seconds()), s.Took
		}
		res = result{median(took), fmt.Sprintf("the last one restored in %v; load %s", restored.Round(time.Millisecond), load())}
		return nil
	})
	return res, err
}
