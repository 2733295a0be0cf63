package main

import "golang.org/x/sys/unix"

// canStarve says that limitFiles works here.
const canStarve = true

// limitFiles sets how many files a process may have open, and returns how many
// that were. What it has open stays open.
func limitFiles(pid int, n uint64) (before uint64, err error) {
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		return 0, err
	}
	return old.Cur, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}, nil)
}
