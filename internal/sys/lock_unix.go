//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// takeLock locks an open file until it is closed, which the end of the process
// does too. It doesn't wait.
func takeLock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

func releaseLock(*os.File) error { return nil } // closing does
