package data

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

func counting() chain {
	return keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
		f := NewFold(at, FoldConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Count: true, Make: func(k string, n int64) string { return fmt.Sprint(k, "=", n) }}, next)
		return f, f
	})
}

func windowing(size, lateness int64, emit Emission) chain {
	return keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
		w := NewWindow(at, WindowConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Size: size, Start: func(at int64) int64 { return at - ((at%size)+size)%size }, Lateness: lateness, Emit: emit,
			Count: true, Make: func(k string, start, n int64) string { return fmt.Sprint(k, "@", start, "=", n) }}, next)
		return w, w
	})
}

func deduplicating(ttl, admit int64) chain {
	return keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
		show := &MapOut[rec, string]{At: At{at.Task, 2}, F: func(r rec) string { return fmt.Sprint(r.key, "@", r.at, "#", r.n) }, Next: next}
		d := NewDistinct(at, DistinctConfig[string, rec]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
			Older: must(table.ValueOf[[]int64]()), TTL: ttl, Admit: admit}, Out[rec](show))
		return d, d
	})
}

// One input delivers the barrier, the other doesn't: what follows the barrier
// on the first must not be in the state that is saved, and nothing may be lost.
func TestRecordsBehindABarrierStayOutOfItsState(t *testing.T) {
	a, b := newFeed(), newFeed()
	f := start(t, shape{parallelism: 2, batch: 4}, nil, []*feed{a, b}, counting())
	a.send(rec{"k", 1, 0}, rec{"k", 2, 0})
	b.send(rec{"k", 1, 0})
	f.settle(1)
	// Only the first source task gets the barrier; the second later.
	f.sources[0].t.cmd <- Mark{Barrier, 1}
	first := <-f.acks
	for i := range 40 {
		a.send(rec{"k", int64(10 + i), 0})
	}
	if len(first.Splits) != 1 || string(first.Splits[0].Position) != "2" {
		t.Fatalf("the first source stands at %+v", first.Splits)
	}
	f.sources[1].t.cmd <- Mark{Barrier, 1}
	acks := []Ack{first}
	for range f.Tasks() - 1 {
		acks = append(acks, <-f.acks)
	}
	f.settle(2)
	var saved kept
	saved.take(t, acks)
	f.end()
	g := start(t, shape{parallelism: 3, batch: 4}, &saved, []*feed{a, b}, counting())
	out := g.settle(1)
	if n := len(out); n == 0 || out[0] != "k=4" || out[n-1] != "k=43" {
		t.Fatalf("after the restore: %v", out)
	}
}

func TestWatermarkIsTheLowestOfTheInputs(t *testing.T) {
	fast, slow := newFeed(), newFeed()
	f := start(t, shape{parallelism: 2, batch: 4}, nil, []*feed{fast, slow}, windowing(10, 0, OnClose))
	fast.send(rec{"k", 5, 0}, rec{"k", 1000, 0})
	slow.send(rec{"k", 3, 0})
	if out := f.settle(1); len(out) > 0 {
		t.Fatalf("the window closed although a split stands in it: %v", out)
	}
	slow.send(rec{"k", 4, 0}, rec{"k", 10, 0}) // at its end: it closes
	if out := f.settle(2); !slices.Equal(out, []string{"k@0=3"}) {
		t.Fatalf("got %v", out)
	}
	slow.send(rec{"k", 9, 0}) // behind its own split
	f.settle(3)
	if n := f.Late()["step"]; n != 1 {
		t.Fatalf("%d late records", n)
	}
}

// A record is late exactly when its own split's watermark is at the end plus
// lateness: a nanosecond before, it isn't.
func TestLatenessBoundary(t *testing.T) {
	for _, c := range []struct {
		newest int64
		late   int64
	}{{32, 0}, {33, 1}, {34, 1}} { // bound 3, so the watermark is newest-3; the window ends at 10, lateness 20
		in := newFeed()
		f := start(t, shape{parallelism: 1, batch: 4, bound: 3}, nil, []*feed{in}, windowing(10, 20, EachRecord))
		in.send(rec{"k", 1, 0}, rec{"k", c.newest, 0}, rec{"k", 2, 0})
		f.settle(1)
		if got := f.Late()["step"]; got != c.late {
			t.Errorf("watermark %d, window closes at 30: %d late, want %d", c.newest-3, got, c.late)
		}
	}
}

// A split's own watermark decides, whatever the others do and however records
// are batched and dealt out: the same records are late, the same are counted.
func TestLatenessDoesNotDependOnTiming(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	splits := make([][]rec, 3)
	for i := range splits {
		now := int64(0)
		for range 2_000 {
			now += r.Int64N(5)
			splits[i] = append(splits[i], rec{fmt.Sprint(r.IntN(20)), max(0, now-r.Int64N(1+r.Int64N(60))), 0})
		}
	}
	const bound, size = 7, 25
	want := map[string]int64{}
	for _, s := range splits { // the oracle: a split at a time
		wm := int64(MinTime)
		for _, x := range s {
			start := x.at / size * size
			if start+size > wm {
				want[fmt.Sprint(x.key, "@", start)]++
			}
			wm = max(wm, x.at-bound)
		}
	}
	for _, sh := range []shape{{1, 1024, bound, 0}, {2, 1, bound, 0}, {3, 7, bound, 0}, {7, 1024, bound, 0}} {
		var feeds []*feed
		for _, s := range splits {
			fd := newFeed(s...)
			fd.end()
			feeds = append(feeds, fd)
		}
		f := start(t, sh, nil, feeds, windowing(size, 0, OnClose))
		for range f.Sources() {
			<-f.ended
		}
		got := map[string]int64{}
		for _, line := range f.settle(1) {
			k, n, _ := strings.Cut(line, "=")
			var v int64
			fmt.Sscan(n, &v)
			if got[k] != 0 {
				t.Errorf("%+v: window %s was emitted twice", sh, k)
			}
			got[k] = v
		}
		if len(got) != len(want) {
			t.Errorf("%+v: %d windows, want %d", sh, len(got), len(want))
		}
		for k, n := range want {
			if got[k] != n {
				t.Errorf("%+v: %s=%d, want %d", sh, k, got[k], n)
			}
		}
	}
}

// Distinct against an oracle that remembers every record that passed.
func TestDistinctAgainstAnOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		ttl, admit, bound := 1+r.Int64N(50), 1+r.Int64N(80), r.Int64N(10)
		var recs []rec
		now := int64(1000)
		for i := range 3_000 {
			now += r.Int64N(4)
			recs = append(recs, rec{fmt.Sprint(r.IntN(12)), now - r.Int64N(1+r.Int64N(150)), int64(i)})
		}
		var want []string
		passed := map[string][]int64{}
		wm := int64(MinTime)
		for _, x := range recs {
			late := wm >= x.at+admit
			repeat := slices.ContainsFunc(passed[x.key], func(p int64) bool { return p-x.at < ttl && x.at-p < ttl })
			if !late && !repeat {
				passed[x.key] = append(passed[x.key], x.at)
				want = append(want, fmt.Sprint(x.key, "@", x.at, "#", x.n))
			}
			wm = max(wm, x.at-bound)
		}
		slices.Sort(want)
		cut := r.IntN(len(recs))
		in := newFeed(recs[:cut]...)
		f := start(t, shape{parallelism: 1 + r.IntN(3), batch: 1 + r.IntN(300), bound: bound}, nil, []*feed{in}, deduplicating(ttl, admit))
		got := f.settle(1)
		var saved kept
		saved.take(t, f.barrier(1))
		in.send(recs[cut:]...)
		f.settle(2) // after the crash this doesn't count
		f.end()
		g := start(t, shape{parallelism: 1 + r.IntN(3), batch: 1 + r.IntN(300), bound: bound}, &saved, []*feed{in}, deduplicating(ttl, admit))
		got = slices.DeleteFunc(append(got, g.settle(1)...), func(s string) bool { return strings.HasPrefix(s, "--") })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("ttl %d, admit %d, bound %d, cut %d: %d passed, want %d", ttl, admit, bound, cut, len(got), len(want))
		}
		g.end()
	}
}

func TestDistinctForgets(t *testing.T) {
	in := newFeed()
	f := start(t, shape{parallelism: 1, batch: 64}, nil, []*feed{in}, deduplicating(10, 5))
	for i := range int64(20_000) {
		in.send(rec{fmt.Sprint("id-", i), i, i})
	}
	f.settle(1)
	acks := f.barrier(1, "step")
	for _, a := range acks {
		for _, p := range a.Parts {
			if live := p.Info().Live; live > 1200 {
				t.Errorf("%d ids are kept, of which 15 can still be repeated", live)
			}
			p.Release()
		}
	}
}

// Three tasks with uneven time are restored by two: a window that one of them
// closed isn't opened again by the lower time of another.
func TestRestoreUnderAnotherParallelism(t *testing.T) {
	recs := func(from, to int64) (out []rec) {
		for at := from; at < to; at++ {
			for k := range 30 {
				out = append(out, rec{fmt.Sprint("k", k), at, 0})
			}
		}
		return out
	}
	in := newFeed(recs(0, 25)...)
	f := start(t, shape{parallelism: 3, batch: 16}, nil, []*feed{in}, windowing(10, 0, OnClose))
	closed := f.settle(1)
	var saved kept
	saved.take(t, f.barrier(1))
	f.end()
	if len(closed) != 60 {
		t.Fatalf("%d windows closed before the restore, want 60", len(closed))
	}
	// One task's groups are ahead of the others': their windows are closed.
	for i := range saved.clocks["step"] {
		if saved.clocks["step"][i].From == 0 {
			saved.clocks["step"][i].At = 1_000
		}
	}
	ahead := saved.clocks["step"][slices.IndexFunc(saved.clocks["step"], func(c Clock) bool { return c.From == 0 })].To
	in.send(recs(25, 31)...)
	in.end()
	g := start(t, shape{parallelism: 2, batch: 16}, &saved, []*feed{in}, windowing(10, 0, OnClose))
	<-g.ended
	out := g.settle(1)
	kind := must(table.KeyOf[string]())
	for k := range 30 {
		key := fmt.Sprint("k", k)
		has := slices.ContainsFunc(out, func(s string) bool { return strings.HasPrefix(s, key+"@20=") })
		if closedThere := table.Group(table.Hash(kind, &key), 128) < ahead; has == closedThere && !closedThere {
			t.Errorf("window 20 of %s: emitted %v", key, has)
		}
	}
	for _, s := range out {
		if slices.Contains(closed, s) {
			t.Errorf("%s was emitted before the restore and again after it", s)
		}
	}
}

func TestEveryRecordsStopsThereUntilTheBarrier(t *testing.T) {
	in := newFeed()
	for i := range int64(25) {
		in.send(rec{"k", i, i})
	}
	f := start(t, shape{parallelism: 1, batch: 4, every: 10}, nil, []*feed{in}, counting())
	for epoch := int64(1); epoch <= 2; epoch++ {
		if hold := <-f.wants; hold {
			t.Fatal("a count trigger isn't a full buffer")
		}
		f.settle(epoch)
		acks := f.barrier(epoch)
		i := slices.IndexFunc(acks, func(a Ack) bool { return len(a.Splits) > 0 })
		if got := string(acks[i].Splits[0].Position); got != fmt.Sprint(10*epoch) {
			t.Fatalf("barrier %d at position %s", epoch, got)
		}
	}
}

func TestHeldSourcesReadNothingAndAnswer(t *testing.T) {
	in := newFeed()
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, counting())
	f.Hold(true)
	f.settle(1)
	in.send(rec{"k", 1, 0})
	if out := f.settle(2); len(out) > 0 {
		t.Fatalf("a held source read: %v", out)
	}
	f.barrier(1)
	f.Hold(false)
	f.out.take()
	if out := f.settle(3); !slices.Equal(out, []string{"k=1"}) {
		t.Fatalf("after the hold: %v", out)
	}
}

// full is a sink whose buffer is always full.
type full struct{ collected }

func (*full) Full() bool { return true }

func TestFullSinkAsksOnceAnEpoch(t *testing.T) {
	in := newFeed()
	w := &full{}
	f := start(t, shape{parallelism: 1, batch: 1}, nil, []*feed{in}, func(f *flow, t *Task) Out[rec] {
		return &MapOut[rec, string]{At: At{t, 2}, F: func(r rec) string { return r.key }, Next: NewSink(At{t, 3}, SinkWriter[string](w))}
	})
	for i := range int64(5) {
		in.send(rec{"k", i, 0})
	}
	f.settle(1)
	f.barrier(1)
	in.send(rec{"k", 9, 0})
	f.settle(2)
	if n := len(f.wants); n != 2 || !<-f.wants {
		t.Fatalf("%d wishes for a barrier, want one an epoch, each holding", n)
	}
}

func TestErrorsNameTheRecordBehindTwoExchanges(t *testing.T) {
	for _, p := range []int{1, 4} {
		in := newFeed()
		for i := range int64(500) {
			in.send(rec{fmt.Sprint(i % 7), i, i})
		}
		f := start(t, shape{parallelism: p, batch: 64}, nil, []*feed{in}, keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
			fold := NewFold(at, FoldConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()),
				Zero: func() int64 { return 0 }, Add: func(n int64, r rec) int64 {
					if r.n == 123 {
						panic("it can't be added")
					}
					return n + 1
				}, Make: func(k string, n int64) string { return k }}, next)
			return fold, fold
		}))
		err := <-f.failed
		var re *RecordError
		if !errors.As(err, &re) || !errors.Is(err, ErrInput) || re.Step != "step" || !strings.Contains(re.Where, "split 0, record 123") {
			t.Fatalf("parallelism %d: %v", p, err)
		}
		var pe *PanicError
		if !errors.As(err, &pe) || pe.Value != "it can't be added" || len(pe.Stack) == 0 {
			t.Fatalf("parallelism %d: the panic is lost: %v", p, err)
		}
	}
}

func TestImpossibleEventTimes(t *testing.T) {
	const day = int64(24 * 3600 * 1e9)
	for name, at := range map[string]int64{"before 1900": -30_000 * day, "after 2261": 106_751 * day} {
		in := newFeed(rec{"k", 1, 0}, rec{"k", at, 0})
		f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, counting())
		err := <-f.failed
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "absurd") || !strings.Contains(err.Error(), "record 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASplitOfTheCheckpointThatIsMissing(t *testing.T) {
	in := newFeed()
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in, newFeed()}, counting())
	var saved kept
	saved.take(t, f.barrier(1))
	f.end()
	r := NewRun(Config{Parallelism: 1, Groups: 128, BatchLen: 4, ReadLen: 4})
	NewSource(r, SourceConfig[rec]{ID: "in"}, []string{"0"}, func(*Task) Out[rec] { return Tee[rec]{} })
	if _, err := r.Open(t.Context(), &saved); err == nil || !strings.Contains(err.Error(), "split 1") {
		t.Fatalf("got %v", err)
	}
}

// broken is a sink whose writer always fails.
type broken struct{ collected }

var errBroken = errors.New("too many open files")

func (*broken) Write([]string, []int64) error { return errBroken }

// A sink that fails while a step pushes many results is what the run fails with,
// whichever of two sinks it is: the other one still gets the rest pushed.
func TestASinkFailsAmongManyResults(t *testing.T) {
	for first := range 2 {
		in := newFeed(numbered(100)...)
		for i := range in.recs {
			in.recs[i].key = fmt.Sprint(i)
		}
		f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
			sinks := Tee[string]{NewSink(At{at.Task, 3}, SinkWriter[string](&broken{})), next}
			if first == 1 {
				slices.Reverse(sinks)
			}
			return summing(EachBarrier, nil)(at, sinks)
		}))
		f.settle(1)
		f.Barrier(1, nil)
		err := <-f.failed
		if _, panicked := errors.AsType[*PanicError](err); panicked || !errors.Is(err, errBroken) {
			t.Errorf("first %d: the run failed with: %v", first, err)
		}
	}
}
