package weir

import (
	"context"
	"time"
)

type jobKey struct{}

// JobName is the name of the job that makes a call of a source or a sink, by the
// call's context; empty elsewhere.
func JobName(ctx context.Context) string {
	name, _ := ctx.Value(jobKey{}).(string)
	return name
}

// withJob returns the context of the job's calls.
func (j *Job) withJob(ctx context.Context) context.Context {
	return context.WithValue(ctx, jobKey{}, j.Name())
}

// Source is a set of splits that can be read again from a position.
type Source[T any] interface {
	// Splits lists the splits by names that stay the same between runs.
	Splits(ctx context.Context) ([]string, error)
	// Open starts reading a split. at is nil at the very first start, where
	// the source chooses; that choice, as the reader's Position tells it, is
	// saved before the first record and never made again. A position that
	// can't be read from is an error, never moved silently. The context lasts as
	// long as the run, so that the reader may keep it.
	Open(ctx context.Context, split string, at []byte) (Reader[T], error)
}

// Reader reads one split. All calls come from one goroutine, a call at a time;
// which task reads a split may change between runs.
type Reader[T any] interface {
	// Read appends at most limit records to dst and never waits. end means that
	// nothing will ever follow the records returned. After an error the reader
	// is only closed; records returned with the error are processed first.
	Read(dst []T, limit int) (recs []T, end bool, err error)
	// Ready is readable when Read may find more; nil means always.
	Ready() <-chan struct{}
	// Position is where reading stands after the last Read: a reader opened
	// at it returns what would have come next. The bytes stay the caller's.
	Position() []byte
	Close() error
}

// A Marker is a Reader that can tell records apart: Marks returns a number
// (at most 48 bits) for each record of the last Read, such as its offset. It
// is valid until the next Read. Errors then name the exact record.
type Marker interface{ Marks() []int64 }

// A Locator is a Source that puts a mark into words: "clicks.jsonl, line 17,
// byte offset 1632". It is asked after an error and for each dead letter, one at a
// time, and may read the split. It says the same whenever it is asked.
type Locator interface {
	Locate(split string, mark int64) string
}

// Status is how a reader stands to its split.
type Status struct {
	// Done of Total have been read, in a unit of the reader's own, such as
	// bytes. Total 0: it isn't known how much there is.
	Done, Total int64
	Lag         int64 // records still to read, or -1: unknown
	// Idle says that there is nothing to read and that others need not wait
	// for this split's watermark.
	Idle bool
	// Bytes says that Done and Total count bytes.
	Bytes bool
	// Expires is from when on what follows the job's checkpoint may be deleted,
	// whether or not it was read. Zero: never, or it isn't known.
	Expires time.Time
}

// A StatusReader is a Reader that knows how it stands to its split.
type StatusReader interface{ Status() Status }

// A Committed is a Source that wants to know what was committed: after an
// epoch's decision and its followers, with the positions of its splits. The
// call may be repeated or left out; the checkpoint is the truth. Control makes
// it, outside the reading tasks.
type Committed interface {
	Committed(ctx context.Context, positions []Position) error
}

// A Punctuated is a Reader that knows that time has come further than its
// records tell: nothing before Watermark will follow the last Read. Reading the
// split again must give the same watermarks at the same positions.
type Punctuated interface{ Watermark() time.Time }

// A Described is a Source that can say what it reads, in a few words for plans:
// "topic clicks, read_committed". It does no I/O.
type Described interface{ Describe() string }

// A Starter is a Source that needn't begin at the beginning. Start is called once in
// the life of a job, before the first record and before Open, and says for each
// split the position that Open is given. It is saved before the first record and
// never chosen again. Open with at nil then always means the very beginning: of a
// split that was found later.
type Starter interface {
	Start(ctx context.Context, splits []string) (map[string][]byte, error)
}

// A Pausing is a Reader that can be told to stop before its split's end. AtStop
// reports that it has come there: it returns no records then. When every split of
// every source has ended or is at its stop, the run ends as if it had been asked to:
// with a checkpoint, and no window closed.
type Pausing interface{ AtStop() bool }

// A Growing is a Source whose splits can become more while the job runs: Splits
// is called again every Poll, outside the reading tasks, and so may be Open; a
// split that is new is opened with at nil, and must be read from its beginning. A
// crash before the first checkpoint that holds it does that again. Such a job never
// finishes. Splits never go: one that is missing, at two polls in a row, stops the
// job. Any other error is tried again at the next poll, unless it wraps ErrRefused.
// At the start there may be no split yet.
type Growing interface {
	Poll() time.Duration // 0: the splits stay what they were at the start
}

// Rejected is one record of a split that couldn't be taken.
type Rejected struct {
	Mark int64  // as in Marker
	Raw  []byte // as it was read, at most MaxRejected bytes of it
	Err  error
}

// MaxRejected is how much of a rejected record is kept: 1 MiB.
const MaxRejected = 1 << 20

// A Rejecter is a Reader that can go on behind a record that it can't take: one
// that is undecodable or too long. SetAside is called once before the first Read,
// and only if the job has a sink for dead letters; from then on such a record is
// no error of Read. Rejected returns those that the last Read has passed, in
// order, and is valid until the next Read. Position is behind them. limit holds for
// both together: a Read returns at most so many records and rejected ones. A
// Rejecter is a Marker as well.
type Rejecter interface {
	SetAside()
	Rejected() []Rejected
}

// A Rereader is a Source that can read one record again: its raw bytes, by the
// split and the mark that the record had. It is asked, about one record at a time,
// when a step rejects one that its reader has taken, and there is a sink for dead
// letters. An error leaves the letter without raw bytes, and is told in it.
type Rereader interface {
	Reread(split string, mark int64) ([]byte, error)
}
