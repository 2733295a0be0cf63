package weir

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
	"github.com/weirstream/weir/window"
)

// Windowed is a keyed stream cut into windows of event time. Exactly one of
// Count, Reduce and Aggregate follows it.
type Windowed[K comparable, T any] struct {
	k    *Keyed[K, T]
	w    window.Window
	late *Stream[T] // nil: not asked for
	used bool
}

// Result is the value of one key in one window.
type Result[K comparable, V any] struct {
	Key   K
	Start time.Time // of the window, UTC
	End   time.Time // the first instant after it
	Value V
}

// Window cuts the stream into windows. How late a record may be, and when
// results are emitted, are options of the window.
//
// A record is late when the watermark of its own split, as it stood when the
// record was read, was at or past the window's end plus its lateness. Other
// splits have no say in it, and so the same input gives the same result however
// splits interleave. Late records are counted and dropped, or see Late.
//
// The event time of a result is the last nanosecond of its window, so that
// windows behind windows line up. A result that a record caused at once is as
// late as that record; one that a watermark or a barrier caused never is.
func (k *Keyed[K, T]) Window(w window.Window) *Windowed[K, T] {
	return &Windowed[K, T]{k: k, w: w}
}

// Late returns the records that were late for their window. It must be called
// before the job is run.
func (w *Windowed[K, T]) Late() *Stream[T] {
	if w.late == nil {
		j := w.k.s.job
		w.late = &Stream[T]{job: j, node: j.add(plan.Node{Op: plan.Split, Inputs: []int{w.k.node}, Side: "late"})}
	}
	return w.late
}

// Count counts the records of each key and window.
func (w *Windowed[K, T]) Count(id string) *Stream[Result[K, int64]] {
	c := data.WindowConfig[K, T, int64, Result[K, int64]]{Count: true}
	c.Make = makeResult[K](w, func(n int64) int64 { return n })
	return windowed(w, id, "count", c, 0)
}

// Reduce combines the records of each key and window, the first one being the
// start. result makes what is emitted: a method can't name a Result of T.
func (w *Windowed[K, T]) Reduce[R any](id string, combine func(acc, rec T) T, result func(key K, span window.Span, acc T) R) *Stream[R] {
	var zero T
	w.k.s.job.need(id, "function", combine == nil || result == nil)
	c := data.WindowConfig[K, T, T, R]{Add: combine, First: func(rec T) T { return rec }}
	c.Make = func(key K, start int64, acc T) R { return result(key, w.w.Span(start), acc) }
	return windowed(w, id, "reduce", c, zero)
}

// Aggregate folds the records of each key and window. The accumulator's type is
// what is saved in checkpoints.
func (w *Windowed[K, T]) Aggregate[A, R any](id string, a agg.Aggregate[T, A, R]) *Stream[Result[K, R]] {
	if w.k.s.job.need(id, "aggregate", a == nil) {
		var zero A
		return windowed(w, id, "aggregate", data.WindowConfig[K, T, A, Result[K, R]]{}, zero)
	}
	c := data.WindowConfig[K, T, A, Result[K, R]]{Add: a.Add}
	c.Make = makeResult[K](w, a.Result)
	s := windowed(w, id, "aggregate", c, a.Zero())
	j := w.k.s.job
	j.graph.Nodes[s.node].Aggregator = aggregator(a)
	return s
}

// aggregator names an aggregate of package agg. The accumulators of some look
// alike and mean another thing. The user's own aren't told apart.
func aggregator(a any) string {
	t := reflect.TypeOf(a)
	if t.PkgPath() != reflect.TypeFor[agg.Total]().PkgPath() {
		return ""
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	switch name {
	case "count", "sum", "mean":
		return name
	case "least":
		return "min"
	case "most":
		return "max"
	}
	return ""
}

func makeResult[K comparable, T, A, V any](w *Windowed[K, T], result func(A) V) func(K, int64, A) Result[K, V] {
	return func(key K, start int64, acc A) Result[K, V] {
		return Result[K, V]{key, nanos(start), nanos(w.w.End(start)), result(acc)}
	}
}

func windowed[K comparable, T, A, R any](w *Windowed[K, T], id, aggregate string,
	c data.WindowConfig[K, T, A, R], zero A) *Stream[R] {
	j := w.k.s.job
	if w.used {
		j.fail(id, errors.New("its windows are counted already by another step: call Window again for a second one"))
	}
	w.used = true
	value, err := table.ValueOf[A]()
	if err != nil {
		j.fail(id, err)
	}
	c.ID, c.Key, c.Value, c.Size, c.Start, c.Lateness = id, w.k.kind, value, int64(w.w.Size()), w.w.Start, int64(w.w.Lateness())
	c.Zero = table.Zeros(value, zero)
	switch w.w.Emission() {
	case window.EachRecord:
		c.Emit = data.EachRecord
	case window.EachBarrier:
		c.Emit = data.EachBarrier
	default:
		c.Emit = data.OnClose
	}
	return stateful(w.k, plan.Node{Op: plan.Window, ID: id, Value: value.Schema(), Aggregate: aggregate, Size: w.w.Size(), Offset: w.w.Offset(),
		Lateness: w.w.Lateness(), Emit: w.w.Emission().String()},
		func(b *build, at data.At, next data.Out[R]) (data.Op[K, T], data.Marker) {
			conf := c
			conf.Late = late(b, w.late, at)
			op := data.NewWindow(at, conf, next)
			return op, op
		})
}
