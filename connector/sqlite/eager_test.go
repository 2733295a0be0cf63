package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weirstream/weir"
)

// Tasks fill their buffers while rows are taken from all of them, often just
// when one is empty. No row may be lost on the way.
func TestEagerKeepsRows(t *testing.T) {
	s := counts(database(t)).Eager()
	p, err := s.Connect(t.Context(), []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	_, err = p.Fence(t.Context(), weir.Fence{Job: job, By: weir.Incarnation{Number: 1, Nonce: "nonce"}, Create: true})
	check(t, err)
	o, err := s.Open(t.Context(), p, "out")
	check(t, err)
	const tasks, n = 4, 500
	var all sync.WaitGroup
	for task := range tasks {
		w := o.Writer(task)
		all.Go(func() {
			for i := range int64(n) {
				err := w.Write([]count{{fmt.Sprint(task, "-", i), i}}, []int64{i})
				if err == nil && i%3 == 0 {
					err = p.Flush(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	check(t, p.Flush(t.Context()))
	want := fmt.Sprint(tasks*n, " ", tasks*n*(n-1)/2)
	if got := list(t, other(t, s.path), "SELECT count(*), sum(clicks) FROM counts"); got[0] != want {
		t.Errorf("rows and the sum of their clicks are %s, want %s", got[0], want)
	}
}

// TestEagerEndsWithItsRun: a task that waits for room while another process has
// the write lock ends when the run does: only then is the participant closed.
func TestEagerEndsWithItsRun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	path := database(t)
	s := Upsert[account](path, "account", "id").Eager().Buffer(1, 1<<20)
	p, err := s.Connect(ctx, []string{"out"})
	check(t, err)
	_, err = p.Fence(ctx, weir.Fence{Job: weir.JobID{Name: "j", UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true})
	check(t, err)
	out, err := s.Open(ctx, p, "out")
	check(t, err)
	other, err := dial(t.Context(), s.path, false)
	check(t, err)
	defer func() { check(t, other.close()) }()
	check(t, other.raw("BEGIN IMMEDIATE"))
	w := out.Writer(0)
	over := errors.New("the run is over")
	ended := make(chan error)
	go func() {
		for {
			if err := w.Write([]account{{"a", 1}}, []int64{0}); err != nil {
				ended <- err
				return
			}
		}
	}()
	cancel(over)
	if err := <-ended; !errors.Is(err, over) {
		t.Errorf("the task ended with %v", err)
	}
	check(t, p.Close())
}
