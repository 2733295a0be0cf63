package weir

import (
	"time"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// Condition is what a job is doing, in a word.
type Condition string

// The conditions of a job.
const (
	Starting   Condition = "starting"   // nothing was read yet
	Active     Condition = "running"    // records are read
	Restarting Condition = "restarting" // in place, after an error that may pass
	Ended      Condition = "ended"      // it was stopped, or has read all its input
	Broken     Condition = "failed"     // it has ended with an error
)

// Metrics is what a run of a job has done so far and how it stands, at one
// moment. What is counted begins at 0 with the process, goes on through restarts
// in place, and includes what is read again after them; what is there (keys,
// bytes, batches under way) is that of now. Sources, Steps and Sinks are in the
// order of their declaration, and present before anything was counted.
type Metrics struct {
	At          time.Time
	Job         string
	Condition   Condition
	Err         error     // of a job that has failed
	Since       time.Time // when it was started
	Ready       time.Time // when the incarnation at hand had started; zero before
	Incarnation int64     // 0 before the first has started
	Waiting     string    // what a start or a commit waited for last; "" once it goes on

	Sources []SourceMetrics
	Splits  []SplitProgress
	Steps   []StepMetrics // those with state
	Sinks   []SinkMetrics
	// DeadLetters is how many records were set aside, by step and kind.
	DeadLetters []DeadLetterMetrics

	Checkpoints CheckpointMetrics
	Restore     RestoreMetrics
	Restarts    RestartMetrics

	StateBytes  int64         // memory that state takes, as StateMemory counts it
	StateBudget int64         // of StateMemory; 0: none
	Held        time.Duration // that sources were held back, because a sink's buffer was full or for a stop
}

// SourceMetrics is what one source has read.
type SourceMetrics struct {
	ID      string
	Records int64
	Batches int64
	Bytes   int64 // 0 where its readers don't count bytes; see Status.Bytes
}

// StepMetrics is what one step with state has handled, and what it holds in all
// its tasks.
type StepMetrics struct {
	ID, Kind string // Kind is the operation: window, distinct, fold, ...
	Tasks    int
	Records  int64
	Batches  int64
	Late     int64 // records too late for it
	Keys     int64
	Bytes    int64 // of memory
	Copies   int64 // of these, of copies of state for checkpoints
	// Waited is how long the tasks that send to it have waited for it, added up:
	// Senders of them can wait at once. It is back-pressure.
	Waited  time.Duration
	Senders int
	// Credits is how many batches its senders have; Used of them are being
	// filled, on their way to it or being handled.
	Credits, Used int
	// Mailbox is how many messages wait for its tasks, of Room that can.
	Mailbox, Room int
}

// SinkMetrics is what one sink was given and has committed. Sinks that share a
// transaction share their calls.
type SinkMetrics struct {
	ID, Kind, Participant string
	Rows, Batches         int64
	Write                 time.Duration // that its writers took, added up over tasks
	Prepare, Commit       Durations
	Failed                int64 // calls of the two that failed for good
	LastCommit            time.Time
}

// DeadLetterMetrics is how many records were set aside at a step, in one way.
type DeadLetterMetrics struct {
	Step, Kind string
	Records    int64
}

// CheckpointMetrics is what became of checkpoints.
type CheckpointMetrics struct {
	Committed int64
	Failed    map[string]int64 // by the phase that the epoch was in
	Bytes     int64            // written for them
	Retired   int64            // deleted because newer ones were kept
	// Phases is how long each of Phases() took, one after the other or, for
	// Write and Prepare, side by side; Total from the barrier to the last commit.
	Phases map[string]Durations
	Total  Durations
	Pause  Durations   // the longest that a task stood still for a barrier
	Last   *Checkpoint // of this process, or nil
}

// RestoreMetrics is the last start or restart in place.
type RestoreMetrics struct {
	Took     time.Duration
	Keys     int64 // state entries restored
	Restored bool  // false: the very first start
}

// RestartMetrics is the restarts in place of this process.
type RestartMetrics struct {
	ByReason map[string]int64 // with 0 for those that there were none for
	Last     time.Time        // zero: none
	Reason   string           // of the last one
	Err      error
	Down     time.Duration // from failures to the next record, added up
}

// The phases of an epoch, in order.
const (
	PhaseAlign   = "align"   // the barrier passes all tasks, which copy what changed
	PhaseWrite   = "write"   // what they copied becomes durable
	PhasePrepare = "prepare" // sinks bring the epoch as far as it gets before the checkpoint is there
	PhaseEnter   = "enter"   // the checkpoint's entry becomes durable
	PhaseCommit  = "commit"  // the decider and its followers commit
)

// Phases returns the phases of an epoch, in order.
func Phases() []string {
	return []string{PhaseAlign, PhaseWrite, PhasePrepare, PhaseEnter, PhaseCommit}
}

// Durations is how long something took, each time that it was done.
type Durations struct {
	Count  int64
	Sum    time.Duration
	Last   time.Duration
	Within []int64 // how many took at most the bound of the same index of DurationBounds
}

// DurationBounds are the bounds that durations are counted by: 1 ms to 2 minutes.
func DurationBounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{ms, 2 * ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}
}

func (d *Durations) add(took time.Duration) {
	bounds := DurationBounds()
	if d.Within == nil {
		d.Within = make([]int64, len(bounds))
	}
	d.Count++
	d.Sum += took
	d.Last = took
	for i, b := range bounds {
		if took <= b {
			d.Within[i]++
		}
	}
}

// Metrics returns the counts of now, and asks the sources for new ones: what
// Splits tells is at most one call old. It costs the tasks one load a batch, and
// may be called at any time, also after the end.
func (r *Running) Metrics() Metrics {
	now := time.Now()
	m, calls := r.tally.metrics(now)
	m.Job, m.StateBudget = r.job.Name(), r.tally.budget
	select {
	case <-r.done:
		m.Condition, m.Err = Ended, r.err
		if r.err != nil {
			m.Condition = Broken
		}
	default:
	}
	m.Splits = r.Progress().Splits
	all := r.tally.counted(now)
	m.StateBytes, m.Held, m.DeadLetters = all.State, all.Held, all.letters
	for _, n := range r.job.graph.Nodes {
		switch {
		case n.Op == plan.Source:
			c := all.Sources[n.ID]
			m.Sources = append(m.Sources, SourceMetrics{ID: n.ID, Records: c.Records, Batches: c.Batches, Bytes: c.Bytes})
		case n.Op.Stateful():
			s := stepMetrics(all.Steps[n.ID])
			s.ID, s.Kind, s.Late = n.ID, string(n.Op), all.late[n.ID]
			m.Steps = append(m.Steps, s)
		case n.Op == plan.Sink:
			c, to := all.Sinks[n.ID], r.job.sink(n.ID).participant()
			s := calls[to]
			s.ID, s.Kind, s.Participant = n.ID, n.Sink.Kind, to
			s.Rows, s.Batches, s.Write = c.Rows, c.Batches, c.Wrote
			m.Sinks = append(m.Sinks, s)
		}
	}
	return m
}

func stepMetrics(c data.StepCount) StepMetrics {
	return StepMetrics{Tasks: c.Tasks, Records: c.Records, Batches: c.Batches, Keys: int64(c.Keys), Bytes: c.Bytes, Copies: c.Copies,
		Waited: c.Waited, Senders: c.Senders, Credits: c.Credits, Used: c.Used, Mailbox: c.Mailbox, Room: c.Room}
}
