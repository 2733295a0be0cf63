package weir_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// TestMetrics compares the counts of a run with what its input says.
func TestMetrics(t *testing.T) {
	const n = 3000
	for _, p := range []int{1, 3} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			var out gathered[weir.Result[string, int64]]
			job := weir.NewJob("counted")
			job.From("events", weir.Slices(lateEvents(n)), weir.EventTime(eventTime, 0)).
				KeyBy(func(e event) int64 { return e.N }).
				Distinct("seen", 24*time.Hour, weir.Admit(48*time.Hour)).
				KeyBy(keyOf).Window(window.Tumbling(time.Hour)).Count("hours").
				To("out", out.sink())
			r := job.Start(t.Context(), weir.Parallelism(p), weir.EveryRecords(1000), weir.StateDir(t.TempDir()))
			if err := r.Wait(); err != nil {
				t.Fatal(err)
			}
			m := r.Metrics()
			if m.Job != "counted" || m.Condition != weir.Ended || m.Err != nil || m.Incarnation != 1 || m.Ready.Before(m.Since) || m.Restore.Restored {
				t.Errorf("%+v", m)
			}
			if s := m.Sources; len(s) != 1 || s[0].ID != "events" || s[0].Records != n || s[0].Batches < n/256 {
				t.Errorf("sources: %+v", s)
			}
			if len(m.Splits) != 1 || m.Splits[0].Records != n || !m.Splits[0].Ended {
				t.Errorf("splits: %+v", m.Splits)
			}
			if len(m.Steps) != 2 {
				t.Fatalf("steps: %+v", m.Steps)
			}
			seen, hours := m.Steps[0], m.Steps[1]
			if seen.ID != "seen" || seen.Kind != "distinct" || seen.Records != n || seen.Late != 0 || seen.Tasks != p || seen.Bytes <= 0 {
				t.Errorf("seen: %+v", seen)
			}
			late := int64(n / 100)
			if hours.ID != "hours" || hours.Kind != "window" || hours.Records != n || hours.Late != late || hours.Keys != 0 {
				t.Errorf("hours, of which %d are late and all are closed: %+v", late, hours)
			}
			if s := m.Sinks; len(s) != 1 || s[0].ID != "out" || s[0].Kind != "at least once" || s[0].Rows != int64(len(out.recs)) || s[0].Rows == 0 ||
				s[0].Commit.Count != m.Checkpoints.Committed+1 || s[0].Prepare.Count != m.Checkpoints.Committed {
				t.Errorf("sinks: %+v", s)
			}
			checkpoints(t, m, n)
			if m.StateBytes != seen.Bytes+hours.Bytes {
				t.Errorf("state of %d bytes in all, %d and %d in its steps", m.StateBytes, seen.Bytes, hours.Bytes)
			}
		})
	}
}

// lateEvents are one a second, and every hundredth an hour and a day late.
func lateEvents(n int) []event {
	out := make([]event, n)
	for i := range out {
		out[i] = sec(fmt.Sprint("key ", i%7), int64(i))
		if i%100 == 99 {
			out[i].At -= 25 * 3600_000
		}
	}
	return out
}

func checkpoints(t *testing.T, m weir.Metrics, n int64) {
	t.Helper()
	c := m.Checkpoints
	if c.Committed < 3 || c.Last == nil || !c.Last.Finished || c.Last.Records != n || c.Bytes < c.Last.Bytes || len(c.Failed) != 0 {
		t.Errorf("checkpoints: %+v", c)
	}
	if c.Total.Count != c.Committed || c.Total.Last != c.Last.Took || c.Pause.Count != c.Committed {
		t.Errorf("durations of %d checkpoints: %+v, %+v", c.Committed, c.Total, c.Pause)
	}
	var sum time.Duration
	for _, phase := range weir.Phases() {
		d := c.Phases[phase]
		if d.Count != c.Committed || d.Sum < 0 || len(d.Within) != len(weir.DurationBounds()) || !slices.IsSorted(d.Within) {
			t.Errorf("phase %s: %+v", phase, d)
		}
		sum += d.Sum
	}
	if sum < c.Total.Sum {
		t.Errorf("the phases took %v, the checkpoints %v: there is a gap between two", sum, c.Total.Sum)
	}
}

// Before anything has started every step is there already, and a job that is
// refused has failed.
func TestMetricsOfAJobThatFails(t *testing.T) {
	job := weir.NewJob("failing")
	job.From("numbers", weir.Generate(100, func(i int64) int64 { return i })).
		TryMap(crashAt[int64](50)).
		KeyBy(func(i int64) int64 { return i }).Count("count").
		To("out", weir.Each(func(weir.Pair[int64, int64]) error { return nil }))
	r := job.Start(t.Context(), weir.BatchSize(10))
	before := r.Metrics()
	if before.Job != "failing" || len(before.Sources) != 1 || len(before.Steps) != 1 || len(before.Sinks) != 1 {
		t.Errorf("before the end: %+v", before)
	}
	err := r.Wait()
	m := r.Metrics()
	if !errors.Is(err, errCrash) || m.Condition != weir.Broken || !errors.Is(m.Err, errCrash) || m.Sources[0].Records < 40 || m.Sources[0].Records > 60 {
		t.Errorf("%v, %+v", err, m)
	}
}

// What is counted goes on through a restart in place; what is there doesn't add up.
func TestMetricsOverARestart(t *testing.T) { synctest.Test(t, metricsOverARestart) }

func metricsOverARestart(t *testing.T) {
	crash, option := crashCommitted[event](700, 1)
	var out gathered[weir.Pair[string, int64]]
	job := weir.NewJob("restarted")
	job.From("events", weir.Slices(lateEvents(1000))).
		TryMap(passing(crash)).
		KeyBy(keyOf).Count("count").To("out", out.sink())
	r := job.Start(t.Context(), weir.EveryRecords(300), weir.Restarts(1), option)
	if err := r.Wait(); err != nil {
		t.Fatal(err)
	}
	m := r.Metrics()
	if m.Condition != weir.Ended || m.Incarnation < 2 || m.Restarts.ByReason["task"] != 1 || m.Restarts.Reason != "task" || !errors.Is(m.Restarts.Err, errCrash) || m.Restarts.Down <= 0 {
		t.Errorf("%+v", m.Restarts)
	}
	// 700 or more were read, the restart went back to a checkpoint at 300 or 600.
	again := m.Sources[0].Records - 1000
	if again < 100 || again > 700 || m.Steps[0].Keys != 7 || m.Splits[0].Records != 1000 {
		t.Errorf("%d records read again; steps %+v, splits %+v", again, m.Steps, m.Splits)
	}
	if m.Sinks[0].Rows != int64(len(out.recs)) {
		t.Errorf("the sink was given %d rows: %+v", len(out.recs), m.Sinks)
	}
}

// passingError is an error that may pass.
type passingError struct{ error }

func (passingError) Temporary() bool { return true }
func (e passingError) Unwrap() error { return e.error }

func passing(f func(event) (event, error)) func(event) (event, error) {
	return func(e event) (event, error) {
		e, err := f(e)
		if err != nil {
			err = passingError{err}
		}
		return e, err
	}
}

// TestStateMemory: a job whose keys only grow stops with sizes and advice; with
// more memory it goes on from its checkpoint, and the result is right; with less
// than it has by then, it says so and changes nothing.
func TestStateMemory(t *testing.T) {
	const n = 120_000
	dir := t.TempDir()
	run := func(budget int64, state string) (map[int64]int64, weir.Metrics, error) {
		var out gathered[weir.Pair[int64, int64]]
		job := weir.NewJob("growing")
		job.From("numbers", weir.Generate(2*n, func(i int64) int64 { return i % n })).
			KeyBy(func(i int64) int64 { return i }).Count("count").
			To("out", out.sink())
		r := job.Start(t.Context(), weir.StateDir(state), weir.EveryRecords(20_000), weir.StateMemory(budget), weir.Restarts(3))
		err := r.Wait()
		counts := map[int64]int64{}
		for _, p := range out.recs {
			counts[p.Key] = max(counts[p.Key], p.Value)
		}
		return counts, r.Metrics(), err
	}
	state := filepath.Join(dir, "state")
	_, m, err := run(3<<20, state)
	if !errors.Is(err, weir.ErrStateMemory) || errors.Is(err, weir.ErrInput) || m.StateBudget != 3<<20 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"3.0 MiB", "step count holds", "what helps", "--state-memory"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q isn't in: %v", want, err)
		}
	}
	if m.Checkpoints.Committed == 0 || !m.Restarts.Last.IsZero() {
		t.Fatalf("%d checkpoints, restarts %v", m.Checkpoints.Committed, m.Restarts.ByReason)
	}
	_, m, err = run(400<<10, state)
	if !errors.Is(err, weir.ErrStateMemory) || !strings.Contains(err.Error(), "restore") || m.Checkpoints.Committed > 0 {
		t.Fatalf("a restore of more than the budget: %v", err)
	}
	counts, m, err := run(1<<30, state)
	if err != nil {
		t.Fatal(err)
	}
	if m.Restore.Keys == 0 || m.Sources[0].Records == 2*n || m.Steps[0].Keys != n {
		t.Errorf("it began anew: %+v, %+v", m.Restore, m.Sources)
	}
	for i := range int64(n) {
		if counts[i] != 2 {
			t.Fatalf("%d was counted %d times", i, counts[i])
		}
	}
}
