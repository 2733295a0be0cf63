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

// A crash loses what isn't durable, and a restored job reads its input again from
// the last checkpoint. An output that gets records at least once sees that; one
// that commits with the checkpoint doesn't.
func ExampleRun_Crash() {
	var t standIn // in a test, the test's *testing.T

	in, seen, table := weirtest.NewInput[int](), weirtest.NewOutput[int64](), weirtest.NewCommitted[int64]()
	job := weir.NewJob("sum")
	sum := job.From("numbers", in).KeyBy(func(int) string { return "all" }).
		Fold("sum", int64(0), func(sum int64, n int) int64 { return sum + int64(n) }).
		Map(func(p weir.Pair[string, int64]) int64 { return p.Value })
	sum.To("seen", seen)
	sum.To("table", table)

	run := weirtest.Start(t, job)
	in.Send(1, 2, 3)
	run.Barrier()
	in.Send(10, 20)
	run.Settle()
	fmt.Println("before the crash:", seen.Take(), table.Take())
	run.Crash()
	restored := run.Restore()
	run.Barrier()
	fmt.Println("restored after", restored.Records, "records:", seen.Take(), table.Take())
	fmt.Println("stopped:", run.Stop())
	// Output:
	// before the crash: [1 3 6 16 36] [1 3 6]
	// restored after 3 records: [16 36] [16 36]
	// stopped: <nil>
}

// Each thing that a checkpoint does to the world can be what a crash cuts off.
// The rows are right wherever that is.
func ExampleRun_CrashInBarrier() {
	var t standIn // in a test, the test's *testing.T

	right, crashes := 0, 0
	for n := 1; ; n++ {
		in, table := weirtest.NewInput[string](), weirtest.NewCommitted[string]()
		job := weir.NewJob("words")
		job.From("in", in).KeyBy(func(w string) string { return w }).Count("count").
			Map(func(p weir.Pair[string, int64]) string { return fmt.Sprint(p.Key, p.Value) }).
			To("table", table)
		run := weirtest.Start(t, job, weir.Parallelism(1))
		in.Send("a", "b", "a")
		crashed := run.CrashInBarrier(n)
		if crashed {
			crashes++
			run.Restore()
			run.Barrier()
		}
		if fmt.Sprint(table.All()) == "[a1 b1 a2]" {
			right++
		}
		if err := run.Stop(); err != nil {
			fmt.Println(err)
		}
		if !crashed {
			break
		}
	}
	fmt.Println("crashed at more than five places:", crashes > 5)
	fmt.Println("right in all runs:", right == crashes+1)
	// Output:
	// crashed at more than five places: true
	// right in all runs: true
}
