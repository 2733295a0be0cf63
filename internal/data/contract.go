package data

import (
	"io"
	"time"
)

// Control is what the path of a record answers to. The methods may be called
// from any task's goroutine, never block for long, and may be called after the
// run has been stopped, when they do nothing.
type Control interface {
	// Acked says that a task has passed barrier a.Epoch on.
	Acked(a Ack)
	// Wants asks for an early barrier. hold: sources must not read on before
	// it has been emitted, because a buffer is full.
	Wants(hold bool)
	// Probed says that a task has passed probe n on.
	Probed(n int64)
	// Ended says that a source task has read all its splits to their end.
	Ended(task string)
	// Rests says that each of a source task's splits has ended or has come to
	// where it was told to stop, and one of them has to be read on another time.
	Rests(task string)
	// Failed says that a task has ended with an error.
	Failed(err error)
}

// Ack is what a task hands over at a barrier.
type Ack struct {
	Epoch  int64
	Task   string       // STAGE/INDEX
	Splits []SplitState // of a source task
	// Growing says that there may come more splits: the task never ends.
	Growing bool
	Parts   []Part // of a task with state
	Pause   time.Duration
}

// SplitState is one split in a checkpoint.
type SplitState struct {
	Source    string `json:"source"`
	Split     string `json:"split"`
	Position  []byte `json:"position"`
	Watermark int64  `json:"watermark"` // MinTime before the first record
	Records   int64  `json:"records"`   // read since the job first started
	Late      int64  `json:"late"`      // behind their own split's watermark, of these
	Ended     bool   `json:"ended,omitempty"`
}

// Part is what one step in one task saved at a barrier. Encode runs later, in
// another goroutine, once; Release must follow, whether or not it was called.
type Part interface {
	Info() PartInfo
	Encode(w io.Writer) error // the section; not called when Info.Entries is 0
	Release()
}

// PartInfo describes a Part.
type PartInfo struct {
	Step    string
	Full    bool // everything the task has, not only what changed
	Entries int  // in this section, deletes included
	Live    int  // entries that the task holds for the step
	Clocks  []Clock
	Key     string // schema of the keys
	Value   string // schema of the values
}

// Clock is how far event time has come for key groups From to To-1 of a step.
type Clock struct {
	From int   `json:"from"`
	To   int   `json:"to"`
	At   int64 `json:"at"`
}

// Section is one encoded Part in a checkpoint.
type Section struct {
	Bytes      []byte
	Key, Value string // schemas that it was written with
}

// Restorer gives a run what the checkpoint holds. At the very first start it
// holds nothing.
type Restorer interface {
	// Began reports whether the job that made the checkpoint had the source.
	Began(source string) bool
	Split(source, split string) (SplitState, bool)
	Splits(source string) []SplitState
	Sections(step string) ([]Section, error) // a base and its deltas, oldest first
	Clocks(step string) []Clock
}

// The methods of *Run that control drives it by, in this order:
//
//	Open(ctx, restorer)   restores every task and opens every split; the states
//	                      of the splits are returned, for genesis
//	Start(ctx, control)   starts the tasks' goroutines
//	Barrier(epoch, full)  asks the sources for a barrier; full names steps that
//	                      must save everything
//	Hold(on)              sources wait, or go on
//	Probe(n)              asks for a mark behind all that was read so far
//	Stop(err), Wait()     ends the tasks; returns when all goroutines are gone
//	Close()               closes the readers
