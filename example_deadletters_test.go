package weir_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir"
)

// A record that a step rejects goes to the dead letters, and the others go on. What
// a TryFlatMap had emitted for it doesn't.
func ExampleJob_DeadLetters() {
	job := weir.NewJob("numbers")
	job.From("lines", weir.Slice("1 2", "3 x", "4")).
		TryFlatMap(func(line string, emit func(int)) error {
			for _, word := range strings.Fields(line) {
				n, err := strconv.Atoi(word)
				if err != nil {
					return fmt.Errorf("%q isn't a number", word)
				}
				emit(n)
			}
			return nil
		}).
		To("out", weir.Stdout[int]())
	job.DeadLetters("dead", weir.Each(func(d weir.DeadLetter) error {
		fmt.Printf("record %d: %s\n", d.Mark, d.Reason)
		return nil
	}))
	if err := job.Run(context.Background(), weir.Parallelism(1)); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// 1
	// 2
	// 4
	// record 1: "x" isn't a number
}
