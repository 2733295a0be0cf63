package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// A generator is a source of made-up records, with positions: after a crash it
// makes those since the last checkpoint again.
func ExampleGenerate() {
	job := weir.NewJob("generated")
	job.From("odd", weir.Generate(4, func(i int64) int64 { return 2*i + 1 })).
		To("out", weir.Stdout[int64]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1
	// 3
	// 5
	// 7
}
