package data

import (
	"sync/atomic"
	"time"
)

// The meters count what a run does. Each belongs to one task, which adds to it
// once a batch and never once a record; anybody may read it, at any time.
// Whoever reads adds up what the tasks of a step have counted.
type meters struct {
	sources []*sourceMeter
	steps   []*stepMeter
	edges   []*edgeMeter
	sinks   []*sinkMeter
	live    atomic.Bool // mailboxes are there

	held      atomic.Int64 // ns that sources were held
	heldSince atomic.Int64 // ns since 1970, 0: they aren't
}

type sourceMeter struct {
	id               string
	records, batches atomic.Int64
	bytes            atomic.Int64 // as far as its readers know
}

func (m *sourceMeter) read(n int) {
	m.records.Add(int64(n))
	m.batches.Add(1)
}

// stepMeter counts a step with state in one task.
type stepMeter struct {
	id   string
	step measured
	task *Task
	last Size // what was told last; the task's

	records, batches    atomic.Int64
	keys, bytes, copies atomic.Int64
}

// Size is what a step holds in one task.
type Size struct {
	Keys   int
	Bytes  int64 // of memory, Copies included
	Copies int64 // of these, of copies for checkpoints
}

// measured is a step with state. Its goroutine asks once a batch.
type measured interface {
	number() int32
	Size() Size
}

func (a At) number() int32 { return a.Step }

// edgeMeter is the sending side of an exchange: of one task, to one step.
type edgeMeter struct {
	id      string       // of the receiving step
	made    atomic.Int64 // credits
	waited  atomic.Int64 // ns, for a credit or for room in a mailbox
	since   atomic.Int64 // ns since 1970: when the wait at hand began, 0: there is none
	batches atomic.Int64
	home    func() int // credits that have come back
}

// wait notes that a wait begins.
func (m *edgeMeter) wait() (began time.Time) {
	began = time.Now()
	m.since.Store(began.UnixNano())
	return began
}

// waitedSince notes its end.
func (m *edgeMeter) waitedSince(began time.Time) {
	m.since.Store(0)
	m.waited.Add(int64(time.Since(began)))
}

type sinkMeter struct {
	id            string
	rows, batches atomic.Int64
	wrote         atomic.Int64 // ns in Write
}

func (m *sinkMeter) write(rows int, took time.Duration) {
	m.rows.Add(int64(rows))
	m.batches.Add(1)
	m.wrote.Add(int64(took))
}

func (r *Run) id(step int32) string {
	if step < 0 || int(step) >= len(r.IDs) {
		return r.stepName(step)
	}
	return r.IDs[step]
}

func (r *Run) meterSource(id string) *sourceMeter {
	m := &sourceMeter{id: id}
	r.meters.sources = append(r.meters.sources, m)
	return m
}

func (r *Run) meterSink(step int32) *sinkMeter {
	m := &sinkMeter{id: r.id(step)}
	r.meters.sinks = append(r.meters.sinks, m)
	return m
}

func (r *Run) meterEdge(step string) *edgeMeter {
	m := &edgeMeter{id: step}
	r.meters.edges = append(r.meters.edges, m)
	return m
}

// meter makes the meter of a step with state; nil if op is none.
func (t *Task) meter(op any) *stepMeter {
	step, ok := op.(measured)
	if !ok {
		return nil
	}
	m := &stepMeter{id: t.run.id(step.number()), step: step, task: t}
	t.meters = append(t.meters, m)
	t.run.meters.steps = append(t.run.meters.steps, m)
	return m
}

// batch counts one batch that the step has handled.
func (m *stepMeter) batch(n int) {
	if m == nil {
		return
	}
	m.records.Add(int64(n))
	m.batches.Add(1)
	m.measure()
}

// measure tells how large the step's state is now.
func (m *stepMeter) measure() {
	now, was := m.step.Size(), m.last
	if now == was {
		return
	}
	m.last = now
	m.keys.Store(int64(now.Keys))
	m.bytes.Store(now.Bytes)
	m.copies.Store(now.Copies)
	m.task.grow(now.Bytes - was.Bytes)
}

// measure tells how large the state of all the task's steps is now.
func (t *Task) measure() {
	for _, m := range t.meters {
		m.measure()
	}
}

// Counts is what a run has counted since it was built.
type Counts struct {
	Sources map[string]SourceCount
	Steps   map[string]StepCount // those with state
	Sinks   map[string]SinkCount
	Held    time.Duration // sources were held, because a sink's buffer was full or for a stop
	State   int64         // bytes, as the budget counts them
}

// SourceCount is what a source has read, what is read again after a restart
// included.
type SourceCount struct{ Records, Batches, Bytes int64 }

// StepCount is what a step with state has handled, holds and waits for.
type StepCount struct {
	Records, Batches int64
	Size
	Tasks   int
	Waited  time.Duration // that its senders waited for it, added up
	Senders int           // tasks that send to it
	Credits int           // batches that its senders have
	Used    int           // of these, being filled, on their way to it or being handled
	Mailbox int           // messages in its tasks' mailboxes
	Room    int           // that fit into them
}

// SinkCount is what a sink was given.
type SinkCount struct {
	Rows, Batches int64
	Wrote         time.Duration // its writers took
}

// Counts reads the meters. It may be called from any goroutine.
func (r *Run) Counts(now time.Time) Counts {
	c := Counts{Sources: map[string]SourceCount{}, Steps: map[string]StepCount{}, Sinks: map[string]SinkCount{}}
	c.Held = until(now, &r.meters.held, &r.meters.heldSince)
	c.State = r.state.Load()
	for _, m := range r.meters.sources {
		s := c.Sources[m.id]
		s.Records += m.records.Load()
		s.Batches += m.batches.Load()
		s.Bytes += m.bytes.Load()
		c.Sources[m.id] = s
	}
	live := r.meters.live.Load()
	for _, m := range r.meters.steps {
		s := c.Steps[m.id]
		s.Records += m.records.Load()
		s.Batches += m.batches.Load()
		s.Keys += int(m.keys.Load())
		s.Bytes += m.bytes.Load()
		s.Copies += m.copies.Load()
		s.Tasks++
		if live && m.task.cmd == nil { // else it is fused with a source
			s.Mailbox += len(m.task.mail)
			s.Room += cap(m.task.mail)
		}
		c.Steps[m.id] = s
	}
	for _, m := range r.meters.edges {
		s := c.Steps[m.id]
		s.Senders++
		s.Waited += until(now, &m.waited, &m.since)
		made := int(m.made.Load())
		s.Credits += made
		s.Used += max(0, made-m.home())
		c.Steps[m.id] = s
	}
	for _, m := range r.meters.sinks {
		s := c.Sinks[m.id]
		s.Rows += m.rows.Load()
		s.Batches += m.batches.Load()
		s.Wrote += time.Duration(m.wrote.Load())
		c.Sinks[m.id] = s
	}
	return c
}

// Since adds what an earlier run of the same job has counted: what is counted,
// not what is there.
func (c Counts) Since(o Counts) Counts {
	c.Held += o.Held
	for id, was := range o.Sources {
		s := c.Sources[id]
		c.Sources[id] = SourceCount{s.Records + was.Records, s.Batches + was.Batches, s.Bytes + was.Bytes}
	}
	for id, was := range o.Steps {
		s := c.Steps[id]
		s.Records += was.Records
		s.Batches += was.Batches
		s.Waited += was.Waited
		c.Steps[id] = s
	}
	for id, was := range o.Sinks {
		s := c.Sinks[id]
		c.Sinks[id] = SinkCount{s.Rows + was.Rows, s.Batches + was.Batches, s.Wrote + was.Wrote}
	}
	return c
}

// until is a time that was added up, with what has passed of the one at hand.
func until(now time.Time, sum, since *atomic.Int64) time.Duration {
	d := time.Duration(sum.Load())
	if at := since.Load(); at != 0 {
		d += max(0, now.Sub(time.Unix(0, at)))
	}
	return d
}

// hold notes that the sources are held, or are no longer. Control's goroutine
// calls it.
func (m *meters) hold(on bool) {
	since := m.heldSince.Load()
	switch {
	case on && since == 0:
		m.heldSince.Store(time.Now().UnixNano())
	case !on && since != 0:
		m.heldSince.Store(0)
		m.held.Add(int64(time.Since(time.Unix(0, since))))
	}
}
