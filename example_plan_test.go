package weir_test

import (
	"context"
	"fmt"
	"os"

	"github.com/weirstream/weir"
)

// A job runs, its step gets another id, and Plan says what that would do: first
// without and then with an alias.
func ExampleJob_Plan() {
	dir, err := os.MkdirTemp("", "plan")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	declare := func(id string) *weir.Job {
		job := weir.NewJob("words")
		job.From("words", weir.Slice("to", "be", "or", "not", "to", "be")).
			KeyBy(func(w string) string { return w }).
			Count(id).
			To("out", weir.Each(func(weir.Pair[string, int64]) error { return nil }))
		return job
	}
	ctx, state := context.Background(), weir.StateDir(dir)
	if err := declare("count").Run(ctx, state); err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range []*weir.Job{declare("total"), declare("total").Renamed("count", "total")} {
		plan, err := job.Plan(ctx, state)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, c := range plan.Changes {
			if !c.Same() {
				fmt.Println(c.Op, c.ID, c.Fate)
			}
		}
		fmt.Println("a run would be refused:", plan.Err() != nil)
	}
	// Output:
	// count total new
	// count count refused
	// a run would be refused: true
	// count total renamed
	// a run would be refused: false
}
