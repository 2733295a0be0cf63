package control

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/internal/control/log"
)

// declared is the sinks of a job: databases with their kinds and sinks.
type declared []struct {
	db, kind string
	sinks    []string
}

// in returns the databases as they are declared.
func (d declared) in(w *world) (dbs []*database) {
	for _, s := range d {
		db := w.database(s.db, s.kind)
		db.kind, db.sinks = s.kind, s.sinks
		dbs = append(dbs, db)
	}
	return dbs
}

// sinkChange is a job whose sinks are changed between two starts.
type sinkChange struct {
	name          string
	before, after declared
	renamed       map[string]string
	drop          []string
}

func (c sinkChange) now(conf *Config) { conf.Renamed, conf.Drop, conf.Retain = c.renamed, c.drop, 1 }

func sinkChanges() []sinkChange {
	one := declared{{"a", transactional, []string{"x"}}}
	two := declared{{"a", transactional, []string{"x"}}, {"b", transactional, []string{"y"}}}
	return []sinkChange{
		{name: "a follower is added", before: one, after: two},
		{name: "a decider is added before the old one", before: one, after: declared{two[1], two[0]}},
		{name: "decider and follower change places", before: two, after: declared{two[1], two[0]}},
		{name: "a sink is added to the database", before: one, after: declared{{"a", transactional, []string{"x", "y"}}}},
		{name: "an eager sink is added", before: one, after: declared{one[0], {"e", idempotent, []string{"y"}}}},
		{name: "a decider is added where the store decided", before: declared{{"e", idempotent, []string{"y"}}}, after: declared{{"e", idempotent, []string{"y"}}, one[0]}},
		{name: "the decider's sink is renamed", before: two, after: declared{{"a", transactional, []string{"z"}}, two[1]}, renamed: map[string]string{"z": "x"}},
		{name: "the follower's sink is renamed", before: two, after: declared{two[0], {"b", transactional, []string{"z"}}}, renamed: map[string]string{"z": "y"}},
		{name: "a sink of the database is given up", before: declared{{"a", transactional, []string{"x", "y"}}}, after: one, drop: []string{"y"}},
		{name: "the follower is given up", before: two, after: one, drop: []string{"y"}},
		{name: "the decider is given up", before: two, after: declared{two[1]}, drop: []string{"x"}},
		{name: "the only one is replaced", before: one, after: declared{two[1]}, drop: []string{"x"}},
		{name: "only the store is left", before: declared{one[0], {"e", idempotent, []string{"y"}}}, after: declared{{"e", idempotent, []string{"y"}}}, drop: []string{"x"}},
		{name: "nothing with a ledger is left", before: one, after: declared{{"g", atLeastOnce, []string{"y"}}}, drop: []string{"x"}},
	}
}

// TestChangeOfSinks stops a job politely, changes its sinks, fails each effect of
// the start and of what follows in turn, before it happens and after it, and goes
// on without faults.
func TestChangeOfSinks(t *testing.T) {
	for _, c := range sinkChanges() {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lost=%v", c.name, lost), func(t *testing.T) {
				crashes := 0
				for n := 1; ; n++ {
					hit := false
					synctest.Test(t, func(t *testing.T) { hit = c.crashAt(t, n, lost) })
					if !hit || t.Failed() {
						break
					}
					crashes++
				}
				if crashes < 8 {
					t.Errorf("only %d effects were made to fail", crashes)
				}
			})
		}
	}
}

func (c sinkChange) crashAt(t *testing.T, n int, lost bool) (hit bool) {
	w := newWorld()
	r := w.run(t, c.before.in(w))
	r.started().read(7)
	r.stop()

	var mu sync.Mutex
	seen := 0
	fault := func(call string) error {
		mu.Lock()
		defer mu.Unlock()
		if call == "open" || call == "start" {
			return nil
		}
		if seen++; seen == n {
			hit = true
			return fmt.Errorf("effect %d (%s): %w", n, call, syscall.EIO)
		}
		return nil
	}
	if lost {
		w.lose = fault
	} else {
		w.fail = fault
	}
	dbs := c.after.in(w)
	r = w.run(t, dbs, c.now)
	if err := r.h.Settle(t.Context()); err == nil {
		f := r.built()
		for range 2 {
			f.read(f.position + 5)
			if _, err := r.h.Checkpoint(t.Context()); err != nil {
				break
			}
		}
	}
	r.cancel()
	<-r.done // an error as a rule
	w.fail, w.lose = nil, nil
	r = w.run(t, dbs, c.now)
	if err := r.h.Settle(t.Context()); err != nil {
		t.Fatalf("effect %d: no start without faults: %v", n, r.wait())
	}
	f := r.built()
	if f.count != f.position || f.position < 7 {
		t.Errorf("effect %d: restored count %d at position %d", n, f.count, f.position)
	}
	f.read(100)
	f.end()
	if err := r.wait(); err != nil {
		t.Fatalf("effect %d: %v", n, err)
	}
	for _, db := range dbs {
		for _, sink := range db.sinks {
			if got := db.of(sink); db.kind != atLeastOnce && got != 100 {
				t.Errorf("effect %d: sink %s of %s shows %d, want 100", n, sink, db.name, got)
			}
		}
	}
	c.left(t, w)
	return hit
}

// left checks that sinks which were given up have kept what they had, and that
// renamed ones have left nothing.
func (c sinkChange) left(t *testing.T, w *world) {
	t.Helper()
	for _, s := range c.before {
		for _, sink := range s.sinks {
			got, want := w.dbs[s.db].of(sink), int64(100)
			for _, d := range c.drop {
				if d == sink {
					want = 7
				}
			}
			for _, was := range c.renamed {
				if was == sink {
					want = -1
				}
			}
			if s.kind != atLeastOnce && got != want {
				t.Errorf("sink %s of %s shows %d in the end, want %d", sink, s.db, got, want)
			}
		}
	}
}

// of is what a sink's rows show; -1 without a ledger.
func (db *database) of(sink string) int64 {
	for key, r := range db.ledgers {
		if strings.HasSuffix(key, "/"+sink) {
			return r.value
		}
	}
	return -1
}

// TestGivenUpUnsettled gives up a sink after the job ended in the middle of an
// epoch: nobody can say any more whether the sink has it.
func TestGivenUpUnsettled(t *testing.T) {
	two := declared{{"a", transactional, []string{"x"}}, {"b", transactional, []string{"y"}}}
	for _, c := range []struct {
		name, at string
		after    declared
		drop     string
		says     []string
	}{
		{"the follower", "commit b 2", two[:1], "y", []string{"sink y", "only b can say", "as it was"}},
		{"the decider", "commit a 2", two[1:], "x", []string{"only a can say", "epoch 2", "as it was"}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			w := newWorld()
			r := w.run(t, two.in(w))
			r.started().read(5)
			r.checkpoint()
			w.fail = func(call string) error {
				if call == c.at {
					return errors.New("crash")
				}
				return nil
			}
			r.built().read(9)
			if _, err := r.h.Checkpoint(t.Context()); err == nil {
				t.Fatal("no crash")
			}
			r.cancel()
			<-r.done
			w.fail = nil
			drop := func(conf *Config) { conf.Drop = []string{c.drop} }
			wants(t, w.run(t, c.after.in(w), drop).wait(), ErrRefused, c.says...)
			// What it says helps.
			r = w.run(t, two.in(w))
			r.started().read(20)
			r.stop()
			r = w.run(t, c.after.in(w), drop)
			if f := r.started(); f.position != 20 {
				t.Errorf("restored position %d, want 20", f.position)
			}
			r.stop()
		})
	}
}

// TestRolledForwardFromOutputLog damages what a follower needs.
func TestRolledForwardFromOutputLog(t *testing.T) {
	two := declared{{"a", transactional, []string{"x"}}, {"b", transactional, []string{"y"}}}
	start := func(t *testing.T) (w *world, dbs []*database) {
		w = newWorld()
		dbs = two.in(w)
		dbs[1].bulk = 1 << 20
		r := w.run(t, dbs)
		r.started().read(5)
		r.checkpoint()
		w.fail = func(call string) error {
			if call == "commit b 2" {
				return errors.New("crash")
			}
			return nil
		}
		r.built().read(9)
		if _, err := r.h.Checkpoint(t.Context()); err == nil {
			t.Fatal("no crash")
		}
		r.cancel()
		<-r.done
		w.fail = nil
		if dbs[0].value() != 9 || dbs[1].value() != 5 {
			t.Fatalf("decider and follower show %d and %d", dbs[0].value(), dbs[1].value())
		}
		return w, dbs
	}
	bubble(t, "whole", func(t *testing.T) {
		w, dbs := start(t)
		r := w.run(t, dbs)
		if f := r.started(); f.position != 9 || dbs[1].value() != 9 {
			t.Errorf("restored %d, the follower shows %d", f.position, dbs[1].value())
		}
		if left := w.store.names(t, log.OutputPrefix); len(left) != 0 {
			t.Errorf("output logs %q are left", left)
		}
		r.stop()
	})
	bubble(t, "damaged", func(t *testing.T) {
		w, dbs := start(t)
		entries := w.store.entries(t)
		m := entries[len(entries)-1].Checkpoint
		if len(m.Outputs) != 1 || len(m.Staged) != 0 {
			t.Fatalf("the checkpoint keeps %v and %d pieces in itself", m.Outputs, len(m.Staged))
		}
		if err := w.store.Files.Remove(m.Outputs["b"].Name); err != nil {
			t.Fatal(err)
		}
		wants(t, w.run(t, dbs).wait(), log.ErrCorrupt, m.Outputs["b"].Name, "no such file", m.Outputs["b"].SHA256, "epoch 2")
		if dbs[1].value() != 5 {
			t.Errorf("the follower was changed: %d", dbs[1].value())
		}
	})
	bubble(t, "damaged, and not needed", func(t *testing.T) {
		w, dbs := start(t)
		// The first epoch's has been confirmed, and is still there.
		names := w.store.names(t, log.OutputPrefix)
		if len(names) != 2 {
			t.Fatalf("output logs %q, want two", names)
		}
		if err := w.store.Files.Remove(names[0]); err != nil {
			t.Fatal(err)
		}
		r := w.run(t, dbs)
		if f := r.started(); f.position != 9 {
			t.Errorf("restored %d", f.position)
		}
		r.stop()
	})
}

// TestFollowersWait: followers commit once the decision is visible, not before.
func TestFollowersWait(t *testing.T) {
	bubble(t, "a commit that isn't visible at once", func(t *testing.T) {
		w := newWorld()
		dbs := declared{{"a", transactional, []string{"x"}}, {"b", transactional, []string{"y"}}}.in(w)
		r := w.run(t, dbs)
		r.started().read(5)
		dbs[0].hidden = 3
		seen := -1
		w.fail = func(call string) error {
			if call == "commit b 1" {
				seen = dbs[0].hidden
			}
			return nil
		}
		r.checkpoint()
		if seen != 0 || r.saw(func(e Event) bool { return e.Waiting != nil && strings.Contains(e.Waiting.For, "see epoch 1 in a") }) != 3 {
			t.Errorf("the follower committed when the decision was to stay invisible %d times more", seen)
		}
		r.stop()
	})
}

// TestPrepareFails leaves an output log that no checkpoint names; the next start
// removes it.
func TestPrepareFails(t *testing.T) {
	bubble(t, "another participant's fails", func(t *testing.T) {
		w := newWorld()
		dbs := declared{{"a", transactional, []string{"x"}}, {"b", transactional, []string{"y"}}, {"c", following, []string{"z"}}}.in(w)
		dbs[1].bulk = log.InlineOutput
		r := w.run(t, dbs)
		r.started().read(5)
		w.fail = func(call string) error {
			if call == "prepare c" {
				return errors.New("crash")
			}
			return nil
		}
		if _, err := r.h.Checkpoint(t.Context()); err == nil {
			t.Fatal("no crash")
		}
		r.cancel()
		if err := <-r.done; err == nil || !strings.Contains(err.Error(), "prepare epoch 1 in c") {
			t.Fatalf("error %v", err)
		}
		w.fail = nil
		if left := w.store.names(t, log.OutputPrefix); len(left) != 1 {
			t.Fatalf("output logs %q, want one", left)
		}
		r = w.run(t, dbs)
		r.started()
		if left := w.store.names(t, log.OutputPrefix); len(left) != 0 {
			t.Errorf("output logs %q are left", left)
		}
		r.stop()
	})
}

func TestDecider(t *testing.T) {
	s := func(name, kind string, rank int) Sinks { return Sinks{Name: name, Kind: kind, Rank: rank} }
	for _, c := range []struct {
		sinks []Sinks
		want  string
	}{
		{nil, storeDecides},
		{[]Sinks{s("a", atLeastOnce, 0), s("b", idempotent, 9), s("c", following, 9)}, storeDecides},
		{[]Sinks{s("a", following, 0), s("b", transactional, 0), s("c", transactional, 0)}, "b"},
		{[]Sinks{s("a", transactional, 0), s("b", transactional, 1), s("c", transactional, 1)}, "b"},
	} {
		got, err := Config{Sinks: c.sinks, StateDir: "state"}.decider()
		if err != nil || got != c.want {
			t.Errorf("%v: decided by %q, %v; want %q", c.sinks, got, err, c.want)
		}
	}
	_, err := Config{Sinks: []Sinks{s("a", following, 0)}}.decider()
	wants(t, err, ErrRefused, "a", "state directory")
}
