package control

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

var (
	// ErrFenced reports that a newer incarnation of the job has started: this
	// one may change nothing any more.
	ErrFenced = errors.New("fenced by a newer start of this job")

	// ErrRefused reports that store, ledgers and the declared job don't fit
	// together. Nothing was guessed and nothing was changed; the wrapping
	// error says what was found and what to do.
	ErrRefused = data.ErrRefused

	// errStopped is why calls of a start that was asked to stop are cancelled.
	errStopped = errors.New("stopped before the first record")

	// errNewer is why a recovery in place doesn't go on; explain says more.
	errNewer = errors.New("the log has it")

	// errEnded is why calls that outlive the run are cancelled.
	errEnded = errors.New("the run is over")
)

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// startOverHint is what always helps where a sink and the store don't agree.
const startOverHint = "or begin from nothing with --start-over (StartOver)"

// temporary reports whether a participant asks for the call to be repeated.
func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// explain says what an error means for the job: whether somebody else runs it
// now, and what a restart will begin from.
func (j *job) explain(err error) error {
	if j.log == nil || j.mine == 0 {
		return onDisk(err, "")
	}
	start, known := j.newerStart()
	if start != nil {
		return fmt.Errorf("%w: incarnation %d was started at %s, this one is %d: %w",
			ErrFenced, start.Slot, start.Start.At.Format("2006-01-02 15:04:05 MST"), j.mine, err)
	}
	if errors.Is(err, log.ErrTaken) {
		return fmt.Errorf("%w: somebody else writes to the log in %s: %w", ErrFenced, j.where, err)
	}
	if errors.Is(err, ErrFenced) && known && j.last.m == nil {
		// Whoever fences a ledger has put its start into the log before: that
		// was another log than ours, or a later state of it.
		return refused("%v, and the log in %s has no such start: the state directory is an older copy, or the sink belongs to another one; bring the right one back, %s",
			err, j.where, startOverHint)
	}
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrRefused) || errors.Is(err, log.ErrCorrupt) {
		return err // of a corrupt file: the last checkpoint may be the one that needs it
	}
	last := "; no checkpoint was changed"
	if m := j.last.m; m != nil {
		last = fmt.Sprintf("; the last good checkpoint is that of epoch %d, log slot %d", m.Epoch, j.last.id.Slot)
	}
	return onDisk(err, last)
}

// onDisk says what to do about an error of a disk, behind what the job is left
// with; of any other it says the latter.
func onDisk(err error, last string) error {
	switch diskReason(err) {
	case DiskFull:
		return fmt.Errorf("the disk is full: %w%s; make room", err, last)
	case DiskReadOnly:
		return fmt.Errorf("the file system is read-only: %w%s; make it writable", err, last)
	case DiskBroken:
		return fmt.Errorf("the disk reported an I/O error: %w%s; check the disk", err, last)
	}
	return fmt.Errorf("%w%s", err, last)
}

// advised ends an error that Run returns with what to do then.
func advised(err error) error {
	if classOf(err) != disk {
		return err
	}
	return fmt.Errorf("%w and start again", err)
}

// newerStart returns the newest start entry if it is somebody else's and behind
// ours. known is false for a log that can't be read any more: it doesn't tell.
func (j *job) newerStart() (start *log.Entry, known bool) {
	if err := j.log.Reload(); err != nil {
		return nil, false
	}
	return j.know(j.log.Entries()), true
}
