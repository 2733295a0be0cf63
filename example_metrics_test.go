package weir_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// A program that embeds a job can look at it at any time.
func ExampleRunning_Metrics() {
	job := weir.NewJob("letters")
	job.From("words", weir.Slices([]string{"a", "b", "a", "c", "a"})).
		KeyBy(func(w string) string { return w }).
		Count("count").
		To("out", weir.Each(func(weir.Pair[string, int64]) error { return nil }))
	running := job.Start(context.Background())
	if err := running.Wait(); err != nil {
		fmt.Println(err)
	}
	m := running.Metrics()
	fmt.Println(m.Condition, m.Sources[0].Records, "records,", m.Steps[0].Keys, "keys,", m.Sinks[0].Rows, "rows")
	// Output: ended 5 records, 3 keys, 5 rows
}
