package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/internal/table"
)

const million = 1_000_000

func checkpointRows() []row {
	return []row{
		{name: "barrier-pause", unit: "ns/dirty key", bound: 12, what: "a task's pause at a barrier, warm, less 1 ms; 1 M dirty keys", run: pause},
		{name: "durable-1m-cpu", unit: "ms of CPU", bound: 150, what: "1 M dirty keys frozen, encoded, hashed, written and synced", run: durable},
		{name: "increment-bytes", unit: "%", bound: 2, what: "a checkpoint of 1 % dirty keys, against a full one", run: increment},
	}
}

// counting is a count of keys that the bench drives as control would: it feeds
// keys, asks for barriers, and writes what the task saved.
type counting struct {
	run     *data.Run
	feed    chan []string
	acked   chan data.Ack
	probed  chan int64
	failed  chan error
	epoch   int64
	blobs   sys.Blobs
	closing []func() error
}

// newCounting starts the counting task, with a store below dir.
func newCounting(ctx context.Context, dir string) (*counting, error) {
	files, err := sys.OpenFiles(filepath.Join(dir, "store"))
	if err != nil {
		return nil, err
	}
	c := &counting{feed: make(chan []string, 1), acked: make(chan data.Ack, 1), probed: make(chan int64, 1), failed: make(chan error, 1),
		blobs: sys.NewBlobs(files), closing: []func() error{files.Close}}
	key, err := table.KeyOf[string]()
	if err != nil {
		return nil, err
	}
	value, err := table.ValueOf[int64]()
	if err != nil {
		return nil, err
	}
	c.run = data.NewRun(data.Config{Parallelism: 1, Groups: 128, BatchLen: data.MaxBatch, ReadLen: 256, Names: []string{"keys", "key-by", "count"}})
	source := data.SourceConfig[string]{Step: 0, ID: "keys", Now: time.Now,
		Open: func(context.Context, string, []byte) (data.Reader[string], error) {
			return &fedReader{feed: c.feed, ready: make(chan struct{}, 1)}, nil
		}}
	data.NewSource(c.run, source, []string{"0"}, func(t *data.Task) data.Out[string] {
		fold := data.NewFold(data.At{Task: t, Step: 2}, data.FoldConfig[string, string, int64, int64]{ID: "count", Key: key, Value: value,
			Count: true, Make: func(_ string, n int64) int64 { return n }}, data.Tee[int64]{})
		return data.NewLocal(t, 1, key, func(k string) string { return k }, fold, fold)
	})
	if _, err := c.run.Open(ctx, nothing{}); err != nil {
		return nil, err
	}
	c.run.Start(c)
	return c, nil
}

func (c *counting) close() error {
	c.run.Stop()
	c.run.Wait()
	err := c.run.Close()
	for _, f := range c.closing {
		if e := f(); err == nil {
			err = e
		}
	}
	return err
}

// The calls of the task.
func (c *counting) Acked(a data.Ack) { c.acked <- a }
func (c *counting) Wants(bool)       {}
func (c *counting) Probed(n int64)   { c.probed <- n }
func (c *counting) Ended(string)     {}
func (c *counting) Rests(string)     {}
func (c *counting) Failed(err error) { c.failed <- err }

// count lets the task count keys, and returns when it has.
func (c *counting) count(keys []string) error {
	c.feed <- keys
	for {
		// A probe may overtake keys that the reader hasn't seen yet: the reader
		// takes them from the channel, so an empty one says that it has.
		last := len(c.feed) == 0
		c.epoch++
		c.run.Probe(c.epoch)
		select {
		case <-c.probed:
		case err := <-c.failed:
			return err
		}
		if last {
			return nil
		}
	}
}

// checkpoint lets the task save: what changed, or everything.
func (c *counting) checkpoint(all bool) (data.Ack, error) {
	c.epoch++
	c.run.Barrier(c.epoch, map[string]bool{"count": all})
	select {
	case a := <-c.acked:
		return a, nil
	case err := <-c.failed:
		return data.Ack{}, err
	}
}

// write makes what the task saved durable.
func (c *counting) write(a data.Ack) (log.Segment, error) {
	s, _, err := log.WriteSegment(c.blobs, log.SegmentName(1, a.Epoch, a.Task, "bench"), a.Parts)
	return s, err
}

// fedReader reads what it is fed.
type fedReader struct {
	feed  chan []string
	rest  []string
	ready chan struct{}
}

func (r *fedReader) Read(dst []string, limit int) ([]string, bool, error) {
	if len(r.rest) == 0 {
		select {
		case r.rest = <-r.feed:
		default:
			return dst, false, nil
		}
	}
	n := min(limit, len(r.rest))
	dst = append(dst, r.rest[:n]...)
	r.rest = r.rest[n:]
	return dst, false, nil
}

func (r *fedReader) Ready() <-chan struct{} { return r.ready }
func (r *fedReader) Position() []byte       { return nil }
func (r *fedReader) Close() error           { return nil }

// nothing is the checkpoint of a first start.
type nothing struct{}

func (nothing) Split(string, string) (data.SplitState, bool) { return data.SplitState{}, false }
func (nothing) Splits(string) []data.SplitState              { return nil }
func (nothing) Sections(string) ([]data.Section, error)      { return nil, nil }
func (nothing) Began(string) bool                            { return false }
func (nothing) Clocks(string) []data.Clock                   { return nil }

// withKeys runs f with a task that counts, warm: 1 M keys have been counted and
// saved three times, so that nothing is touched for the first time.
func withKeys(ctx context.Context, f func(c *counting, keys []string) error) error {
	return inTemp(func(dir string) error {
		c, err := newCounting(ctx, dir)
		if err != nil {
			return err
		}
		keys := make([]string, million)
		for i := range keys {
			keys[i] = fmt.Sprintf("ad-%09d", i)
		}
		rng := rand.New(rand.NewPCG(3, 4))
		rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for range 3 {
			if _, err := c.epochOf(keys, false); err != nil {
				return errors.Join(err, c.close())
			}
		}
		return errors.Join(f(c, keys), c.close())
	})
}

// saved is one checkpoint.
type saved struct {
	ack data.Ack
	lap lap // from the barrier until it is durable
	seg log.Segment
}

func (c *counting) epochOf(keys []string, all bool) (saved, error) {
	var s saved
	if err := c.count(keys); err != nil {
		return s, err
	}
	var err error
	s.lap, err = timed(func() (err error) {
		if s.ack, err = c.checkpoint(all); err != nil {
			return err
		}
		s.seg, err = c.write(s.ack)
		return err
	})
	if err != nil {
		return s, err
	}
	return s, c.blobs.Delete(s.seg.Name)
}

// epochs saves all keys n times.
func epochs(ctx context.Context, n int) (all []saved, err error) {
	err = withKeys(ctx, func(c *counting, keys []string) error {
		for range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := c.epochOf(keys, false)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		return nil
	})
	return all, err
}

func of(all []saved, f func(saved) float64) float64 {
	var x []float64
	for _, s := range all {
		x = append(x, f(s))
	}
	return median(x)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func pause(ctx context.Context, pairs int) (result, error) {
	all, err := epochs(ctx, pairs)
	if err != nil {
		return result{}, err
	}
	p := of(all, func(s saved) float64 { return float64(s.ack.Pause) })
	return result{value: max(0, p-float64(time.Millisecond)) / million,
		note: fmt.Sprintf("wall time, median pause %.2f ms; load %s", p/float64(time.Millisecond), load())}, nil
}

func durable(ctx context.Context, pairs int) (result, error) {
	all, err := epochs(ctx, pairs)
	if err != nil {
		return result{}, err
	}
	return result{value: of(all, func(s saved) float64 { return ms(s.lap.cpu) }),
		note: fmt.Sprintf("wall %.0f ms, %d bytes; load %s", of(all, func(s saved) float64 { return ms(s.lap.wall) }), all[0].seg.Size, load())}, nil
}

func increment(ctx context.Context, _ int) (result, error) {
	var value float64
	var note string
	err := withKeys(ctx, func(c *counting, keys []string) error {
		full, err := c.epochOf(nil, true)
		if err != nil {
			return err
		}
		some, err := c.epochOf(keys[:million/100], false)
		if err != nil {
			return err
		}
		value = 100 * float64(some.seg.Size) / float64(full.seg.Size)
		note = fmt.Sprintf("%d of %d bytes", some.seg.Size, full.seg.Size)
		return nil
	})
	return result{value, note}, err
}
