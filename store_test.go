package weir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/window"
)

// wantErr checks an error's class and words.
func wantErr(t *testing.T, err, class error, parts ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%v: want one of class %q", err, class)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%v\nlacks %q", err, p)
		}
	}
}

func writeLines(t *testing.T, path string, from, to int) {
	t.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(goodLine(i))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(b.String()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// fileJob counts the lines of the files that match.
func fileJob(pattern string, crash int, out weir.Sink[weir.Pair[string, int64]]) *weir.Job {
	job := weir.NewJob("files")
	job.From("lines", file.Lines(pattern, codec.JSON[line]())).TryMap(crashAt[line](crash)).
		KeyBy(func(l line) string { return "all" }).Count("count", weir.EachBarrier()).To("out", out)
	return job
}

func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.jsonl")
	var got vault[weir.Pair[string, int64]]
	err := fileJob(path, 0, &got).Run(t.Context(), weir.StateDir(t.TempDir()))
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "lines") {
		t.Errorf("%v: want os.ErrNotExist with the path and the source", err)
	}
}

// TestSplitsBetweenRuns: a file that is new at a restart is read from its
// start; one that has gone is refused, by name.
func TestSplitsBetweenRuns(t *testing.T) {
	data, dir := t.TempDir(), weir.StateDir(t.TempDir())
	pattern := filepath.Join(data, "*.jsonl")
	writeLines(t, filepath.Join(data, "a.jsonl"), 0, 30)
	var got vault[weir.Pair[string, int64]]
	mustCrash(t, fileJob(pattern, 25, &got), dir, weir.EveryRecords(10))
	writeLines(t, filepath.Join(data, "b.jsonl"), 0, 11)
	mustCrash(t, fileJob(pattern, 8, &got), dir, weir.EveryRecords(100))
	moved := filepath.Join(data, "a.away")
	if err := os.Rename(filepath.Join(data, "a.jsonl"), moved); err != nil {
		t.Fatal(err)
	}
	wantErr(t, fileJob(pattern, 0, &got).Run(t.Context(), dir), weir.ErrRefused, "a.jsonl", "missing")
	if err := os.Rename(moved, filepath.Join(data, "a.jsonl")); err != nil {
		t.Fatal(err)
	}
	mustRun(t, fileJob(pattern, 0, &got), dir, weir.EveryRecords(10))
	if rows := got.all(); len(rows) == 0 || rows[len(rows)-1].Value != 41 {
		t.Errorf("rows %v, want the last to count 41 lines", rows)
	}
}

// TestFinishedJob: run again it does nothing; with more input it is refused.
func TestFinishedJob(t *testing.T) {
	data, dir := t.TempDir(), weir.StateDir(t.TempDir())
	pattern := filepath.Join(data, "*.jsonl")
	writeLines(t, filepath.Join(data, "a.jsonl"), 0, 30)
	var got vault[weir.Pair[string, int64]]
	mustRun(t, fileJob(pattern, 0, &got), dir)
	rows := fmt.Sprint(got.all())
	for range 3 {
		mustRun(t, fileJob(pattern, 1, &got), dir) // would fail at the first record
	}
	if again := fmt.Sprint(got.all()); again != rows || rows != "[{all 30}]" {
		t.Errorf("rows %s, and after running again %s", rows, again)
	}
	writeLines(t, filepath.Join(data, "b.jsonl"), 0, 1)
	wantErr(t, fileJob(pattern, 0, &got).Run(t.Context(), dir), weir.ErrGrown, "b.jsonl")
	if err := os.Remove(filepath.Join(data, "b.jsonl")); err != nil {
		t.Fatal(err)
	}
	writeLines(t, filepath.Join(data, "a.jsonl"), 30, 31)
	wantErr(t, fileJob(pattern, 0, &got).Run(t.Context(), dir), weir.ErrGrown, "a.jsonl")
	if again := fmt.Sprint(got.all()); again != rows {
		t.Errorf("a refused start changed the rows: %s", again)
	}
}

// TestChangedJobIsRefused: by name of what has changed, and only then.
func TestChangedJobIsRefused(t *testing.T) {
	type stream = weir.Stream[event]
	base := func(s *stream) *weir.Stream[string] { return minutesAndCounts[string](s, "w", time.Minute, 0, keyOf) }
	tests := []struct {
		name, job string
		source    string
		build     func(s *stream) *weir.Stream[string]
		parts     []string // nil: it is taken
	}{
		{"nothing", "changes", "in", base, nil},
		{"another job", "another", "in", base, []string{`"changes"`, `"another"`}},
		{"another source", "changes", "in2", base, []string{"in", "gone"}},
		{"window size", "changes", "in", func(s *stream) *weir.Stream[string] {
			return minutesAndCounts[string](s, "w", time.Hour, 0, keyOf)
		}, []string{"step w", "1m at", "1h at"}},
		{"window offset", "changes", "in", func(s *stream) *weir.Stream[string] {
			return minutesAndCounts[string](s, "w", time.Minute, time.Second, keyOf)
		}, []string{"step w", "offset 1s"}},
		{"key type", "changes", "in", func(s *stream) *weir.Stream[string] {
			return minutesAndCounts(s, "w", time.Minute, 0, func(e event) int64 { return e.N })
		}, []string{"step w", "string", "int64"}},
		{"removed step", "changes", "in", func(s *stream) *weir.Stream[string] {
			return s.KeyBy(keyOf).Count("c").Map(func(p weir.Pair[string, int64]) string { return p.Key })
		}, []string{"step w", "gone"}},
		{"another operation", "changes", "in", func(s *stream) *weir.Stream[string] {
			k := s.KeyBy(keyOf)
			return k.Count("w").Union(k.Count("c")).Map(func(p weir.Pair[string, int64]) string { return p.Key })
		}, []string{"step w", "window", "count"}},
		{"added step", "changes", "in", func(s *stream) *weir.Stream[string] {
			return base(s).Union(s.KeyBy(keyOf).Count("new").Map(func(p weir.Pair[string, int64]) string { return p.Key }))
		}, nil},
		{"stateless steps", "changes", "in", func(s *stream) *weir.Stream[string] {
			return base(s.Filter(func(event) bool { return true }).Map(func(e event) event { return e }))
		}, nil},
		{"lateness and value", "changes", "in", func(s *stream) *weir.Stream[string] {
			k := s.KeyBy(keyOf)
			return k.Window(window.Tumbling(time.Minute)).Reduce("w", func(a, _ event) event { return a },
				func(k string, _ window.Span, _ event) string { return k }).
				Union(k.Count("c").Map(func(p weir.Pair[string, int64]) string { return p.Key }))
		}, []string{"step w", "int64", "Key string"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got vault[string]
			dir := weir.StateDir(t.TempDir())
			job := weir.NewJob("changes")
			base(job.From("in", weir.Slice(sec("a", 1), sec("a", 2), sec("b", 3)), weir.EventTime(eventTime, 0)).TryMap(crashAt[event](3))).To("out", &got)
			mustCrash(t, job, dir, weir.EveryRecords(2))
			changed := weir.NewJob(tt.job)
			tt.build(changed.From(tt.source, weir.Slice(sec("a", 1), sec("a", 2), sec("b", 3)), weir.EventTime(eventTime, 0))).To("out", &got)
			err := changed.Run(t.Context(), dir)
			if tt.parts == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantErr(t, err, weir.ErrRefused, tt.parts...)
		})
	}
}

// minutesAndCounts has a window step with the given id and a count "c".
func minutesAndCounts[K comparable](s *weir.Stream[event], id string, size, offset time.Duration, key func(event) K) *weir.Stream[string] {
	return s.KeyBy(key).Window(window.Tumbling(size, window.Offset(offset))).Count(id).
		Map(func(r weir.Result[K, int64]) string { return fmt.Sprint(r.Key) }).
		Union(s.KeyBy(keyOf).Count("c").Map(func(p weir.Pair[string, int64]) string { return p.Key }))
}

// TestStateLayoutChanges: fields are found by name and never land in another;
// what can't be carried over is refused with step and field.
func TestStateLayoutChanges(t *testing.T) {
	type old struct {
		Count int64
		Sum   int64
	}
	type added struct {
		Count, Sum, Max int64
	}
	type reordered struct {
		Sum   int64
		Count int64
	}
	type removed struct{ Sum int64 }
	type retyped struct {
		Count string
		Sum   int64
	}
	type boxed struct {
		Sum   int64
		Tags  map[string]int64
		Count int64
	}
	layout(t, "same", func(a old) string { return fmt.Sprint(a.Count, a.Sum) }, "2 30", old{})
	layout(t, "added", func(a added) string { return fmt.Sprint(a.Count, a.Sum, a.Max) }, "2 30 0", added{})
	layout(t, "reordered", func(a reordered) string { return fmt.Sprint(a.Count, a.Sum) }, "2 30", reordered{})
	layout(t, "removed", func(a removed) string { return fmt.Sprint(a.Sum) }, "30", removed{})
	layout(t, "boxed", func(a boxed) string { return fmt.Sprint(a.Count, a.Sum, len(a.Tags)) }, "2 30 0", boxed{})
	layout(t, "retyped", func(a retyped) string { return fmt.Sprint(a.Count, a.Sum) }, "", retyped{})
	layout(t, "int64 from a struct", func(a int64) string { return fmt.Sprint(a) }, "", int64(0))
}

// layout writes state with {Count, Sum} of one key as 2 and 30 and reads it as
// A; want is how it reads, or "" where it must be refused by the step's name.
func layout[A any](t *testing.T, name string, show func(A) string, want string, zero A) {
	type state struct {
		Count int64
		Sum   int64
	}
	t.Run(name, func(t *testing.T) {
		dir := weir.StateDir(t.TempDir())
		in := weir.Slice(event{"k", 10, 1}, event{"k", 20, 2}, event{"k", 0, 3}, event{"k", 0, 4})
		job := weir.NewJob("layout")
		crash, committed := crashCommitted[event](3, 1)
		job.From("in", in).TryMap(crash).KeyBy(keyOf).
			Fold("acc", state{}, func(a state, e event) state { return state{a.Count + 1, a.Sum + e.N} }).
			To("out", new(gathered[weir.Pair[string, state]]).sink())
		mustCrash(t, job, dir, weir.EveryRecords(2), weir.Parallelism(2), committed)
		var got gathered[string]
		next := weir.NewJob("layout")
		next.From("in", in).KeyBy(keyOf).Fold("acc", zero, func(a A, _ event) A { return a }).
			Map(func(p weir.Pair[string, A]) string { return show(p.Value) }).To("out", got.sink())
		err := next.Run(t.Context(), dir, weir.Parallelism(2))
		if want == "" {
			wantErr(t, err, weir.ErrRefused, "acc")
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, got.all(), []string{want, want})
	})
}
