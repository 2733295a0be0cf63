package control

import (
	"testing"

	"github.com/weirstream/weir/internal/sys"
)

func TestTwoProcesses(t *testing.T) {
	bubble(t, "the second is refused", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		r.started()
		wants(t, w.run(t, nil).wait(), sys.ErrLocked, "--takeover", "state")
		r.stop()
	})
	for _, kind := range []string{transactional, "idempotent", atLeastOnce} {
		bubble(t, "takeover fences the first, "+kind, func(t *testing.T) {
			w := newWorld()
			db := w.database("db", kind, "counts")
			first := w.run(t, []*database{db})
			f := first.started()
			f.read(3)
			first.checkpoint()
			f.read(8)

			second := w.run(t, []*database{db}, func(c *Config) { c.Takeover = true })
			g := second.started()
			if g.position != 3 {
				t.Errorf("the second restored position %d, want 3", g.position)
			}
			_, err := first.h.Checkpoint(t.Context())
			wants(t, err, ErrEnded)
			wants(t, first.wait(), ErrFenced, "incarnation")
			if kind != atLeastOnce && db.value() != 3 {
				t.Errorf("the fenced one changed the count to %d", db.value())
			}
			g.read(20)
			second.stop()
			if kind != atLeastOnce && db.value() != 20 {
				t.Errorf("committed %d, want 20", db.value())
			}
		})
	}
}

func TestTakeoverRaces(t *testing.T) {
	bubble(t, "two take over at once", func(t *testing.T) {
		w := newWorld()
		first := w.run(t, nil)
		first.started()
		// Between its reading of the log and its start entry another one starts.
		done := false
		var other *running
		takeover := func(c *Config) { c.Takeover = true }
		w.fail = func(call string) error {
			if call == "link log" && !done {
				done = true
				other = w.run(t, nil, takeover)
				other.started()
			}
			return nil
		}
		wants(t, w.run(t, nil, takeover).wait(), ErrFenced, "at the same moment")
		other.stop()
		first.cancel()
		wants(t, first.wait(), ErrFenced)
	})
	bubble(t, "the first goes on committing", func(t *testing.T) {
		w := newWorld()
		first := w.run(t, nil)
		f := first.started()
		done := false
		w.fail = func(call string) error {
			if call == "link log" && !done {
				done = true
				f.read(5)
				first.checkpoint()
			}
			return nil
		}
		second := w.run(t, nil, func(c *Config) { c.Takeover = true })
		if g := second.started(); g.position != 5 {
			t.Errorf("the second restored position %d, want 5", g.position)
		}
		second.stop()
		first.cancel()
		wants(t, first.wait(), ErrFenced)
	})
}
