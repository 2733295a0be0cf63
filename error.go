package weir

import (
	"errors"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// The classes of errors that Run returns, for errors.Is. An error's text says
// what was found, where, and what to do.
var (
	// ErrDeclaration: the job or its options don't make sense. Nothing was
	// started.
	ErrDeclaration = errors.New("the job can't be run as declared")
	// ErrInput: an undecodable record, an impossible event time, an error or a
	// panic of a user function. The text names the record.
	ErrInput = data.ErrInput
	// ErrOversized is wrapped by the Err of a Rejected record that is too long for
	// its source: it is counted apart from those that can't be decoded.
	ErrOversized = data.ErrOversized
	// ErrGrown: a finished job was started again and there is more input.
	ErrGrown = data.ErrGrown
	// ErrRefused: the state directory, the sinks' ledgers and the job don't
	// belong together. Nothing was changed.
	ErrRefused = control.ErrRefused
	// ErrCorrupt: a file of the state directory isn't what was written.
	ErrCorrupt = log.ErrCorrupt
	// ErrFenced: a newer incarnation of the job has started. This one has
	// stopped and can't change anything any more.
	ErrFenced = control.ErrFenced
	// ErrStateMemory: state has reached its budget; see StateMemory. The text
	// says what each step holds, and what helps.
	ErrStateMemory = data.ErrStateMemory
	// ErrEnded: a running job was asked for something, and has ended.
	ErrEnded = control.ErrEnded
	// ErrLocked: another process runs the job in this state directory.
	ErrLocked = sys.ErrLocked
)

// RecordError says which record stopped which step; find it with errors.As.
type RecordError = data.RecordError

// PanicError is a panic in a user function, with its stack; find it with
// errors.As.
type PanicError = data.PanicError
