package cli

import (
	"errors"

	"github.com/weirstream/weir"
)

// The exit codes of every verb. 0 to 2 are also a verdict's: it holds, it
// doesn't, it couldn't be reached.
const (
	ExitOK      = 0   // done, or stopped politely; a verdict: it holds
	ExitVerdict = 1   // a verdict: it doesn't hold
	ExitUsage   = 2   // the command line, what it asks for, or the job's declaration; a verdict couldn't be reached
	ExitInput   = 10  // bad input, or a user function failed
	ExitRefused = 11  // state directory, ledgers, input and job don't belong together
	ExitCorrupt = 12  // a file of the state directory isn't what was written
	ExitFenced  = 13  // a newer incarnation of the job has started
	ExitLocked  = 14  // another process runs the job
	ExitMemory  = 16  // state has reached its memory budget
	ExitUnwell  = 17  // doctor has found a problem
	ExitFailed  = 15  // anything else: a disk, a database
	ExitSignal  = 130 // a second signal
)

// exitCode maps an error to its code. The more a human must decide, the more
// specific the code: a fenced process must not be restarted blindly.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errVerdict):
		return ExitVerdict
	case errors.Is(err, errUnwell):
		return ExitUnwell
	case errors.Is(err, errInterrupted):
		return ExitSignal
	case errors.As(err, &usage), errors.Is(err, weir.ErrDeclaration), errors.Is(err, weir.ErrUnknown):
		return ExitUsage
	case errors.Is(err, weir.ErrFenced):
		return ExitFenced
	case errors.Is(err, weir.ErrLocked):
		return ExitLocked
	case errors.Is(err, weir.ErrCorrupt):
		return ExitCorrupt
	case errors.Is(err, weir.ErrRefused), errors.Is(err, weir.ErrGrown):
		return ExitRefused
	case errors.Is(err, weir.ErrStateMemory):
		return ExitMemory
	case errors.Is(err, weir.ErrInput):
		return ExitInput
	}
	return ExitFailed
}
