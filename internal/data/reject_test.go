package data

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

// box gathers the letters of all tasks, and where their epochs end.
type box struct {
	mu      sync.Mutex
	letters []Letter
	sealed  map[int64]int // by epoch, how many tasks have sealed it
	in      map[int64][]Letter
	full    bool
	err     error
}

type slot struct {
	*box
	mine []Letter
}

func (s *slot) Put(l Letter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters = append(s.letters, l)
	s.mine = append(s.mine, l)
	return s.err
}

func (s *slot) Seal(epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed == nil {
		s.sealed, s.in = map[int64]int{}, map[int64][]Letter{}
	}
	s.sealed[epoch]++
	s.in[epoch] = append(s.in[epoch], s.mine...)
	s.mine = nil
	return nil
}

func (s *slot) Full() bool { return s.full }

func (b *box) aside(l Limit) func(*Run) {
	return func(r *Run) {
		r.SetAside(Aside{Step: 9, Sink: "dead", Limit: l, Letters: func() Letters { return &slot{box: b} }})
	}
}

// all is each letter in short, sorted.
func (b *box) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, l := range b.letters {
		out = append(out, short(l))
	}
	slices.Sort(out)
	return out
}

func short(l Letter) string {
	return fmt.Sprintf("%s/%s/%d %s %s: %s", l.Source, l.Split, l.Mark, l.Step, l.Kind, l.Reason)
}

// boom panics at one number.
func boom(n int64) func(rec) rec {
	return func(r rec) rec {
		if r.n == n {
			panic(fmt.Sprint("boom ", n))
		}
		return r
	}
}

func show(at At, next Out[string]) Out[rec] {
	return NewMap(at, func(r rec) string { return fmt.Sprint(r.key, r.n) }, next)
}

func numbered(n int) []rec {
	var recs []rec
	for i := range n {
		recs = append(recs, rec{key: string(rune('a' + i%3)), at: int64(i), n: int64(i)})
	}
	return recs
}

// Each step rejects exactly the record at hand, and passes the others on.
func TestStepsReject(t *testing.T) {
	bad := errors.New("bad number")
	sink := func(f *flow, t *Task) Out[string] { return NewSink(At{t, 3}, SinkWriter[string](f.out)) }
	for _, c := range []struct {
		name string
		mk   func(at At, out Out[string]) Out[rec]
		want string // the reason of record 4; empty: the error
		gone int    // outputs that record 4 would have had
	}{
		{"map", func(at At, out Out[string]) Out[rec] { return NewMap(at, boom(4), show(at, out)) }, "panic: panic in a user function: boom 4", 1},
		{"try-map, an error", func(at At, out Out[string]) Out[rec] {
			return NewTryMap(at, func(r rec) (rec, error) {
				if r.n == 4 {
					return r, bad
				}
				return r, nil
			}, show(at, out))
		}, "error: bad number", 1},
		{"try-map, a panic", func(at At, out Out[string]) Out[rec] {
			return NewTryMap(at, func(r rec) (rec, error) { return boom(4)(r), nil }, show(at, out))
		}, "panic: panic in a user function: boom 4", 1},
		{"flat-map that has emitted", func(at At, out Out[string]) Out[rec] {
			return NewFlatMap(at, func(r rec, emit func(rec)) { emit(r); boom(4)(r); emit(r) }, show(at, out))
		}, "panic: panic in a user function: boom 4", 2},
		{"try-flat-map that has emitted", func(at At, out Out[string]) Out[rec] {
			return NewTryFlatMap(at, func(r rec, emit func(rec)) error {
				emit(r)
				emit(r)
				if r.n == 4 {
					return bad
				}
				return nil
			}, show(at, out))
		}, "error: bad number", 2},
		{"filter", func(at At, out Out[string]) Out[rec] {
			return NewFilter(at, func(r rec) bool { boom(4)(r); return true }, show(at, out))
		}, "panic: panic in a user function: boom 4", 1},
		{"split", func(at At, out Out[string]) Out[rec] {
			m := NewMerge(show(at, out))
			return NewSplit(at, func(r rec) bool { boom(4)(r); return r.n%2 == 0 }, m.Way(), m.Way())
		}, "panic: panic in a user function: boom 4", 1},
		{"a panic that isn't a text", func(at At, out Out[string]) Out[rec] {
			return NewMap(at, func(r rec) rec {
				if r.n == 4 {
					m := map[bool]map[string]int{}
					m[true]["x"] = 1
				}
				return r
			}, show(at, out))
		}, "panic: panic in a user function: assignment to entry in nil map", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b box
			in := newFeed(numbered(10)...)
			f := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, b.aside(Limit{-1, 0}),
				func(f *flow, t *Task) Out[rec] { return c.mk(At{t, 2}, sink(f, t)) })
			got := f.settle(1)
			if n := 10*c.gone - c.gone; len(got) != n || slices.Contains(got, "b4") {
				t.Errorf("passed on: %v, want %d and none of record 4", got, n)
			}
			letters := b.all()
			if len(letters) != 1 || !strings.HasPrefix(letters[0], "in/0/4 step "+c.want) {
				t.Errorf("letters: %q, want one of record 4: %s", letters, c.want)
			}
			if b.letters[0].At != 4 || b.letters[0].Where != "split 0, record 4" {
				t.Errorf("the letter: %+v", b.letters[0])
			}
		})
	}
}

// A branch that rejects a record has no say in the others, whichever comes
// first, and a panic further down isn't that of the step above.
func TestBranchesRejectForThemselves(t *testing.T) {
	for first := range 2 {
		var b box
		in := newFeed(numbered(6)...)
		f := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, b.aside(Limit{-1, 0}), func(f *flow, t *Task) Out[rec] {
			out := NewSink(At{t, 3}, SinkWriter[string](f.out))
			m := NewMerge[string](out)
			ways := Tee[rec]{NewMap(At{t, 2}, boom(4), show(At{t, 2}, m.Way())), show(At{t, 2}, m.Way())}
			if first == 1 {
				slices.Reverse(ways)
			}
			return NewFilter(At{t, 1}, func(rec) bool { return true }, Out[rec](ways))
		})
		got := f.settle(1)
		slices.Sort(got)
		if want := "a0 a0 a3 a3 b1 b1 b4 c2 c2 c5 c5"; strings.Join(got, " ") != want {
			t.Errorf("first %d: got %v, want %s", first, got, want)
		}
		if letters := b.all(); len(letters) != 1 || !strings.HasPrefix(letters[0], "in/0/4 step panic") {
			t.Errorf("first %d: letters %q", first, letters)
		}
	}
}

// Two branches that reject one record make two letters of it, which are one for
// the limit; the second rejection of the same record isn't a second record.
func TestOneRecordCountsOnceForTheLimit(t *testing.T) {
	var b box
	in := newFeed(numbered(30)...)
	f := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, b.aside(Limit{2, 0}), func(f *flow, t *Task) Out[rec] {
		out := NewSink(At{t, 3}, SinkWriter[string](f.out))
		m := NewMerge[string](out)
		bad := func(r rec) rec { boom(4)(r); return boom(7)(r) }
		return Tee[rec]{NewMap(At{t, 1}, bad, show(At{t, 2}, m.Way())), NewMap(At{t, 2}, bad, show(At{t, 2}, m.Way()))}
	})
	f.settle(1)
	if n := len(b.all()); n != 4 {
		t.Fatalf("%d letters, want 4", n)
	}
	want := []Count{{"key", Panicking, 2}, {"step", Panicking, 2}}
	if got := f.Rejects(); !slices.Equal(got, want) {
		t.Fatalf("counted %v, want %v", got, want)
	}
}

// The limit ends the task, and says how many of how many, why, and what to do.
func TestTheLimitStopsTheTask(t *testing.T) {
	var b box
	in := newFeed(numbered(100)...)
	f := startWith(t, shape{parallelism: 1, batch: 8}, nil, []*feed{in}, b.aside(Limit{3, 20}), func(f *flow, t *Task) Out[rec] {
		out := NewSink(At{t, 3}, SinkWriter[string](f.out))
		return NewTryMap(At{t, 2}, func(r rec) (string, error) { return "", fmt.Errorf("bad %d", r.n) }, Out[string](out))
	})
	err := <-f.failed
	if !errors.Is(err, ErrInput) {
		t.Fatal(err)
	}
	for _, part := range []string{"sink dead", "4 of the last 8 records", "3 of 20", "MaxDeadLetters", "step step: bad 1;", "bad 2", "bad 3", "source in, split 0, record 3"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "bad 0") {
		t.Errorf("%v\nhas more than the last reasons", err)
	}
}

// keyedBy is keyed, with a key function of the test's.
func keyedBy(key func(rec) string, mk func(at At, next Out[string]) (Op[string, rec], Marker)) chain {
	memo := new(byte)
	return func(f *flow, t *Task) Out[rec] {
		kind := must(table.KeyOf[string]())
		if f.Parallelism == 1 {
			op, head := mk(At{t, 2}, NewSink(At{t, 3}, SinkWriter[string](f.out)))
			return NewLocal(t, 1, kind, key, op, head)
		}
		stage, ok := f.Stages[memo].(*Stage[string, rec])
		if !ok {
			stage = NewStage(f.Run, "step", func(t *Task) (Op[string, rec], Marker) {
				return mk(At{t, 2}, NewSink(At{t, 3}, SinkWriter[string](f.out)))
			})
			f.Stages[memo] = stage
		}
		return NewKeyer(t, 1, kind, key, stage)
	}
}

// A key function that panics rejects its record: nothing of it is in a batch.
func TestKeysReject(t *testing.T) {
	for _, p := range []int{1, 2, 7} {
		for _, batch := range []int{1, 4, 1024} {
			var b box
			in := newFeed(numbered(20)...)
			f := startWith(t, shape{parallelism: p, batch: batch}, nil, []*feed{in}, b.aside(Limit{-1, 0}),
				keyedBy(func(r rec) string { boom(4)(r); return boom(19)(r).key }, summing(EachRecord, nil)))
			got := last(f.settle(1))
			if want := map[string]int64{"a": 0 + 3 + 6 + 9 + 12 + 15 + 18, "b": 1 + 7 + 10 + 13 + 16, "c": 2 + 5 + 8 + 11 + 14 + 17}; !maps.Equal(got, want) {
				t.Errorf("parallelism %d, batch %d: %v, want %v", p, batch, got, want)
			}
			if l := b.all(); len(l) != 2 || !strings.HasPrefix(l[0], "in/0/19 key panic") || !strings.HasPrefix(l[1], "in/0/4 key panic") {
				t.Errorf("parallelism %d, batch %d: letters %q", p, batch, l)
			}
		}
	}
}

// last is the last sum of each key, of lines such as "a=3".
func last(lines []string) map[string]int64 {
	out := map[string]int64{}
	for _, l := range lines {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			continue
		}
		var n int64
		fmt.Sscan(v, &n)
		out[k] = n
	}
	return out
}

// summing adds up the numbers of each key, and calls bad with each before.
func summing(emit Emission, bad func(rec)) func(at At, next Out[string]) (Op[string, rec], Marker) {
	return func(at At, next Out[string]) (Op[string, rec], Marker) {
		f := NewFold(at, FoldConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Zero: func() int64 { return 0 }, Barrier: emit == EachBarrier,
			Add: func(sum int64, r rec) int64 {
				if bad != nil {
					bad(r)
				}
				return sum + r.n
			}, Make: func(k string, n int64) string { return fmt.Sprint(k, "=", n) }}, next)
		return f, f
	}
}
