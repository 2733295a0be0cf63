package weirtest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/weirtest"
	"github.com/weirstream/weir/window"
)

type click struct {
	Ad string
	At time.Time
}

type row struct {
	Ad     string
	Minute string
	Clicks int64
}

// at is a time of one day.
func at(clock string) time.Time {
	t, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		panic(err)
	}
	return t.AddDate(2026, 2, 0)
}

// build is the job under test: clicks per ad and minute.
func build(in weir.Source[click], out, late weir.Sink[row], emit window.Emission) *weir.Job {
	job := weir.NewJob("clicks")
	w := job.From("clicks", in, weir.EventTime(func(c click) time.Time { return c.At }, 30*time.Second)).
		KeyBy(func(c click) string { return c.Ad }).
		Window(window.Tumbling(time.Minute, emit))
	w.Count("count").
		Map(func(r weir.Result[string, int64]) row { return row{r.Key, r.Start.Format(time.TimeOnly), r.Value} }).
		To("out", out)
	w.Late().Map(func(c click) row { return row{Ad: c.Ad} }).To("late", late)
	return job
}

func want(t *testing.T, got []row, rows ...row) {
	t.Helper()
	order := func(a, b row) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(got, order)
	slices.SortFunc(rows, order)
	if !slices.Equal(got, rows) {
		t.Errorf("got %v, want %v", got, rows)
	}
}

func TestEventTimeClosesWindows(t *testing.T) {
	in, out, late := weirtest.NewInput[click](), weirtest.NewOutput[row](), weirtest.NewOutput[row]()
	run := weirtest.Start(t, build(in, out, late, window.OnClose))
	in.Send(click{"ad-1", at("12:00:10")}, click{"ad-1", at("12:00:50")}, click{"ad-2", at("12:01:10")})
	run.Settle()
	want(t, out.Take())
	in.Advance(at("12:01:00"))
	run.Settle()
	want(t, out.Take(), row{"ad-1", "12:00:00", 2})
	in.Advance(at("12:00:30")) // time doesn't go back
	in.Send(click{"ad-1", at("12:00:59")}, click{"ad-1", at("12:01:59")})
	run.Settle()
	want(t, out.Take())
	want(t, late.Take(), row{Ad: "ad-1"})
	if n := run.Progress().Late["count"]; n != 1 {
		t.Errorf("%d late records in progress, want 1", n)
	}
	in.End()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	want(t, out.Take(), row{"ad-1", "12:01:00", 1}, row{"ad-2", "12:01:00", 1})
}

// What is sent before a step of event time is judged by the time before, what
// is sent behind it by the new one, also when the job hasn't read any of it yet.
func TestStepsAmongRecords(t *testing.T) {
	for range 20 {
		in, out, late := weirtest.NewInput[click](), weirtest.NewOutput[row](), weirtest.NewOutput[row]()
		in.Send(click{"a", at("12:00:10")})
		in.Advance(at("12:01:00"))
		in.Send(click{"late", at("12:00:10")}, click{"b", at("12:01:10")})
		in.Advance(at("12:02:00"))
		in.Advance(at("12:03:00"))
		in.Send(click{"later", at("12:02:10")}, click{"c", at("12:03:10")})
		run := weirtest.Start(t, build(in, out, late, window.OnClose))
		run.Settle()
		want(t, out.Take(), row{"a", "12:00:00", 1}, row{"b", "12:01:00", 1})
		want(t, late.Take(), row{Ad: "late"}, row{Ad: "later"})
		if err := run.Stop(); err != nil {
			t.Fatal(err)
		}
		want(t, out.Take())
	}
}

func TestBarrierEmitsWhatChanged(t *testing.T) {
	in, out, late := weirtest.NewInput[click](), weirtest.NewOutput[row](), weirtest.NewOutput[row]()
	run := weirtest.Start(t, build(in, out, late, window.EachBarrier))
	in.Send(click{"ad-1", at("12:00:10")}, click{"ad-1", at("12:00:11")})
	run.Settle()
	want(t, out.Take())
	first := run.Barrier()
	want(t, out.Take(), row{"ad-1", "12:00:00", 2})
	in.Send(click{"ad-2", at("12:00:12")})
	second := run.Barrier()
	want(t, out.Take(), row{"ad-2", "12:00:00", 1})
	if first.Epoch != 1 || second.Epoch != 2 || first.Records != 2 || second.Records != 3 {
		t.Errorf("checkpoints %+v and %+v", first, second)
	}
}

// A job that is started again goes on where it stood, with the same input.
func TestRestart(t *testing.T) {
	in, dir := weirtest.NewInput[click](), weir.StateDir(t.TempDir())
	for i := range 3 {
		out, late := weirtest.NewOutput[row](), weirtest.NewOutput[row]()
		run := weirtest.Start(t, build(in, out, late, window.EachRecord), dir)
		in.Send(click{"ad-1", at("12:00:10")})
		run.Settle()
		want(t, out.Take(), row{"ad-1", "12:00:00", int64(i) + 1})
		if err := run.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// fake records what a test is told.
type fake struct {
	testing.TB
	cleanup []func()
	said    []string
}

func (f *fake) Helper()          {}
func (f *fake) Cleanup(c func()) { f.cleanup = append(f.cleanup, c) }
func (f *fake) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}
func (f *fake) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic(f) }

func failing() (*weirtest.Input[int], *weir.Job) {
	in := weirtest.NewInput[int]()
	job := weir.NewJob("fails")
	job.From("in", in).TryMap(func(n int) (int, error) {
		if n == 2 {
			return 0, errors.New("two is too much")
		}
		return n, nil
	}).To("out", weirtest.NewOutput[int]())
	return in, job
}

func TestJobThatFailsFailsTheTest(t *testing.T) {
	for _, call := range []string{"settle", "barrier", "nothing"} {
		t.Run(call, func(t *testing.T) {
			f := &fake{TB: t}
			in, job := failing()
			run := weirtest.Start(f, job)
			in.Send(1, 2)
			func() {
				defer func() {
					if p := recover(); p != nil && p != any(f) {
						panic(p)
					}
				}()
				switch call {
				case "settle":
					run.Settle()
				case "barrier":
					run.Barrier()
				}
			}()
			for _, c := range f.cleanup {
				c()
			}
			if call != "nothing" && len(f.said) == 0 || len(f.said) > 0 && !strings.Contains(strings.Join(f.said, "\n"), "two is too much") {
				t.Errorf("the test was told %q, want the job's error", f.said)
			}
		})
	}
	in, job := failing()
	run := weirtest.Start(t, job)
	in.Send(2)
	if err := run.Wait(); !errors.Is(err, weir.ErrInput) {
		t.Errorf("Wait returned %v, want ErrInput", err)
	}
}

func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := weirtest.NewInput[int](), weirtest.NewOutput[int]()
		job := weir.NewJob("bubble")
		job.From("in", in).Map(func(n int) int { return n * n }).To("out", out)
		began := time.Now()
		run := weirtest.Start(t, job, weir.Interval(time.Hour))
		in.Send(1, 2, 3)
		run.Settle()
		if got := out.Take(); !slices.Equal(got, []int{1, 4, 9}) {
			t.Errorf("got %v", got)
		}
		<-time.After(3*time.Hour + time.Minute)
		synctest.Wait()
		if c := run.Progress().Checkpoint; c == nil || c.Epoch != 3 || time.Since(began) != 3*time.Hour+time.Minute {
			t.Errorf("the last checkpoint after three hours is %+v", c)
		}
		if err := run.Stop(); err != nil {
			t.Error(err)
		}
	})
}
