package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/window"
)

// line is one JSON line of the files here.
type line struct {
	K string    `json:"k"`
	N int       `json:"n"`
	T time.Time `json:"t"`
}

func lineTime(l line) time.Time { return l.T }

// goodLine is a line of 50 bytes, its end included.
func goodLine(n int) string {
	return fmt.Sprintf(`{"k":"k%02d","n":%04d,"t":"2026-03-01T12:%02d:%02dZ"}`, n%7, 1000+n, n/60%60, n%60) + "\n"
}

// linesFile writes 40 good lines with one of them, from 1, replaced, and
// returns the file and the byte offset of that line.
func linesFile(t *testing.T, bad int, text string) (path string, offset int) {
	t.Helper()
	var b strings.Builder
	for i := range 40 {
		if i+1 == bad {
			offset = b.Len()
			b.WriteString(text)
			continue
		}
		b.WriteString(goodLine(i))
	}
	path = filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, offset
}

// wantBad checks an error that a record was the cause of.
func wantBad(t *testing.T, err error, parts ...string) {
	t.Helper()
	var rec *weir.RecordError
	if !errors.Is(err, weir.ErrInput) || !errors.As(err, &rec) {
		t.Fatalf("%v: want ErrInput and a RecordError", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%v\nlacks %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "no input record") {
		t.Errorf("%v\nsays that no record caused it", err)
	}
}

// TestBadLineStopsTheJob: each names source, split, line, byte offset and
// reason, and the lines before it have been processed.
func TestBadLineStopsTheJob(t *testing.T) {
	at := func(ts string) string { return `{"k":"x","n":1,"t":"` + ts + `"}` + "\n" }
	for _, tt := range []struct{ name, text, reason string }{
		{"not JSON", "{oops\n", "not valid JSON"},
		{"a string where a number belongs", `{"k":"x","n":"one"}` + "\n", "/n"},
		{"too long", `{"k":"` + strings.Repeat("x", 1<<20) + `"}` + "\n", "longer than 1048576 bytes"},
		{"invalid UTF-8", "{\"k\":\"\xff\"}\n", "UTF-8"},
		{"no event time", `{"k":"x","n":1}` + "\n", "zero time"},
		{"year 9999", at("9999-12-31T23:59:59Z"), "absurd"},
		{"year 0001", at("0001-01-02T00:00:00Z"), "absurd"},
		{"year 2099", at("2099-01-01T00:00:00Z"), "ahead of the clock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range []int{1, 4} {
				path, offset := linesFile(t, 23, tt.text)
				var got gathered[line] // by a step: a sink may still hold a part of its batch
				job := weir.NewJob("bad")
				job.From("lines", file.Lines(path, codec.JSON[line]()), weir.EventTime(lineTime, 0)).
					Map(func(l line) line {
						got.mu.Lock()
						defer got.mu.Unlock()
						got.recs = append(got.recs, l)
						return l
					}).To("out", new(gathered[line]).sink())
				err := job.Run(t.Context(), weir.Parallelism(p))
				wantBad(t, err, "lines", path, "line 23", fmt.Sprint("byte offset ", offset), tt.reason)
				if n := len(got.all()); n != 22 {
					t.Errorf("%d records were processed, want the 22 before the bad one", n)
				}
			}
		})
	}
}

// TestFunctionThatFailsNamesTheLine: a panic, or an error of a Try form, names
// the step and the exact line, also behind exchanges.
func TestFunctionThatFailsNamesTheLine(t *testing.T) {
	boom := func(l line) {
		if l.N == 1022 {
			panic("boom at 1022")
		}
	}
	type stream = weir.Stream[line]
	key := func(l line) string { return l.K }
	same := func(l line) line { return l }
	result := func(string, window.Span, line) line { return line{} }
	tests := []struct {
		name, step string
		build      func(s *stream) *stream
	}{
		{"map", "map", func(s *stream) *stream { return s.Map(func(l line) line { boom(l); return l }) }},
		{"filter", "filter", func(s *stream) *stream { return s.Filter(func(l line) bool { boom(l); return true }) }},
		{"flat-map", "flat-map", func(s *stream) *stream {
			return s.FlatMap(func(l line, emit func(line)) { emit(l); boom(l); emit(l) })
		}},
		{"split", "split", func(s *stream) *stream {
			yes, no := s.Split(func(l line) bool { boom(l); return l.N%2 == 0 })
			return yes.Union(no)
		}},
		{"try-map", "try-map", func(s *stream) *stream {
			return s.TryMap(func(l line) (line, error) {
				if l.N == 1022 {
					return l, errors.New("boom at 1022")
				}
				return l, nil
			})
		}},
		{"key-by", "key-by", func(s *stream) *stream {
			return s.KeyBy(func(l line) string { boom(l); return l.K }).Reduce("reduce", func(_, b line) line { return b })
		}},
		{"fold behind an exchange", "fold", func(s *stream) *stream {
			return s.KeyBy(key).Fold("fold", line{}, func(_ line, l line) line { boom(l); return l }).
				Map(func(p weir.Pair[string, line]) line { return p.Value })
		}},
		{"reduce in a window", "window", func(s *stream) *stream {
			return s.KeyBy(key).Window(window.Tumbling(time.Hour)).Reduce("window", func(_, b line) line { boom(b); return b }, result)
		}},
		{"map behind two exchanges", "map", func(s *stream) *stream {
			return s.KeyBy(key).Reduce("first", func(_, b line) line { return b }).
				KeyBy(func(l line) int { return l.N % 3 }).Reduce("second", func(_, b line) line { return b }).
				Map(func(l line) line { boom(l); return l })
		}},
		{"map behind a distinct", "map", func(s *stream) *stream {
			return s.KeyBy(key).Distinct("seen", time.Nanosecond, weir.Admit(time.Hour)).Map(func(l line) line { boom(l); return l })
		}},
		{"map behind a union", "map", func(s *stream) *stream {
			return s.Map(same).Union(s.Filter(func(line) bool { return false })).Map(func(l line) line { boom(l); return l })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				path, offset := linesFile(t, 23, goodLine(22))
				job := weir.NewJob("bad")
				tt.build(job.From("lines", file.Lines(path, codec.JSON[line]()), weir.EventTime(lineTime, 0))).To("out", new(gathered[line]).sink())
				err := job.Run(t.Context(), opts...)
				wantBad(t, err, "boom at 1022", tt.step, path, "line 23", fmt.Sprint("byte offset ", offset))
			})
		})
	}
}

// TestEventTimeFunctionThatPanics names source and line.
func TestEventTimeFunctionThatPanics(t *testing.T) {
	path, offset := linesFile(t, 23, goodLine(22))
	job := weir.NewJob("bad")
	job.From("lines", file.Lines(path, codec.JSON[line]()), weir.EventTime(func(l line) time.Time {
		if l.N == 1022 {
			panic("no time")
		}
		return l.T
	}, 0)).To("out", new(gathered[line]).sink())
	wantBad(t, job.Run(t.Context()), "no time", "lines", path, "line 23", fmt.Sprint("byte offset ", offset))
}

// TestResultThatPanicsOnClose has no record to name: the window's end caused it.
func TestResultThatPanicsOnClose(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		job := weir.NewJob("bad")
		job.From("in", weir.Slice(sec("a", 1)), weir.EventTime(eventTime, 0)).KeyBy(keyOf).Window(window.Tumbling(time.Minute)).
			Aggregate("closing", agg.Of(0, func(n int, _ event) int { return n + 1 }, func(a, b int) int { return a + b },
				func(int) int { panic("no result") })).
			To("out", new(gathered[weir.Result[string, int]]).sink())
		err := job.Run(t.Context(), opts...)
		var rec *weir.RecordError
		if !errors.Is(err, weir.ErrInput) || !errors.As(err, &rec) || rec.Step != "closing (window)" && rec.Step != "closing" || rec.Where != "" {
			t.Fatalf("%v: want a RecordError of step closing that names no record", err)
		}
		if !strings.Contains(err.Error(), "no result") || !strings.Contains(err.Error(), "watermark") {
			t.Errorf("%v: it should say what was thrown, and that a watermark caused it", err)
		}
	})
}

// TestErrorOfTheUserIsWrapped: callers can find their own error.
func TestErrorOfTheUserIsWrapped(t *testing.T) {
	job := weir.NewJob("bad")
	job.From("in", weir.Slice(1, 2, 3)).TryMap(crashAt[int](2)).To("out", new(gathered[int]).sink())
	err := job.Run(t.Context())
	wantBad(t, err, "record 1 of split 0", "try-map")
	if !errors.Is(err, errCrash) {
		t.Errorf("%v doesn't wrap the function's error", err)
	}
}

// TestRecordsBeforeTheBadOneCount: what came before is processed by every step
// of its task, and the job goes on from its last checkpoint once the input is
// right, to the same result.
func TestRecordsBeforeTheBadOneCount(t *testing.T) {
	for _, p := range []int{1, 4} {
		path, _ := linesFile(t, 23, "{oops\n")
		dir := weir.StateDir(t.TempDir())
		var got vault[weir.Pair[string, int64]]
		declare := func() *weir.Job {
			job := weir.NewJob("bad")
			job.From("lines", file.Lines(path, codec.JSON[line]())).KeyBy(func(l line) string { return l.K }).
				Count("count", weir.EachBarrier()).To("out", &got)
			return job
		}
		wantBad(t, declare().Run(t.Context(), dir, weir.EveryRecords(10), weir.Parallelism(p)), "line 23")
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// As long as the bad line: what follows it stays where it is.
		fixed := strings.Replace(string(whole), "{oops\n", "     \n", 1)
		if err := os.WriteFile(path, []byte(fixed), 0o600); err != nil {
			t.Fatal(err)
		}
		mustRun(t, declare(), dir, weir.EveryRecords(10), weir.Parallelism(p))
		last := map[string]int64{}
		for _, r := range got.all() {
			last[r.Key] = r.Value
		}
		want := map[string]int64{}
		for i := range 40 {
			if i != 22 {
				want[fmt.Sprintf("k%02d", i%7)]++
			}
		}
		if fmt.Sprint(last) != fmt.Sprint(want) {
			t.Errorf("parallelism %d: counted %v, want %v", p, last, want)
		}
	}
}

// refusing is a sink whose writers refuse everything.
type refusing struct {
	vault[int]
	err error
}

func (r *refusing) Open(context.Context, weir.Participant, string) (weir.Outlet[int], error) {
	return r, nil
}
func (r *refusing) Writer(int) weir.Writer[int] { return r }
func (r *refusing) Write([]int, []int64) error  { return r.err }
func (r *refusing) Seal(int64) error            { return r.err }

// TestSinkThatFailsIsNotBadInput: no record is to blame.
func TestSinkThatFailsIsNotBadInput(t *testing.T) {
	full := errors.New("the receiver is full")
	job := weir.NewJob("sink")
	job.From("in", weir.Slice(1, 2, 3)).To("out", &refusing{err: full})
	err := job.Run(t.Context(), weir.StateDir(t.TempDir()), weir.Restarts(0))
	if !errors.Is(err, full) || errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), "step out") {
		t.Errorf("%v: want the sink's error with its step, and not ErrInput", err)
	}
}
