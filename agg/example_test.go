package agg_test

import (
	"fmt"

	"github.com/weirstream/weir/agg"
)

type request struct {
	path  string
	ms    int
	bytes int64
}

var requests = []request{{"/", 12, 2048}, {"/a", 7, 512}, {"/b", 31, 4096}}

// compute is what a window does with an aggregate: one accumulator a key and
// window, and a result of it.
func compute[T, A, R any](a agg.Aggregate[T, A, R], recs []T) R {
	acc := a.Zero()
	for _, r := range recs {
		acc = a.Add(acc, r)
	}
	return a.Result(acc)
}

func ExampleCount() {
	fmt.Println(compute(agg.Count[request](), requests))
	// Output: 3
}

func ExampleSum() {
	fmt.Println(compute(agg.Sum(func(r request) int64 { return r.bytes }), requests))
	// Output: 6656
}

func ExampleMean() {
	fmt.Printf("%.2f ms\n", compute(agg.Mean(func(r request) int { return r.ms }), requests))
	// Output: 16.67 ms
}

func ExampleMin() {
	fmt.Println(compute(agg.Min(func(r request) int { return r.ms }), requests))
	// Output: 7
}

func ExampleMax() {
	fmt.Println(compute(agg.Max(func(r request) int { return r.ms }), requests))
	// Output: 31
}

// A histogram of three buckets: at most 10 ms, at most 20 ms, slower. An array
// is flat, so the state needs no pointer.
func ExampleOf() {
	type buckets [3]int64
	histogram := agg.Of(buckets{},
		func(b buckets, r request) buckets {
			switch {
			case r.ms <= 10:
				b[0]++
			case r.ms <= 20:
				b[1]++
			default:
				b[2]++
			}
			return b
		},
		func(a, b buckets) buckets {
			for i := range a {
				a[i] += b[i]
			}
			return a
		},
		func(b buckets) string { return fmt.Sprint(b[0], " fast, ", b[1], " middling, ", b[2], " slow") })
	fmt.Println(compute(histogram, requests))
	// Output: 1 fast, 1 middling, 1 slow
}
