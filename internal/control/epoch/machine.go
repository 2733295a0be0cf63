// Package epoch decides what happens next on the path of an epoch: when a
// barrier is emitted, what may follow what, and when a run is over. It is pure:
// events in, decisions out, without I/O, clock or goroutine, so that tests, a
// simulator and a checker of traces can step it.
//
// Two epochs are open at most: epoch n from its barrier until decider and
// followers have committed it, and n+1, whose records are on their way. The
// barrier of n+1 isn't emitted before. So a ledger is at most one checkpoint
// behind the decider, and a failure loses two epochs at most.
package epoch

import "fmt"

// Config is where a run begins.
type Config struct {
	Tasks   int     // that acknowledge a barrier
	Sources int     // tasks that end
	Last    int64   // epoch of the checkpoint restored, or of genesis
	Chains  []Chain // what that checkpoint holds
	Limits  Limits  // of chains; zero: the defaults
}

// Machine is one run's epochs. It belongs to one goroutine.
type Machine struct {
	tasks, sources int
	last           int64 // committed
	chains         map[string]chain
	open           *open // its barrier is out
	ended          map[string]bool
	resting        map[string]bool
	retiring       int
	limits         Limits
	merging        string // step whose chain is being merged

	wish bool // a barrier is to be emitted as soon as none is out
	hold bool // the sources are held
	stop bool // a last checkpoint was asked for
	done bool // the last checkpoint is committed
	over bool // End or Fail has been decided
	fin  bool // the last checkpoint is a finished one
}

// phase is how far an open epoch has come.
type phase string

const (
	sealing   phase = "waits for acknowledgements"
	preparing phase = "is being prepared"
	entering  phase = "is being entered"
	deciding  phase = "is being decided"
	following phase = "is being followed"
)

// open is an epoch from its barrier until its last commit.
type open struct {
	n        int64
	phase    phase
	full     []string
	acked    map[string]bool
	writing  map[string]bool // tasks whose segment isn't durable
	saved    map[string]saved
	prepared bool
	atEnd    bool // every source task had ended before the barrier
	finished bool // every split had ended at the barrier, of the tasks so far
	final    bool // nothing is to follow
}

// New returns a Machine that waits for its first event.
func New(c Config) *Machine {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	m := &Machine{tasks: c.Tasks, sources: c.Sources, last: c.Last,
		chains: map[string]chain{}, ended: map[string]bool{}, resting: map[string]bool{}, limits: c.Limits}
	for _, ch := range c.Chains {
		m.chains[ch.Step] = chain{Chain: ch}
	}
	return m
}

// Step takes one event and returns what is to be done about it. After End or
// Fail it returns nothing, whatever happens.
func (m *Machine) Step(e Event) []Decision {
	if m.over {
		return nil
	}
	ds, err := m.take(e)
	if err != nil {
		m.over = true
		return []Decision{Fail{err.Error()}}
	}
	return append(ds, m.next()...)
}

// Resting reports whether no source task reads any more, although not all have
// ended: the run is to stop.
func (m *Machine) Resting() bool {
	return len(m.resting) > 0 && len(m.resting)+len(m.ended) == m.sources
}

// take updates the machine and returns what follows from e alone.
func (m *Machine) take(e Event) ([]Decision, error) {
	switch e := e.(type) {
	case Tick, Asked:
		m.wish = true
	case Wants:
		m.wish = true
		if e.Hold && m.open != nil {
			return m.holdSources(), nil
		}
	case Stop:
		if m.stop {
			return nil, nil
		}
		// Held sources answer the barrier and read nothing behind it, so that
		// no sink is given what a restart would give it again.
		m.stop, m.wish = true, true
		return m.holdSources(), nil
	case Ended:
		if m.ended[e.Task] = true; len(m.ended) == m.sources {
			m.wish = true
		}
	case Rests:
		m.resting[e.Task] = true
	case Acked:
		return m.acked(e)
	case Retired:
		if m.retiring--; m.retiring < 0 {
			return nil, fmt.Errorf("epoch %d was retired without being asked to", e.Epoch)
		}
	case Merged:
		return nil, m.merged(e)
	case Unmerged:
		m.merging = ""
	case Failed:
		return nil, fmt.Errorf("%s", e.Reason)
	default:
		return m.commits(e)
	}
	return nil, nil
}

// commits walks the open epoch through its phases.
func (m *Machine) commits(e Event) ([]Decision, error) {
	switch e := e.(type) {
	case Written:
		o, err := m.at(e.Epoch, sealing, preparing)
		if err != nil {
			return nil, err
		}
		if !o.writing[e.Task] {
			return nil, fmt.Errorf("task %s wrote a segment for epoch %d that it wasn't asked for", e.Task, e.Epoch)
		}
		delete(o.writing, e.Task)
		return o.enter(), nil
	case Prepared:
		o, err := m.at(e.Epoch, preparing)
		if err != nil {
			return nil, err
		}
		o.prepared = true
		return o.enter(), nil
	case Entered:
		o, err := m.at(e.Epoch, entering)
		if err != nil {
			return nil, err
		}
		o.phase = deciding
		return []Decision{Decide{o.n}}, nil
	case Decided:
		o, err := m.at(e.Epoch, deciding)
		if err != nil {
			return nil, err
		}
		o.phase = following
		return []Decision{Follow{o.n}}, nil
	case Followed:
		o, err := m.at(e.Epoch, following)
		if err != nil {
			return nil, err
		}
		return m.committed(o)
	}
	return nil, fmt.Errorf("unknown event %T", e)
}

// at returns the open epoch if it is n and in one of the phases.
func (m *Machine) at(n int64, phases ...phase) (*open, error) {
	if m.open == nil || m.open.n != n {
		return nil, fmt.Errorf("news of epoch %d, whose barrier isn't out", n)
	}
	for _, p := range phases {
		if m.open.phase == p {
			return m.open, nil
		}
	}
	return nil, fmt.Errorf("news of epoch %d out of turn: it %s", n, m.open.phase)
}

func (m *Machine) acked(e Acked) ([]Decision, error) {
	o, err := m.at(e.Epoch, sealing)
	if err != nil {
		return nil, fmt.Errorf("task %s acknowledged: %w", e.Task, err)
	}
	if o.acked[e.Task] {
		return nil, fmt.Errorf("task %s acknowledged epoch %d twice", e.Task, e.Epoch)
	}
	o.acked[e.Task] = true
	o.finished = o.finished && e.AllEnded
	for _, s := range e.Saved {
		if err := o.add(s); err != nil {
			return nil, fmt.Errorf("task %s at barrier %d: %w", e.Task, e.Epoch, err)
		}
	}
	var ds []Decision
	if len(e.Saved) > 0 {
		o.writing[e.Task] = true
		ds = append(ds, Write{o.n, e.Task})
	}
	if len(o.acked) == m.tasks {
		o.phase = preparing
		ds = append(ds, Prepare{o.n})
	}
	return ds, nil
}

// enter says to enter the epoch once all of it is durable and prepared.
func (o *open) enter() []Decision {
	if !o.prepared || len(o.writing) > 0 {
		return nil
	}
	o.phase = entering
	return []Decision{Enter{Epoch: o.n, Finished: o.finished}}
}

func (m *Machine) committed(o *open) ([]Decision, error) {
	if o.atEnd && !o.finished {
		return nil, fmt.Errorf("every source had ended before barrier %d, but not every split at it", o.n)
	}
	m.extend(o)
	m.open, m.last = nil, o.n
	m.retiring++
	if o.final || o.finished {
		m.done, m.fin = true, o.finished
	}
	return append([]Decision{Publish{o.n}, Retire{o.n}}, m.merges()...), nil
}

func (m *Machine) holdSources() []Decision {
	if m.hold {
		return nil
	}
	m.hold = true
	return []Decision{Hold{true}}
}

// next emits the next barrier, or ends the run, when it is time.
func (m *Machine) next() []Decision {
	if m.open != nil {
		return nil
	}
	if m.done {
		if m.retiring > 0 {
			return nil
		}
		m.over = true
		return []Decision{End{m.fin}}
	}
	if !m.wish {
		return nil
	}
	m.wish = false
	m.open = &open{n: m.last + 1, phase: sealing, full: m.bases(),
		acked: map[string]bool{}, writing: map[string]bool{}, saved: map[string]saved{},
		atEnd: len(m.ended) == m.sources, finished: true, final: m.stop}
	ds := []Decision{Emit{m.open.n, m.open.full}}
	if m.hold && !m.stop {
		m.hold = false
		ds = append(ds, Hold{false})
	}
	return ds
}
