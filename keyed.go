package weir

import (
	"time"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// Keyed is a stream partitioned by a key: every record of a key comes to the
// same task, in its split's order.
type Keyed[K comparable, T any] struct {
	s    *Stream[T]
	node int
	key  func(T) K
	kind table.Key
}

// Pair is a key with the value computed for it.
type Pair[K comparable, V any] struct {
	Key   K
	Value V
}

// stateful adds a keyed step. mk makes it in a task, once a task: behind its
// keyer in the same task, where exactly one task feeds it, or as the head of a
// stage of its own. Fused behind several tasks each would count for itself.
func stateful[K comparable, T, R any](k *Keyed[K, T], node plan.Node,
	mk func(b *build, at data.At, next data.Out[R]) (data.Op[K, T], data.Marker)) *Stream[R] {
	j := k.s.job
	node.Inputs, node.Key = []int{k.node}, k.kind.Schema()
	next := &Stream[R]{job: j, node: j.add(node)}
	memo := new(byte)
	k.s.outs = append(k.s.outs, func(b *build, t *data.Task) data.Out[T] {
		instance := func(t *data.Task) (data.Op[K, T], data.Marker) {
			return mk(b, data.At{Task: t, Step: int32(next.node)}, next.lower(b, t))
		}
		if b.fused(next.node) {
			op, head := instance(t)
			return data.NewLocal(t, k.node, k.kind, k.key, op, head)
		}
		stage, ok := b.run.Stages[memo].(*data.Stage[K, T])
		if !ok {
			stage = data.NewStage(b.run, node.ID, instance)
			b.run.Stages[memo] = stage
		}
		return data.NewKeyer(t, k.node, k.kind, k.key, stage)
	})
	return next
}

// Fold keeps one accumulator a key, which starts as zero, and emits it.
//
// The accumulator is saved in checkpoints: it may be any type of exported data,
// numbers and structs of numbers being by far the cheapest. One with a map, a
// slice or a pointer is emitted as it is, so add must return a changed copy, or
// the next step must read what it needs at once, in the same task. A result has the
// event time of the record that caused it or, emitted at a barrier, the time of
// the watermark.
func (k *Keyed[K, T]) Fold[A any](id string, zero A, add func(acc A, rec T) A, opts ...EmitOption) *Stream[Pair[K, A]] {
	k.s.job.need(id, "function", add == nil)
	c := data.FoldConfig[K, T, A, Pair[K, A]]{Add: add, Make: pair[K, A]}
	return fold(k, id, plan.Fold, c, zero, opts)
}

// Reduce combines the records of each key, the first one being the start, and
// emits the combined record.
func (k *Keyed[K, T]) Reduce(id string, combine func(acc, rec T) T, opts ...EmitOption) *Stream[T] {
	var zero T
	k.s.job.need(id, "function", combine == nil)
	c := data.FoldConfig[K, T, T, T]{Add: combine, First: func(rec T) T { return rec }, Make: func(_ K, acc T) T { return acc }}
	return fold(k, id, plan.Reduce, c, zero, opts)
}

// Count counts the records of each key and emits the count.
func (k *Keyed[K, T]) Count(id string, opts ...EmitOption) *Stream[Pair[K, int64]] {
	c := data.FoldConfig[K, T, int64, Pair[K, int64]]{Count: true, Make: pair[K, int64]}
	return fold(k, id, plan.Count, c, 0, opts)
}

func pair[K comparable, A any](key K, acc A) Pair[K, A] { return Pair[K, A]{key, acc} }

func fold[K comparable, T, A, R any](k *Keyed[K, T], id string, op plan.Op,
	c data.FoldConfig[K, T, A, R], zero A, opts []EmitOption) *Stream[R] {
	var conf emitConfig
	for _, o := range opts {
		o.emit(&conf)
	}
	value, err := table.ValueOf[A]()
	if err != nil {
		k.s.job.fail(id, err)
	}
	c.ID, c.Key, c.Value, c.Barrier = id, k.kind, value, conf.barrier
	c.Zero = table.Zeros(value, zero)
	node := plan.Node{Op: op, ID: id, Value: value.Schema(), Emit: emitWord(conf.barrier)}
	return stateful(k, node, func(_ *build, at data.At, next data.Out[R]) (data.Op[K, T], data.Marker) {
		f := data.NewFold(at, c, next)
		return f, f
	})
}

func emitWord(barrier bool) string {
	if barrier {
		return "barrier"
	}
	return "record"
}

// Deduplicated is the output of a Distinct: the stream of the records that
// passed, and two side outputs.
type Deduplicated[T any] struct {
	*Stream[T]
	late, repeats *Stream[T] // nil: not asked for
}

// Late returns the records that came too late to be told from a repeat. They
// are counted in any case. It must be called before the job is run, and so must
// Repeats.
func (d *Deduplicated[T]) Late() *Stream[T] {
	if d.late == nil {
		d.late = side[T](d.Stream, "late")
	}
	return d.late
}

// Repeats returns the records that repeat one that passed.
func (d *Deduplicated[T]) Repeats() *Stream[T] {
	if d.repeats == nil {
		d.repeats = side[T](d.Stream, "repeats")
	}
	return d.repeats
}

// Distinct passes a record unless one with the same key, less than ttl away in
// event time, was passed before. Two event times decide that, never the clock.
// A key is remembered until no record that could repeat it is admitted any more;
// a record that isn't admitted is late: see [Admit].
func (k *Keyed[K, T]) Distinct(id string, ttl time.Duration, opts ...DistinctOption) *Deduplicated[T] {
	var conf distinctConfig
	for _, o := range opts {
		o.distinct(&conf)
	}
	value, err := table.ValueOf[int64]()
	if err == nil {
		_, err = table.ValueOf[[]int64]()
	}
	if err != nil {
		k.s.job.fail(id, err)
	}
	older, _ := table.ValueOf[[]int64]()
	d := &Deduplicated[T]{}
	d.Stream = stateful(k, plan.Node{Op: plan.Distinct, ID: id, Value: value.Schema(), TTL: ttl, Admit: conf.admit},
		func(b *build, at data.At, next data.Out[T]) (data.Op[K, T], data.Marker) {
			c := data.DistinctConfig[K, T]{ID: id, Key: k.kind, Value: value, Older: older,
				TTL: int64(ttl), Admit: int64(b.admit(d.node))}
			c.Late = late(b, d.late, at)
			if d.repeats != nil {
				c.Repeat = d.repeats.lower(b, at.Task)
			}
			op := data.NewDistinct(at, c, next)
			return op, op
		})
	return d
}
