// Package weirtest runs a job in a test, under the test's control: it feeds
// records, advances event time, injects barriers, crashes and restores, and reads
// outputs, and never sleeps. Nothing here depends on the clock; in a synctest
// bubble, timers run in virtual time.
//
//	in := weirtest.NewInput[Click]()
//	out := weirtest.NewOutput[Row]()
//	run := weirtest.Start(t, build(in, out))
//	in.Send(click("ad-1", "12:00:10"), click("ad-1", "12:00:50"))
//	in.Advance(at("12:01:00"))
//	run.Settle()
//	got := out.Take()
//
// What a crash does to a pipeline shows at its outputs: an Output sees again what
// came since the last checkpoint, a Committed sees each record once.
//
//	run.Barrier()         // a checkpoint of all that was sent
//	in.Send(click("ad-1", "12:01:10"))
//	run.Crash()           // the process dies: only what is durable is left
//	run.Restore()         // another one goes on from the checkpoint
package weirtest

import (
	"context"
	"errors"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// Run is a job that runs in a test. Its methods are called by one goroutine.
type Run struct {
	t    testing.TB
	job  *weir.Job
	opts []weir.RunOption
	at   *process
}

// process is one start of the job, as a process of its own would be.
type process struct {
	machine *sim.Machine
	running *weir.Running
	kill    context.CancelCauseFunc
	started chan weir.Started // what it has told of its start
	ended   chan struct{}     // closed when the job has ended
	waited  bool              // the test knows how it ended
}

// Start starts a job without a timer for checkpoints and without recoveries in
// place, and with its state in memory, on a disk that outlives crashes; opts may
// say otherwise. The test's end stops it; an error that it ended with fails the
// test, unless Wait has returned it.
func Start(t testing.TB, job *weir.Job, opts ...weir.RunOption) *Run {
	t.Helper()
	r := &Run{t: t, job: job, opts: append([]weir.RunOption{weir.StateDir(stateDir), weir.Interval(0), weir.Restarts(0), weir.Parallelism(2)}, opts...)}
	r.start(sim.NewDisk())
	t.Cleanup(func() {
		r.at.running.Stop()
		<-r.at.ended
		if err := r.at.running.Wait(); err != nil && !r.at.waited {
			t.Errorf("the job ended with: %v", err)
		}
	})
	return r
}

func (r *Run) start(disk *sim.Disk, opts ...weir.RunOption) {
	p := &process{machine: sim.NewMachine(disk), started: make(chan weir.Started, 1), ended: make(chan struct{})}
	ctx, kill := context.WithCancelCause(sys.With(context.WithoutCancel(r.t.Context()), env(p.machine)))
	p.kill = kill
	opts = append(append(r.opts[:len(r.opts):len(r.opts)], opts...), weir.OnStart(func(s weir.Started) {
		select {
		case p.started <- s:
		default: // a recovery in place
		}
	}))
	p.running = r.job.Start(ctx, opts...)
	go func() {
		defer close(p.ended)
		_ = p.running.Wait() // whoever waits for ended asks again
		kill(nil)
	}()
	r.at = p
}

// Settle returns when everything that was sent has passed every step, without a
// barrier. A job that has ended well has settled; one that has failed fails the
// test.
func (r *Run) Settle() {
	r.t.Helper()
	err := r.at.running.Settle(r.t.Context())
	if errors.Is(err, weir.ErrEnded) {
		err = r.at.running.Wait()
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
	c, err := r.at.running.Checkpoint(r.t.Context())
	if err != nil {
		r.t.Fatalf("barrier: %v", err)
	}
	return c
}

// Progress returns the job's progress.
func (r *Run) Progress() weir.Progress { return r.at.running.Progress() }

// Stop stops the job politely: a last checkpoint, and no window is closed.
func (r *Run) Stop() error {
	r.at.running.Stop()
	return r.Wait()
}

// Wait returns when the job has ended by itself, with its error.
func (r *Run) Wait() error {
	<-r.at.ended
	r.at.waited = true
	return r.at.running.Wait()
}
