package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// Split sends each record one of two ways: what doesn't fit goes to a side
// output instead of stopping the job.
func ExampleStream_Split() {
	job := weir.NewJob("sorted")
	good, bad := job.From("readings", weir.Slice(21, -400, 19)).
		Split(func(celsius int) bool { return celsius > -273 })
	good.Map(func(c int) string { return fmt.Sprint(c, " degrees") }).To("good", weir.Stdout[string]())
	bad.Map(func(c int) string { return fmt.Sprint(c, " can't be") }).To("bad", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// 21 degrees
	// 19 degrees
	// -400 can't be
}
