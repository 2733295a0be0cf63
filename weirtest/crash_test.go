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
)

// counting counts what it reads, by key, into an output of each kind.
func counting(in weir.Source[string], all *weirtest.Output[string], once, more *weirtest.Committed[string]) *weir.Job {
	job := weir.NewJob("counting")
	counts := job.From("in", in).KeyBy(func(s string) string { return s }).Count("count").
		Map(func(p weir.Pair[string, int64]) string { return fmt.Sprintf("%s=%d", p.Key, p.Value) })
	counts.To("all", all)
	counts.To("once", once)
	if more != nil {
		counts.To("more", more)
	}
	return job
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Whatever comes in a checkpoint's way, it is in all outputs that commit or in
// none, and what is restored agrees with them.
func TestCrashInBarrier(t *testing.T) {
	crashes, kept := 0, 0
	for n := 1; ; n++ {
		in, all := weirtest.NewInput[string](), weirtest.NewOutput[string]()
		once, more := weirtest.NewCommitted[string](), weirtest.NewCommitted[string]()
		run := weirtest.Start(t, counting(in, all, once, more))
		in.Send("a", "b", "a")
		run.Barrier()
		same(t, "committed", once.Take(), "a=1", "a=2", "b=1")
		same(t, "committed by the other", more.Take(), "a=1", "a=2", "b=1")
		in.Send("a", "c")
		if !run.CrashInBarrier(n) {
			same(t, "committed", once.Take(), "a=3", "c=1")
			break
		}
		crashes++
		s := run.Restore(weir.Parallelism(3))
		if !s.Restored || s.Epoch != 1 && s.Epoch != 2 {
			t.Fatalf("crash at %d: restored %+v", n, s)
		}
		if s.Epoch == 2 {
			kept++
			same(t, "committed", once.All(), "a=1", "a=2", "a=3", "b=1", "c=1")
			same(t, "committed by the other", more.All(), "a=1", "a=2", "a=3", "b=1", "c=1")
		}
		in.Send("b")
		run.Barrier()
		same(t, "committed", once.All(), "a=1", "a=2", "a=3", "b=1", "b=2", "c=1")
		same(t, "committed by the other", more.All(), "a=1", "a=2", "a=3", "b=1", "b=2", "c=1")
		if got := all.Take(); len(got) < 6 || !slices.Contains(got, "b=2") {
			t.Errorf("crash at %d: the output at least once has %q", n, got)
		}
	}
	if crashes < 8 || kept == 0 || kept == crashes {
		t.Errorf("%d crashes, %d of them after the decision", crashes, kept)
	}
}

// A crash of a job whose state is in a real folder leaves what was written there.
func TestCrashInARealFolder(t *testing.T) {
	in, all, once := weirtest.NewInput[string](), weirtest.NewOutput[string](), weirtest.NewCommitted[string]()
	run := weirtest.Start(t, counting(in, all, once, nil), weir.StateDir(t.TempDir()))
	in.Send("a", "b")
	run.Barrier()
	in.Send("a")
	run.Settle()
	run.Crash()
	if s := run.Restore(); s.Epoch != 1 || s.Records != 2 {
		t.Errorf("restored %+v", s)
	}
	run.Barrier()
	same(t, "committed", once.All(), "a=1", "a=2", "b=1")
	same(t, "at least once", all.Take(), "a=1", "a=2", "a=2", "b=1")
}

func TestRestoreAfterAll(t *testing.T) {
	in, all, once := weirtest.NewInput[string](), weirtest.NewOutput[string](), weirtest.NewCommitted[string]()
	run := weirtest.Start(t, counting(in, all, once, nil))
	in.Send("a")
	if err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	run.Restore()
	in.Send("a")
	run.Settle()
	run.Crash()
	run.Restore()
	in.End()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	run.Crash() // nothing is left to lose
	if s := run.Restore(); s.Records != 2 {
		t.Errorf("restored %+v", s)
	}
	same(t, "committed", once.All(), "a=1", "a=2")
}

// Another version of the job goes on with the state, or the test fails.
func TestRestoreAs(t *testing.T) {
	in, all, once := weirtest.NewInput[string](), weirtest.NewOutput[string](), weirtest.NewCommitted[string]()
	f := &fake{TB: t}
	run := weirtest.Start(f, counting(in, all, once, nil))
	in.Send("a", "a")
	run.Barrier()
	run.Crash()
	job := weir.NewJob("counting")
	counts := job.From("in", in).KeyBy(func(s string) string { return s }).Count("count")
	counts.Map(func(p weir.Pair[string, int64]) string { return fmt.Sprint(p.Value, " of ", p.Key) }).To("once", once)
	counts.Map(func(p weir.Pair[string, int64]) string { return p.Key }).To("all", all)
	run.RestoreAs(job)
	in.Send("a")
	run.Barrier()
	same(t, "committed", once.All(), "3 of a", "a=1", "a=2")
	run.Crash()

	changed := weir.NewJob("counting")
	changed.From("in", in).KeyBy(func(s string) int { return len(s) }).Count("count").
		Map(func(p weir.Pair[int, int64]) string { return fmt.Sprint(p) }).To("once", once)
	func() {
		defer func() {
			if p := recover(); p != any(f) {
				panic(p)
			}
		}()
		run.RestoreAs(changed)
	}()
	if len(f.said) != 1 || !strings.Contains(f.said[0], "refused") {
		t.Errorf("the test was told %q", f.said)
	}
	for _, c := range f.cleanup {
		c()
	}
}

// Timers run in virtual time, and so do recoveries in place.
func TestCrashInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, all, once := weirtest.NewInput[string](), weirtest.NewOutput[string](), weirtest.NewCommitted[string]()
		run := weirtest.Start(t, counting(in, all, once, nil), weir.Interval(time.Minute))
		in.Send("a")
		<-time.After(90 * time.Second)
		in.Send("b", "a")
		run.Settle()
		run.Crash()
		if s := run.Restore(); s.Epoch != 1 || s.Records != 1 {
			t.Errorf("restored %+v", s)
		}
		run.Settle()
		same(t, "committed", once.All(), "a=1")
		<-time.After(time.Minute)
		synctest.Wait()
		same(t, "committed", once.All(), "a=1", "a=2", "b=1")
	})
}

func TestRecoveryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, once := weirtest.NewInput[string](), weirtest.NewCommitted[string]()
		job := weir.NewJob("flaky")
		away := errors.New("the receiver is away")
		failures := 2
		out := job.From("in", in)
		out.To("once", once)
		out.To("flaky", weir.Each(func(string) error {
			if failures--; failures >= 0 {
				return away
			}
			return nil
		}))
		var told []weir.Restart
		run := weirtest.Start(t, job, weir.Restarts(2), weir.OnRestart(func(r weir.Restart) { told = append(told, r) }))
		began := time.Now()
		in.Send("a")
		run.Barrier()
		same(t, "committed", once.All(), "a")
		if len(told) != 2 || told[1].Attempt != 2 || told[1].Wait != 2*time.Second || told[1].Reason != "task" || !errors.Is(told[1].Err, away) {
			t.Errorf("told of %+v", told)
		}
		if p := run.Progress(); p.Restarts != 2 || p.Restart == nil || !errors.Is(p.Restart.Err, away) || time.Since(began) != 3*time.Second {
			t.Errorf("after %v progress is %+v", time.Since(began), p)
		}
	})
}
