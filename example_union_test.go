package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// Union merges streams. How two sources interleave is a matter of timing.
func ExampleStream_Union() {
	job := weir.NewJob("merged")
	web := job.From("web", weir.Slice("home", "cart"))
	app := job.From("app", weir.Slice("home", "help"))
	web.Union(app).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// home
	// cart
	// home
	// help
}
