package weir_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// untouched is a source that must not be opened.
type untouched struct{ t *testing.T }

func (s untouched) Splits(context.Context) ([]string, error) {
	s.t.Error("the splits were listed although the job can't be run")
	return []string{"0"}, nil
}

func (s untouched) Open(context.Context, string, []byte) (weir.Reader[event], error) {
	s.t.Error("a split was opened although the job can't be run")
	return nil, errors.New("untouched")
}

// TestDeclarationErrors: each is reported by Run, names its step, and nothing
// is started.
func TestDeclarationErrors(t *testing.T) {
	timed := weir.EventTime(eventTime, 0)
	type padded struct {
		A int8
		B int64
	}
	type stream = weir.Stream[event]
	out := func(s *stream) { s.To("out", new(gathered[event]).sink()) }
	counted := func(s *weir.Stream[weir.Pair[string, int64]]) {
		s.To("out", new(gathered[weir.Pair[string, int64]]).sink())
	}
	windowed := func(s *weir.Stream[weir.Result[string, int64]]) {
		s.To("out", new(gathered[weir.Result[string, int64]]).sink())
	}
	minutes := window.Tumbling(time.Minute)
	tests := []struct {
		name  string
		build func(s *stream)
		opts  []weir.RunOption
		parts []string
	}{
		{"duplicate id", func(s *stream) { counted(s.KeyBy(keyOf).Count("in")) }, nil, []string{`"in"`, "used by two steps"}},
		{"empty id", func(s *stream) { counted(s.KeyBy(keyOf).Count("")) }, nil, []string{"count", "no id"}},
		{"an id with a slash", func(s *stream) { counted(s.KeyBy(keyOf).Count("a/b")) }, nil, []string{"a/b", "'/'"}},
		{"float key", func(s *stream) {
			s.KeyBy(func(event) float64 { return 0 }).Reduce("r", func(a, _ event) event { return a }).Via(func(s *stream) *stream { out(s); return s })
		}, nil, []string{"key-by", "float64"}},
		{"padded key", func(s *stream) {
			out(s.KeyBy(func(event) padded { return padded{} }).Reduce("r", func(a, _ event) event { return a }))
		}, nil, []string{"key-by", "padd"}},
		{"pointer key", func(s *stream) {
			out(s.KeyBy(func(event) *int { return nil }).Reduce("r", func(a, _ event) event { return a }))
		}, nil, []string{"key-by", "*int"}},
		{"distinct without time-to-live", func(s *stream) { out(s.KeyBy(keyOf).Distinct("seen", 0, weir.Admit(1)).Stream) }, nil, []string{`"seen"`, "time-to-live"}},
		{"distinct without a window or Admit", func(s *stream) { out(s.KeyBy(keyOf).Distinct("seen", time.Hour).Stream) }, nil, []string{`"seen"`, "Admit"}},
		{"window of no length", func(s *stream) { windowed(s.KeyBy(keyOf).Window(window.Tumbling(0)).Count("w")) }, nil, []string{`"w"`, "size"}},
		{"negative lateness", func(s *stream) {
			windowed(s.KeyBy(keyOf).Window(window.Tumbling(time.Minute, window.Lateness(-1))).Count("w"))
		}, nil, []string{`"w"`, "lateness"}},
		{"a window used twice", func(s *stream) {
			w := s.KeyBy(keyOf).Window(minutes)
			windowed(w.Count("w1").Union(w.Count("w2")))
		}, nil, []string{"w2", "Window again"}},
		{"an accumulator that can't be saved", func(s *stream) {
			s.KeyBy(keyOf).Fold("f", func() {}, func(f func(), _ event) func() { return f }).
				Map(func(weir.Pair[string, func()]) event { return event{} }).To("out", new(gathered[event]).sink())
		}, nil, []string{"f", "func()"}},
		{"no sink", func(s *stream) { s.Map(func(e event) event { return e }) }, nil, []string{"no sink"}},
		{"an output that goes nowhere", func(s *stream) { out(s); s.KeyBy(keyOf).Count("lost") }, nil, []string{`"lost"`, "nowhere"}},
		{"nil function sink", func(s *stream) { s.To("out", weir.Each[event](nil)) }, nil, []string{"out", "nil"}},
		{"two jobs merged", func(s *stream) {
			out(s.Union(weir.NewJob("other").From("x", weir.Slice(event{}))))
		}, nil, []string{"job other", "merged into job declared"}},
		{"no parallelism", out, []weir.RunOption{weir.Parallelism(0)}, []string{"parallelism 0"}},
		{"too large a batch", out, []weir.RunOption{weir.BatchSize(1025)}, []string{"batch size 1025"}},
		{"negative interval", out, []weir.RunOption{weir.Interval(-time.Second)}, []string{"interval -1s"}},
		{"retain none", out, []weir.RunOption{weir.Retain(0)}, []string{"retain 0"}},
		{"a transaction without a state directory", func(s *stream) { s.To("out", &vault[event]{}) }, nil, []string{"out", "StateDir"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := weir.NewJob("declared")
			tt.build(job.From("in", weir.Source[event](untouched{t}), timed))
			err := job.Run(t.Context(), tt.opts...)
			wantDeclaration(t, err, tt.parts...)
			if _, explained := job.Explain(t.Context(), tt.opts...); !errors.Is(explained, weir.ErrDeclaration) {
				t.Errorf("Explain gives %v, want what Run gives", explained)
			}
		})
	}
}

func wantDeclaration(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, weir.ErrDeclaration) {
		t.Fatalf("%v: want ErrDeclaration", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%v\nlacks %q", err, p)
		}
	}
}

// TestDeclarationErrorsComeTogether, and leave no state directory behind.
func TestDeclarationErrorsComeTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	job := weir.NewJob("all at once")
	in := job.From("in", weir.Source[event](untouched{t}))
	in.KeyBy(func(event) float32 { return 0 }).Count("in").To("a", new(gathered[weir.Pair[float32, int64]]).sink())
	in.KeyBy(keyOf).Window(window.Tumbling(time.Minute)).Count("w").To("", new(gathered[weir.Result[string, int64]]).sink())
	err := job.Run(t.Context(), weir.StateDir(dir), weir.Retain(-1))
	wantDeclaration(t, err, "all at once", "float32", "used by two steps", "event times", "no id", "retain -1")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the state directory was made: %v", err)
	}
}

func TestEmptyJob(t *testing.T) {
	wantDeclaration(t, weir.NewJob("").Run(t.Context()), "no source", "no sink", "name")
}

// What is emitted at a barrier has no event time of a record's: a window behind
// it would drop the last results as late, or not, as barriers happen to fall.
func TestWindowBehindBarrierEmissionIsRefused(t *testing.T) {
	job := weir.NewJob("j")
	var got gathered[string]
	job.From("in", weir.Slice(clicks(3)...), weir.EventTime(at, time.Second)).
		KeyBy(func(c click) string { return c.Ad }).
		Count("n", weir.EachBarrier()).
		KeyBy(func(p weir.Pair[string, int64]) string { return p.Key }).
		Window(window.Tumbling(time.Minute)).
		Count("w").
		Map(func(r weir.Result[string, int64]) string { return r.Key }).
		To("out", got.sink())
	err := job.Run(t.Context())
	if !errors.Is(err, weir.ErrDeclaration) || !strings.Contains(err.Error(), "barriers") {
		t.Fatalf("got %v", err)
	}
}

// A window fires at its end plus its lateness: a window behind it that takes
// less would have closed by then, and drop what it fires or not by timing.
func TestWindowBehindALaterWindowIsRefused(t *testing.T) {
	build := func(behind time.Duration) error {
		job := weir.NewJob("j")
		var got gathered[string]
		job.From("in", weir.Slice(clicks(3)...), weir.EventTime(at, time.Second)).
			KeyBy(func(c click) string { return c.Ad }).
			Window(window.Tumbling(time.Minute, window.Lateness(time.Minute))).
			Count("first").
			KeyBy(func(r weir.Result[string, int64]) string { return "all" }).
			Window(window.Tumbling(time.Minute, window.Lateness(behind))).
			Count("second").
			Map(func(r weir.Result[string, int64]) string { return r.Key }).
			To("out", got.sink())
		return job.Run(t.Context())
	}
	if err := build(time.Minute - 1); !errors.Is(err, weir.ErrDeclaration) || !strings.Contains(err.Error(), "first") {
		t.Fatalf("got %v", err)
	}
	if err := build(time.Minute); err != nil {
		t.Fatal(err)
	}
}
