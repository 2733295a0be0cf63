package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// Fold keeps an accumulator of any exported type a key. Structs of numbers are
// the cheapest.
func ExampleKeyed_Fold() {
	type Sale struct {
		Shop  string
		Cents int64
	}
	type Turnover struct{ Sales, Cents, Largest int64 }
	job := weir.NewJob("turnover")
	job.From("sales", weir.Slice(Sale{"north", 250}, Sale{"north", 1200}, Sale{"south", 80})).
		KeyBy(func(s Sale) string { return s.Shop }).
		Fold("turnover", Turnover{}, func(t Turnover, s Sale) Turnover {
			return Turnover{t.Sales + 1, t.Cents + s.Cents, max(t.Largest, s.Cents)}
		}, weir.EachBarrier()).
		To("out", weir.Stdout[weir.Pair[string, Turnover]]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// {Key:north Value:{Sales:2 Cents:1450 Largest:1200}}
	// {Key:south Value:{Sales:1 Cents:80 Largest:80}}
}
