// Package weirtest runs a job in a test, under the test's control: it feeds
// records, advances event time, injects barriers and reads outputs, and never
// sleeps. Nothing here depends on the clock.
//
//	in := weirtest.NewInput[Click]()
//	out := weirtest.NewOutput[Row]()
//	run := weirtest.Start(t, build(in, out))
//	in.Send(click("ad-1", "12:00:10"), click("ad-1", "12:00:50"))
//	in.Advance(at("12:01:00"))
//	run.Settle()
//	got := out.Take()
package weirtest

import (
	"context"
	"errors"
	"testing"

	"github.com/weirstream/weir"
)

// Run is a job that runs in a test.
type Run struct {
	t       testing.TB
	running *weir.Running
	waited  bool
}

// Start starts a job without a timer for checkpoints and with its state in
// memory, unless opts say otherwise. The test's end stops it; an error that it
// ended with fails the test, unless Wait has returned it.
func Start(t testing.TB, job *weir.Job, opts ...weir.RunOption) *Run {
	t.Helper()
	opts = append([]weir.RunOption{weir.Interval(0), weir.Parallelism(2)}, opts...)
	r := &Run{t: t, running: job.Start(context.WithoutCancel(t.Context()), opts...)}
	t.Cleanup(func() {
		if r.waited {
			return
		}
		r.running.Stop()
		if err := r.running.Wait(); err != nil {
			t.Errorf("the job ended with: %v", err)
		}
	})
	return r
}

// Settle returns when everything that was sent has passed every step, without a
// barrier. A job that has ended well has settled; one that has failed fails the
// test.
func (r *Run) Settle() {
	r.t.Helper()
	err := r.running.Settle(r.t.Context())
	if errors.Is(err, weir.ErrEnded) {
		err = r.running.Wait()
	}
	if err != nil {
		r.t.Fatalf("settle: %v", err)
	}
}

// Barrier injects a barrier behind everything that was sent, and returns when
// its checkpoint is committed.
func (r *Run) Barrier() weir.Checkpoint {
	r.t.Helper()
	r.Settle()
	c, err := r.running.Checkpoint(r.t.Context())
	if err != nil {
		r.t.Fatalf("barrier: %v", err)
	}
	return c
}

// Progress returns the job's progress.
func (r *Run) Progress() weir.Progress { return r.running.Progress() }

// Stop stops the job politely: a last checkpoint, and no window is closed.
func (r *Run) Stop() error {
	r.running.Stop()
	return r.Wait()
}

// Wait returns when the job has ended by itself, with its error.
func (r *Run) Wait() error {
	r.waited = true
	return r.running.Wait()
}
