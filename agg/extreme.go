package agg

import "cmp"

// Extreme is the smallest or largest of N numbers. Value is 0 where N is 0.
type Extreme[V Number] struct {
	Value V
	N     int64
}

// Min is the smallest of what of returns for each record. Of floating-point
// numbers, NaN counts as smaller than all others; -0 becomes 0. The result is
// 0 where there was no record; a window has at least one.
func Min[T any, V Number](of func(T) V) Aggregate[T, Extreme[V], V] { return least[T, V]{of} }

type least[T any, V Number] struct{ of func(T) V }

func (least[T, V]) Zero() Extreme[V] { return Extreme[V]{} }
func (m least[T, V]) Add(acc Extreme[V], rec T) Extreme[V] {
	return smaller(acc, one(m.of(rec)))
}
func (least[T, V]) Merge(a, b Extreme[V]) Extreme[V] { return smaller(a, b) }
func (least[T, V]) Result(acc Extreme[V]) V          { return acc.Value }

// Max is the largest of what of returns for each record, with NaN, -0 and no
// record as for Min.
func Max[T any, V Number](of func(T) V) Aggregate[T, Extreme[V], V] { return most[T, V]{of} }

type most[T any, V Number] struct{ of func(T) V }

func (most[T, V]) Zero() Extreme[V] { return Extreme[V]{} }
func (m most[T, V]) Add(acc Extreme[V], rec T) Extreme[V] {
	return larger(acc, one(m.of(rec)))
}
func (most[T, V]) Merge(a, b Extreme[V]) Extreme[V] { return larger(a, b) }
func (most[T, V]) Result(acc Extreme[V]) V          { return acc.Value }

// one is the extreme of a single number. Adding 0 turns -0 into 0: as the two
// compare equal, which of them remained would otherwise depend on the order.
func one[V Number](v V) Extreme[V] { return Extreme[V]{v + 0, 1} }

func smaller[V Number](a, b Extreme[V]) Extreme[V] {
	n := records(a.N, b.N)
	if a.N == 0 || b.N > 0 && cmp.Less(b.Value, a.Value) {
		return Extreme[V]{b.Value, n}
	}
	return Extreme[V]{a.Value, n}
}

func larger[V Number](a, b Extreme[V]) Extreme[V] {
	n := records(a.N, b.N)
	if a.N == 0 || b.N > 0 && cmp.Less(a.Value, b.Value) {
		return Extreme[V]{b.Value, n}
	}
	return Extreme[V]{a.Value, n}
}
