package weir_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/window"
)

// minuteKey is one key in one minute.
type minuteKey struct {
	Key    string
	Minute int64 // its start, in seconds since 1970
}

// spread is n events over half an hour in two splits, out of order by less than
// the 20 seconds that the jobs here allow.
func spread(n int) [][]event {
	splits := make([][]event, 2)
	for i := range n {
		at := noon + int64(i)*1_800_000/int64(n) + int64(i*7919%20_000)
		splits[i%2] = append(splits[i%2], event{Key: fmt.Sprint("k", i*31%11), N: int64(i%97 - 30), At: at})
	}
	return splits
}

// byMinute groups events as the windows of a minute do.
func byMinute(splits [][]event) map[minuteKey][]event {
	out := map[minuteKey][]event{}
	for _, s := range splits {
		for _, e := range s {
			k := minuteKey{e.Key, e.At / 60_000 * 60}
			out[k] = append(out[k], e)
		}
	}
	return out
}

func windowLine[V any](r weir.Result[string, V]) string {
	return fmt.Sprintf("%s %d-%d %v", r.Key, r.Start.Unix(), r.End.Unix(), r.Value)
}

// wantWindows computes what windows of a minute hold, in plain Go.
func wantWindows[V any](splits [][]event, value func([]event) V) []string {
	var out []string
	for k, events := range byMinute(splits) {
		out = append(out, fmt.Sprintf("%s %d-%d %v", k.Key, k.Minute, k.Minute+60, value(events)))
	}
	slices.Sort(out)
	return out
}

func total(events []event) (sum int64) {
	for _, e := range events {
		sum += e.N
	}
	return sum
}

// TestWindowAggregatesOnClose: exactly one result a key and window, right.
func TestWindowAggregatesOnClose(t *testing.T) {
	in := spread(4_000)
	newest := func(e []event) (n int64) {
		for i, x := range e {
			if i == 0 || x.N > n {
				n = x.N
			}
		}
		return n
	}
	type windowed = weir.Windowed[string, event]
	n := func(e event) int64 { return e.N }
	tests := []struct {
		name  string
		build func(w *windowed) *weir.Stream[string]
		want  []string
	}{
		{"count", func(w *windowed) *weir.Stream[string] { return w.Count("w").Map(windowLine[int64]) },
			wantWindows(in, func(e []event) int { return len(e) })},
		{"reduce", func(w *windowed) *weir.Stream[string] {
			return w.Reduce("w", func(a, b event) event { a.N += b.N; return a },
				func(k string, s window.Span, a event) string {
					return fmt.Sprintf("%s %d-%d %d", k, s.Start.Unix(), s.End.Unix(), a.N)
				})
		}, wantWindows(in, total)},
		{"sum", func(w *windowed) *weir.Stream[string] { return w.Aggregate("w", agg.Sum(n)).Map(windowLine[int64]) },
			wantWindows(in, total)},
		{"mean", func(w *windowed) *weir.Stream[string] {
			return w.Aggregate("w", agg.Mean(n)).Map(windowLine[float64])
		}, wantWindows(in, func(e []event) float64 { return float64(total(e)) / float64(len(e)) })},
		{"max", func(w *windowed) *weir.Stream[string] { return w.Aggregate("w", agg.Max(n)).Map(windowLine[int64]) },
			wantWindows(in, newest)},
		{"boxed accumulator", func(w *windowed) *weir.Stream[string] {
			return w.Aggregate("w", agg.Of(map[int64]bool{},
				func(acc map[int64]bool, e event) map[int64]bool { acc[e.N%5] = true; return acc },
				func(a, b map[int64]bool) map[int64]bool {
					for k := range b {
						a[k] = true
					}
					return a
				},
				func(acc map[int64]bool) int { return len(acc) })).Map(windowLine[int])
		}, wantWindows(in, func(e []event) int {
			seen := map[int64]bool{}
			for _, x := range e {
				seen[x.N%5] = true
			}
			return len(seen)
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				var got gathered[string]
				job := weir.NewJob("windows")
				tt.build(job.From("in", weir.Slices(in...), weir.EventTime(eventTime, 20*time.Second)).
					KeyBy(keyOf).Window(window.Tumbling(time.Minute))).To("out", got.sink())
				mustRun(t, job, append(opts, weir.EveryRecords(300))...)
				wantSame(t, sorted(got.all()), tt.want)
			})
		})
	}
}

// TestWindowEmissionModes: the last result of a key and window is the same in
// each mode; each record gives one result in its turn; and a barrier gives at
// most one a changed window.
func TestWindowEmissionModes(t *testing.T) {
	in := spread(1_200)
	want := wantWindows(in, func(e []event) int { return len(e) })
	for _, mode := range []window.Emission{window.OnClose, window.EachBarrier, window.EachRecord} {
		t.Run(mode.String(), func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				var got gathered[weir.Result[string, int64]]
				job := weir.NewJob("modes")
				job.From("in", weir.Slices(in...), weir.EventTime(eventTime, 20*time.Second)).
					KeyBy(keyOf).Window(window.Tumbling(time.Minute, mode)).Count("w").To("out", got.sink())
				mustRun(t, job, append(opts, weir.EveryRecords(100))...)
				last, times := map[minuteKey]weir.Result[string, int64]{}, map[minuteKey]int64{}
				for _, r := range got.all() {
					k := minuteKey{r.Key, r.Start.Unix()}
					if times[k]++; mode == window.EachRecord && r.Value != times[k] {
						t.Fatalf("update %d of %v is %d", times[k], k, r.Value)
					}
					if r.Value <= last[k].Value {
						t.Fatalf("%v: %d came after %d, without a change", k, r.Value, last[k].Value)
					}
					if last[k] = r; mode == window.OnClose && times[k] > 1 {
						t.Fatalf("%v was emitted twice", k)
					}
				}
				var lines []string
				for _, r := range last {
					lines = append(lines, windowLine(r))
				}
				slices.Sort(lines)
				wantSame(t, lines, want)
			})
		})
	}
}

// TestChangedValuesOncePerEpoch stands on exact barriers, of one split.
func TestChangedValuesOncePerEpoch(t *testing.T) {
	in := []event{sec("a", 0), sec("a", 1), sec("b", 2), sec("a", 3), /* barrier */
		sec("b", 4), sec("b", 5), sec("b", 6), sec("b", 7), /* barrier */
		sec("c", 8)}
	want := []string{"a 3", "b 1", "|", "b 5", "|", "c 1"}
	tests := map[string]func(k *weir.Keyed[string, event]) *weir.Stream[weir.Pair[string, int64]]{
		"count": func(k *weir.Keyed[string, event]) *weir.Stream[weir.Pair[string, int64]] {
			return k.Count("n", weir.EachBarrier())
		},
		"fold": func(k *weir.Keyed[string, event]) *weir.Stream[weir.Pair[string, int64]] {
			return k.Fold("n", int64(0), func(n int64, _ event) int64 { return n + 1 }, weir.EachBarrier())
		},
		"window": func(k *weir.Keyed[string, event]) *weir.Stream[weir.Pair[string, int64]] {
			return k.Window(window.Tumbling(time.Minute, window.EachBarrier)).Count("n").
				Map(func(r weir.Result[string, int64]) weir.Pair[string, int64] {
					return weir.Pair[string, int64]{Key: r.Key, Value: r.Value}
				})
		},
	}
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				var got vault[weir.Pair[string, int64]]
				job := weir.NewJob("epochs")
				build(job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).KeyBy(keyOf)).To("out", &got)
				mustRun(t, job, append(opts, weir.EveryRecords(4), weir.StateDir(t.TempDir()))...)
				var epochs []string
				for i, rows := range got.epochs[1:] {
					if i > 0 {
						epochs = append(epochs, "|")
					}
					lines := []string{}
					for _, p := range rows {
						lines = append(lines, fmt.Sprint(p.Key, " ", p.Value))
					}
					slices.Sort(lines)
					epochs = append(epochs, lines...)
				}
				wantSame(t, epochs, want)
			})
		})
	}
}

func TestReduceEmitsTheCombinedRecord(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var got gathered[event]
		job := weir.NewJob("reduce")
		job.From("in", weir.Slice(event{"a", 5, 1}, event{"b", 2, 2}, event{"a", 7, 3})).KeyBy(keyOf).
			Reduce("sum", func(acc, e event) event { return event{acc.Key, acc.N + e.N, max(acc.At, e.At)} }).
			To("out", got.sink())
		mustRun(t, job, opts...)
		wantSame(t, sorted(got.all()), sorted([]event{{"a", 5, 1}, {"b", 2, 2}, {"a", 12, 3}}))
	})
}

// TestWindowBehindAWindow: counts of windows are summed up per quarter of an
// hour. A window's results lie within it, so none can be late for a larger one.
func TestWindowBehindAWindow(t *testing.T) {
	in := spread(2_000)
	want := map[int64]int64{}
	for _, s := range in {
		for _, e := range s {
			want[e.At/900_000*900]++
		}
	}
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var got gathered[weir.Result[bool, int64]]
		job := weir.NewJob("stacked")
		job.From("in", weir.Slices(in...), weir.EventTime(eventTime, 20*time.Second)).
			KeyBy(keyOf).Window(window.Tumbling(time.Minute)).Count("minutes").
			KeyBy(func(weir.Result[string, int64]) bool { return true }).
			Window(window.Tumbling(15*time.Minute)).
			Aggregate("quarters", agg.Sum(func(r weir.Result[string, int64]) int64 { return r.Value })).
			To("out", got.sink())
		mustRun(t, job, append(opts, weir.EveryRecords(100))...)
		have := map[int64]int64{}
		for _, r := range got.all() {
			have[r.Start.Unix()] += r.Value
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", have, want)
		}
	})
}
