package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// A lock on Windows keeps others from the locked bytes, so it covers a byte
// far behind the holder's name, which they must be able to read.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

// takeLock locks an open file until it is closed, which the end of the process
// does too. It doesn't wait.
func takeLock(file *os.File) error {
	err := windows.LockFileEx(windows.Handle(file.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// releaseLock is there because Windows takes its time after a close.
func releaseLock(file *os.File) error {
	return windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, lockedByte())
}
