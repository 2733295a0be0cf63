package weir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/window"
)

// TestWindowTotalsAfterRescaling crashes with three tasks and goes on with
// another number, with two splits that are far apart in event time: windows
// that one of them has passed are still open for the other.
func TestWindowTotalsAfterRescaling(t *testing.T) {
	var ahead, behind []event
	for i := range int64(600) {
		ahead = append(ahead, sec(fmt.Sprint("k", i%19), 3_600+i*3))
		behind = append(behind, sec(fmt.Sprint("k", i%23), i*3))
	}
	third := ahead[:200]
	in := [][]event{ahead, behind, third}
	want := wantWindows(in, total)
	for _, to := range []int{1, 2, 3, 7} {
		for _, crash := range []int{150, 900, 1_390} {
			t.Run(fmt.Sprintf("3 to %d, crash at %d", to, crash), func(t *testing.T) {
				var got vault[string]
				dir := weir.StateDir(t.TempDir())
				declare := func(crash int) *weir.Job {
					job := weir.NewJob("rescale")
					job.From("in", weir.Slices(in...), weir.EventTime(eventTime, time.Second)).TryMap(crashAt[event](crash)).
						KeyBy(keyOf).Window(window.Tumbling(time.Minute)).
						Aggregate("sum", agg.Sum(func(e event) int64 { return e.N })).
						Map(windowLine[int64]).To("out", &got)
					return job
				}
				mustCrash(t, declare(crash), dir, weir.EveryRecords(50), weir.Parallelism(3))
				mustRun(t, declare(0), dir, weir.EveryRecords(50), weir.Parallelism(to))
				wantSame(t, sorted(got.all()), want)
			})
		}
	}
}

// TestCountsAfterRescaling is the same for running counts, and for polite stops.
func TestCountsAfterRescaling(t *testing.T) {
	const n = 4_000
	for _, to := range []int{1, 2, 7} {
		t.Run(fmt.Sprint("3 to ", to), func(t *testing.T) {
			var got vault[weir.Pair[int, int64]]
			dir := weir.StateDir(t.TempDir())
			declare := func() *weir.Job {
				job := weir.NewJob("counts")
				job.From("in", weir.Slices(numbers(n), numbers(n/2))).KeyBy(func(n int) int { return n % 101 }).
					Count("count", weir.EachBarrier()).To("out", &got)
				return job
			}
			var run *weir.Running
			ready := make(chan struct{})
			run = declare().Start(t.Context(), dir, weir.EveryRecords(500), weir.Parallelism(3), weir.OnCheckpoint(func(c weir.Checkpoint) {
				if <-ready; c.Epoch == 3 {
					run.Stop()
				}
			}))
			close(ready)
			if err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			mustRun(t, declare(), dir, weir.EveryRecords(500), weir.Parallelism(to))
			have, want := map[int]int64{}, map[int]int64{}
			for _, p := range got.all() {
				have[p.Key] = p.Value
			}
			for i := range n {
				want[i%101]++
			}
			for i := range n / 2 {
				want[i%101]++
			}
			if fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("counted %v, want %v", have, want)
			}
		})
	}
}

// TestRecordsBehindTheBarrierAreNotSaved: of two sources that merge, one is
// through with its barriers long before the other; what it reads behind them
// must not get into the epoch.
func TestRecordsBehindTheBarrierAreNotSaved(t *testing.T) {
	for _, p := range []int{1, 2, 3} {
		for _, crash := range []int{50, 217, 431} {
			t.Run(fmt.Sprintf("parallelism %d, crash at %d", p, crash), func(t *testing.T) {
				var got vault[weir.Pair[int, int64]]
				dir := weir.StateDir(t.TempDir())
				declare := func(crash int) *weir.Job {
					job := weir.NewJob("aligned")
					early := job.From("early", weir.Slice(numbers(300)...))
					// The late one has many more records to push through before its barrier.
					late := job.From("late", weir.Slice(numbers(30)...)).
						FlatMap(func(n int, emit func(int)) {
							for range 10 {
								emit(n)
							}
						})
					early.Union(late).TryMap(crashAt[int](crash)).KeyBy(func(n int) int { return n % 5 }).
						Count("count", weir.EachBarrier()).To("out", &got)
					return job
				}
				mustCrash(t, declare(crash), dir, weir.EveryRecords(20), weir.Parallelism(p), weir.BatchSize(7))
				mustRun(t, declare(0), dir, weir.EveryRecords(20), weir.Parallelism(p), weir.BatchSize(7))
				have := map[int]int64{}
				for _, p := range got.all() {
					have[p.Key] = p.Value
				}
				if fmt.Sprint(have) != "map[0:120 1:120 2:120 3:120 4:120]" {
					t.Errorf("counted %v, want 120 of each", have)
				}
			})
		}
	}
}

// TestWatermarkIsRestored: windows that were emitted before the crash aren't
// emitted again, and an event that was late before it is late after it.
func TestWatermarkIsRestored(t *testing.T) {
	in := []event{sec("a", 0), sec("a", 30), sec("a", 61), sec("a", 130), /* barrier: two minutes are done */
		sec("a", 59), sec("a", 119), sec("a", 120), sec("a", 200)}
	want := []string{
		fmt.Sprintf("a %d-%d 2", noon/1000, noon/1000+60),
		fmt.Sprintf("a %d-%d 1", noon/1000+60, noon/1000+120),
		fmt.Sprintf("a %d-%d 2", noon/1000+120, noon/1000+180),
		fmt.Sprintf("a %d-%d 1", noon/1000+180, noon/1000+240),
	}
	for _, to := range []int{1, 2, 7} {
		t.Run(fmt.Sprint("2 to ", to), func(t *testing.T) {
			var got vault[string]
			var late gathered[event]
			dir := weir.StateDir(t.TempDir())
			crash, committed := crashCommitted[event](5, 1)
			declare := func(try func(event) (event, error)) *weir.Job {
				job := weir.NewJob("restored")
				w := job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).TryMap(try).
					KeyBy(keyOf).Window(window.Tumbling(time.Minute))
				w.Count("count").Map(windowLine[int64]).To("out", &got)
				w.Late().To("late", late.sink())
				return job
			}
			mustCrash(t, declare(crash), dir, weir.EveryRecords(4), weir.Parallelism(2), committed)
			if n := len(got.all()); n != 2 {
				t.Fatalf("%d windows before the crash, want 2", n)
			}
			late.take()
			run := declare(crashAt[event](0)).Start(t.Context(), dir, weir.EveryRecords(4), weir.Parallelism(to))
			if err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			wantSame(t, sorted(got.all()), want)
			wantSame(t, sorted(late.all()), sorted([]event{sec("a", 59), sec("a", 119)}))
			if n := run.Progress().Late["count"]; n != 2 {
				t.Errorf("%d late records in progress, want 2", n)
			}
		})
	}
}

// TestPoliteStopMidWindow: a stop isn't the end of the input. The window goes
// on after a restart, and there is one complete result.
func TestPoliteStopMidWindow(t *testing.T) {
	var in []event
	for i := range int64(100) {
		in = append(in, sec("a", i/2))
	}
	for _, mode := range []window.Emission{window.OnClose, window.EachBarrier} {
		t.Run(mode.String(), func(t *testing.T) {
			var got vault[string]
			dir := weir.StateDir(t.TempDir())
			declare := func() *weir.Job {
				job := weir.NewJob("stopped")
				job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).KeyBy(keyOf).
					Window(window.Tumbling(time.Minute, mode)).Count("count").Map(windowLine[int64]).To("out", &got)
				return job
			}
			var run *weir.Running
			ready := make(chan struct{})
			run = declare().Start(t.Context(), dir, weir.EveryRecords(30), weir.OnCheckpoint(func(c weir.Checkpoint) {
				if <-ready; c.Epoch == 1 {
					run.Stop()
				}
			}))
			close(ready)
			if err := run.Wait(); err != nil {
				t.Fatal(err)
			}
			stopped := got.all()
			if mode == window.OnClose && len(stopped) > 0 {
				t.Fatalf("the stop emitted %q", stopped)
			}
			mustRun(t, declare(), dir, weir.EveryRecords(30))
			rows := got.all()
			if want := fmt.Sprintf("a %d-%d 100", noon/1000, noon/1000+60); len(rows) == 0 || rows[len(rows)-1] != want ||
				mode == window.OnClose && len(rows) != 1 {
				t.Errorf("rows %q, want the last, and on close the only, to be %q", rows, want)
			}
		})
	}
}

// segments reads the segment files of a state directory, by the part of their
// names that doesn't differ from run to run, as far as what they hold is concerned.
func segments(t *testing.T, dir string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.Contains(filepath.ToSlash(path), "/seg/") {
			return err
		}
		b, err := os.ReadFile(path)
		name := filepath.Base(path)
		cut := strings.LastIndexByte(name, '-')
		out[name[:cut]] = append(out[name[:cut]], string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSameStateSameBytes: a map is written in the same way whatever the order
// in which it was filled, and so is a table whatever its keys' order.
func TestSameStateSameBytes(t *testing.T) {
	type tags struct{ M map[string]int }
	write := func(keys []string, restart bool) map[string][]string {
		dir := t.TempDir()
		declare := func() *weir.Job {
			job := weir.NewJob("bytes")
			job.From("in", weir.Slice(1)).Map(func(int) tags {
				m := map[string]int{}
				for _, k := range keys {
					m[k] = len(k)
				}
				return tags{m}
			}).KeyBy(func(tags) string { return "one" }).
				Fold("fold", tags{}, func(_ tags, x tags) tags { return x }).
				To("out", new(gathered[weir.Pair[string, tags]]).sink())
			return job
		}
		mustRun(t, declare(), weir.StateDir(dir), weir.Interval(0), weir.Parallelism(1))
		if restart {
			mustRun(t, declare(), weir.StateDir(dir), weir.Interval(0), weir.Parallelism(1))
		}
		return segments(t, dir)
	}
	keys := []string{"a", "bb", "ccc", "dddd", "e", "ff", "ggg"}
	first := write(keys, false)
	if len(first) == 0 {
		t.Fatal("no segment was found")
	}
	for i := range 20 {
		slices.Reverse(keys[i%5:])
		if got := write(keys, i%2 == 0); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", first) {
			t.Fatalf("keys %v: the segments are %q, and were %q", keys, got, first)
		}
	}
}

// TestUnicodeFormsAreDifferentKeys: composed and decomposed spellings are two
// keys, in every step alike, and stay so over a restart.
func TestUnicodeFormsAreDifferentKeys(t *testing.T) {
	composed, decomposed := "caf\u00e9", "cafe\u0301"
	in := []event{sec(composed, 0), sec(decomposed, 1), sec(composed, 2), sec(decomposed, 3), sec(composed, 4)}
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var counts vault[string]
		opts = append(opts, weir.StateDir(t.TempDir()), weir.EveryRecords(2))
		declare := func(crash int) *weir.Job {
			job := weir.NewJob("unicode")
			keyed := job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).TryMap(crashAt[event](crash)).KeyBy(keyOf)
			keyed.Count("count").Map(func(p weir.Pair[string, int64]) string { return fmt.Sprintf("count %+q %d", p.Key, p.Value) }).
				Union(keyed.Window(window.Tumbling(time.Minute)).Count("window").
					Map(func(r weir.Result[string, int64]) string { return fmt.Sprintf("window %+q %d", r.Key, r.Value) })).
				Union(keyed.Distinct("distinct", time.Hour, weir.Admit(time.Hour)).
					Map(func(e event) string { return fmt.Sprintf("distinct %+q", e.Key) })).
				To("out", &counts)
			return job
		}
		mustCrash(t, declare(4), opts...)
		mustRun(t, declare(0), opts...)
		wantSame(t, sorted(counts.all()), sorted([]string{
			fmt.Sprintf("count %+q 1", composed), fmt.Sprintf("count %+q 2", composed), fmt.Sprintf("count %+q 3", composed),
			fmt.Sprintf("count %+q 1", decomposed), fmt.Sprintf("count %+q 2", decomposed),
			fmt.Sprintf("window %+q 3", composed), fmt.Sprintf("window %+q 2", decomposed),
			fmt.Sprintf("distinct %+q", composed), fmt.Sprintf("distinct %+q", decomposed),
		}))
	})
}
