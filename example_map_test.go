package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// Map turns a record into another, Filter keeps some.
func ExampleStream_Map() {
	job := weir.NewJob("squares")
	job.From("numbers", weir.Slice(1, 2, 3, 4)).
		Filter(func(n int) bool { return n%2 == 0 }).
		Map(func(n int) string { return fmt.Sprint(n, " squared is ", n*n) }).
		To("out", weir.Stdout[string]())
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 squared is 4
	// 4 squared is 16
}
