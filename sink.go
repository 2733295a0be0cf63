package weir

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/weirstream/weir/internal/control/log"
)

// Kind is what a sink can promise. The guarantee of a job is derived from it
// and from the shape of the job, never from a flag that the user sets.
type Kind int

// The kinds of sinks, weakest first.
const (
	// AtLeastOnce sinks may see a record again after a crash.
	AtLeastOnce Kind = iota
	// Idempotent sinks write early and may repeat: the same row is written
	// again after a crash, and a dead incarnation can't write at all.
	Idempotent
	// Following sinks commit an epoch with its id, but can't decide one.
	Following
	// Transactional sinks commit an epoch's output and the checkpoint's id in
	// one transaction: they decide an epoch, or follow another decider.
	Transactional
)

// String returns the word used in explain and in metrics.
func (k Kind) String() string {
	switch k {
	case AtLeastOnce:
		return "at least once"
	case Idempotent:
		return "idempotent"
	case Following:
		return "following"
	case Transactional:
		return "transactional"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// CheckpointID names one checkpoint: the log slot that holds its manifest and
// the SHA-256 of that entry. Two stores can both have a slot 42; they can't
// have the same id. The zero id is "before the first checkpoint".
type CheckpointID struct {
	Slot int64
	Sum  [32]byte
}

// IsZero reports whether the id names no checkpoint.
func (id CheckpointID) IsZero() bool { return id == CheckpointID{} }

// String returns SLOT-HEX, the form that ledgers hold; "" for the zero id.
func (id CheckpointID) String() string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d-%s", id.Slot, hex.EncodeToString(id.Sum[:]))
}

// ParseCheckpointID is the inverse of String. It takes what String returns and
// nothing else: a ledger that holds another text wasn't written by a job.
func ParseCheckpointID(s string) (CheckpointID, error) {
	id, err := log.ParseID(s)
	return CheckpointID(id), err
}

// JobID says which job a ledger belongs to. The name is the user's; the uuid
// was drawn when the job first started in its state directory.
type JobID struct{ Name, UUID string }

// Incarnation is one start of a job. A larger number fences every smaller one;
// the nonce tells two starts apart that believe in the same number.
type Incarnation struct {
	Number int64
	Nonce  string
}

// SinkSpec describes a sink before anything is opened.
type SinkSpec struct {
	Kind   Kind
	Target string // for people: `table "ad_minute" in clicks.db`
	// Participant names what shares one transaction: sinks whose strings are
	// equal are connected once and commit together. Empty: the sink is alone.
	Participant string
	// Place tells what the sink writes within its participant, such as the table.
	// A job that goes on isn't run with another one: what was committed would stay
	// in the old one. Empty: it isn't compared.
	Place   string
	Readers string   // what a reader of the target sees, one sentence
	Needs   []string // conditions of that promise
	// Rank says which of several transactional participants decides an epoch: that
	// with the highest, and of these the first declared. 0 is that of databases,
	// which can follow as well.
	Rank int
	// Appends: what is written a second time is there twice, as in a log or behind
	// an increment. A rollback of the job then repeats it.
	Appends bool
}

// Sink is where a stream ends. Spec does no I/O. Control calls Connect once a
// run for all sinks of one participant, and then Open once for each of them,
// all before the first record.
type Sink[T any] interface {
	Spec() SinkSpec
	// Connect reaches the participant that the sinks named by their step ids
	// belong to. It changes nothing that an older incarnation could miss. ctx ends
	// with the run.
	Connect(ctx context.Context, sinks []string) (Participant, error)
	// Open attaches this sink, whose step id is given. p is what Connect
	// returned, of this sink or of another of the same participant.
	Open(ctx context.Context, p Participant, sink string) (Outlet[T], error)
}

// Outlet is a sink in one run. Its participant ends it.
type Outlet[T any] interface {
	// Writer returns the writer of one task. Called before the start, once a task.
	Writer(task int) Writer[T]
}

// Writer is a task's side of a sink. All calls come from the task's goroutine.
// A crash between any two calls loses what wasn't prepared, and nothing else.
type Writer[T any] interface {
	// Write hands over records with their event times (nanoseconds since
	// 1970). Both slices are the caller's again when Write returns.
	Write(recs []T, at []int64) error
	// Seal ends the epoch: everything written since the last Seal belongs to
	// it. It does no I/O.
	Seal(epoch int64) error
}

// A Filler is a Writer that keeps an epoch in memory and can say that it has
// enough: the job then takes an early checkpoint, and sources wait for it.
type Filler interface{ Full() bool }

// Participant is the sinks that share one transaction. Control makes every
// call, one at a time: Fence first, then Prepare and Commit in turn, Close
// last. Close may come at any time, also instead of a Commit.
type Participant interface {
	// Fence shuts out every earlier incarnation, for good, and then says what
	// each sink's ledger names. A COMMIT whose answer was lost is settled by
	// this call: it writes, so it waits for the transaction, or ends it.
	Fence(ctx context.Context, f Fence) (map[string]Ledger, error)
	// Prepare flushes everything sealed for the epoch as far as it goes before
	// the checkpoint exists: eager rows are confirmed. What it returns is kept
	// with the checkpoint and given back to Commit.
	Prepare(ctx context.Context, epoch int64) (staged []byte, err error)
	// Commit makes the epoch's output visible together with c.ID in every
	// ledger, if the ledgers name c.Parent and this incarnation. If they name
	// c.ID already it does nothing: it may be repeated, also by a later
	// incarnation, which has only c to go by.
	Commit(ctx context.Context, c Commit) error
	// Flush waits until everything that was handed to Write before the call
	// and that doesn't wait for a Commit is confirmed.
	Flush(ctx context.Context) error
	Close() error
}

// A Follower is a transactional Participant that can follow another one's
// decision. Follow is called before Fence; from then on Prepare returns all that
// a later incarnation needs in order to Commit the epoch. Control keeps it in the
// store with the checkpoint, in a file of its own, until every ledger names a
// later one. A Following participant does so always.
type Follower interface{ Follow() }

// A Prober is a Participant that can find out whether its disk takes writes,
// without changing anything that anybody would miss or be puzzled by. Probe is
// called after Connect and before anything else when the job recovers from an
// error of a disk: each later step would cost an entry in the job's log.
type Prober interface {
	Probe(ctx context.Context) error
}

// An Adopter is a Participant whose sinks can be added to a job that has
// checkpoints, or get another id. Adopt is called after Fence and before
// anything else, with the sinks that are new to the checkpoint that is restored:
// it makes a ledger for each at checkpoint at, for the incarnation that Fence has
// named, or moves the one of the old id, which must name at. It may be repeated,
// also by a later incarnation: a sink that has a ledger at at is left alone, and
// is still a new one, whose target may be missing.
type Adopter interface {
	Adopt(ctx context.Context, at CheckpointID, sinks []Adopted) error
}

// A Revealer is a transactional Participant whose Commit can return before a
// reader sees what it has committed. Visible is called after a Commit that
// decides, and returns once a reader does: followers must not run ahead of a
// decision that can still be lost.
type Revealer interface {
	Visible(ctx context.Context, id CheckpointID) error
}

// A Pressed is a Participant that can't keep an epoch open for as long as it
// likes, such as one whose transaction has a timeout. Press is called once, after
// Connect. ask asks for a barrier; it never blocks, and may be called at any time
// and from any goroutine.
type Pressed interface{ Press(ask func()) }

// Adopted is a sink that is new to a job with checkpoints.
type Adopted struct {
	Sink string
	Was  string // its id before it was renamed; empty: it is new
}

// A Rejection is an error of Writer.Write about one record: those before it were
// taken, it and those behind it weren't. With a sink for dead letters the record
// goes there and the rest is written again; without one the job stops.
type Rejection interface {
	error
	Rejected() int // its index in the records given to Write
}

// Fence is one incarnation's claim on a participant.
type Fence struct {
	Job JobID
	By  Incarnation
	// Create allows ledgers to be made: no checkpoint exists yet. Otherwise a
	// missing ledger is reported and left missing.
	Create bool
	// StartOver comes with Create: results of other runs of the job are known
	// and given up. Their ledgers are fenced, and stay.
	StartOver bool
	// Former are ids that the participant's sinks had in earlier starts and that
	// Connect wasn't given: they were renamed, or given up. Their ledgers are
	// fenced and reported like the others, and never made; a Commit leaves them
	// where they are.
	Former []string
}

// Ledger is what a sink's ledger holds: the last checkpoint committed there.
// Found is false where there is no ledger; the id is zero before the first.
type Ledger struct {
	Found bool
	ID    CheckpointID
}

// Commit is one epoch to be committed.
type Commit struct {
	Epoch     int64
	ID        CheckpointID
	Parent    CheckpointID // what the ledgers name now; zero at genesis
	Positions []Position   // where the sources stood at the barrier
	Staged    []byte       // what Prepare returned for the epoch
	// Empty: no record was read in the epoch and nothing prepared. Genesis is
	// one, the checkpoint that notes where new splits begin, and a rollback.
	Empty bool
}

// Position is where reading stands in one split of a source.
type Position struct {
	Source, Split string
	At            []byte
}

// Scratcher is a Sink that can write to an empty scratch copy of its target,
// which can be read back: it lets a job be checked against itself.
type Scratcher[T any] interface {
	// Scratch returns the same sink on a target of its own below dir, and a
	// function that reads the rows committed there, in no particular order.
	Scratch(dir string) (sink Sink[T], rows func(context.Context) ([]T, error), err error)
}
