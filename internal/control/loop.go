package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// What the committer says besides events of package epoch.
type (
	prepared struct {
		epoch  int64
		staged staged
	}
	entered struct {
		epoch int64
		id    log.ID
	}
	settled struct{ n int64 }
)

// settle is a Settle on its way: tasks that haven't passed its probe on.
type settle struct {
	*request
	left int
}

// loop follows the epochs until one was the last or something fails.
func (j *job) loop(stop context.Context) error {
	j.machine = epoch.New(epoch.Config{Tasks: j.flow.Tasks(), Sources: j.flow.Sources(), Last: j.last.m.Epoch,
		Chains: chains(j.last.m, rewrites(j.Graph)), Limits: j.Limits})
	j.looping.Store(true)
	j.startCommitter()
	j.flow.Start(j.inbox)
	j.takeUp()
	stopped, tick := stop.Done(), j.tick()
	for !j.over {
		if stopped != nil && stop.Err() != nil { // first: there may be news without end
			stopped = nil
			j.polite(stop)
			continue
		}
		select {
		case <-j.inbox.ready:
			for _, e := range j.inbox.take() {
				if j.over {
					drop(e)
					continue
				}
				j.handle(e)
			}
		case <-tick:
			tick = j.tick()
			j.step(epoch.Tick{})
		case r := <-j.h.asked:
			j.request(r)
		case <-stopped:
		}
	}
	return j.err
}

// polite asks for the last checkpoint of the run, unless it was killed.
func (j *job) polite(stop context.Context) {
	if err := killed(stop); err != nil {
		j.fail(err)
		return
	}
	j.stopping = true
	j.step(epoch.Stop{})
}

// tick is readable once the interval has passed; nil if there is none.
func (j *job) tick() <-chan time.Time {
	if j.Interval <= 0 {
		return nil
	}
	return j.env.Clock.After(j.Interval)
}

// startCommitter gives the committer a goroutine of its own, so that
// acknowledgements and ticks go on being handled while it waits. It ends when
// close closes its channel; what was still to be done is dropped then.
func (j *job) startCommitter() {
	j.work = make(chan func() any, 64)
	j.committer.tell = func(e Event) { j.inbox.post(e) }
	j.workers.Go(func() {
		for do := range j.work {
			if j.ctx.Err() == nil {
				j.inbox.post(do())
			}
		}
	})
}

// do lets the committer make a call and post its answer. An error is blamed on
// the store or on the sinks.
func (j *job) do(on Reason, call func() (answer any, err error)) {
	j.work <- func() any {
		answer, err := call()
		if err != nil {
			return failed{blame(on, err)}
		}
		return answer
	}
}

// handle takes in what a task, a segment writer or the committer says.
func (j *job) handle(e any) {
	switch e := e.(type) {
	case data.Ack:
		j.acked(e)
	case segment:
		if j.open != nil && j.open.epoch == e.epoch {
			j.open.parts = append(j.open.parts, e.parts...)
			if e.file != (log.Segment{}) {
				j.open.sizes = append(j.open.sizes, e.file)
			}
			j.open.took.Durable = j.since(j.open.began)
		}
		j.step(epoch.Written{Epoch: e.epoch, Task: e.task})
	case prepared:
		if j.open != nil {
			j.open.staged, j.open.took.Prepared = e.staged, j.since(j.open.began)
		}
		j.step(epoch.Prepared{Epoch: e.epoch})
	case entered:
		if j.open != nil {
			j.open.id, j.open.took.Entered = e.id, j.since(j.open.began)
		}
		j.step(epoch.Entered{Epoch: e.epoch})
	case probed:
		j.probed(e.n)
	case merged:
		j.merged(e)
	case unmerged:
		j.unmerged(e)
	case spoiled:
		j.spoiled(e)
	case settled:
		if s := j.settles[e.n]; s != nil {
			delete(j.settles, e.n)
			s.reply <- reply{}
		}
	case failed:
		j.fail(e.err)
	case Event:
		j.observe(e)
	case epoch.Event:
		j.step(e)
		j.rest()
	}
}

// rest ends a run whose sources have all come to where they were told to stop.
func (j *job) rest() {
	if j.stopping || j.over || !j.machine.Resting() {
		return
	}
	j.Log.Info("every source has come to where it was told to stop", "job", j.Graph.Job)
	j.stopping = true
	j.step(epoch.Stop{})
}

func (j *job) acked(a data.Ack) {
	if j.open == nil || j.open.epoch != a.Epoch {
		release(a.Parts)
		j.fail(fmt.Errorf("task %s acknowledged barrier %d, which isn't out", a.Task, a.Epoch))
		return
	}
	if _, twice := j.open.acks[a.Task]; twice {
		release(a.Parts)
		j.fail(fmt.Errorf("task %s acknowledged barrier %d twice", a.Task, a.Epoch))
		return
	}
	j.open.acks[a.Task] = a
	j.open.took.Acked = j.since(j.open.began)
	j.open.took.Pause = max(j.open.took.Pause, a.Pause)
	ended := !a.Growing
	for _, s := range a.Splits {
		ended = ended && s.Ended
	}
	j.step(epoch.Acked{Epoch: a.Epoch, Task: a.Task, AllEnded: ended, Saved: infos(a.Parts)})
	if j.over {
		j.dropParts(a.Task)
	}
}

// dropParts releases what a task saved if no writer has taken it over.
func (j *job) dropParts(task string) {
	a := j.open.acks[task]
	release(a.Parts)
	a.Parts = nil
	j.open.acks[task] = a
}

// drop forgets what came too late.
func drop(e any) {
	if a, ok := e.(data.Ack); ok {
		release(a.Parts)
	}
}

func (j *job) fail(err error) {
	if j.err == nil {
		j.err = err
	}
	j.step(epoch.Failed{Reason: err.Error()})
}

// step tells the machine what has happened and does what it decides.
func (j *job) step(e epoch.Event) {
	for _, d := range j.machine.Step(e) {
		j.obey(d)
	}
}

func (j *job) obey(d epoch.Decision) {
	switch d := d.(type) {
	case epoch.Emit:
		j.emit(d)
	case epoch.Hold:
		j.flow.Hold(d.On)
	case epoch.Write:
		a := j.open.acks[d.Task]
		parts := a.Parts
		a.Parts = nil // the writer's now
		j.open.acks[d.Task] = a
		j.write(d.Epoch, d.Task, parts)
	case epoch.Prepare:
		j.do(SinkFailed, func() (any, error) {
			staged, err := j.committer.prepare(d.Epoch)
			return prepared{d.Epoch, staged}, err
		})
	case epoch.Enter:
		j.enter(d)
	case epoch.Decide:
		id, m, staged := j.open.id, j.open.m, j.open.staged
		j.do(SinkFailed, func() (any, error) { return epoch.Decided{Epoch: d.Epoch}, j.committer.decide(id, m, staged) })
	case epoch.Follow:
		id, m, staged := j.open.id, j.open.m, j.open.staged
		j.do(SinkFailed, func() (any, error) { return epoch.Followed{Epoch: d.Epoch}, j.committer.follow(id, m, staged) })
	case epoch.Publish:
		j.publish()
	case epoch.Retire:
		last, ends := j.last, j.ends
		j.do(StoreFailed, func() (any, error) {
			j.committer.published(last.m)
			return epoch.Retired{Epoch: d.Epoch}, j.committer.retire(last.id, false, ends)
		})
	case epoch.Merge:
		j.merge(d)
	case epoch.End:
		j.over = true
		j.Log.Info("ended", "job", j.Graph.Job, "finished", d.Finished, "epoch", j.last.m.Epoch, "checkpoint", j.last.id.String())
	case epoch.Fail:
		j.over = true
		if j.err == nil {
			j.err = errors.New(d.Reason)
		}
	}
}

func (j *job) emit(d epoch.Emit) {
	j.open = &snapshot{epoch: d.Epoch, began: j.env.Clock.Now(), full: d.Full, acks: map[string]data.Ack{}, final: j.stopping, waiting: j.asked}
	j.asked = nil
	full := map[string]bool{}
	for _, step := range d.Full {
		full[step] = true
	}
	j.flow.Barrier(d.Epoch, full)
}

func (j *job) enter(d epoch.Enter) {
	m, err := j.open.manifest(j.spliced(j.open.full), j.me, j.Graph.KeyGroups, d.Finished, j.env.Clock.Now())
	if err != nil {
		j.fail(err)
		return
	}
	j.open.m = m
	j.do(StoreFailed, func() (any, error) {
		id, err := j.committer.enter(m)
		return entered{d.Epoch, id}, err
	})
}

// publish makes the open epoch the last committed one, and tells everybody.
func (j *job) publish() {
	s := j.open
	s.took.Committed = j.since(s.began)
	j.open, j.last, j.ends = nil, committed{s.id, s.m}, s.final || s.m.Finished
	c := s.event()
	j.published = true
	j.needs = c.Bytes
	j.Log.Debug("checkpoint", "epoch", c.Epoch, "id", c.ID.String(), "bytes", c.Bytes, "finished", c.Finished, "took", c.Took.Committed)
	j.observe(Event{Checkpoint: &c})
	for _, r := range s.waiting {
		r.reply <- reply{checkpoint: c}
	}
}

// request takes in what a Handle asks for.
func (j *job) request(r *request) {
	if !r.settle {
		j.asked = append(j.asked, r)
		j.step(epoch.Asked{})
		return
	}
	j.probes++
	j.settles[j.probes] = &settle{request: r, left: j.flow.Tasks()}
	j.flow.Probe(j.probes)
}

// probed counts tasks that have passed a probe on; after the last one the sinks
// confirm what they were given.
func (j *job) probed(n int64) {
	s := j.settles[n]
	if s == nil {
		return
	}
	if s.left--; s.left == 0 {
		j.do(SinkFailed, func() (any, error) { return settled{n}, j.committer.flush() })
	}
}
