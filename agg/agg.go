// Package agg has the aggregates that windows compute: a small accumulator per
// key and window, and the functions that work on it.
package agg

import (
	"fmt"
	"math"
)

// Aggregate says how records become one result. T is the record, A the
// accumulator that is kept per key and window and saved in checkpoints, R the
// result. A should be flat (numbers, arrays and structs of them): flat values
// are kept without a pointer and saved without an encoder.
//
// The methods are pure functions, and their results must not depend on the
// order of the records or on how they were grouped:
//
//   - Merge(a, Zero()) is a,
//   - Merge(a, b) is Merge(b, a), and Merge(Merge(a, b), c) is Merge(a, Merge(b, c)),
//   - Add(Merge(a, b), rec) is Merge(a, Add(b, rec)).
//
// Otherwise results depend on how the splits of a source interleave. They are
// called by several tasks at a time, each with accumulators of its own. A panic
// in one of them is handled like a panic in every user function: by default
// the job stops and says which step it was and, where one record caused it,
// which.
type Aggregate[T, A, R any] interface {
	Zero() A
	Add(acc A, rec T) A
	Merge(a, b A) A
	Result(acc A) R
}

// Of makes an Aggregate of four functions, which must keep its laws.
func Of[T, A, R any](zero A, add func(acc A, rec T) A, merge func(a, b A) A, result func(acc A) R) Aggregate[T, A, R] {
	return funcs[T, A, R]{zero, add, merge, result}
}

type funcs[T, A, R any] struct {
	zero   A
	add    func(A, T) A
	merge  func(a, b A) A
	result func(A) R
}

func (f funcs[T, A, R]) Zero() A            { return f.zero }
func (f funcs[T, A, R]) Add(acc A, rec T) A { return f.add(acc, rec) }
func (f funcs[T, A, R]) Merge(a, b A) A     { return f.merge(a, b) }
func (f funcs[T, A, R]) Result(acc A) R     { return f.result(acc) }

// Count counts records. A count never wraps around: where it would be more than
// the largest int64 it panics with a *CountError, which stops the job, or sends
// the record to the dead letters.
func Count[T any]() Aggregate[T, int64, int64] { return count[T]{} }

type count[T any] struct{}

func (count[T]) Zero() int64              { return 0 }
func (count[T]) Add(acc int64, _ T) int64 { return records(acc, 1) }
func (count[T]) Merge(a, b int64) int64   { return records(a, b) }
func (count[T]) Result(acc int64) int64   { return acc }

// records adds two numbers of records.
func records(a, b int64) int64 {
	n := a + b
	if n < a {
		panic(&CountError{a, b})
	}
	return n
}

// CountError is what an aggregate panics with that can't count its records any
// further: A and B of them, which are at least 0.
type CountError struct{ A, B int64 }

// Error says what the counts were.
func (e *CountError) Error() string {
	return fmt.Sprintf("agg: %d records and %d more are more than the largest int64, %d: the count isn't raised any further", e.A, e.B, int64(math.MaxInt64))
}

// Integer is what can be added up in any order with the same result.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Number is an integer or a floating-point number.
type Number interface {
	Integer | ~float32 | ~float64
}
