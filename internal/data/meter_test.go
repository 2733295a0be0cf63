package data

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/table"
)

// keysOf makes n records of as many keys.
func keysOf(from, n int) (out []rec) {
	for i := range n {
		out = append(out, rec{fmt.Sprintf("key-%08d", from+i), int64(from + i), 0})
	}
	return out
}

func TestCounts(t *testing.T) {
	for _, parallelism := range []int{1, 3} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			a, b := newFeed(keysOf(0, 100)...), newFeed(keysOf(50, 100)...)
			f := start(t, shape{parallelism: parallelism, batch: 16}, nil, []*feed{a, b}, counting())
			f.settle(1)
			f.Progress()
			f.barrier(1)
			c := f.Counts(time.Now())
			if s := c.Sources["in"]; s.Records != 200 || s.Batches < 200/16 {
				t.Errorf("source: %+v", s)
			}
			s := c.Steps["step"]
			if s.Records != 200 || s.Keys != 150 || s.Tasks != parallelism || s.Batches < 13 || s.Bytes <= s.Copies || s.Copies <= 0 {
				t.Errorf("step: %+v", s)
			}
			if s.Credits < 2 || s.Used > 1 || s.Room == 0 || s.Mailbox != 0 {
				t.Errorf("an exchange at rest: %+v", s)
			}
			if c.State != s.Bytes {
				t.Errorf("state of %d bytes, its only step has %d", c.State, s.Bytes)
			}
			if s := c.Sinks["sink"]; s.Rows != 200 || s.Wrote <= 0 {
				t.Errorf("sink: %+v", s)
			}
			later := c.Since(c)
			if s := later.Steps["step"]; s.Records != 400 || s.Keys != 150 || later.Sources["in"].Records != 400 || later.Sinks["sink"].Rows != 400 {
				t.Errorf("counted by two incarnations: %+v", later)
			}
		})
	}
}

// gate is a sink that waits.
type gate struct {
	entered chan struct{}
	open    chan struct{}
}

func (g *gate) Write([]string, []int64) error {
	g.entered <- struct{}{}
	<-g.open
	return nil
}
func (*gate) Seal(int64) error { return nil }

// A sink that doesn't take its rows shows as time that the step's senders wait,
// while they still do, and as credits that are all used.
func TestBackPressureShows(t *testing.T) {
	g := &gate{make(chan struct{}, 10_000), make(chan struct{})}
	in := newFeed()
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, twoStages(g))
	in.send(keysOf(0, 400)...)
	<-g.entered
	var s StepCount
	for s.Waited == 0 { // it comes: nothing can stop the sender from running into the gate
		s = f.Counts(time.Now()).Steps["step"]
	}
	if s.Credits != credit || s.Used < credit-1 {
		t.Errorf("a full exchange: %+v", s)
	}
	if later := f.Counts(time.Now().Add(time.Hour)).Steps["step"]; later.Waited < time.Hour {
		t.Errorf("the wait at hand isn't counted: %v", later.Waited)
	}
	close(g.open)
	f.settle(1)
	if s := f.Counts(time.Now().Add(time.Hour)).Steps["step"]; s.Waited >= time.Hour || s.Used > 1 || s.Records != 400 {
		t.Errorf("afterwards: %+v", s)
	}
}

// twoStages ends a keyed step of one task, behind an exchange, in w.
func twoStages(w SinkWriter[string]) chain {
	memo := new(byte)
	return func(f *flow, t *Task) Out[rec] {
		kind := must(table.KeyOf[string]())
		stage, ok := f.Stages[memo].(*Stage[string, rec])
		if !ok {
			stage = NewStage(f.Run, "step", func(t *Task) (Op[string, rec], Marker) {
				s := NewFold(At{t, 2}, FoldConfig[string, rec, int64, string]{ID: "step", Key: kind, Value: must(table.ValueOf[int64]()),
					Count: true, Make: func(k string, _ int64) string { return k }}, Out[string](NewSink(At{t, 3}, w)))
				return s, s
			})
			f.Stages[memo] = stage
		}
		return NewKeyer(t, 1, kind, func(r rec) string { return r.key }, stage)
	}
}

func TestHeldTimeCounts(t *testing.T) {
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{newFeed()}, counting())
	f.Hold(true)
	f.Hold(true)
	if c := f.Counts(time.Now().Add(time.Minute)); c.Held < time.Minute {
		t.Errorf("held for %v, and a minute has passed", c.Held)
	}
	f.Hold(false)
	f.Hold(false)
	if c := f.Counts(time.Now().Add(time.Minute)); c.Held <= 0 || c.Held >= time.Minute {
		t.Errorf("held for %v in all", c.Held)
	}
}

// budget starts a run whose state may take so many bytes.
func budget(t *testing.T, bytes int64, from *kept, in *feed, parallelism int, mk chain) *flow {
	t.Helper()
	return startWith(t, shape{parallelism: parallelism, batch: 256}, from, []*feed{in}, func(r *Run) { r.StateMemory = bytes }, mk)
}

func TestBudgetOfMemory(t *testing.T) {
	for name, mk := range map[string]chain{"fold": counting(), "window": windowing(1_000_000, 0, OnClose), "windows": windowing(1000, 1_000_000, OnClose),
		"distinct": deduplicating(1_000_000, 0)} {
		for _, parallelism := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " ", parallelism), func(t *testing.T) {
				const limit = 1 << 20
				in := newFeed(keysOf(0, 50_000)...)
				f := budget(t, limit, nil, in, parallelism, mk)
				err := <-f.failed
				if !errors.Is(err, ErrStateMemory) || errors.Is(err, ErrInput) {
					t.Fatalf("%v", err)
				}
				for _, want := range []string{"of 1.0 MiB", "step step holds ", " keys", "what helps: ", "--state-memory"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q isn't in: %v", want, err)
					}
				}
				var terminal interface{ Terminal() bool }
				if !errors.As(err, &terminal) || !terminal.Terminal() {
					t.Error("a restart would come to the same end, and it isn't said")
				}
				f.Stop()
				f.Wait()
				for len(f.failed) > 0 { // other tasks have come to the same end
					if err := <-f.failed; !errors.Is(err, ErrStateMemory) {
						t.Error(err)
					}
				}
				// What was taken is at most what one task took in one batch too much.
				c := f.Counts(time.Now())
				if c.State > limit*5/4 || c.State < limit/2 {
					t.Errorf("stopped with %d bytes of %d", c.State, limit)
				}
			})
		}
	}
}

// The index of a table that doubles is there twice for a moment: a budget that
// has no room for that stops the run before it is taken.
func TestBudgetAsksBeforeATableGrows(t *testing.T) {
	in := newFeed(keysOf(0, 30_000)...)
	free := start(t, shape{parallelism: 1, batch: 256}, nil, []*feed{in}, counting())
	free.settle(1)
	peak := free.Counts(time.Now()).State
	in = newFeed(keysOf(0, 30_000)...)
	f := budget(t, peak, nil, in, 1, counting()) // the last doubling needs more than that
	err := <-f.failed
	if !errors.Is(err, ErrStateMemory) || !strings.Contains(err.Error(), "more at once to grow") {
		t.Fatalf("%v", err)
	}
	f.Stop()
	f.Wait()
	if c := f.Counts(time.Now()); c.State >= peak-1<<17 {
		t.Errorf("it held %d bytes of %d, and was about to double", c.State, peak)
	}
}

func TestRestoreOverTheBudget(t *testing.T) {
	for name, mk := range map[string]chain{"fold": counting(), "window": windowing(1_000_000, 0, OnClose), "distinct": deduplicating(1_000_000, 0)} {
		t.Run(name, func(t *testing.T) {
			in := newFeed(keysOf(0, 100_000)...)
			f := start(t, shape{parallelism: 2, batch: 256}, nil, []*feed{in}, mk)
			f.settle(1)
			needs := f.Counts(time.Now()).State
			var saved kept
			saved.take(t, f.barrier(1))
			f.end()
			r := NewRun(Config{Parallelism: 2, Groups: 128, BatchLen: 256, ReadLen: 256, Names: []string{"source", "key", "step", "sink"}, StateMemory: needs / 3})
			err := openOnly(t, r, in, &saved, mk)
			if !errors.Is(err, ErrStateMemory) || !strings.Contains(err.Error(), "restore") {
				t.Fatalf("%v", err)
			}
			if got := r.Counts(time.Now()).State; got > needs*2/3 {
				t.Errorf("it took %d bytes of the %d that all needs before it refused", got, needs)
			}
			g := budget(t, 2*needs, &saved, in, 2, mk)
			if c := g.Counts(time.Now()); c.Steps["step"].Keys != 100_000 {
				t.Errorf("restored: %+v", c.Steps["step"])
			}
		})
	}
}

// openOnly restores a run that isn't started.
func openOnly(t *testing.T, r *Run, in *feed, from *kept, mk chain) error {
	t.Helper()
	f := &flow{Run: r, boss: newBoss(), t: t, out: &collected{}}
	NewSource(r, sourceOf(in), []string{"0"}, func(t *Task) Out[rec] { return mk(f, t) })
	_, err := r.Open(t.Context(), from)
	if closed := r.Close(); closed != nil {
		t.Error(closed)
	}
	return err
}

// sourceOf reads one feed.
func sourceOf(in *feed) SourceConfig[rec] {
	return SourceConfig[rec]{ID: "in", Time: func(r rec) time.Time { return time.Unix(0, r.at) }, Now: time.Now,
		Open: func(_ context.Context, _ string, at []byte) (Reader[rec], error) {
			pos, _ := strconv.Atoi(string(at))
			return &feedReader{f: in, pos: pos}, nil
		}}
}
