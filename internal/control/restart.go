package control

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sys"
)

// process is one Run: its incarnations, one after the other, and what they
// share. It belongs to Run's goroutine.
type process struct {
	Config
	env *sys.Env
	h   *Handle

	where string    // what errors call the store
	files sys.Files // nil until it could be opened. State in memory lives in it
	// lock is nil until the store could be locked, and while another process has
	// it that we take over from. It is kept from one incarnation to the next, so
	// that nobody slips in between.
	lock io.Closer

	uuid    string          // of the life that the job begins, if it begins one
	nonces  map[string]bool // of our start entries, whether or not they are in the log
	mine    int64           // slot of the newest of them that is in the log; 0: none
	carried []*request      // asked of an incarnation that failed before it could answer
	needs   int64           // bytes that the next checkpoint may need
	series  series
	trouble bool // the last incarnation failed because of a disk
}

// Run executes a job: start, epochs, end. It is the same path for a first
// start, a restart and a takeover, and for the recovery from an error, which
// gives up all that the incarnation had in memory and starts the next one in its
// place. When ctx is cancelled Run takes a last checkpoint and returns nil; so it
// does when all input has been read. When it returns, nothing of the run is left
// but what is committed. h may be nil.
//
// A ctx that is cancelled with the cause sys.ErrKilled is no polite stop: all is
// dropped, and Run returns that.
//
// The error wraps sys.ErrLocked, ErrRefused, ErrFenced, log.ErrCorrupt,
// data.ErrInput where one of these is the reason.
func Run(ctx context.Context, c Config, h *Handle) error {
	if h == nil {
		h = NewHandle()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(h.stop, stop)()
	p := newProcess(ctx, c, h)
	err := p.close(p.run(ctx))
	h.End(err)
	return err
}

func newProcess(ctx context.Context, c Config, h *Handle) *process {
	p := &process{Config: c.withDefaults(), env: sys.From(ctx), h: h, where: "memory", uuid: newUUID(), nonces: map[string]bool{}}
	p.series.limit = p.Restarts
	if c.StateDir != "" {
		p.where = c.StateDir
	}
	return p
}

// run runs one incarnation after the other, until one ends well, or with an
// error that no restart is made for.
func (p *process) run(stop context.Context) error {
	for {
		j := newJob(stop, p)
		failed, closing := j.live(stop)
		if failed == nil {
			return closing
		}
		failed = errors.Join(failed, closing)
		attempt, again := p.series.next(failed)
		if !again || stop.Err() != nil {
			return advised(failed)
		}
		p.trouble = classOf(failed) == disk
		r := Restart{Reason: reasonOf(failed), Attempt: attempt, Wait: backoff(attempt), Err: failed}
		p.Log.Warn("restarting in place", "job", p.Graph.Job, "reason", string(r.Reason), "attempt", attempt, "in", r.Wait, "error", failed.Error())
		p.observe(Event{Restart: &r})
		if err := p.pause(stop, r); err != nil {
			return err
		}
	}
}

// live is one incarnation from its start to its end. failed is why it ended, if
// it didn't end well, and closing what went wrong after that.
func (j *job) live(stop context.Context) (failed, closing error) {
	failed = j.run(stop)
	if !j.started.IsZero() {
		j.series.ran(j.since(j.started), j.published)
	}
	return j.close(failed)
}

// pause waits before a restart, and after an error of a disk until the store's
// takes a checkpoint again: starts that fail one after the other would fill the
// log, and what is left of the disk. It returns early when the run is to stop.
func (p *process) pause(stop context.Context, r Restart) error {
	for wait := r.Wait; ; {
		select {
		case <-p.env.Clock.After(wait):
		case <-stop.Done():
			p.Log.Info("stopped while waiting for a restart", "job", p.Graph.Job)
			return killed(stop)
		}
		err := p.probe()
		if err == nil {
			return nil
		}
		p.series.disks++
		wait = backoff(p.series.disks)
		p.Log.Warn("waiting", "job", p.Graph.Job, "for", "the disk", "because", err.Error(), "again_in", wait)
		p.observe(Event{Waiting: &Waiting{For: fmt.Sprintf("the disk of the state directory %s: %v; the job goes on by itself, and tries again in %v", p.where, err, wait)}})
	}
}

// killed returns the error of a run that isn't to stop politely; or nil.
func killed(stop context.Context) error {
	if err := context.Cause(stop); errors.Is(err, sys.ErrKilled) {
		return err
	}
	return nil
}

// close ends what the incarnations share.
func (p *process) close(err error) error {
	if p.lock != nil {
		err = errors.Join(err, wrap("unlock the state directory", p.lock.Close()))
	}
	if p.files != nil {
		err = errors.Join(err, wrap("close the state directory", p.files.Close()))
	}
	return err
}

// observe tells of an event while no incarnation runs.
func (p *process) observe(e Event) {
	e.At = p.env.Clock.Now()
	p.Observe(e)
}

// know looks through the log for starts: our own, also one whose answer was
// lost, and a newer one of somebody else, who runs the job now.
func (p *process) know(entries []log.Entry) (newer *log.Entry) {
	for _, e := range entries {
		if e.Start != nil && p.nonces[e.Start.Nonce] {
			p.mine = max(p.mine, e.Slot)
		}
	}
	if e := newestStart(entries); p.mine > 0 && e != nil && e.Slot > p.mine {
		return e
	}
	return nil
}

// takeUp asks the new incarnation for what the one before it still owed.
func (j *job) takeUp() {
	carried := j.carried
	j.carried = nil
	for _, r := range carried {
		j.request(r)
	}
}

// hand keeps for the next incarnation what this one owes, and what its checkpoint
// has shown to need.
func (j *job) hand() {
	j.carried = append(j.carried, j.asked...)
	if j.open != nil {
		j.carried = append(j.carried, j.open.waiting...)
		written := int64(0)
		for _, f := range j.open.sizes {
			written += f.Size
		}
		j.needs = max(j.needs, written)
	}
	for _, s := range j.settles {
		j.carried = append(j.carried, s.request)
	}
}
