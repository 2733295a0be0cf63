package weirtest

import (
	"errors"
	"sync/atomic"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// Crash ends the job at once, as a loss of power does: no barrier, no commit, and
// of its state nothing is left that wasn't durable. What a sink has committed
// stays, what it was only given is gone. Call Settle before it where the test
// depends on how far the job has come. A job that has ended well has nothing
// left to lose; one that has failed fails the test.
func (r *Run) Crash() {
	r.t.Helper()
	r.at.machine.Crash()
	r.dead()
}

// dead ends the job whose machine is, and checks that it ended by that.
func (r *Run) dead() {
	r.t.Helper()
	r.at.kill(sys.ErrKilled)
	if err := r.Wait(); err != nil && !errors.Is(err, sim.ErrCrashed) && !errors.Is(err, sys.ErrKilled) {
		r.t.Fatalf("crash: the job had failed before: %v", err)
	}
}

// CrashInBarrier injects a barrier behind everything that was sent, and crashes
// the job at the n-th thing, from 1, that its checkpoint does to the world: a
// file that is written, synced or named, a sink that commits. It returns false,
// and the job runs on, if the checkpoint was committed with fewer. So a loop over
// n, each with a Run of its own, crashes a checkpoint everywhere. In a state
// directory that StateDir names the files aren't counted.
func (r *Run) CrashInBarrier(n int) bool {
	r.t.Helper()
	r.Settle()
	var armed atomic.Bool
	armed.Store(true)
	at := r.at.machine.Effects() + n
	r.at.machine.CrashIf(func(e sim.Effect) bool { return armed.Load() && e.K == at }, sim.Before)
	_, err := r.at.running.Checkpoint(r.t.Context())
	armed.Store(false)
	switch {
	case r.at.machine.Dead():
		r.dead()
		return true
	case err != nil:
		r.t.Fatalf("barrier: %v", err)
	}
	return false
}

// Restore starts the job again, after a Crash or a Stop, on what it left, and
// returns where it goes on. It has the options of Start; opts come on top, such as
// another parallelism. The same inputs and outputs go on being fed and read.
func (r *Run) Restore(opts ...weir.RunOption) weir.Started {
	r.t.Helper()
	return r.RestoreAs(r.job, opts...)
}

// RestoreAs is Restore with another version of the job: what a user deploys after
// a change. If the change is refused, the test fails.
func (r *Run) RestoreAs(job *weir.Job, opts ...weir.RunOption) weir.Started {
	r.t.Helper()
	if !r.at.waited {
		r.t.Fatalf("restore: the job still runs, or nobody has asked how it ended: call Crash, Stop or Wait first")
	}
	r.job = job
	r.start(r.at.machine.Image(sim.Lost()), opts...)
	select {
	case s := <-r.at.started:
		return s
	case <-r.at.ended:
	}
	select {
	case s := <-r.at.started: // and ended at once: it had nothing left to do
		return s
	default:
	}
	r.t.Fatalf("restore: %v", r.Wait())
	return weir.Started{}
}
