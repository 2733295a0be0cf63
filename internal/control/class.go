package control

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// class is what an error means for a job in this process.
type class int

const (
	// fatal errors are found again by every restart, or say that this process is
	// no longer the job's: a person, or the newer process, goes on.
	fatal class = iota
	// passing errors may be gone at the next try.
	passing
	// disk errors last until the disk is well again, however long that is.
	disk
)

// Reason is why a job is restarted in place, in a word for metrics.
type Reason string

// The reasons. A disk is that of the state directory, of a sink, or any other
// that a call ran into.
const (
	DiskFull     Reason = "disk-full"
	DiskReadOnly Reason = "disk-read-only"
	DiskBroken   Reason = "disk-error"
	StoreFailed  Reason = "store" // the state directory, of anything but its disk
	SinkFailed   Reason = "sink"
	TaskFailed   Reason = "task" // a step's, a source's, or a sink's writer in it
	StartFailed  Reason = "start"
)

// classOf decides what an error means. It is pure.
func classOf(err error) class {
	for _, f := range []error{ErrFenced, sys.ErrLocked, ErrRefused, data.ErrGrown, data.ErrStateMemory, log.ErrCorrupt} {
		if errors.Is(err, f) {
			return fatal
		}
	}
	if diskReason(err) != "" {
		return disk // also where a user function or a reader ran into it
	}
	if errors.Is(err, data.ErrInput) && !temporary(err) {
		return fatal
	}
	return passing
}

// diskReason says what is wrong with a disk, or "" where none is to blame.
func diskReason(err error) Reason {
	for _, r := range []struct {
		Reason
		numbers []syscall.Errno
		windows []syscall.Errno // its own numbers, which package syscall doesn't name
	}{
		{DiskFull, []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}, []syscall.Errno{39, 112}},
		{DiskReadOnly, []syscall.Errno{syscall.EROFS}, []syscall.Errno{19}},
		{DiskBroken, []syscall.Errno{syscall.EIO}, []syscall.Errno{23, 1117}},
	} {
		if runtime.GOOS == "windows" {
			r.numbers = append(r.numbers, r.windows...)
		}
		if slices.ContainsFunc(r.numbers, func(n syscall.Errno) bool { return errors.Is(err, n) }) {
			return r.Reason
		}
	}
	return ""
}

// blamed is an error with the part of the job that it came from.
type blamed struct {
	reason Reason
	error
}

func (b blamed) Unwrap() error { return b.error }

func blame(reason Reason, err error) error {
	var have blamed
	if err == nil || errors.As(err, &have) {
		return err
	}
	return blamed{reason, err}
}

// reasonOf puts an error into a word.
func reasonOf(err error) Reason {
	if r := diskReason(err); r != "" {
		return r
	}
	var b blamed
	if errors.As(err, &b) {
		return b.reason
	}
	return TaskFailed
}

// What restarts in place wait for.
const (
	firstBackoff   = time.Second
	longestBackoff = time.Minute
	// newRow is how long an incarnation must have gone on, and have committed a
	// checkpoint meanwhile, for the next restart to be the first in a row again.
	newRow = time.Minute
)

// backoff is the wait before a restart, by how many there are in a row with it.
func backoff(attempt int) time.Duration {
	return min(firstBackoff<<min(attempt-1, 10), longestBackoff)
}

// series is how often a process has restarted its job in a row.
type series struct {
	limit int  // restarts allowed
	tries int  // after passing errors
	disks int  // after errors of a disk, which have no limit
	began bool // a record could have been read, in any incarnation of the process
}

// next decides whether an incarnation that failed is followed by another one in
// this process, and which in a row that is.
func (r *series) next(err error) (attempt int, again bool) {
	switch c := classOf(err); {
	case r.limit == 0 || c == fatal:
		return 0, false
	case c == disk:
		r.disks++
		return r.disks, true
	case !r.began && !temporary(err):
		return 0, false // a person is watching the very first start
	case r.tries == r.limit:
		return 0, false
	}
	r.tries++
	return r.tries, true
}

// ran takes an incarnation into account that has read its first record.
func (r *series) ran(d time.Duration, committed bool) {
	r.began = true
	if committed && d >= newRow {
		r.tries, r.disks = 0, 0
	}
}
