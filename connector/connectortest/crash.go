package connectortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// A crash ends the machine's part in a life at one call to a database: before
// or after it is performed, and for good. Later calls are not performed.
type crash struct {
	at    int // the call's number, from 1; 0: never
	after bool

	mu    sync.Mutex
	calls int
	name  string // of the call that was hit
}

var errCrash = errors.New("the machine crashed")

func (c *crash) SQL(name string, do func() error) error {
	c.mu.Lock()
	c.calls++
	n := c.calls
	if n == c.at {
		c.name = name
	}
	c.mu.Unlock()
	switch {
	case c.at == 0 || n < c.at:
		return do()
	case n == c.at && c.after:
		if err := do(); err != nil {
			return err
		}
	}
	return fmt.Errorf("call %d (%s): %w", n, name, errCrash)
}

// hit reports whether the crash has happened.
func (c *crash) hit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name != ""
}

func (c *crash) context(ctx context.Context) context.Context {
	env := *sys.From(ctx)
	env.SQL = c.SQL
	return sys.With(ctx, &env)
}

// testCrash crashes before and after every call to a database, again while
// the next life recovers, and then runs to the end.
func testCrash(t *testing.T, s SinkUnderTest) {
	for _, mode := range []struct {
		name               string
		follows, openFirst bool
	}{{name: "decides"}, {name: "follows", follows: true, openFirst: true}} {
		t.Run(mode.name, func(t *testing.T) {
			if mode.follows && onlyDecides(t, s) {
				t.Log("the sink can only decide: nothing to test")
				return
			}
			points := 0
			for _, after := range []bool{false, true} {
				for at := 1; ; at++ {
					w := newWorld(t, s)
					w.follows, w.openFirst = mode.follows, mode.openFirst
					if !crashAt(t, w, at, after) {
						break
					}
					points++
				}
			}
			if points == 0 && !s.NoSQL {
				t.Fatal("there was no call to a database to crash at: let New open it with a driver that Driver has wrapped, make each call with its context, or say NoSQL")
			}
			if points > 0 && s.NoSQL {
				t.Fatalf("NoSQL is true, and there were calls to a database: %d points to crash at", points)
			}
			t.Logf("%d crash points", points)
		})
	}
}

// onlyDecides reports whether the sink is transactional and can't follow.
func onlyDecides(t *testing.T, s SinkUnderTest) bool {
	t.Helper()
	w := newWorld(t, s)
	_, follows := w.open(t).p.(weir.Follower)
	return !follows && s.New(w.dir, "left").Spec().Kind == weir.Transactional
}

// crashAt reports whether there was such a call.
func crashAt(t *testing.T, w *world, at int, after bool) bool {
	t.Helper()
	first := &crash{at: at, after: after}
	err := w.live(first.context(t.Context()), len(scenario))
	if !first.hit() {
		must(t, err)
		return false
	}
	where := fmt.Sprintf("crash at call %d, %s, after it: %v", at, first.name, after)
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatalf("%s: %v", where, err)
	}
	w.checkDecided(t, where)
	second := &crash{at: 1 + at%11, after: !after}
	err = w.live(second.context(t.Context()), len(scenario))
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatalf("%s, the next life: %v", where, err)
	}
	if err := w.live(t.Context(), len(scenario)); err != nil {
		t.Fatalf("%s, the last life: %v", where, err)
	}
	w.check(t, len(scenario))
	if t.Failed() {
		t.Fatal(where)
	}
	return true
}

// checkDecided: after a crash, readers of a sink that decides see exactly the
// epochs up to the checkpoint that its ledger names.
func (w *world) checkDecided(t *testing.T, where string) {
	t.Helper()
	if !w.decides() || len(w.log) == 0 {
		return
	}
	l, epoch, err := w.begin(t.Context())
	if err != nil {
		t.Fatalf("%s: recover: %v", where, err)
	}
	w.check(t, int(epoch))
	must(t, l.close())
	if t.Failed() {
		t.Fatalf("%s: the rows don't fit the ledger", where)
	}
}
