package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// moment is when a process is killed: once something has happened for the n-th
// time, and after a delay.
type moment struct {
	what  string // "time", or something to watch for
	n     int
	delay time.Duration
}

func (m moment) String() string { return fmt.Sprintf("%s %d + %s", m.what, m.n, m.delay) }

// pick draws a moment. Half of them are just a time, from the first instant on;
// the rest follow what the process says and leaves on disk.
func pick(rng *rand.Rand) moment {
	m := moment{what: "time", n: 1 + min(rng.IntN(12), rng.IntN(12))}
	if rng.IntN(2) == 0 {
		m.delay = time.Duration(rng.Int64N(int64(2 * time.Millisecond)))
	}
	switch rng.IntN(20) {
	case 0, 18:
		m.delay = time.Duration(rng.Int64N(int64(15 * time.Millisecond)))
	case 1, 2, 3, 4, 5:
		m.delay = time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
	case 6:
		m.what = "start entry"
	case 7, 8:
		m.what, m.n = "reads", 1
		m.delay *= 10
	case 9, 10:
		m.what = "segment"
	case 11:
		m.what = "temporary file"
	case 12, 13:
		m.what = "checkpoint entry"
	case 14:
		m.what = "retire entry"
	case 15:
		m.what, m.n = "last checkpoint entry", 1
	case 16, 17, 19:
		m.what, m.delay = "database write", m.delay/10
	}
	if m.what == "start entry" {
		m.n = 1
	}
	return m
}

// deadline is how long a life may last: far more than one ever needs.
const deadline = 2 * time.Minute

// life is one process.
type life struct {
	cmd    *exec.Cmd
	state  string
	wal    string        // the database's log
	before int64         // the log's last slot when it was started
	reads  chan struct{} // closed when it says that it starts to read
	over   chan error    // gets what Wait returns
	said   *os.File      // what it says
}

// start starts a process. Everything it says is kept in a file.
func start(ctx context.Context, bin, state, db, saidPath string, args []string) (*life, error) {
	l := &life{state: state, wal: db + "-wal", reads: make(chan struct{}), over: make(chan error, 1)}
	for _, path := range list(filepath.Join(state, "log")) {
		l.before, _ = strconv.ParseInt(filepath.Base(path), 10, 64)
	}
	var err error
	if l.said, err = os.Create(saidPath); err != nil {
		return nil, err
	}
	fmt.Fprintf(l.said, "%s %s\n", bin, strings.Join(args, " "))
	l.cmd = exec.CommandContext(ctx, bin, args...)
	l.cmd.Stdout = l.said
	stderr, err := l.cmd.StderrPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, l.said.Close())
	}
	go l.listen(stderr)
	return l, nil
}

// listen ends with the process, after everything that it said was read.
func (l *life) listen(stderr io.Reader) {
	heard := false
	for s := bufio.NewScanner(stderr); s.Scan(); {
		fmt.Fprintln(l.said, s.Text())
		if !heard && (strings.HasPrefix(s.Text(), "started ") || strings.HasPrefix(s.Text(), "restored ")) {
			heard = true
			close(l.reads)
		}
	}
	l.over <- l.cmd.Wait()
}

// killAt kills the process at a moment, unless it ends before, and returns how
// it ended: nil after exit code 0.
func (l *life) killAt(m moment) error {
	happened := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(happened)
		l.watch(m, stop)
	}()
	err := l.await(happened)
	close(stop)
	<-happened
	return err
}

func (l *life) await(happened <-chan struct{}) error {
	select {
	case err := <-l.over:
		return err
	case <-happened:
		_ = l.cmd.Process.Kill() // it may have ended by itself, which Wait will tell
		return <-l.over
	case <-time.After(deadline):
		_ = l.cmd.Process.Signal(syscall.SIGQUIT) // it then says where it stands
		return errors.Join(errors.New("it hung"), <-l.over)
	}
}

// end waits for the process to end by itself.
func (l *life) end() error { return l.await(nil) }

// close releases what the life has used.
func (l *life) close() error { return l.said.Close() }

// read reports whether the process had said that it starts to read. It is
// asked when the process is over.
func (l *life) read() bool {
	select {
	case <-l.reads:
		return true
	default:
		return false
	}
}

// watch returns at the moment, or when stop is closed.
func (l *life) watch(m moment, stop <-chan struct{}) {
	seen := map[string]bool{}
	l.fresh(seen)
	written := l.written()
	count := 0
	for happened := m.what == "time"; !happened; {
		if m.what == "reads" {
			select {
			case <-l.reads:
			case <-stop:
				return
			}
			break
		}
		if m.what == "database write" {
			if at := l.written(); !at.Equal(written) {
				written, count = at, count+1
			}
		} else {
			for _, name := range l.fresh(seen) {
				if l.is(m.what, name) {
					count++
				}
			}
		}
		happened = count >= m.n
		pause := 100 * time.Microsecond
		if m.what == "database write" {
			pause = 0 // a transaction is written in less
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
	select {
	case <-time.After(m.delay):
	case <-stop:
	}
}

// written is when the database's log was last written to.
func (l *life) written() (at time.Time) {
	if info, err := os.Stat(l.wal); err == nil {
		at = info.ModTime()
	}
	return at
}

// fresh returns the files that weren't there before.
func (l *life) fresh(seen map[string]bool) (fresh []string) {
	for _, dir := range []string{"log", "seg", "tmp"} {
		for _, path := range list(filepath.Join(l.state, dir)) {
			if !seen[path] {
				seen[path] = true
				fresh = append(fresh, path)
			}
		}
	}
	return fresh
}

// is reports whether a new file is what is waited for.
func (l *life) is(what, path string) bool {
	switch filepath.Base(filepath.Dir(path)) {
	case "tmp":
		return what == "temporary file"
	case "seg":
		return what == "segment"
	}
	e, err := readEntry(path)
	if err != nil {
		return false // retired since
	}
	switch what {
	case "start entry":
		return e.kind == kindStart
	case "checkpoint entry":
		return e.kind == kindCheckpoint
	case "last checkpoint entry":
		return e.kind == kindCheckpoint && e.manifest.Finished
	}
	return what == "retire entry" && e.kind == kindRetire
}

// killed reports whether a process died of SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
