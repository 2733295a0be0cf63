package weir_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/epoch"
)

// mark is an id seen at a time, in seconds after noon.
func mark(id string, at int64) event { return event{Key: id, N: at, At: noon + 1000*at} }

// names prints marks as id@at, in the order of their text.
func names(events []event) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s@%d", e.Key, e.N))
	}
	slices.Sort(out)
	return out
}

// TestTimeToLiveBoundary: an id at 0 with a time-to-live of 10: 9 repeats it,
// 10 doesn't, and then 11 repeats 10. A crash before each changes nothing.
func TestTimeToLiveBoundary(t *testing.T) {
	in := []event{mark("x", 0), mark("x", 9), mark("x", 10), mark("x", 11), mark("x", 19), mark("x", 20), mark("x", 1), mark("x", 21)}
	want := []string{"passed x@0", "passed x@10", "passed x@20", "repeat x@1", "repeat x@11", "repeat x@19", "repeat x@21", "repeat x@9"}
	for _, p := range []int{1, 2} {
		for crash := range len(in) + 1 {
			t.Run(fmt.Sprintf("parallelism %d, crash at %d", p, crash), func(t *testing.T) {
				var got vault[string]
				dir := weir.StateDir(t.TempDir())
				declare := func(crash int) *weir.Job {
					job := weir.NewJob("ttl")
					d := job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).TryMap(crashAt[event](crash)).
						KeyBy(keyOf).Distinct("seen", 10*time.Second, weir.Admit(time.Minute))
					labelled(d).To("out", &got)
					return job
				}
				if crash > 0 {
					mustCrash(t, declare(crash), dir, weir.EveryRecords(1), weir.Parallelism(p))
				}
				mustRun(t, declare(0), dir, weir.EveryRecords(1), weir.Parallelism(3-p))
				wantSame(t, sorted(got.all()), want)
			})
		}
	}
}

// labelled merges the outputs of a Distinct as texts.
func labelled(d *weir.Deduplicated[event]) *weir.Stream[string] {
	label := func(s string) func(event) string {
		return func(e event) string { return fmt.Sprintf("%s %s@%d", s, e.Key, e.N) }
	}
	return d.Map(label("passed")).Union(d.Repeats().Map(label("repeat")), d.Late().Map(label("late")))
}

// TestAdmitBoundary: a record that is behind its own split by as much as Admit
// says is late, whether or not it would be a repeat; a nanosecond less isn't.
func TestAdmitBoundary(t *testing.T) {
	in := []stamp{{"a", minute}, {"clock", minute.Add(time.Minute)},
		{"a", minute}, {"b", minute}, {"a", minute.Add(1)}, {"b", minute.Add(1)}, {"b", minute.Add(2)}}
	want := []string{"late a+0s", "late b+0s", "passed a+0s", "passed b+1ns", "passed clock+1m0s", "repeat a+1ns", "repeat b+2ns"}
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var got gathered[string]
		job := weir.NewJob("admit")
		d := job.From("in", weir.Slice(in...), weir.EventTime(stampTime, 0)).
			KeyBy(func(s stamp) string { return s.Name }).Distinct("seen", time.Hour, weir.Admit(time.Minute))
		label := func(l string) func(stamp) string {
			return func(s stamp) string { return fmt.Sprintf("%s %s+%v", l, s.Name, s.At.Sub(minute)) }
		}
		d.Map(label("passed")).Union(d.Repeats().Map(label("repeat")), d.Late().Map(label("late"))).To("out", got.sink())
		run := job.Start(t.Context(), opts...)
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		wantSame(t, sorted(got.all()), want)
		if n := run.Progress().Late["seen"]; n != 2 {
			t.Errorf("%d late in progress, want 2", n)
		}
	})
}

// TestDedupForgets: with many ids and a time-to-live of a minute, what is kept
// and what a checkpoint writes don't grow with the input, whether new bases are
// written at barriers or made in the background.
func TestDedupForgets(t *testing.T) {
	const n = 300_000 // a thousand a second of event time, five minutes
	for _, c := range []struct {
		p     int
		merge bool
	}{{1, false}, {3, false}, {3, true}} {
		p := c.p
		limits := epoch.DefaultLimits()
		if limits.MergeAbove = 1 << 40; c.merge {
			limits.MergeAbove = 1
		}
		t.Run(fmt.Sprintf("parallelism %d, merge %v", p, c.merge), func(t *testing.T) {
			merges := forgets(t, n, p, limits, c.merge)
			for range 9 { // a job that is faster than its merges does without them
				if c.merge && merges == 0 && !t.Failed() {
					merges = forgets(t, n, p, limits, c.merge)
				}
			}
			if c.merge != (merges > 0) {
				t.Errorf("%d merges", merges)
			}
		})
	}
}

// forgets runs the job of TestDedupForgets and returns how often it has merged.
func forgets(t *testing.T, n int64, p int, limits epoch.Limits, merge bool) (merges int) {
	passed := new(gathered[int64])
	job := weir.NewJob("forgets")
	job.From("in", weir.Generate(n, func(i int64) event { return event{N: i, At: noon + i} }), weir.EventTime(eventTime, 0)).
		KeyBy(func(e event) int64 { return e.N }).
		Distinct("seen", time.Minute, weir.Admit(time.Second)).
		Filter(func(e event) bool { return e.N%10_000 == 0 }).
		Map(func(e event) int64 { return e.N }).To("out", passed.sink())
	var full []int64
	dir := t.TempDir()
	var log lines
	mustRun(t, job, weir.Parallelism(p), weir.EveryRecords(n/15), weir.StateDir(dir), weir.ChainLimits(limits),
		weir.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))), weir.OnCheckpoint(func(c weir.Checkpoint) {
			if slices.Contains(c.Full, "seen") {
				full = append(full, c.Bytes)
			}
		}))
	if int64(len(passed.all())) != n/10_000 {
		t.Errorf("%d of %d passed the filter", len(passed.all()), n/10_000)
	}
	// 61,000 ids are alive at a time, of 16 bytes each. When the first new
	// base is due, a table that forgets nothing holds 160,000 of them.
	const most = 80_000 * 16
	if !merge && len(full) < 1 || len(full) > 0 && slices.Max(full) > most {
		t.Errorf("full checkpoints of %d bytes, want one at least, and none above %d", full, most)
	}
	var restored int64
	mustRun(t, job, weir.Parallelism(p), weir.StateDir(dir), weir.OnStart(func(s weir.Started) { restored = s.Keys }))
	if restored > 130_000 {
		t.Errorf("%d ids were restored", restored)
	}
	return log.count("msg=merged")
}

// TestDowntimeDoesNotExpire: a job that was down for longer than the
// time-to-live knows its ids when it replays: the clock plays no part, here
// with event times that are years behind it.
func TestDowntimeDoesNotExpire(t *testing.T) {
	var in []event
	for i := range int64(200) {
		in = append(in, mark(fmt.Sprint("id", i/2), 10*i)) // each id twice, ten seconds apart
	}
	var want []string
	for i := range int64(200) {
		if i%2 == 0 {
			want = append(want, fmt.Sprintf("passed id%d@%d", i/2, 10*i))
		} else {
			want = append(want, fmt.Sprintf("repeat id%d@%d", i/2, 10*i))
		}
	}
	slices.Sort(want)
	for _, years := range []int64{-60, -1, 0} {
		for crash := 20; crash < 200; crash += 61 {
			t.Run(fmt.Sprintf("%d years, crash at %d", years, crash), func(t *testing.T) {
				var got vault[string]
				dir := weir.StateDir(t.TempDir())
				declare := func(crash int) *weir.Job {
					job := weir.NewJob("down")
					labelled(job.From("in", weir.Slice(in...), weir.EventTime(func(e event) time.Time {
						return time.UnixMilli(e.At).AddDate(int(years), 0, 0)
					}, 0)).TryMap(crashAt[event](crash)).KeyBy(keyOf).
						Distinct("seen", time.Minute, weir.Admit(time.Second))).To("out", &got)
					return job
				}
				mustCrash(t, declare(crash), dir, weir.EveryRecords(7), weir.Parallelism(2))
				mustRun(t, declare(0), dir, weir.EveryRecords(7), weir.Parallelism(2))
				wantSame(t, sorted(got.all()), want)
			})
		}
	}
}

// TestForgottenKeysStayForgotten: an id that has expired and was dropped must
// not come back from an older part of the checkpoint's chain, and one that has
// been passed anew must be known with its newest time.
func TestForgottenKeysStayForgotten(t *testing.T) {
	in := []event{mark("x", 0), mark("y", 0)}
	for i := range int64(60) {
		in = append(in, mark(fmt.Sprint("filler", i), i))
	}
	in = append(in, mark("x", 60), mark("y", 61), mark("y", 70), mark("x", 69), mark("x", 70))
	want := 60 + 2 + 3 // fillers, both at 0, x@60 y@61 x@70
	for crash := 1; crash <= len(in); crash += 3 {
		t.Run(fmt.Sprint("crash at ", crash), func(t *testing.T) {
			var got vault[event]
			dir := weir.StateDir(t.TempDir())
			declare := func(crash int) *weir.Job {
				job := weir.NewJob("forgotten")
				job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).TryMap(crashAt[event](crash)).
					KeyBy(keyOf).Distinct("seen", 10*time.Second, weir.Admit(time.Second)).To("out", &got)
				return job
			}
			mustCrash(t, declare(crash), dir, weir.EveryRecords(5), weir.Parallelism(1))
			mustRun(t, declare(0), dir, weir.EveryRecords(5), weir.Parallelism(2))
			if rows := got.all(); len(rows) != want {
				t.Errorf("%d passed, want %d: %v", len(rows), want, names(rows))
			}
		})
	}
}
