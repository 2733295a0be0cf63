package log

import (
	"errors"
	"fmt"
)

// ErrCorrupt reports that the store holds something that this version can't
// vouch for: damaged, missing, or written by a newer version. Every error that
// wraps it is a *CorruptError.
var ErrCorrupt = errors.New("damaged or unknown checkpoint file")

// ErrTaken reports that somebody else wrote the slot: a newer incarnation has
// started. The log must be reloaded to see which.
var ErrTaken = errors.New("the log's next slot is taken")

// CorruptError says which file is wrong, and in what.
type CorruptError struct {
	File            string // where the caller said the store is, and the name in it
	Expected, Found string
	Hint            string // what to do
	Gone            bool   // there is no such file
}

// Error puts the four fields into one sentence.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: expected %s, found %s; %s", e.File, e.Expected, e.Found, e.Hint)
}

// Unwrap returns ErrCorrupt.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// UncertainError reports an append whose entry may or may not be in the log.
// Only opening the log again tells.
type UncertainError struct {
	Slot int64
	Err  error
}

// Error says which slot is in doubt.
func (e *UncertainError) Error() string {
	return fmt.Sprintf("append log slot %d, which may have been written or not: %v", e.Slot, e.Err)
}

// Unwrap returns the store's error.
func (e *UncertainError) Unwrap() error { return e.Err }

const (
	hintRestore = "restore this file from a backup of the state directory (a file never changes once it is written), or start over with --start-over (StartOver) in an empty state directory"
	hintNewer   = "it was written by a newer version, or it is damaged: run that version, or restore this file from a backup of the state directory"
	hintForeign = "this folder belongs to the job: move what others put there away, or give the job another state directory"
)
