package weir

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/data"
)

// tally adds up what one process has done of a job: the events of control, and
// what the tasks of its incarnations have counted.
type tally struct {
	budget int64
	now    atomic.Pointer[counting]
	mu     struct {
		sync.Mutex
		Metrics
		sinks  map[string]SinkMetrics // by participant
		failed time.Time              // when the restart at hand began
	}
}

// counting is the tasks of the incarnation at hand and what those before them
// have counted. It doesn't change.
type counting struct {
	run    *data.Run
	before counted
}

// counted is what tasks have counted.
type counted struct {
	data.Counts
	late    map[string]int64
	letters []DeadLetterMetrics
}

func newTally(budget int64) *tally {
	t := &tally{budget: budget}
	t.mu.Metrics = Metrics{Condition: Starting, Since: time.Now(), Checkpoints: CheckpointMetrics{
		Failed: map[string]int64{}, Phases: map[string]Durations{}}, Restarts: RestartMetrics{ByReason: map[string]int64{}}}
	t.mu.sinks = map[string]SinkMetrics{}
	for _, r := range []control.Reason{control.DiskFull, control.DiskReadOnly, control.DiskBroken, control.StoreFailed,
		control.SinkFailed, control.TaskFailed, control.StartFailed} {
		t.mu.Restarts.ByReason[string(r)] = 0 // a series that begins with its first restart doesn't show it
	}
	return t
}

// built takes in the tasks of a new incarnation. Those of the last have ended.
func (t *tally) built(run *data.Run) {
	t.now.Store(&counting{run: run, before: t.counted(time.Now())})
}

// counted is what all tasks have counted so far.
func (t *tally) counted(now time.Time) counted {
	c := t.now.Load()
	if c == nil {
		return counted{}
	}
	all := counted{Counts: c.run.Counts(now).Since(c.before.Counts), late: c.run.Late()}
	for step, n := range c.before.late {
		all.late[step] += n
	}
	letters := map[DeadLetterMetrics]int64{}
	for _, l := range c.run.Rejects() {
		letters[DeadLetterMetrics{Step: l.Step, Kind: string(l.Kind)}] += l.N
	}
	for _, l := range c.before.letters {
		letters[DeadLetterMetrics{Step: l.Step, Kind: l.Kind}] += l.Records
	}
	for l, n := range letters {
		l.Records = n
		all.letters = append(all.letters, l)
	}
	slices.SortFunc(all.letters, func(a, b DeadLetterMetrics) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// metrics returns what control has told, and the sinks' calls by participant.
func (t *tally) metrics(now time.Time) (Metrics, map[string]SinkMetrics) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.mu.Metrics
	m.At = now
	m.Checkpoints.Failed = maps.Clone(m.Checkpoints.Failed)
	m.Checkpoints.Total = m.Checkpoints.Total.clone()
	m.Checkpoints.Pause = m.Checkpoints.Pause.clone()
	m.Checkpoints.Phases = map[string]Durations{}
	for phase, d := range t.mu.Checkpoints.Phases {
		m.Checkpoints.Phases[phase] = d.clone()
	}
	m.Restarts.ByReason = maps.Clone(m.Restarts.ByReason)
	if m.Condition == Restarting {
		m.Restarts.Down += now.Sub(t.mu.failed)
	}
	sinks := map[string]SinkMetrics{}
	for name, s := range t.mu.sinks {
		s.Prepare, s.Commit = s.Prepare.clone(), s.Commit.clone()
		sinks[name] = s
	}
	return m, sinks
}

func (d Durations) clone() Durations {
	d.Within = slices.Clone(d.Within)
	return d
}

// observe takes in an event of control. Its goroutine calls it.
func (t *tally) observe(e control.Event, last *Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &t.mu.Metrics
	switch {
	case e.Started != nil:
		m.Condition, m.Incarnation, m.Waiting, m.Ready = Active, e.Started.Incarnation, "", e.At
		m.Restore = RestoreMetrics{Took: e.Started.Took, Keys: e.Started.Keys, Restored: e.Started.Restored}
		if !t.mu.failed.IsZero() {
			m.Restarts.Down += e.At.Sub(t.mu.failed)
			t.mu.failed = time.Time{}
		}
	case e.Waiting != nil:
		m.Waiting = e.Waiting.For
	case e.Checkpoint != nil:
		m.Waiting = ""
		m.Checkpoints.took(e.Checkpoint, last)
	case e.Failure != nil:
		m.Checkpoints.Failed[failedIn(e.Failure.Took)]++
	case e.Restart != nil:
		m.Condition = Restarting
		m.Restarts.ByReason[string(e.Restart.Reason)]++
		m.Restarts.Last, m.Restarts.Reason, m.Restarts.Err = e.At, string(e.Restart.Reason), e.Restart.Err
		if t.mu.failed.IsZero() {
			t.mu.failed = e.At
		}
	case e.Retired != nil:
		m.Checkpoints.Retired += int64(e.Retired.Checkpoints)
	case e.Call != nil:
		s := t.mu.sinks[e.Call.Participant]
		s.called(e.Call, e.At)
		t.mu.sinks[e.Call.Participant] = s
	}
}

func (s *SinkMetrics) called(c *control.Call, at time.Time) {
	if c.Err != nil {
		s.Failed++
		return
	}
	if c.What == control.Prepare {
		s.Prepare.add(c.Took)
		return
	}
	s.Commit.add(c.Took)
	s.LastCommit = at
}

func (c *CheckpointMetrics) took(e *control.Checkpoint, last *Checkpoint) {
	c.Committed++
	c.Bytes += e.Bytes
	c.Last = last
	c.Total.add(e.Took.Committed)
	c.Pause.add(e.Took.Pause)
	for phase, span := range phasesOf(e.Took) {
		d := c.Phases[phase]
		d.add(span.to - span.from)
		c.Phases[phase] = d
	}
}

// span is a part of an epoch, from its barrier.
type span struct{ from, to time.Duration }

// phasesOf tells the phases of a committed epoch apart.
func phasesOf(took control.Phases) map[string]span {
	until := func(from, to time.Duration) span { return span{from, max(from, to)} }
	ready := max(took.Acked, took.Durable, took.Prepared)
	return map[string]span{
		PhaseAlign:   until(0, took.Acked),
		PhaseWrite:   until(took.Acked, took.Durable),
		PhasePrepare: until(took.Acked, took.Prepared),
		PhaseEnter:   until(ready, took.Entered),
		PhaseCommit:  until(took.Entered, took.Committed),
	}
}

// failedIn names the phase that an epoch was in when the run failed.
func failedIn(took control.Phases) string {
	switch {
	case took.Entered > 0:
		return PhaseCommit
	case took.Prepared > 0 && took.Durable > 0:
		return PhaseEnter
	case took.Prepared > 0:
		return PhaseWrite
	case took.Acked > 0:
		return PhasePrepare
	}
	return PhaseAlign
}
