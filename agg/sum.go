package agg

import (
	"fmt"
	"math"
	"math/bits"
)

// Total is the exact sum of N integers: the signed 128-bit number Hi * 2^64 + Lo.
// It can't overflow, so no order of the records fails where another doesn't.
type Total struct {
	Hi int64
	Lo uint64
	N  int64
}

// Sum adds up what of returns for each record. The sum itself is exact; where
// it doesn't fit into an int64 when a result is due, Result panics with an
// *OverflowError, which is handled like a panic in a user function: a sum never
// wraps around in silence. The job stops; where each record has its result and
// there is a sink for dead letters, the record goes there.
//
// There is no sum of floating-point numbers, because rounding makes it depend
// on the order in which they are added. Scale them to an integer in of: cents,
// microseconds, millionths.
func Sum[T any, N Integer](of func(T) N) Aggregate[T, Total, int64] { return sum[T, N]{of} }

type sum[T any, N Integer] struct{ of func(T) N }

func (sum[T, N]) Zero() Total                  { return Total{} }
func (s sum[T, N]) Add(acc Total, rec T) Total { return add(acc, s.of(rec)) }
func (sum[T, N]) Merge(a, b Total) Total       { return merge(a, b) }

func (sum[T, N]) Result(acc Total) int64 {
	if acc.Hi != int64(acc.Lo)>>63 { // it isn't just the sign
		panic(&OverflowError{acc})
	}
	return int64(acc.Lo)
}

// OverflowError is what Sum panics with.
type OverflowError struct{ Total Total }

// Error says what the sum was, about, and what to do.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("agg.Sum: the sum of %d records is about %.4g and doesn't fit into an int64 (at most %d): sum in a larger unit",
		e.Total.N, e.Total.float(), int64(math.MaxInt64))
}

// Mean is the arithmetic mean of what of returns for each record: the exact sum
// divided by the number of records, rounded to a float64. For fractions scale
// to an integer in of and back behind the window, as with Sum. The mean of no
// records is NaN; a window has at least one.
func Mean[T any, N Integer](of func(T) N) Aggregate[T, Total, float64] { return mean[T, N]{of} }

type mean[T any, N Integer] struct{ of func(T) N }

func (mean[T, N]) Zero() Total                  { return Total{} }
func (m mean[T, N]) Add(acc Total, rec T) Total { return add(acc, m.of(rec)) }
func (mean[T, N]) Merge(a, b Total) Total       { return merge(a, b) }
func (mean[T, N]) Result(acc Total) float64     { return acc.float() / float64(acc.N) }

func add[N Integer](acc Total, n N) Total {
	lo, carry := bits.Add64(acc.Lo, uint64(n), 0)
	hi := acc.Hi + int64(carry)
	if n < 0 { // uint64(n) is n + 2^64
		hi--
	}
	return Total{hi, lo, records(acc.N, 1)}
}

func merge(a, b Total) Total {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	return Total{a.Hi + b.Hi + int64(carry), lo, records(a.N, b.N)}
}

// float rounds the sum: once where it fits into an int64, and otherwise with an
// error of at most two units in the last place.
func (t Total) float() float64 {
	if t.Hi == int64(t.Lo)>>63 {
		return float64(int64(t.Lo))
	}
	hi, lo, sign := uint64(t.Hi), t.Lo, 1.0
	if t.Hi < 0 { // of the magnitude, as parts of unlike sign would cancel
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
		sign = -1
	}
	return sign * (float64(hi)*(1<<64) + float64(lo))
}
