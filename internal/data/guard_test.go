package data

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

// folds are steps that add records to state, each over an accumulator of another
// make. bad is called with each record in the middle of adding it, and made with
// each result's number of records while the result is made.
var folds = []struct {
	name string
	mk   func(emit Emission, bad func(rec), made func(int64)) func(at At, next Out[string]) (Op[string, rec], Marker)
}{
	{"flat", func(emit Emission, bad func(rec), made func(int64)) func(At, Out[string]) (Op[string, rec], Marker) {
		type sum struct{ N, Sum int64 }
		return foldOf(emit, sum{}, func(s sum, r rec) sum {
			s.N++
			bad(r)
			s.Sum += r.n
			return s
		}, func(s sum) string { made(s.N); return fmt.Sprint(s.N, ":", s.Sum) })
	}},
	{"text", func(emit Emission, bad func(rec), made func(int64)) func(At, Out[string]) (Op[string, rec], Marker) {
		return foldOf(emit, "", func(s string, r rec) string {
			bad(r)
			return s + fmt.Sprint("+", r.n)
		}, func(s string) string { made(int64(strings.Count(s, "+"))); return s })
	}},
	{"a map changed in place", func(emit Emission, bad func(rec), made func(int64)) func(At, Out[string]) (Op[string, rec], Marker) {
		return foldOf(emit, map[int64]bool{}, func(s map[int64]bool, r rec) map[int64]bool {
			s[r.n] = true
			bad(r)
			return s
		}, func(s map[int64]bool) string { made(int64(len(s))); return fmt.Sprint(slices.Sorted(maps.Keys(s))) })
	}},
	{"a slice changed in place", func(emit Emission, bad func(rec), made func(int64)) func(At, Out[string]) (Op[string, rec], Marker) {
		type acc struct{ All []int64 }
		return foldOf(emit, acc{All: []int64{0}}, func(s acc, r rec) acc {
			s.All[0]++
			s.All = append(s.All, r.n)
			bad(r)
			return s
		}, func(s acc) string { made(s.All[0]); return fmt.Sprint(s.All) })
	}},
	{"what a pointer points to", func(emit Emission, bad func(rec), made func(int64)) func(At, Out[string]) (Op[string, rec], Marker) {
		type cell struct{ N, Sum int64 }
		type acc struct{ P *cell }
		return foldOf(emit, acc{P: &cell{}}, func(s acc, r rec) acc {
			s.P.N++
			s.P.Sum += r.n
			bad(r)
			return s
		}, func(s acc) string { made(s.P.N); return fmt.Sprint(*s.P) })
	}},
}

func foldOf[A any](emit Emission, zero A, add func(A, rec) A, text func(A) string) func(At, Out[string]) (Op[string, rec], Marker) {
	value := must(table.ValueOf[A]())
	return func(at At, next Out[string]) (Op[string, rec], Marker) {
		f := NewFold(at, FoldConfig[string, rec, A, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: value,
			Zero: table.Zeros(value, zero), Add: add, Barrier: emit == EachBarrier,
			Make: func(k string, acc A) string { return k + "=" + text(acc) }}, next)
		return f, f
	}
}

// The oracle is the same step over the input without the bad records, and
// without a sink for dead letters: whatever a function has done to state before
// it panicked, the results and the letters must be those.
func TestARejectedRecordLeavesNoTraceInState(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var all, good []rec
	want := 0
	for i := range 400 {
		r := rec{key: fmt.Sprint("k", rnd.IntN(40)), at: int64(i), n: int64(i + 1)}
		if rnd.IntN(4) == 0 { // also the first of a key
			r.n = -r.n
			want++
		} else {
			good = append(good, r)
		}
		all = append(all, r)
	}
	bad := func(r rec) {
		if r.n < 0 {
			panic(fmt.Sprint("boom ", r.n))
		}
	}
	for _, fold := range folds {
		for _, emit := range []Emission{EachRecord, EachBarrier} {
			for _, sh := range []shape{{parallelism: 1, batch: 1}, {parallelism: 1, batch: 1024}, {parallelism: 3, batch: 7}} {
				t.Run(fmt.Sprintf("%s, emission %d, %+v", fold.name, emit, sh), func(t *testing.T) {
					run := func(recs []rec, prepare func(*Run)) []string {
						f := startWith(t, sh, nil, []*feed{newFeed(recs...)}, prepare,
							keyedBy(func(r rec) string { return r.key }, fold.mk(emit, bad, func(int64) {})))
						out := f.settle(1)
						f.barrier(1)
						out = append(out, f.settle(2)...)
						f.end()
						slices.Sort(out)
						return out
					}
					var b box
					got := run(all, b.aside(Limit{-1, 0}))
					if want := run(good, func(*Run) {}); !slices.Equal(got, want) {
						t.Errorf("with bad records:\n%q\nwithout them:\n%q", got, want)
					}
					if n := len(b.all()); n != want {
						t.Errorf("%d letters, want %d", n, want)
					}
				})
			}
		}
	}
}

// A panic while a record's result is made takes back what the record has added.
func TestAResultThatPanicsTakesTheRecordBack(t *testing.T) {
	want := map[string][]string{
		"flat":                     {"a=1:1", "a=2:4", "a=3:9"},
		"text":                     {"a=+1", "a=+1+3", "a=+1+3+5"},
		"a map changed in place":   {"a=[1]", "a=[1 3]", "a=[1 3 5]"},
		"a slice changed in place": {"a=[1 1]", "a=[2 1 3]", "a=[3 1 3 5]"},
		"what a pointer points to": {"a={1 1}", "a={2 4}", "a={3 9}"},
	}
	for _, fold := range folds {
		var b box
		calls := 0
		f := startWith(t, shape{parallelism: 1, batch: 8}, nil, []*feed{newFeed(rec{"a", 1, 1}, rec{"a", 2, 2}, rec{"a", 3, 3}, rec{"b", 4, 4}, rec{"a", 5, 5})},
			b.aside(Limit{-1, 0}), keyedBy(func(r rec) string { return r.key }, fold.mk(EachRecord, func(rec) {}, func(n int64) {
				if calls++; calls == 2 || calls == 4 { // records a 2 and b 4, the first of its key
					panic("no result")
				}
			})))
		out := f.settle(1)
		letters := b.all()
		if !slices.Equal(out, want[fold.name]) || len(letters) != 2 || !strings.HasPrefix(letters[0], "in/0/1 step panic") || !strings.HasPrefix(letters[1], "in/0/3 step panic") {
			t.Errorf("%s: %q, letters %q", fold.name, out, letters)
		}
		// What is saved has no trace of it either: the key of b is gone.
		live := 0
		for _, a := range f.barrier(1) {
			for _, p := range a.Parts {
				live += p.Info().Live
				p.Release()
			}
		}
		if live != 1 {
			t.Errorf("%s: %d keys in state, want that of a alone", fold.name, live)
		}
	}
}

// Windows: the same oracle, over every emission, with late records among them.
func TestARejectedRecordLeavesNoTraceInWindows(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	var all, good []rec
	for i := range 500 {
		r := rec{key: fmt.Sprint("k", rnd.IntN(10)), at: max(0, int64(i)-rnd.Int64N(60)), n: int64(i + 1)}
		if i%17 == 16 {
			r.n = -r.n
			r.at = int64(i) // moves the watermark as the good one before it does
		} else {
			good = append(good, r)
		}
		all = append(all, r)
	}
	const size = 25
	value := must(table.ValueOf[map[string]int64]())
	for _, emit := range []Emission{OnClose, EachBarrier, EachRecord} {
		for _, sh := range []shape{{1, 1, 600, 0}, {1, 1024, 600, 0}, {3, 7, 600, 0}} {
			t.Run(fmt.Sprintf("emission %d, %+v", emit, sh), func(t *testing.T) {
				run := func(recs []rec, prepare func(*Run)) []string {
					in := newFeed(recs...)
					in.end()
					f := startWith(t, sh, nil, []*feed{in}, prepare, keyedBy(func(r rec) string { return r.key }, func(at At, next Out[string]) (Op[string, rec], Marker) {
						w := NewWindow(at, WindowConfig[string, rec, map[string]int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: value,
							Size: size, Start: func(at int64) int64 { return at / size * size }, Emit: emit, Zero: table.Zeros(value, map[string]int64{}),
							Add: func(acc map[string]int64, r rec) map[string]int64 {
								acc["n"]++
								acc["sum"] += r.n
								if r.n < 0 {
									panic("negative")
								}
								return acc
							}, Make: func(k string, start int64, acc map[string]int64) string {
								return fmt.Sprint(k, "@", start, "=", acc)
							}}, next)
						return w, w
					}))
					for range f.Sources() {
						<-f.ended
					}
					out := f.settle(1)
					f.barrier(1)
					out = append(out, f.settle(2)...)
					f.end()
					slices.Sort(out)
					return out
				}
				var b box
				got := run(all, b.aside(Limit{-1, 0}))
				if want := run(good, func(*Run) {}); !slices.Equal(got, want) {
					t.Errorf("with bad records:\n%q\nwithout them:\n%q", got, want)
				}
				if n, want := len(b.all()), len(all)-len(good); n != want {
					t.Errorf("%d letters, want %d", n, want)
				}
			})
		}
	}
}

// A count at the largest int64 isn't raised: with a sink for dead letters the
// record goes there, and without one it stops the task, by name.
func TestCountsDontWrap(t *testing.T) {
	nearly := func(t *testing.T, step chain) *kept {
		f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{newFeed(rec{"k", 5, 0})}, step)
		f.settle(1)
		var k kept
		k.take(t, f.barrier(1))
		f.end()
		return &k
	}
	zero := func() int64 { return math.MaxInt64 - 2 }
	add := func(n int64, _ rec) int64 { return n + 1 }
	fold := keyedBy(func(r rec) string { return r.key }, func(at At, next Out[string]) (Op[string, rec], Marker) {
		f := NewFold(at, FoldConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Zero: zero, Add: add, Make: func(k string, n int64) string { return fmt.Sprint(k, "=", n) }}, next)
		return f, f
	})
	window := keyedBy(func(r rec) string { return r.key }, func(at At, next Out[string]) (Op[string, rec], Marker) {
		w := NewWindow(at, WindowConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Size: 100, Start: func(int64) int64 { return 0 }, Emit: EachBarrier, Zero: zero, Add: add,
			Make: func(k string, _, n int64) string { return fmt.Sprint(k, "=", n) }}, next)
		return w, w
	})
	size := int64(100)
	for _, c := range []struct {
		name      string
		save, use chain
	}{
		{"count", fold, counting()},
		{"count in windows, each record", window, windowing(size, 0, EachRecord)},
		{"count in windows, at barriers", window, windowing(size, 0, EachBarrier)},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := nearly(t, c.save)
			recs := []rec{{"k", 5, 0}, {"k", 6, 1}, {"other", 7, 2}, {"k", 8, 3}, {"k", 9, 4}, {"other", 9, 5}}
			var b box
			f := startWith(t, shape{parallelism: 1, batch: 4}, from, []*feed{newFeed(recs...)}, b.aside(Limit{-1, 0}), c.use)
			out := f.settle(1)
			f.barrier(2)
			if out = append(out, f.settle(2)...); !slices.ContainsFunc(out, func(s string) bool { return strings.HasSuffix(s, "=9223372036854775807") }) {
				t.Errorf("got %q, want the largest count", out)
			}
			for _, s := range out {
				if strings.Contains(s, "=-") {
					t.Errorf("it has wrapped: %q", out)
				}
			}
			letters := b.all()
			if len(letters) != 2 || !strings.Contains(letters[0], "in/0/3 step error: the count of its key is 9223372036854775807") {
				t.Errorf("letters: %q, want two, of records 3 and 4", letters)
			}
			f.end()
			g := start(t, shape{parallelism: 1, batch: 4}, from, []*feed{newFeed(recs...)}, c.use)
			err := <-g.failed
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "largest int64") || !strings.Contains(err.Error(), "record 3") {
				t.Errorf("without a sink for dead letters: %v", err)
			}
		})
	}
}

// A function that ends its goroutine is no bad record: it stops the task in any
// case.
func TestGoexitPassesTheGuards(t *testing.T) {
	var b box
	f := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{newFeed(numbered(9)...)}, b.aside(Limit{-1, 0}), func(f *flow, t *Task) Out[rec] {
		return NewMap(At{t, 2}, func(r rec) string {
			if r.n == 4 {
				runtime.Goexit()
			}
			return r.key
		}, Out[string](NewSink(At{t, 3}, SinkWriter[string](f.out))))
	})
	if err := <-f.failed; !errors.Is(err, errGoexit) {
		t.Errorf("failed with %v, want errGoexit", err)
	}
	if l := b.all(); len(l) > 0 {
		t.Errorf("letters: %q", l)
	}
}
