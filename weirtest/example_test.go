package weirtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/weirtest"
	"github.com/weirstream/weir/window"
)

// standIn takes the place of a test's own *testing.T, which an example lacks.
type standIn struct{ testing.TB }

func (standIn) Helper()                  {}
func (standIn) Cleanup(func())           {}
func (standIn) Context() context.Context { return context.Background() }

// A test feeds records, moves event time and reads what comes out, in steps of
// its own.
func ExampleStart() {
	var t standIn // in a test, the test's *testing.T

	in, out := weirtest.NewInput[click](), weirtest.NewOutput[row]()
	job := weir.NewJob("clicks")
	job.From("clicks", in, weir.EventTime(func(c click) time.Time { return c.At }, 30*time.Second)).
		KeyBy(func(c click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute)).
		Count("count").
		Map(func(r weir.Result[string, int64]) row { return row{r.Key, r.Start.Format(time.TimeOnly), r.Value} }).
		To("out", out)

	run := weirtest.Start(t, job)
	in.Send(click{"ad-1", at("12:00:10")}, click{"ad-1", at("12:00:50")})
	run.Settle()
	fmt.Println("before its end:", out.Take())
	in.Advance(at("12:01:00"))
	run.Settle()
	fmt.Println("after its end:", out.Take())
	fmt.Println("stopped:", run.Stop())
	// Output:
	// before its end: []
	// after its end: [{ad-1 12:00:00 2}]
	// stopped: <nil>
}
