package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

func restarts(n int) func(*Config) { return func(c *Config) { c.Restarts = n } }

// fails makes the next n calls of a kind fail.
func (w *world) fails(call string, n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = func(c string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n == 0 || !strings.HasPrefix(c, call) {
			return nil
		}
		n--
		return &linkError{c, err}
	}
}

// Probe implements Prober.
func (c *connection) Probe(context.Context) error {
	return c.db.w.effect("probe "+c.db.name, func() error { return nil })
}

// told returns the restarts that a run has told of.
func (r *running) told() (out []Restart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Restart != nil {
			out = append(out, *e.Restart)
		}
	}
	return out
}

func (s *store) starts(t testing.TB) (n int) {
	t.Helper()
	for _, e := range s.entries(t) {
		if e.Start != nil {
			n++
		}
	}
	return n
}

// TestRecoveryInPlace fails a call of each kind once: the job goes on from its
// last checkpoint, in the same Run, and answers who was waiting.
func TestRecoveryInPlace(t *testing.T) {
	for _, tt := range []struct {
		call   string
		err    error
		reason Reason
		epoch  int64 // that fails
	}{
		{"link seg", syscall.ENOSPC, DiskFull, 2},
		{"link log", syscall.EIO, DiskBroken, 2},
		{"link log", errors.New("stale handle"), StoreFailed, 2},
		{"prepare", errors.New("broken pipe"), SinkFailed, 2},
		{"commit", errors.New("connection reset"), SinkFailed, 2},
		{"commit", syscall.EROFS, DiskReadOnly, 2},
	} {
		bubble(t, tt.call+" "+string(tt.reason), func(t *testing.T) {
			w := newWorld()
			db := w.database("db", transactional, "counts")
			r := w.run(t, []*database{db}, restarts(1))
			f := r.started()
			f.read(3)
			r.checkpoint()
			f.read(8)
			w.fails(tt.call, 1, tt.err)
			began := time.Now()
			if c := r.checkpoint(); c.Epoch < 2 {
				t.Errorf("epoch %d was committed", c.Epoch)
			}
			if d := time.Since(began); d != time.Second {
				t.Errorf("it took %v, want the wait of one second", d)
			}
			g := r.built()
			if !f.stopped || !f.closed || !f.conns[0].closed || f == g {
				t.Errorf("the flow that failed: stopped %v, closed %v, connection closed %v", f.stopped, f.closed, f.conns[0].closed)
			}
			if g.count != g.position || g.position != 3 && g.position != 8 || db.value() != g.position {
				t.Errorf("restored count %d at position %d, committed %d", g.count, g.position, db.value())
			}
			told := r.told()
			if len(told) != 1 || told[0].Reason != tt.reason || told[0].Attempt != 1 || told[0].Wait != time.Second || !errors.Is(told[0].Err, tt.err) {
				t.Errorf("told of restarts %+v, want one because of %s", told, tt.reason)
			}
			if n := r.saw(func(e Event) bool { return e.Failure != nil && e.Failure.Epoch == tt.epoch }); n != 1 {
				t.Errorf("told of %d failed checkpoints of epoch %d", n, tt.epoch)
			}
			if s := r.last(); !s.Restored || w.store.starts(t) != 2 {
				t.Errorf("started with %+v, %d starts in the log", s, w.store.starts(t))
			}
			g.read(20)
			r.stop()
			if db.value() != 20 {
				t.Errorf("committed %d, want 20", db.value())
			}
		})
	}
}

func TestRestartsEnd(t *testing.T) {
	bubble(t, "after as many as are allowed", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", "idempotent", "counts")
		r := w.run(t, []*database{db}, restarts(3))
		r.started()
		reset := errors.New("connection reset")
		w.fails("fence", -1, reset)
		began := time.Now()
		r.built().ctl.Failed(errors.New("broken"))
		wants(t, r.wait(), reset, "fence db")
		if d := time.Since(began); d != 7*time.Second || len(r.told()) != 3 {
			t.Errorf("ended after %v and %d restarts, want 1 + 2 + 4 s and 3", d, len(r.told()))
		}
		if err := r.h.Settle(t.Context()); !errors.Is(err, ErrEnded) || !errors.Is(err, reset) {
			t.Errorf("whoever asks is told %v", err)
		}
	})
	bubble(t, "at once with bad input", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(3))
		r.started().ctl.Failed(fmt.Errorf("line 17: %w", data.ErrInput))
		wants(t, r.wait(), data.ErrInput, "line 17")
		if told := r.told(); len(told) != 0 {
			t.Errorf("restarted: %+v", told)
		}
	})
	bubble(t, "at once, when the first start fails", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", "idempotent", "counts")
		away := errors.New("no such host")
		w.fails("connect", -1, away)
		r := w.run(t, []*database{db}, restarts(3))
		wants(t, r.wait(), away, "connect to db")
		if told := r.told(); len(told) != 0 {
			t.Errorf("restarted: %+v", told)
		}
	})
	bubble(t, "a row begins anew after a good minute", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(1))
		for range 3 {
			r.started()
			r.checkpoint()
			time.Sleep(newRow) // virtual
			r.built().ctl.Failed(errors.New("broken"))
			synctest.Wait()
		}
		r.started().ctl.Failed(errors.New("broken for good"))
		if err := r.wait(); err == nil || !strings.Contains(err.Error(), "for good") {
			t.Errorf("ended with %v", err)
		}
		if told := r.told(); len(told) != 3 {
			t.Errorf("%d restarts, want 3", len(told))
		}
	})
}

func TestRestartsAndOthers(t *testing.T) {
	bubble(t, "stopped while it waits", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(3))
		r.started().ctl.Failed(errors.New("broken"))
		synctest.Wait()
		began := time.Now()
		r.stop()
		if time.Since(began) != 0 || len(r.told()) != 1 {
			t.Errorf("ended after %v, told of %d restarts", time.Since(began), len(r.told()))
		}
	})
	bubble(t, "its last checkpoint fails", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(3))
		r.started().read(3)
		w.fails("link", 1, syscall.ENOSPC)
		r.cancel()
		wants(t, r.wait(), syscall.ENOSPC, "make room and start again")
		if told := r.told(); len(told) != 0 {
			t.Errorf("restarted: %+v", told)
		}
	})
	bubble(t, "another one has started meanwhile", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(3))
		r.started().ctl.Failed(errors.New("broken"))
		synctest.Wait()
		other := w.run(t, nil, func(c *Config) { c.Takeover = true })
		other.started()
		written, err := w.store.Create("tmp/the-others")
		if err != nil {
			t.Fatal(err)
		}
		wants(t, r.wait(), ErrFenced, "incarnation")
		if f, err := w.store.Open("tmp/the-others"); err != nil {
			t.Errorf("what the other one is writing was taken away: %v", err)
		} else if err := errors.Join(f.Close(), written.Close()); err != nil {
			t.Error(err)
		}
		before := w.store.starts(t)
		other.stop()
		if before != 2 {
			t.Errorf("%d starts in the log, want one of each", before)
		}
	})
	bubble(t, "nobody can slip in without fencing", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil, restarts(3))
		r.started().ctl.Failed(errors.New("broken"))
		synctest.Wait()
		wants(t, w.run(t, nil).wait(), sys.ErrLocked, "--takeover")
		r.started()
		r.stop()
	})
	bubble(t, "killed", func(t *testing.T) {
		for _, idle := range []bool{true, false} {
			w := newWorld()
			db := w.database("db", transactional, "counts")
			var kill context.CancelCauseFunc
			h, done := NewHandle(), make(chan error, 1)
			r := w.run(t, []*database{db}, func(c *Config) { c.Takeover = true })
			r.started()
			ctx, cancel := context.WithCancelCause(sys.With(t.Context(), &sys.Env{
				Files: func(string) (sys.Files, error) { return w.store, nil }, Clock: sys.WallClock{}}))
			kill = cancel
			c := Config{Graph: w.graph([]*database{db}), StateDir: "state", Takeover: true, Restarts: 3, Build: func(context.Context, []Participant) (Flow, error) {
				return &flow{w: w, splits: []string{"s"}, schema: "int64"}, nil
			}, Sinks: []Sinks{{Name: "db", Kind: transactional, IDs: db.sinks, Connect: db.connect}}}
			go func() { done <- Run(ctx, c, h) }()
			if idle {
				if err := h.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			kill(sys.ErrKilled)
			wants(t, <-done, sys.ErrKilled)
			r.cancel()
			<-r.done // fenced, or not yet
		}
	})
	bubble(t, "starting over is done once", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		r.started().read(5)
		r.stop()
		r = w.run(t, []*database{db}, restarts(3), func(c *Config) { c.StartOver = true })
		f := r.started()
		if f.position != 0 {
			t.Errorf("started over at position %d", f.position)
		}
		f.read(7)
		r.checkpoint()
		f.ctl.Failed(errors.New("broken"))
		if g := r.started(); g.position != 7 {
			t.Errorf("restored position %d, want 7", g.position)
		}
		r.stop()
	})
}

// TestAnswersOfStartsGetLost: a start entry that is in the log although its
// append failed is our own.
func TestAnswersOfStartsGetLost(t *testing.T) {
	bubble(t, "of the first start and of a later one", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		lost := 2
		w.lose = func(call string) error {
			if call == "link log" && lost > 0 {
				lost--
				return &linkError{call, syscall.EIO}
			}
			return nil
		}
		r := w.run(t, []*database{db}, restarts(1))
		f := r.started()
		f.read(4)
		r.checkpoint()
		w.mu.Lock()
		lost = 1
		w.mu.Unlock()
		f.ctl.Failed(&linkError{"wal", syscall.EIO})
		if g := r.started(); g.position != 4 {
			t.Errorf("restored position %d, want 4", g.position)
		}
		r.stop()
		if db.value() != 4 || w.store.starts(t) != 5 || len(r.told()) != 4 {
			t.Errorf("committed %d with %d starts and %d restarts, want 4, 5 and 4", db.value(), w.store.starts(t), len(r.told()))
		}
	})
}

// TestLastingDisk has a disk that stays full for an hour.
func TestLastingDisk(t *testing.T) {
	for name, calls := range map[string][]string{
		"nothing can be written":     {"link"},
		"nothing large can":          {"link seg", "link tmp"},
		"the database can't be":      {"commit", "probe db"},
		"the database can't be read": {"connect"},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			db := w.database("db", transactional, "counts")
			r := w.run(t, []*database{db}, restarts(2))
			f := r.started()
			f.read(3)
			r.checkpoint()
			f.read(9)
			began := time.Now()
			w.mu.Lock()
			w.fail = func(c string) error {
				full := slices.ContainsFunc(calls, func(call string) bool { return strings.HasPrefix(c, call) })
				if full && time.Since(began) < time.Hour {
					return &linkError{c, syscall.ENOSPC}
				}
				return nil
			}
			w.mu.Unlock()
			if calls[0] == "connect" {
				f.ctl.Failed(&linkError{"wal", syscall.EIO})
			}
			r.checkpoint()
			if d := time.Since(began); d < time.Hour || d > time.Hour+longestBackoff {
				t.Errorf("went on after %v", d)
			}
			if n := w.store.starts(t); n != 2 {
				t.Errorf("%d starts in the log, want 2", n)
			}
			if n := r.saw(func(e Event) bool { return e.Waiting != nil || e.Restart != nil }); n < 60 || n > 80 {
				t.Errorf("told %d times of the wait, want once a minute", n)
			}
			r.stop()
			if db.value() != r.built().position {
				t.Errorf("committed %d at position %d", db.value(), r.built().position)
			}
		})
	}
}

// TestFullDiskIsCleared: before a full disk is tried again, what the failed
// checkpoint has written is deleted, and so is what can be retired, also where
// the disk fails in that, too.
func TestFullDiskIsCleared(t *testing.T) {
	for name, script := range map[string][]string{
		"at once":                   {"link log"},
		"after a delete that fails": {"link log", "remove", "link log"},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld()
			r := w.run(t, nil, restarts(1), func(c *Config) { c.Retain = 3 })
			f := r.started()
			for i := range int64(5) { // fewer than are retired by themselves
				f.read(i)
				r.checkpoint()
			}
			var mu sync.Mutex
			var left []log.Entry
			var files []string
			logged := 0
			w.mu.Lock()
			w.fail = func(call string) error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case call == "link tmp" && len(script) == 0 && left == nil:
					left, files = w.store.entries(t), w.store.names(t, log.SegmentPrefix)
				case len(script) == 0 || call != script[0]:
				case call == "remove" && logged < 1: // of the failed checkpoint's
				default:
					script = script[1:]
					return &linkError{call, syscall.ENOSPC}
				}
				if call == "link log" {
					logged++ // first what is to be retired
				}
				return nil
			}
			w.mu.Unlock()
			r.checkpoint()
			named, checkpoints := map[string]bool{}, 0
			for _, e := range log.Standing(left) {
				if e.Checkpoint != nil {
					checkpoints++
					for _, s := range e.Checkpoint.Segments {
						named[s.Name] = true
					}
				}
			}
			if checkpoints != 3 || len(script) != 0 {
				t.Errorf("%d checkpoints are left, want 3; %q didn't fail", checkpoints, script)
			}
			if len(log.Standing(left)) != len(left) {
				t.Errorf("retired entries are left: %d of %d", len(left)-len(log.Standing(left)), len(left))
			}
			for _, f := range files {
				if !named[f] {
					t.Errorf("%s is left, and nothing names it", f)
				}
			}
			r.stop()
		})
	}
}
