package control

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/internal/plan"
)

func TestHandle(t *testing.T) {
	bubble(t, "a caller gives up", func(t *testing.T) {
		h := NewHandle()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Checkpoint(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		h.End(nil)
	})
	bubble(t, "settle waits for every task and then for every sink", func(t *testing.T) {
		w := newWorld()
		db := w.database("db", "idempotent", "counts")
		r := w.run(t, []*database{db})
		f := r.started()
		w.calls()
		if err := r.h.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if calls := w.calls(); !slices.Equal(calls, []string{"flush db"}) || len(f.barriers) != 0 {
			t.Errorf("calls %q, barriers %v", calls, f.barriers)
		}
		f.slow = true
		done := make(chan error, 1)
		go func() { done <- r.h.Settle(t.Context()) }()
		synctest.Wait()
		if calls := w.calls(); len(calls) != 0 || len(done) != 0 {
			t.Errorf("calls %q while a task keeps the probe", calls)
		}
		f.ctl.Probed(3) // the third of this run
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.stop()
	})
	bubble(t, "without one", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Run(ctx, Config{Graph: plan.Graph{Job: "x"}}, nil); err != nil {
			t.Errorf("error %v", err)
		}
	})
}

func TestHandleShared(t *testing.T) {
	bubble(t, "many callers share one barrier", func(t *testing.T) {
		w := newWorld()
		r := w.run(t, nil)
		r.started()
		gate := make(chan struct{})
		w.fail = func(call string) error {
			if call == "link log" {
				<-gate
			}
			return nil
		}
		epochs := make(chan int64, 4)
		for range 4 {
			go func() {
				c, err := r.h.Checkpoint(t.Context())
				if err != nil {
					t.Error(err)
				}
				epochs <- c.Epoch
			}()
			synctest.Wait()
		}
		close(gate)
		var got []int64
		for range 4 {
			got = append(got, <-epochs)
		}
		slices.Sort(got)
		// The first has barrier 1; it was out when the others asked.
		if !slices.Equal(got, []int64{1, 2, 2, 2}) {
			t.Errorf("epochs %v, want 1 2 2 2", got)
		}
		r.stop()
	})
}

// TestAnsweredAtTheEnd: a last checkpoint's answer and the end of the run come
// together, and the answer is never lost.
func TestAnsweredAtTheEnd(t *testing.T) {
	for range 100 {
		h := NewHandle()
		go func() {
			r := <-h.asked
			r.reply <- reply{checkpoint: Checkpoint{Epoch: 7}}
			h.End(nil)
		}()
		if c, err := h.Checkpoint(t.Context()); err != nil || c.Epoch != 7 {
			t.Fatalf("epoch %d, error %v; want 7", c.Epoch, err)
		}
	}
}
