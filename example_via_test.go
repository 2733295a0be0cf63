package weir_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirstream/weir"
)

// words is a piece of pipeline that several jobs can share.
func words(lines *weir.Stream[string]) *weir.Stream[string] {
	return lines.FlatMap(func(line string, emit func(string)) {
		for _, word := range strings.Fields(line) {
			emit(word)
		}
	}).Map(strings.ToLower)
}

// Via applies a function of streams, so that the pipeline still reads from top
// to bottom.
func ExampleStream_Via() {
	job := weir.NewJob("shared")
	job.From("lines", weir.Slice("To be", "OR not")).
		Via(words).
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
