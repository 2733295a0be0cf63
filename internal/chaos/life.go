package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// deadline is how long a life may last: far more than one ever needs.
const deadline = 2 * time.Minute

// life is one process.
type life struct {
	cmd    *exec.Cmd
	state  string
	dir    string     // of all that the job has
	before int64      // the log's last slot when it was started
	reads  heard      // that it starts to read
	fails  heard      // that an error has ended it, and that it starts again in place
	over   chan error // gets what Wait returns
	said   *os.File   // what it says
}

// start starts a process. Everything it says is kept in a file.
func start(ctx context.Context, bin, state, dir, saidPath string, args []string) (*life, error) {
	l := &life{state: state, dir: dir, reads: make(heard, 100), fails: make(heard, 100), over: make(chan error, 1)}
	for _, path := range trial.List(filepath.Join(state, "log")) {
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
	for s := bufio.NewScanner(stderr); s.Scan(); {
		fmt.Fprintln(l.said, s.Text())
		switch word, _, _ := strings.Cut(s.Text(), " "); word {
		case "started", "restored":
			l.reads.note()
		case "failed":
			l.fails.note()
		}
	}
	l.over <- l.cmd.Wait()
}

// heard is what a process has said, as often as it has said it and up to a
// hundred times.
type heard chan struct{}

func (h heard) note() {
	select {
	case h <- struct{}{}:
	default:
	}
}

// count is asked when the process is over and nobody takes any more.
func (h heard) count() int { return len(h) }

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

// killed reports whether a process died of SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
