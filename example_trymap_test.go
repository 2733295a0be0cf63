package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirstream/weir"
)

// A function that can fail goes into TryMap. The error stops the job and names
// the record; the next start goes on from the last checkpoint.
func ExampleStream_TryMap() {
	job := weir.NewJob("parse")
	job.From("texts", weir.Slice("1", "2", "three")).
		TryMap(strconv.Atoi).
		To("out", weir.Each(func(int) error { return nil }))
	err := job.Run(context.Background())
	var bad *weir.RecordError
	if errors.As(err, &bad) {
		fmt.Println(bad.Where)
		fmt.Println(bad.Err)
	}
	// Output:
	// source texts, record 2 of split 0 (the first is 0)
	// strconv.Atoi: parsing "three": invalid syntax
}
