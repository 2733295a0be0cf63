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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// patience is how long anything that must happen may take: far more than it
// ever needs, also while a broker starts.
const patience = 90 * time.Second

// life is one process of the job, which reaches the brokers through a proxy of
// its own.
type life struct {
	cmd    *exec.Cmd
	state  string
	said   *os.File // what it says
	proxy  *proxy   // nil: it has none
	events events
	trace  *trace
	over   chan struct{} // closed when the process has ended, and err is set
	err    error
	began  time.Time
	close  func() error // release, once

	mu    sync.Mutex
	armed *trap
}

// trap does something at the n-th event of a kind, once.
type trap struct {
	what   string // as event.is takes it
	answer bool   // one without an error
	n      int
	do     func() (cut bool) // called while the proxy holds the request or the answer
	sprung chan struct{}     // closed when do has returned
}

// start starts a process, with a trap if t isn't nil. Everything it says is kept
// in a file.
func (j *job) start(ctx context.Context, t *trap, more ...string) (l *life, err error) {
	j.life++
	j.lives++
	l = &life{state: j.state, events: j.events, trace: newTrace(j.recipe.topic && !j.recipe.atLeast), over: make(chan struct{}), began: time.Now()}
	if t != nil {
		l.arm(t)
	}
	args, brokers := append(j.args(), more...), j.lab.Brokers()
	if !j.direct {
		if l.proxy, err = newProxy(brokers, l.carry); err != nil {
			return nil, err
		}
		brokers = l.proxy.brokers()
	}
	if l.said, err = os.Create(j.path(fmt.Sprintf("life-%d.txt", j.life))); err != nil {
		return nil, errors.Join(err, l.release())
	}
	args = append(args, "--brokers", strings.Join(brokers, ","))
	fmt.Fprintf(l.said, "%s %s\n", j.recipe.bin(j.harness), strings.Join(args, " "))
	l.cmd = exec.CommandContext(ctx, j.recipe.bin(j.harness), args...)
	l.cmd.Stdout = l.said
	stderr, err := l.cmd.StderrPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	go l.listen(stderr)
	l.close = sync.OnceValue(func() error { delete(j.living, l); return l.release() })
	j.living[l] = true
	return l, nil
}

// listen ends with the process, after everything that it said was read.
func (l *life) listen(stderr io.Reader) {
	for s := bufio.NewScanner(stderr); s.Scan(); {
		fmt.Fprintf(l.said, "%s %s\n", time.Since(l.began).Round(time.Millisecond), s.Text())
	}
	l.err = l.cmd.Wait()
	close(l.over)
}

// carry sees everything that goes through the proxy, before it goes on.
func (l *life) carry(req kmsg.Request, resp kmsg.Response) (cut bool) {
	e := l.events.of(req, resp)
	l.trace.note(e)
	l.mu.Lock()
	t := l.armed
	if t == nil || t.answer != e.answer || e.answer && !e.ok || !e.is(t.what) {
		l.mu.Unlock()
		return false
	}
	if t.n--; t.n > 0 {
		l.mu.Unlock()
		return false
	}
	l.armed = nil
	l.mu.Unlock()
	cut = t.do()
	close(t.sprung)
	return cut
}

// arm sets a trap, in place of the one before.
func (l *life) arm(t *trap) *trap {
	t.sprung = make(chan struct{})
	l.mu.Lock()
	l.armed = t
	l.mu.Unlock()
	return t
}

func (l *life) disarm() {
	l.mu.Lock()
	l.armed = nil
	l.mu.Unlock()
}

func (l *life) signal(s syscall.Signal) {
	_ = l.cmd.Process.Signal(s) // it may have ended by itself, which Wait will tell
}

// kill kills the process and returns what it was at. When it had ended by itself
// before, killed is false.
func (l *life) kill() (p phase, killed bool) {
	l.trace.freeze()
	l.signal(syscall.SIGKILL)
	<-l.over
	return l.phase(), wasKilled(l.err)
}

// phase is what the process is at.
func (l *life) phase() phase {
	s, err := readStore(l.state)
	if err != nil {
		s = store{} // the job's check will tell
	}
	return l.trace.phase(s)
}

// release waits for the process, which must be about to end, and releases what
// the life has used.
func (l *life) release() error {
	var err error
	if l.cmd != nil && l.cmd.Process != nil {
		<-l.over
	}
	if l.proxy != nil {
		err = l.proxy.close()
	}
	if l.said != nil {
		err = errors.Join(err, l.said.Close())
	}
	return err
}

// end waits for the process to end by itself and returns its exit code.
func (l *life) end(ctx context.Context) (code int, err error) {
	select {
	case <-l.over:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(patience):
		l.signal(syscall.SIGQUIT) // it then says where it stands
		<-l.over
		return 0, trial.Failed("it hung: see %s", l.said.Name())
	}
	return exitCode(l.err), nil
}

// ended reports whether the process has ended.
func (l *life) ended() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// wasKilled reports whether a process died of SIGKILL.
func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// until asks every so often whether something has happened.
func until(ctx context.Context, what string, every time.Duration, happened func() (bool, error)) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if ok, err := happened(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return trial.Failed("it took more than %s %s", patience, what)
		}
	}
}

// pause waits, unless the context or the process ends before.
func (l *life) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.over:
	case <-ctx.Done():
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}
