package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weirstream/weir"
)

type event struct {
	ID    string
	Ad    string
	At    int64
	Price int64
	Kind  int64
}

type click struct {
	Ad    string
	At    int64
	Price int64
}

// The user functions, of engine and bare loop alike. They are variables so
// that neither side inlines them.
var (
	toClick = func(e event) click { return click{e.Ad, e.At, e.Price * 2} }
	paid    = func(c click) bool { return c.Price%10 != 0 }
	adOf    = func(c click) string { return c.Ad }
	emit    = func(p weir.Pair[string, int64]) error {
		if p.Value < 1 {
			return errNegative
		}
		return nil
	}
	errNegative = errors.New("a count is less than 1")
)

const (
	pregenerated = 1 << 20 // records, which a source gives again and again
	hot          = 1_000   // keys
	cold         = 100_000
)

// events makes the pregenerated records with so many keys. Each record has a
// string of its own, as what a decoder returns has. Or equal keys share one:
// then a Go map finds them equal without a look at their bytes.
func events(keys int, share bool) []event {
	rng := rand.New(rand.NewPCG(1, 2))
	ads := make([]string, keys)
	for i := range ads {
		ads[i] = fmt.Sprintf("ad-%09d", i)
	}
	out := make([]event, pregenerated)
	for i := range out {
		ad := ads[rng.IntN(keys)]
		if !share {
			ad = strings.Clone(ad)
		}
		out[i] = event{ID: "id", Ad: ad, At: int64(i) * 1000, Price: rng.Int64N(1000), Kind: 1}
	}
	return out
}

// cycle is a source of one split: n records, recs again and again.
type cycle[T any] struct {
	recs []T
	n    int
}

func (c cycle[T]) Splits(context.Context) ([]string, error) { return []string{"0"}, nil }

func (c cycle[T]) Open(_ context.Context, _ string, at []byte) (weir.Reader[T], error) {
	r := &cycleReader[T]{c: c}
	if at != nil {
		r.pos = int(binary.BigEndian.Uint64(at))
	}
	return r, nil
}

type cycleReader[T any] struct {
	c   cycle[T]
	pos int
}

func (r *cycleReader[T]) Ready() <-chan struct{} { return nil }
func (r *cycleReader[T]) Close() error           { return nil }
func (r *cycleReader[T]) Position() []byte       { return binary.BigEndian.AppendUint64(nil, uint64(r.pos)) }

func (r *cycleReader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	if r.pos >= r.c.n {
		return dst, true, nil
	}
	i := r.pos % len(r.c.recs)
	n := min(limit, len(r.c.recs)-i, r.c.n-r.pos)
	r.pos += n
	return append(dst, r.c.recs[i:i+n]...), r.pos == r.c.n, nil
}

// bare is the loop by hand: a Go map.
func bare(recs []event, n int) error {
	counts := map[string]int64{}
	for done := 0; done < n; done += len(recs) {
		for i := range recs[:min(len(recs), n-done)] {
			c := toClick(recs[i])
			if !paid(c) {
				continue
			}
			key := adOf(c)
			count := counts[key] + 1
			counts[key] = count
			if err := emit(weir.Pair[string, int64]{Key: key, Value: count}); err != nil {
				return err
			}
		}
	}
	return nil
}

// engine runs the same as a job with so many counting tasks; none: counting is
// fused with the source's task. One source task reads.
func engine(ctx context.Context, recs []event, n, receivers int) error {
	job := weir.NewJob("bench")
	in := job.From("events", cycle[event]{recs, n}).Map(toClick).Filter(paid)
	if receivers == 1 {
		// A second source makes a single counting task one with two feeders,
		// and so not fused. It has nothing and ends at once.
		in = in.Union(job.From("nothing", cycle[click]{}))
	}
	in.KeyBy(adOf).Count("count").To("out", weir.Each(emit))
	return job.Run(ctx, weir.Interval(0), weir.Parallelism(max(1, receivers)))
}

func recordRows() []row {
	return []row{
		overhead("overhead-1k-keys", hot, 20, "source, map, filter, keyBy, count, sink in one task, over a Go-map loop"),
		overhead("overhead-100k-keys", cold, 0, "the same with cold keys: faster than the Go-map loop"),
		exchange("exchange-1", hot, 1, 15, "a keyed exchange to one task, over no exchange"),
		exchange("exchange-2", hot, 2, 25, "a keyed exchange to two tasks"),
		exchange("exchange-cold", cold, 2, 40, "a keyed exchange of cold keys to two tasks"),
		{name: "allocs-per-record", unit: "allocations", bound: 0.0005, what: "allocations a record in engine code", run: allocations},
	}
}

const recordRun = 4 * pregenerated // records a run

func overhead(name string, keys int, bound float64, what string) row {
	return row{name: name, unit: "ns/record", bound: bound, what: what, run: func(ctx context.Context, pairs int) (result, error) {
		var out [2]result
		for i, share := range []bool{false, true} {
			recs := events(keys, share)
			as, bs, err := pairsOf(ctx, pairs,
				func() error { return bare(recs, recordRun) },
				func() error { return engine(ctx, recs, recordRun, 0) })
			if err != nil {
				return result{}, err
			}
			out[i] = extra(as, bs, recordRun, "loop", "engine")
		}
		out[0].note += fmt.Sprintf("; %.1f where records of a key share its string", out[1].value)
		return out[0], nil
	}}
}

func exchange(name string, keys, receivers int, bound float64, what string) row {
	return row{name: name, unit: "ns/record", bound: bound, what: what, run: func(ctx context.Context, pairs int) (result, error) {
		recs := events(keys, false)
		as, bs, err := pairsOf(ctx, pairs,
			func() error { return engine(ctx, recs, recordRun, 0) },
			func() error { return engine(ctx, recs, recordRun, receivers) })
		if err != nil {
			return result{}, err
		}
		return extra(as, bs, recordRun, "fused", "exchanged"), nil
	}}
}

// allocations compares a run with one of twice the records: what a start and an
// end allocate is in both.
func allocations(ctx context.Context, pairs int) (result, error) {
	recs := events(hot, false)
	most := 0.0
	note := ""
	for _, receivers := range []int{0, 1, 2} {
		as, bs, err := pairsOf(ctx, pairs,
			func() error { return engine(ctx, recs, pregenerated, receivers) },
			func() error { return engine(ctx, recs, 2*pregenerated, receivers) })
		if err != nil {
			return result{}, err
		}
		v := median(each(as, bs, func(a, b lap) float64 { return (float64(b.mallocs) - float64(a.mallocs)) / pregenerated }))
		note += fmt.Sprintf("%d receivers %.6f; ", receivers, v)
		most = max(most, v)
	}
	return result{value: most, note: note + "0 receivers: fused"}, nil
}
