package weir_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirstream/weir"
)

// In a service a job is one goroutine. Cancelling its context is a polite stop:
// one more checkpoint is committed, and Run returns nil.
func ExampleJob_Run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	job := weir.NewJob("ticks")
	job.From("ticks", weir.Generate(0, func(i int64) int64 { return i })).
		To("out", weir.Each(func(n int64) error {
			if n == 10_000 {
				stop() // a service would do this when it shuts down
			}
			return nil
		}))

	var service sync.WaitGroup
	service.Go(func() {
		if err := job.Run(ctx); err != nil {
			fmt.Println("the job failed:", err)
		}
	})
	service.Wait()
	fmt.Println("stopped")
	// Output:
	// stopped
}
