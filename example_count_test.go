package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// KeyBy partitions a stream, and Count keeps one number a key. By default every
// update is emitted.
func ExampleKeyed_Count() {
	job := weir.NewJob("counted")
	job.From("fruit", weir.Slice("apple", "pear", "apple")).
		KeyBy(func(s string) string { return s }).
		Count("per-fruit").
		To("out", weir.Stdout[weir.Pair[string, int64]]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// {Key:apple Value:1}
	// {Key:pear Value:1}
	// {Key:apple Value:2}
}

// EachBarrier emits what changed, once an epoch: here the last state, because
// the input ends before the first checkpoint by time.
func ExampleEachBarrier() {
	job := weir.NewJob("changed")
	job.From("fruit", weir.Slice("apple", "pear", "apple")).
		KeyBy(func(s string) string { return s }).
		Count("per-fruit", weir.EachBarrier()).
		To("out", weir.Stdout[weir.Pair[string, int64]]())
	if err := job.Run(context.Background(), weir.Interval(0)); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// {Key:apple Value:2}
	// {Key:pear Value:1}
}
