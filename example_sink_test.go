package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// A function is a sink, at least once: so it sets, and doesn't add.
func ExampleEach() {
	balance := map[string]int64{}
	job := weir.NewJob("balances")
	job.From("payments", weir.Slice(5, 7, -2)).
		KeyBy(func(int) string { return "account" }).
		Fold("balance", int64(0), func(sum int64, n int) int64 { return sum + int64(n) }).
		To("out", weir.Each(func(p weir.Pair[string, int64]) error {
			balance[p.Key] = p.Value // one key, so one task calls this
			return nil
		}))
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(balance)
	// Output:
	// map[account:10]
}
