package weir_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirstream/weir"
)

// FlatMap emits any number of records for one.
func ExampleStream_FlatMap() {
	job := weir.NewJob("words")
	job.From("lines", weir.Slice("to be", "", "or not")).
		FlatMap(func(line string, emit func(string)) {
			for _, word := range strings.Fields(line) {
				emit(word)
			}
		}).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// to
	// be
	// or
	// not
}
