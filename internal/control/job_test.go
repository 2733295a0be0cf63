package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// bubble runs a test in virtual time. What it leaves running fails it.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// wants fails unless err wraps target and says all of words.
func wants(t testing.TB, err, target error, words ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that wraps %v", err, target)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q doesn't say %q", err, w)
		}
	}
}

func TestFirstStart(t *testing.T) {
	bubble(t, "order", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts", "totals")
		r := w.run(t, []*database{db})
		f := r.started()
		// Nothing is in the log before every participant was reached, nothing is
		// read before genesis is committed.
		want := []string{"connect db", "link log", "fence db", "open", "link log", "commit db 0", "start", "flush db"}
		if diff := cmp.Diff(want, w.calls()); diff != "" {
			t.Errorf("order of effects (-want +got):\n%s", diff)
		}
		if s := r.last(); s.Restored || s.Incarnation != 1 || s.Epoch != 0 || s.Checkpoint.Slot != 2 {
			t.Errorf("started: %+v", s)
		}
		f.read(7)
		if c := r.checkpoint(); c.Epoch != 1 || c.ID.Slot != 3 || c.Bytes == 0 || len(c.Splits) != 1 {
			t.Errorf("checkpoint: %+v", c)
		}
		if db.value() != 7 {
			t.Errorf("committed count %d, want 7", db.value())
		}
		want = []string{"link seg", "prepare db", "link log", "commit db 1"}
		got := w.calls()
		slices.Sort(got[:2]) // they run at the same time
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order of an epoch's effects (-want +got):\n%s", diff)
		}
		r.stop()
		if !f.stopped || !f.closed || !f.conns[0].closed {
			t.Errorf("left behind: flow stopped %v, closed %v, connection closed %v", f.stopped, f.closed, f.conns[0].closed)
		}
		for _, p := range f.parts {
			if p.released != 1 {
				t.Errorf("a part was released %d times", p.released)
			}
		}
	})
}

func TestRestart(t *testing.T) {
	for _, kind := range []string{transactional, "idempotent", "following", atLeastOnce} {
		bubble(t, kind, func(t *testing.T) {
			w := newWorld()
			db := w.database("db", kind, "counts")
			r := w.run(t, []*database{db})
			r.started().read(10)
			r.checkpoint()
			r.built().read(15)
			r.stop()

			r = w.run(t, []*database{db})
			f := r.started()
			if f.position != 15 || f.count != 15 {
				t.Errorf("restored position %d, count %d, want 15 and 15", f.position, f.count)
			}
			if s := r.last(); !s.Restored || s.Epoch != 2 || s.Keys != 1 || s.Incarnation <= 1 {
				t.Errorf("started: %+v", s)
			}
			f.read(20)
			r.stop()
			if want := int64(20); kind != atLeastOnce && db.value() != want {
				t.Errorf("committed count %d, want %d", db.value(), want)
			}
			for _, e := range w.store.entries(t) {
				if m := e.Checkpoint; m != nil && m.Epoch > 0 && m.Parent.IsZero() {
					t.Errorf("checkpoint of epoch %d has no parent", m.Epoch)
				}
			}
		})
	}
}

func TestFinish(t *testing.T) {
	bubble(t, "then nothing to do", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		f.read(9)
		f.end()
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		es := w.store.entries(t)
		last := es[len(es)-2]
		if m := last.Checkpoint; m == nil || !m.Finished || db.value() != 9 {
			t.Fatalf("last checkpoint %+v, committed count %d", last, db.value())
		}
		if r := es[len(es)-1].Retire; r == nil || r.Settled != last.ID {
			t.Errorf("last entry %+v doesn't say that %v is settled", es[len(es)-1], last.ID)
		}
		w.calls()
		r = w.run(t, []*database{db})
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if s := r.last(); !s.Finished || !s.Restored || s.Epoch != 1 {
			t.Errorf("started: %+v", s)
		}
		if calls := w.calls(); slices.Contains(calls, "start") || !slices.Contains(calls, "open") {
			t.Errorf("a finished job did %q", calls)
		}
	})
	bubble(t, "a split is new", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		r.started().end()
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		r = w.run(t, nil, twoSplits)
		wants(t, r.wait(), data.ErrGrown, "split other of source in")
	})
}

// twoSplits gives the flow another split.
func twoSplits(c *Config) {
	build := c.Build
	c.Build = func(ctx context.Context, connected []Participant) (Flow, error) {
		f, err := build(ctx, connected)
		f.(*flow).splits = []string{"s", "other"}
		return f, err
	}
}

func TestNewSplit(t *testing.T) {
	bubble(t, "its beginning is committed first", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		r.started().read(3)
		r.stop()
		w.calls()
		r = w.run(t, []*database{db}, twoSplits)
		f := r.started()
		calls := w.calls()
		if i, j := slices.Index(calls, "commit db 2"), slices.Index(calls, "start"); i < 0 || i > j {
			t.Errorf("calls %q: no checkpoint between the new split and the start", calls)
		}
		if s := r.last(); !s.Restored || s.Epoch != 2 || f.count != 3 {
			t.Errorf("started %+v with count %d", s, f.count)
		}
		r.stop()
		r = w.run(t, []*database{db}, twoSplits)
		if f := r.started(); f.count != 3 || db.value() != 3 {
			t.Errorf("restored count %d, committed %d, want 3", f.count, db.value())
		}
		r.stop()
	})
}

func TestStop(t *testing.T) {
	bubble(t, "handle", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		r.started().read(4)
		r.h.Stop()
		r.h.Stop()
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if f := r.built(); db.value() != 4 || !slices.Equal(f.held, []bool{true}) {
			t.Errorf("committed %d, held %v: want 4, and sources held before the last barrier", db.value(), f.held)
		}
		if _, err := r.h.Checkpoint(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("checkpoint after the end: %v", err)
		}
	})
	bubble(t, "sources have come to where they were told to stop", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		f.read(4)
		f.ctl.Rests("in/0")
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if db.value() != 4 || !slices.Equal(f.held, []bool{true}) {
			t.Errorf("committed %d, held %v: want 4, and sources held before the last barrier", db.value(), f.held)
		}
		r = w.run(t, []*database{db}) // it isn't finished
		r.started().read(6)
		r.stop()
		if db.value() != 6 {
			t.Errorf("after the next run %d is committed, want 6", db.value())
		}
	})
	bubble(t, "before the start", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		db.busy = 1 << 30
		r := w.run(t, []*database{db})
		synctest.Wait()
		r.h.Stop()
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if es := w.store.entries(t); len(es) != 0 {
			t.Errorf("the log has %d entries of a start that reached nobody", len(es))
		}
		if r.saw(func(e Event) bool { return e.Waiting != nil && strings.Contains(e.Waiting.For, "busy") }) == 0 {
			t.Error("nobody was told what the start waits for")
		}
	})
}

func TestTemporary(t *testing.T) {
	bubble(t, "repeated with patience", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		db.busy = 3
		began := time.Now()
		r := w.run(t, []*database{db})
		f := r.started()
		if waited := time.Since(began); waited != 350*time.Millisecond {
			t.Errorf("waited %v, want 50+100+200 ms", waited)
		}
		f.read(2)
		db.busy = 2
		r.checkpoint()
		if n := r.saw(func(e Event) bool { return e.Waiting != nil }); n != 5 || db.value() != 2 {
			t.Errorf("%d waits told, committed %d; want 5 and 2", n, db.value())
		}
		r.stop()
	})
}

func TestInterval(t *testing.T) {
	bubble(t, "ticks", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, func(c *Config) { c.Interval = time.Second })
		f := r.started()
		time.Sleep(3500 * time.Millisecond) // virtual: the bubble's clock
		synctest.Wait()
		f.mu.Lock()
		got := slices.Clone(f.barriers)
		f.mu.Unlock()
		if !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("barriers after 3.5 s of 1 s: %v", got)
		}
		r.stop()
	})
}

func TestFullBuffer(t *testing.T) {
	bubble(t, "held until the next barrier", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		gate, reached := make(chan struct{}), make(chan struct{})
		w.fail = func(call string) error {
			if call == "commit db 1" {
				close(reached)
				<-gate
			}
			return nil
		}
		f.ctl.Wants(true)
		<-reached
		f.ctl.Wants(true)
		synctest.Wait()
		if !slices.Equal(f.held, []bool{true}) || len(f.barriers) != 1 {
			t.Errorf("while epoch 1 commits: held %v, barriers %v", f.held, f.barriers)
		}
		close(gate)
		synctest.Wait()
		if !slices.Equal(f.held, []bool{true, false}) || !slices.Equal(f.barriers, []int64{1, 2}) {
			t.Errorf("afterwards: held %v, barriers %v", f.held, f.barriers)
		}
		r.stop()
	})
}

// A participant asks for a barrier whenever it likes, also before the start and
// after the end.
func TestParticipantAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := w.run(t, []*database{w.database("db", transactional, "counts")})
		f := r.started()
		ask := f.conns[0].ask
		for range 3 {
			ask()
		}
		synctest.Wait()
		if !slices.Equal(f.barriers, []int64{1}) {
			t.Errorf("asked three times at once, barriers %v came", f.barriers)
		}
		ask()
		r.stop()
		ask()
	})
}

// Of two that are transactional, the one of the higher rank decides.
func TestRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dbs := []*database{w.database("a", transactional, "x"), w.database("b", transactional, "y")}
		r := w.run(t, dbs, func(c *Config) {
			c.Sinks[1].Rank = 1
			c.Graph.Nodes[3].Sink.Rank = 1
		})
		r.started().read(4)
		w.calls()
		r.checkpoint()
		got := w.calls()
		if i, j := slices.Index(got, "commit b 1"), slices.Index(got, "commit a 1"); i < 0 || j < i {
			t.Errorf("effects %q: b must commit first", got)
		}
		r.stop()
	})
}

func TestRetention(t *testing.T) {
	bubble(t, "keeps what it must", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db}, func(c *Config) { c.Retain = 2 })
		f := r.started()
		most := 0
		for i := range int64(300) {
			f.read(i + 1)
			r.checkpoint()
			synctest.Wait()
			n := 0
			for _, e := range w.store.entries(t) {
				if e.Checkpoint != nil {
					n++
				}
			}
			most = max(most, n)
		}
		r.stop()
		// Twice what is kept: retiring costs an entry, and so some gather.
		if most < 3 || most > 5 {
			t.Errorf("at most %d checkpoints were in the log, want 3 to 5", most)
		}
		needed := map[string]bool{}
		for _, e := range w.store.entries(t) {
			if e.Checkpoint != nil {
				for _, s := range e.Checkpoint.Segments {
					needed[s.Name] = true
				}
			}
		}
		if got := w.store.names(t, log.SegmentPrefix); len(got) != len(needed) {
			t.Errorf("%d segments, of which %d are named", len(got), len(needed))
		}
		if len(f.full) == 0 {
			t.Error("300 deltas and never a base")
		}
		r = w.run(t, []*database{db})
		if f := r.started(); f.count != 300 {
			t.Errorf("restored count %d, want 300", f.count)
		}
		r.stop()
	})
}

func TestOrphans(t *testing.T) {
	bubble(t, "deleted by the next start", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		f.read(1)
		r.checkpoint()
		// One epoch dies behind its segment, one in doubt behind its entry.
		for _, at := range []string{"prepare db", "commit db 2"} {
			w.fail = func(call string) error {
				if call == at {
					synctest.Wait() // the segment is written at the same time
					return errors.New("crash")
				}
				return nil
			}
			f.read(f.position + 1)
			if _, err := r.h.Checkpoint(t.Context()); err == nil {
				t.Fatal("no crash")
			}
			r.cancel()
			<-r.done
			w.fail = nil
			if n := len(w.store.names(t, log.SegmentPrefix)); n != 2 {
				t.Errorf("%d segments after the crash at %s, want that of epoch 1 and an orphan", n, at)
			}
			r = w.run(t, []*database{db})
			f = r.started()
			if n := len(w.store.names(t, log.SegmentPrefix)); n != 1 || f.count != 1 {
				t.Errorf("%d segments and count %d after the restart, want 1 and 1", n, f.count)
			}
		}
		r.stop()
	})
}

func TestChains(t *testing.T) {
	m := &log.Manifest{Steps: []log.Step{
		{ID: "a", Live: 5, Parts: []log.PartRef{{Entries: 4}, {Entries: 3}}},
		{ID: "b"},
	}}
	got := chains(m, func(st log.Step) bool { return st.ID == "b" })
	want := []epoch.Chain{{Step: "a", Entries: 7, Live: 5, Parts: 2}, {Step: "b", Rewrite: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
}
