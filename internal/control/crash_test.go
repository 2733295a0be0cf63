package control

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/internal/control/log"
)

// TestCrashAnywhere fails one effect after the other, before it happens and
// after it, then starts again without faults and reads the input to its end.
// What the sinks and the state show must always agree with the position.
func TestCrashAnywhere(t *testing.T) {
	for _, kinds := range [][]string{{transactional}, {"idempotent"}, {transactional, "idempotent", "following"}, {"following", atLeastOnce},
		{transactional, transactional, "following", transactional}} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lost=%v", strings.Join(kinds, "+"), lost), func(t *testing.T) {
				crashes := 0
				for n := 1; ; n++ {
					hit := false
					synctest.Test(t, func(t *testing.T) { hit = crashAt(t, kinds, n, lost) })
					if !hit {
						break
					}
					crashes++
				}
				if crashes < 10 {
					t.Errorf("only %d effects were made to fail", crashes)
				}
			})
		}
	}
}

// crashAt fails the n-th effect of two lives, and reports whether there was one.
func crashAt(t *testing.T, kinds []string, n int, lost bool) (hit bool) {
	w := newWorld()
	var dbs []*database
	for i, k := range kinds {
		dbs = append(dbs, w.database(fmt.Sprint("db", i), k, fmt.Sprint("sink", i)))
		dbs[i].bulk = i / 2 * log.InlineOutput // from the third on, an output log
	}
	var mu sync.Mutex // segment writers and the committer work at the same time
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
	for life := 1; life <= 2; life++ {
		r := w.run(t, dbs, func(c *Config) { c.Retain = 1 })
		if f := agreed(t, r, dbs); f != nil {
			for range 4 {
				f.read(f.position + 5)
				if _, err := r.h.Checkpoint(t.Context()); err != nil {
					break
				}
			}
		}
		r.cancel()
		<-r.done // an error as a rule; what counts is what is left behind
	}
	w.fail, w.lose = nil, nil
	r := w.run(t, dbs)
	f := agreed(t, r, dbs)
	if f == nil {
		t.Fatalf("effect %d: no start without faults: %v", n, r.wait())
	}
	f.read(100)
	f.end()
	if err := r.wait(); err != nil {
		t.Fatalf("effect %d: %v", n, err)
	}
	if left := w.store.names(t, log.OutputPrefix); len(left) > 0 {
		t.Errorf("effect %d: output logs %q are left, although everybody has confirmed", n, left)
	}
	for _, db := range dbs {
		if db.kind != atLeastOnce && db.value() != 100 {
			t.Errorf("effect %d: %s shows %d, want 100", n, db.name, db.value())
		}
	}
	return hit
}

// agreed waits for the start and checks that state, position and sinks agree;
// it returns nil if the run ended before.
func agreed(t *testing.T, r *running, dbs []*database) *flow {
	t.Helper()
	if err := r.h.Settle(t.Context()); err != nil {
		return nil
	}
	f := r.built()
	if f.count != f.position {
		t.Errorf("restored count %d at position %d", f.count, f.position)
	}
	for _, db := range dbs {
		if db.kind != atLeastOnce && db.value() != f.position {
			t.Errorf("%s shows %d, but position %d was restored", db.name, db.value(), f.position)
		}
	}
	return f
}
