package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// growing is a source whose splits a test makes more. The test says when it is
// looked at again, and learns when that is done.
type growing struct {
	tick chan time.Time
	told chan string

	mu struct {
		sync.Mutex
		feeds map[string]*feed
		err   error            // of List
		open  map[string]error // of Open
		asked chan struct{}    // List has been asked
	}
}

func newGrowing() *growing {
	g := &growing{tick: make(chan time.Time), told: make(chan string, 100)}
	g.mu.feeds, g.mu.open, g.mu.asked = map[string]*feed{}, map[string]error{}, make(chan struct{}, 100)
	return g
}

func (g *growing) add(name string, f *feed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.feeds[name] = f
}

func (g *growing) fail(list error, open map[string]error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.err, g.mu.open = list, open
}

func (g *growing) list(context.Context) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for n := range g.mu.feeds {
		names = append(names, n)
	}
	slices.Sort(names)
	return names, g.mu.err
}

func (g *growing) openSplit(_ context.Context, split string, at []byte) (Reader[rec], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.mu.open[split]; err != nil {
		return nil, err
	}
	pos, _ := strconv.Atoi(string(at))
	return &idler{feedReader{f: g.mu.feeds[split], pos: pos}}, nil
}

// look makes the finder look, and returns when it has.
func (g *growing) look() {
	g.tick <- time.Time{}
	g.tick <- time.Time{} // it takes the second when it is done with the first
}

// idler is a reader that is idle whenever there is nothing to read.
type idler struct{ feedReader }

func standing(r Reader[rec]) Standing {
	i := r.(*idler)
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	return Standing{Lag: -1, Idle: i.pos == len(i.f.recs) && i.f.idle}
}

func (g *growing) start(t *testing.T, s shape, from *kept, mk chain) *flow {
	t.Helper()
	names, _ := g.list(t.Context())
	feeds := make([]*feed, len(names)) // the names are those of the harness
	return startAs(t, s, from, feeds, func(*Run) {}, func(c *SourceConfig[rec]) {
		c.Open, c.Standing = g.openSplit, standing
		c.Growth = &Growth{Poll: time.Second, List: g.list, After: func(time.Duration) <-chan time.Time { return g.tick },
			Waiting: func(what string) { g.told <- what }}
	}, mk)
}

func TestSplitsComeWhileTheRunGoesOn(t *testing.T) {
	g := newGrowing()
	f := g.start(t, shape{parallelism: 2, batch: 4}, nil, counting())
	if what := <-g.told; !strings.Contains(what, "source in: it has no splits yet") {
		t.Errorf("without a split it says %q", what)
	}
	for _, a := range f.barrier(1) {
		if len(a.Splits) > 0 || a.Growing != strings.HasPrefix(a.Task, "in/") {
			t.Errorf("before there is a split: %+v", a)
		}
	}
	g.add("0", newFeed(rec{"a", 1, 0}))
	g.add("1", newFeed(rec{"b", 1, 0}))
	g.add("2", newFeed(rec{"c", 1, 0}))
	g.look()
	out := f.settle(1)
	slices.Sort(out)
	if want := []string{"-- 1", "-- 1", "a=1", "b=1", "c=1"}; !slices.Equal(out, want) {
		t.Fatalf("read %v, want %v", out, want)
	}
	var saved kept
	acks := f.barrier(2)
	saved.take(t, acks)
	for _, a := range acks {
		if a.Growing && len(a.Splits) != map[string]int{"in/0": 2, "in/1": 1}[a.Task] {
			t.Errorf("task %s has %d of three splits", a.Task, len(a.Splits))
		}
	}
	if len(saved.splits) != 3 || string(saved.splits["2"].Position) != "1" || saved.splits["2"].Records != 1 {
		t.Fatalf("saved %+v", saved.splits)
	}
	f.end()
	select {
	case task := <-f.ended:
		t.Errorf("%s ended", task)
	default:
	}

	// What comes while nobody looks is there at the next start.
	g.add("3", newFeed(rec{"a", 2, 0}))
	h := g.start(t, shape{parallelism: 1, batch: 4}, &saved, counting())
	if out := h.settle(1); !slices.Equal(out, []string{"a=2"}) {
		t.Errorf("after the restart: %v", out)
	}
}

func TestWhatGoesWrongWithNewSplits(t *testing.T) {
	g := newGrowing()
	g.add("0", newFeed(rec{"a", 1, 0}))
	f := g.start(t, shape{parallelism: 1, batch: 4}, nil, counting())
	g.fail(errors.New("the folder is on fire"), nil)
	g.look()
	g.add("1", newFeed(rec{"b", 1, 0}))
	g.add("2", newFeed(rec{"c", 1, 0}))
	g.fail(nil, map[string]error{"1": errors.New("no permission"), "2": errors.New("no memory")})
	g.look()
	g.look()
	g.fail(errors.New("the folder is on fire"), nil)
	g.look()
	g.fail(nil, nil)
	g.look()
	out := f.settle(1)
	if slices.Sort(out); !slices.Equal(out, []string{"a=1", "b=1", "c=1"}) {
		t.Errorf("read %v", out)
	}
	for _, want := range []string{"source in: list its splits, which fails for now: the folder is on fire",
		`source in: open split 1 at "": no permission, which fails for now`, `source in: open split 2 at "": no memory, which fails for now`,
		"the folder is on fire"} {
		if what := <-g.told; !strings.Contains(what, want) {
			t.Errorf("it says %q, want %q", what, want)
		}
	}
	if len(g.told) > 0 {
		t.Errorf("it also says %q", <-g.told)
	}

	// A split that is gone stops the run, but not at once.
	g.mu.Lock()
	delete(g.mu.feeds, "1")
	g.mu.Unlock()
	g.tick <- time.Time{}
	err := <-func() chan error {
		select {
		case g.tick <- time.Time{}:
		case err := <-f.failed:
			t.Fatalf("at the first list without it: %v", err)
		}
		return f.failed
	}()
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "split 1 is missing now") {
		t.Errorf("a split is gone: %v", err)
	}
}

func TestANewSplitThatIsRefused(t *testing.T) {
	g := newGrowing()
	f := g.start(t, shape{parallelism: 1, batch: 4}, nil, counting())
	g.add("0", newFeed())
	g.fail(nil, map[string]error{"0": fmt.Errorf("%w: it is another one's twin", ErrRefused)})
	g.tick <- time.Time{}
	if err := <-f.failed; !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// The run ends before a task has taken its new split over: its reader is closed
// all the same.
func TestASplitThatIsNeverTakenOver(t *testing.T) {
	g := newGrowing()
	f := g.start(t, shape{parallelism: 1, batch: 4}, nil, counting())
	f.Stop()
	f.Wait()
	closed := false
	s := &source[rec]{t: f.sources[0].t, c: SourceConfig[rec]{ID: "in"}}
	s.give(&split[rec]{rd: &closing{closed: &closed}})
	if err := s.close(); err != nil || !closed {
		t.Errorf("closed: %v, %v", closed, err)
	}
}

type closing struct {
	Reader[rec]
	closed *bool
}

func (c *closing) Close() error { *c.closed = true; return nil }

// Time goes on without a split that is idle, in whichever task it is read, and
// without tasks that have no split. When it returns, its records count in windows
// that are open, and are late in those that have been closed without it.
func TestTimeDoesNotWaitForIdleSplits(t *testing.T) {
	for _, parallelism := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			g := newGrowing()
			busy, quiet, empty := newFeed(rec{"k", 5, 0}, rec{"k", 12, 0}), newFeed(rec{"k", 1, 0}), newFeed()
			g.add("0", busy)
			g.add("1", quiet)
			g.add("2", empty)
			f := g.start(t, shape{parallelism: parallelism, batch: 4}, nil, windowing(10, 0, OnClose))
			if out := f.settle(1000); len(out) > 0 {
				t.Fatalf("the window closed although two splits stand in it: %v", out)
			}
			quiet.rest(true)
			empty.rest(true)
			if out := f.settleUntil(2, 1); !slices.Equal(out, []string{"k@0=2"}) {
				t.Fatalf("two of three splits are idle: %v", out)
			}
			quiet.rest(false)
			quiet.send(rec{"k", 9, 0}, rec{"k", 11, 0})
			f.settle(3000)
			if late := f.Late()["step"]; late != 1 {
				t.Errorf("%d records of the split that came back are late, want 1", late)
			}
			busy.send(rec{"k", 25, 0})
			if out := f.settle(4000); len(out) > 0 {
				t.Fatalf("it is back, and stands in the window: %v", out)
			}
			quiet.rest(true)
			if out := f.settleUntil(5, 1); !slices.Equal(out, []string{"k@10=2"}) {
				t.Fatalf("idle again: %v", out)
			}
		})
	}
}

// All splits are idle: time comes as far as the furthest, whichever was idle
// first, and there it stands still.
func TestTimeStandsStillWhileAllAreIdle(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		for _, first := range []int{0, 1} {
			g := newGrowing()
			feeds := []*feed{newFeed(rec{"k", 5, 0}, rec{"k", 12, 0}), newFeed(rec{"k", 3, 0})}
			g.add("0", feeds[0])
			g.add("1", feeds[1])
			f := g.start(t, shape{parallelism: parallelism, batch: 4}, nil, windowing(10, 0, OnClose))
			f.settle(1)
			feeds[first].rest(true)
			out := f.settle(2)
			feeds[1-first].rest(true)
			out = append(out, f.settle(3)...)
			for n := int64(4); len(out) == 0 && n < 1000; n++ {
				out = f.settle(n)
			}
			if !slices.Equal(out, []string{"k@0=2"}) {
				t.Fatalf("at parallelism %d, split %d first: %v", parallelism, first, out)
			}
			f.end()
		}
	}
}

// An input that has ended doesn't count as long as one goes on, even if that is
// idle: it would take the others' time to its end.
func TestLowest(t *testing.T) {
	in := func(wm int64, idle bool) inbound { return inbound{wm: wm, idle: idle} }
	tests := []struct {
		ins  []inbound
		wm   int64
		idle bool
	}{
		{[]inbound{in(3, false), in(5, false)}, 3, false},
		{[]inbound{in(3, true), in(5, false)}, 5, false},
		{[]inbound{in(3, false), in(5, true)}, 3, false},
		{[]inbound{in(3, true), in(5, true)}, 5, true},
		{[]inbound{in(MinTime, true), in(5, false)}, 5, false},
		{[]inbound{in(MinTime, true), in(MinTime, true)}, MinTime, true},
		{[]inbound{in(EndOfTime, false), in(5, false)}, 5, false},
		{[]inbound{in(EndOfTime, false), in(5, true)}, 5, true},
		{[]inbound{in(EndOfTime, false), in(EndOfTime, false)}, EndOfTime, false},
		{[]inbound{in(EndOfTime, true), in(EndOfTime, false)}, EndOfTime, false},
	}
	for _, tt := range tests {
		if wm, idle := lowest(tt.ins); wm != tt.wm || idle != tt.idle {
			t.Errorf("%+v: %d, %v; want %d, %v", tt.ins, wm, idle, tt.wm, tt.idle)
		}
	}
}

// settleUntil settles until so many results have come.
func (f *flow) settleUntil(n int64, results int) (out []string) {
	for i := range int64(999) {
		if out = append(out, f.settle(n*1000-999+i)...); len(out) >= results {
			return out
		}
	}
	f.t.Fatalf("only %v", out)
	return nil
}
