package control

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

func TestFailures(t *testing.T) {
	bubble(t, "disk full", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		f := r.started()
		f.read(3)
		r.checkpoint()
		w.fail = func(call string) error {
			if call == "link seg" {
				return &linkError{"state/seg/x", syscall.ENOSPC}
			}
			return nil
		}
		_, err := r.h.Checkpoint(t.Context())
		wants(t, err, ErrEnded)
		wants(t, r.wait(), syscall.ENOSPC, "disk is full", "state/seg/x", "epoch 1", "count/0")
	})
	bubble(t, "a hanging commit ends with the run", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", transactional, "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		db.busy = 1 << 30
		f.ctl.Wants(false)
		time.Sleep(time.Minute) // virtual
		f.ctl.Failed(errors.New("broken"))
		if err := r.wait(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("error %v", err)
		}
	})
	bubble(t, "a damaged store", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		r.started().read(3)
		r.stop()
		seg := w.store.names(t, log.SegmentPrefix)[0]
		if err := w.store.Files.Remove(seg); err != nil {
			t.Fatal(err)
		}
		wants(t, w.run(t, nil).wait(), log.ErrCorrupt, seg)
	})
}

func TestTaskFailures(t *testing.T) {
	bubble(t, "a task fails", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		f := r.started()
		f.ctl.Failed(fmt.Errorf("line 17: %w", data.ErrInput))
		f.ctl.Failed(errors.New("a consequence"))
		err := r.wait()
		wants(t, err, data.ErrInput, "line 17", "epoch 0")
		if strings.Contains(err.Error(), "consequence") {
			t.Errorf("error %q isn't the first one", err)
		}
		if !f.stopped || !f.closed {
			t.Errorf("stopped %v, closed %v", f.stopped, f.closed)
		}
		// A task that hasn't noticed yet.
		p := &fakePart{}
		f.ctl.Acked(data.Ack{Epoch: 1, Task: "count/0", Parts: []data.Part{p}})
		f.ctl.Wants(true)
		if p.released != 1 {
			t.Errorf("a late part was released %d times", p.released)
		}
	})
	bubble(t, "an acknowledgement that can't be", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		f := r.started()
		f.mute = true
		f.ctl.Wants(false)
		synctest.Wait()
		parts := []*fakePart{{info: data.PartInfo{Step: "count", Full: true}}, {info: data.PartInfo{Step: "count"}}}
		f.ctl.Acked(data.Ack{Epoch: 1, Task: "count/0", Parts: []data.Part{parts[0], parts[1]}})
		if err := r.wait(); err == nil || !strings.Contains(err.Error(), "step count") {
			t.Errorf("error %v", err)
		}
		if parts[0].released != 1 || parts[1].released != 1 {
			t.Errorf("parts were released %d and %d times", parts[0].released, parts[1].released)
		}
	})
	bubble(t, "a wrong acknowledgement", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		f := r.started()
		p := &fakePart{}
		f.ctl.Acked(data.Ack{Epoch: 3, Task: "count/0", Parts: []data.Part{p}})
		if err := r.wait(); err == nil || !strings.Contains(err.Error(), "barrier 3") {
			t.Errorf("error %v", err)
		}
		if p.released != 1 {
			t.Errorf("its part was released %d times", p.released)
		}
	})
}

type linkError struct {
	file string
	err  error
}

func (e *linkError) Error() string { return "link " + e.file + ": " + e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }
