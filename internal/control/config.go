package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// Config is everything that one Run of a job needs from its declaration.
type Config struct {
	Graph    plan.Graph
	StateDir string        // empty: checkpoints live in memory and end with the run
	Interval time.Duration // between barriers; 0: none by the clock
	Retain   int           // checkpoints kept; 0: 10
	Takeover bool          // start although another process holds the lock, and fence it
	// StartOver begins a new life of the job in the same log: what was read and
	// committed before is no part of it, and its ledgers are fenced.
	StartOver bool
	// Renamed has the old id of a step, source or sink by its new one; Drop are
	// ids that the job no longer declares and whose state or ledger is given up.
	Renamed map[string]string
	Drop    []string
	// Restarts is how often in a row the job is restarted in place, after an
	// error that may pass, before Run returns it; an incarnation that has gone on
	// for a minute and committed a checkpoint begins a new row. A disk that is
	// full or broken doesn't count: it is waited for. 0: never, not even then.
	Restarts int
	// Limits of the chains of base and deltas; zero: those of package epoch.
	Limits epoch.Limits
	// StateMemory is the most bytes that state may take in memory; 0: no limit.
	StateMemory int64
	Sinks       []Sinks
	// Build lowers the job: fresh tasks, nothing opened yet. connected holds
	// the participants in the order of Sinks. The context ends with the run.
	Build   func(ctx context.Context, connected []Participant) (Flow, error)
	Notify  func(ctx context.Context, positions []data.SplitState) error // sources' Committed, after an epoch
	Log     *slog.Logger                                                 // nil: none
	Observe func(Event)                                                  // called by control's goroutine; must not block
}

// Flow is a job's tasks in one run, as control drives them: Open once, Start
// once, then the others in any order, and at last Stop, Wait and Close, which
// may come at any time and also when nothing was opened or started. *data.Run
// is one.
type Flow interface {
	// Open restores every task and opens every split, and returns where the
	// splits stand. It refuses input that has grown behind a finished end.
	Open(ctx context.Context, from data.Restorer) ([]data.SplitState, error)
	Start(ctl data.Control)
	// Barrier asks the sources for a barrier; steps in full save everything.
	Barrier(epoch int64, full map[string]bool)
	Hold(on bool)  // held sources read nothing, and answer barriers and probes
	Probe(n int64) // every task says Probed(n) once it has passed it on
	Stop()
	Wait()
	Close() error
	Tasks() int   // that acknowledge barriers and probes
	Sources() int // tasks that say Ended
	// Growing reports whether there may come more splits, so that no task ends.
	Growing() bool
}

var _ Flow = (*data.Run)(nil)

// Sinks is one participant before it is connected.
type Sinks struct {
	Name string   // Participant string, or Alone of the sink's id
	Kind string   // as in plan.SinkNode
	IDs  []string // of its sinks
	// Appends are those of IDs that add to what is there, and can't write a row again.
	Appends []string
	// Rank says which of several transactional participants decides: that with
	// the highest, and of these the first.
	Rank    int
	Connect func(ctx context.Context) (Participant, error)
}

// Alone is the name of a participant that is one sink.
func Alone(sink string) string { return "sink " + sink }

// Participant mirrors the public contract in control's own types. Connect,
// Fence, Adopt, Commit and Visible may return an error with a method
// Temporary() bool: the call then did nothing that keeps it from being repeated,
// and is, for as long as it takes. A Commit isn't always preceded by a Prepare:
// not that of epoch 0, not that of the epoch of which new splits begin, and not
// that of a later incarnation that rolls forward.
//
// The calls come in the order of the methods here, Prepare to Visible in turn.
type Participant interface {
	// Press gives it a way to ask for a barrier, once it is connected.
	Press(ask func())
	// Follow tells a transactional participant that it doesn't decide; it
	// reports whether it can do without.
	Follow() bool
	Fence(ctx context.Context, f Fence) (map[string]Ledger, error)
	// Adopt makes the ledgers of sinks that are new to a job with checkpoints,
	// and moves those of renamed ones. It may be repeated.
	Adopt(ctx context.Context, at log.ID, sinks []Adopted) error
	Prepare(ctx context.Context, epoch int64) (staged []byte, err error)
	Commit(ctx context.Context, c Commit) error
	// Visible waits until a reader sees what a decider's Commit has committed.
	Visible(ctx context.Context, id log.ID) error
	Flush(ctx context.Context) error
	Close() error
}

// Fence is one incarnation's claim on a participant.
type Fence struct {
	Job, UUID   string
	Incarnation int64
	Nonce       string
	Create      bool
	StartOver   bool // with Create: other lives of the job are given up
	// Former are ids under which the participant had sinks in earlier starts,
	// and which the job no longer declares: their ledgers are fenced and reported
	// like the others, but never made, and never moved by a Commit.
	Former []string
}

// Adopted is a sink without a ledger in a job with checkpoints.
type Adopted struct {
	Sink string
	Was  string // its id before it was renamed; empty: it is new
}

// Ledger is what a sink's ledger holds.
type Ledger struct {
	Found bool
	ID    log.ID
}

// Commit is one epoch to be committed.
type Commit struct {
	Epoch      int64
	ID, Parent log.ID
	Positions  []data.SplitState
	Staged     []byte
	Empty      bool // no record was read in the epoch, and nothing prepared
}

// Event is something that happened on the path of an epoch, for progress
// lines, metrics and tests. Exactly one of the pointers is set.
type Event struct {
	At         time.Time
	Started    *Started
	Waiting    *Waiting
	Checkpoint *Checkpoint
	Failure    *Failure
	Restart    *Restart
	Call       *Call
	Retired    *Retired
}

// Started is one incarnation that is about to read its first record.
type Started struct {
	Incarnation int64
	Restored    bool // false: genesis
	Finished    bool // nothing to do: the job has read all its input
	Checkpoint  log.ID
	Epoch       int64
	Keys        int64 // state entries restored
	Splits      []data.SplitState
	Took        time.Duration
}

// Failure is an epoch that was open when the run failed: its checkpoint comes to
// nothing, and its records are read again.
type Failure struct {
	Epoch int64
	Open  time.Duration // since its barrier
	Took  Phases        // those that it had come to the end of
	Err   error
}

// Restart is a recovery in place that is about to come: everything of the run
// that failed is gone, and after the wait the same steps as at a start follow.
type Restart struct {
	Reason  Reason
	Attempt int // in a row, from 1; those because of a disk are counted for themselves
	Wait    time.Duration
	Err     error // with what it means for the job
}

// Call is a call to a participant that is over, all its repetitions included.
type Call struct {
	What        string // Prepare or Commit
	Participant string
	Sinks       []string
	Epoch       int64
	Took        time.Duration
	Err         error
}

// The calls that are told.
const (
	Prepare = "prepare"
	Decide  = "decide"
	Follow  = "follow"
)

// Retired is what was deleted after a checkpoint.
type Retired struct {
	Checkpoints, Files int
}

// Waiting says what a start or a commit is waiting for.
type Waiting struct {
	For string
}

// Checkpoint is one committed checkpoint.
type Checkpoint struct {
	Epoch    int64
	ID       log.ID
	Finished bool
	Bytes    int64    // written for it
	Full     []string // steps that saved everything
	Merged   int      // steps whose chain was merged in the background for it
	Splits   []data.SplitState
	Took     Phases
}

// Phases is how long the parts of an epoch took, each from its barrier.
type Phases struct {
	Acked, Durable, Prepared, Entered, Committed time.Duration

	Pause time.Duration // not from the barrier: the longest that a task stood still for it
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	if c.Retain < 1 {
		c.Retain = 10
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Notify == nil {
		c.Notify = func(context.Context, []data.SplitState) error { return nil }
	}
	return c
}

// Kinds of sinks, as in plan.SinkNode.
const (
	atLeastOnce   = plan.AtLeastOnceSink
	idempotent    = plan.IdempotentSink
	following     = plan.FollowingSink
	transactional = plan.TransactionalSink
)

// storeDecides is the decider's name where no participant decides.
const storeDecides = plan.Store

// decider names the participant that decides epochs, or the store. All others
// follow it.
func (c Config) decider() (string, error) {
	var first *Sinks
	for i, s := range c.Sinks {
		if c.StateDir == "" && (s.Kind == transactional || s.Kind == following) {
			return "", refused("sink %s commits together with checkpoints, which must outlive the process: give the job a state directory", s.Name)
		}
		if s.Kind == transactional && (first == nil || s.Rank > first.Rank) {
			first = &c.Sinks[i]
		}
	}
	if first == nil {
		return storeDecides, nil
	}
	return first.Name, nil
}
