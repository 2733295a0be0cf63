package weir_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// stamp is an event time to the nanosecond, with a name.
type stamp struct {
	Name string
	At   time.Time
}

func stampTime(s stamp) time.Time { return s.At }

func stampKey(stamp) string { return "all" }

var minute = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) // the start of one

// TestExactlyOnTheLatenessBoundary moves the watermark of a split to the last
// instant before, and to, the end of a window plus its lateness.
func TestExactlyOnTheLatenessBoundary(t *testing.T) {
	const disorder, lateness = 7 * time.Second, 90 * time.Second
	closes := minute.Add(time.Minute + lateness)
	for _, tt := range []struct {
		name string
		wm   time.Time // when the record is read
		late bool
	}{
		{"a nanosecond before", closes.Add(-1), false},
		{"a millisecond before", closes.Add(-time.Millisecond), false},
		{"at", closes, true},
		{"a nanosecond after", closes.Add(1), true},
	} {
		for _, mode := range []window.Emission{window.OnClose, window.EachBarrier, window.EachRecord} {
			t.Run(tt.name+", "+mode.String(), func(t *testing.T) {
				eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
					in := []stamp{{"first", minute}, {"mover", tt.wm.Add(disorder)}, {"candidate", minute.Add(time.Minute - 1)}}
					counted, late, n := lateOf(t, in, disorder, window.Tumbling(time.Minute, window.Lateness(lateness), mode), opts)
					wantCount, wantLate := int64(2), []string{}
					if tt.late {
						wantCount, wantLate = 1, []string{"candidate"}
					}
					if counted[minute.Unix()] != wantCount || !slices.Equal(late, wantLate) || n != int64(len(wantLate)) {
						t.Errorf("counted %d, late %q, %d late in progress; want %d, %q", counted[minute.Unix()], late, n, wantCount, wantLate)
					}
				})
			})
		}
	}
}

// lateOf counts in windows and returns the last count of each, what came out
// late, and how many were late by the job's own count.
func lateOf(t *testing.T, in []stamp, disorder time.Duration, w window.Window, opts []weir.RunOption) (map[int64]int64, []string, int64) {
	t.Helper()
	var got gathered[weir.Result[string, int64]]
	var late gathered[stamp]
	job := weir.NewJob("late")
	windows := job.From("in", weir.Slice(in...), weir.EventTime(stampTime, disorder)).KeyBy(stampKey).Window(w)
	windows.Count("count").To("out", got.sink())
	windows.Late().To("late", late.sink())
	run := job.Start(t.Context(), opts...)
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	counted := map[int64]int64{}
	for _, r := range got.all() {
		counted[r.Start.Unix()] = max(counted[r.Start.Unix()], r.Value)
	}
	names := []string{}
	for _, s := range late.all() {
		names = append(names, s.Name)
	}
	return counted, names, run.Progress().Late["count"]
}

// TestNoDisorderNoLateness: with neither allowed, whatever comes in order
// counts: the very first record, and those of equal times.
func TestNoDisorderNoLateness(t *testing.T) {
	var in []stamp
	want := map[int64]int64{}
	for i := range 600 {
		at := minute.Add(time.Duration(i/3) * time.Second) // each time three times
		in = append(in, stamp{fmt.Sprint(i), at})
		want[at.Truncate(time.Minute).Unix()]++
	}
	in = append(in, stamp{"end", minute.Add(10*time.Minute - 1)}, stamp{"next", minute.Add(10 * time.Minute)})
	want[minute.Add(9*time.Minute).Unix()]++
	want[minute.Add(10*time.Minute).Unix()]++
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		counted, late, n := lateOf(t, in, 0, window.Tumbling(time.Minute), opts)
		if len(late) > 0 || n > 0 || fmt.Sprint(counted) != fmt.Sprint(want) {
			t.Errorf("counted %v, late %v (%d), want %v", counted, late, n, want)
		}
	})
}

// TestTimesBefore1970: a window starts at or before its records, also where
// the remainder of a division is negative.
func TestTimesBefore1970(t *testing.T) {
	ms := func(n int64) stamp { return stamp{fmt.Sprint(n), time.UnixMilli(n)} }
	in := []stamp{ms(-120_000), ms(-60_001), ms(-60_000), ms(-1), ms(0), ms(59_999), ms(60_000)}
	for _, tt := range []struct {
		offset time.Duration
		want   map[int64]int64 // by the start in seconds
	}{
		{0, map[int64]int64{-120: 2, -60: 2, 0: 2, 60: 1}},
		{15 * time.Second, map[int64]int64{-165: 1, -105: 2, -45: 2, 15: 2}},
	} {
		t.Run(fmt.Sprint("offset ", tt.offset), func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				counted, late, _ := lateOf(t, in, 0, window.Tumbling(time.Minute, window.Offset(tt.offset)), opts)
				if fmt.Sprint(counted) != fmt.Sprint(tt.want) || len(late) > 0 {
					t.Errorf("counted %v, late %v, want %v", counted, late, tt.want)
				}
			})
		})
	}
}

// TestLatenessWithoutEnd: a lateness for which the closing time lies past what
// nanoseconds can count closes windows at the end of the input, not before.
func TestLatenessWithoutEnd(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		in := []stamp{{"a", minute}, {"b", minute.Add(time.Hour)}, {"old", minute.Add(time.Second)}}
		counted, late, _ := lateOf(t, in, 0, window.Tumbling(time.Minute, window.Lateness(250*366*24*time.Hour)), opts)
		if counted[minute.Unix()] != 2 || len(late) > 0 {
			t.Errorf("counted %v, late %v; nothing is late, and the first minute has two", counted, late)
		}
	})
}

// TestFarTimes: every year that is accepted counts, up to the last.
func TestFarTimes(t *testing.T) {
	for _, year := range []int{1900, 2115, 2117, 2200, 2261} {
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				start := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
				var got gathered[weir.Result[string, int64]]
				job := weir.NewJob("far")
				job.From("in", weir.Slice(stamp{"a", start}, stamp{"b", start.Add(time.Minute)}, stamp{"a", start.Add(time.Second)}, stamp{"c", start.Add(time.Hour)}),
					weir.EventTime(stampTime, 0).MaxAhead(0)).
					KeyBy(stampKey).Window(window.Tumbling(time.Minute, window.Lateness(10*time.Minute))).Count("n").To("out", got.sink())
				mustRun(t, job, opts...)
				var lines []string
				for _, r := range got.all() {
					lines = append(lines, fmt.Sprint(r.Start.Sub(start), " ", r.Value))
				}
				slices.Sort(lines)
				wantSame(t, lines, []string{"0s 2", "1h0m0s 1", "1m0s 1"})
			})
		})
	}
}

// turns is a source of two splits that are read in a given order: "fast" is
// read to its end before the first record of "slow" is.
type turns struct {
	fast, slow []stamp
	fastRead   chan struct{}
}

func (s *turns) Splits(context.Context) ([]string, error) { return []string{"fast", "slow"}, nil }

func (s *turns) Open(ctx context.Context, split string, at []byte) (weir.Reader[stamp], error) {
	recs, name := s.fast, "0"
	if split == "slow" {
		recs = s.slow
	}
	r, err := weir.Slice(recs...).Open(ctx, name, at)
	return &turnsReader{r, s, split}, err
}

type turnsReader struct {
	weir.Reader[stamp]
	s     *turns
	split string
}

func (r *turnsReader) Read(dst []stamp, limit int) ([]stamp, bool, error) {
	if r.split == "slow" {
		select {
		case <-r.s.fastRead:
		default:
			return dst, false, nil
		}
	}
	dst, end, err := r.Reader.Read(dst, limit)
	if r.split == "fast" && end {
		close(r.s.fastRead)
	}
	return dst, end, err
}

func (r *turnsReader) Ready() <-chan struct{} {
	if r.split == "slow" {
		return r.s.fastRead
	}
	return nil
}

// TestSlowSplitIsNotLate: a split an hour behind the other loses nothing to it,
// and a record is late by its own split alone.
func TestSlowSplitIsNotLate(t *testing.T) {
	hour := func(m int) time.Time { return minute.Add(time.Duration(m) * time.Minute) }
	for _, p := range []int{1, 2, 7} {
		t.Run(fmt.Sprint("parallelism ", p), func(t *testing.T) {
			src := &turns{fastRead: make(chan struct{}),
				fast: []stamp{{"f1", hour(60)}, {"f2", hour(61)}, {"late by f2", hour(60)}},
				slow: []stamp{{"s1", hour(0)}, {"s2", hour(1)}, {"late by s2", hour(0)}, {"s3", hour(60)}}}
			var got gathered[weir.Result[string, int64]]
			var late gathered[stamp]
			job := weir.NewJob("turns")
			w := job.From[stamp]("in", src, weir.EventTime(stampTime, 0)).KeyBy(stampKey).Window(window.Tumbling(time.Minute))
			w.Count("count").To("out", got.sink())
			w.Late().To("late", late.sink())
			mustRun(t, job, weir.Parallelism(p))
			wantSame(t, sorted(got.all()), sorted([]weir.Result[string, int64]{
				{Key: "all", Start: hour(0), End: hour(1), Value: 1}, {Key: "all", Start: hour(1), End: hour(2), Value: 1},
				{Key: "all", Start: hour(60), End: hour(61), Value: 2}, {Key: "all", Start: hour(61), End: hour(62), Value: 1}}))
			wantSame(t, sorted(late.all()), sorted([]stamp{{"late by f2", hour(60)}, {"late by s2", hour(0)}}))
		})
	}
}
