// Package process runs the real binary of a job in a test. A test can't hold a
// process's clock: it waits for what the process says, or for what a look from
// outside tells, never for a time to pass.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Deadline is only how a test ends that has failed.
const Deadline = 90 * time.Second

// Main is the TestMain of a package that runs a binary: it builds the Go package in
// dir once, for all tests, sets binary to its path, and looks for goroutines that
// were left behind.
func Main(m *testing.M, dir, name string, binary *string) {
	made, err := os.MkdirTemp("", "weir-"+name+"-")
	if err == nil {
		*binary = filepath.Join(made, name)
		build := exec.CommandContext(context.Background(), "go", "build", "-o", *binary, ".")
		build.Dir = dir
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", errors.Join(err, os.RemoveAll(made)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(made); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// Process is one running binary and what it has said so far.
type Process struct {
	t    *testing.T
	cmd  *exec.Cmd
	over chan struct{}
	kept func() string // what it has said, where that goes elsewhere; or nil

	mu struct {
		sync.Mutex
		lines []string
		more  chan struct{} // closed at the next line
	}
}

// Launch starts a binary. It is killed at the end of the test, if not before.
func Launch(t *testing.T, binary string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), binary, args...), over: make(chan struct{})}
	p.mu.more = make(chan struct{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	go p.listen(r)
	t.Cleanup(p.clean)
	return p
}

// Start starts a command that has its outputs. said reads them back.
func Start(t *testing.T, cmd *exec.Cmd, said func() string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, over: make(chan struct{}), kept: said}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.wait()
	t.Cleanup(p.clean)
	return p
}

func (p *Process) clean() {
	_ = p.cmd.Process.Kill() // as a rule it has ended
	<-p.over
}

func (p *Process) wait() {
	_ = p.cmd.Wait() // its outcome is in ProcessState
	close(p.over)
}

// listen ends when the process has.
func (p *Process) listen(r io.ReadCloser) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.mu.lines = append(p.mu.lines, s.Text())
		close(p.mu.more)
		p.mu.more = make(chan struct{})
		p.mu.Unlock()
	}
	_ = r.Close()
	p.wait()
}

// Said is what it has said so far, on both outputs.
func (p *Process) Said() string {
	if p.kept != nil {
		return p.kept()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.mu.lines, "\n")
}

// Until waits for the process to say something.
func (p *Process) Until(text string) {
	p.t.Helper()
	if p.kept != nil {
		p.Poll(fmt.Sprintf("saying %q", text), func() bool { return strings.Contains(p.Said(), text) })
		return
	}
	late := time.After(Deadline)
	for {
		p.mu.Lock()
		more := p.mu.more
		p.mu.Unlock()
		if strings.Contains(p.Said(), text) {
			return
		}
		select {
		case <-more:
		case <-p.over:
			if !strings.Contains(p.Said(), text) {
				p.t.Fatalf("it ended (%v) without saying %q:\n%s", p.cmd.ProcessState, text, p.Said())
			}
		case <-late:
			p.t.Fatalf("after %v it hasn't said %q:\n%s", Deadline, text, p.Said())
		}
	}
}

// Poll waits for what only a look from outside tells.
func (p *Process) Poll(what string, happened func() bool) {
	p.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(Deadline); !happened(); {
		select {
		case <-tick.C:
		case <-p.over:
			if !happened() {
				p.t.Fatalf("it ended (%v) before %s:\n%s", p.cmd.ProcessState, what, p.Said())
			}
			return
		case <-late:
			p.t.Fatalf("after %v still no %s:\n%s", Deadline, what, p.Said())
		}
	}
}

// Entries waits until the log of a state directory has reached a slot.
func (p *Process) Entries(state string, slot int) {
	p.t.Helper()
	p.Poll(fmt.Sprintf("log slot %d", slot), func() bool {
		names, err := filepath.Glob(filepath.Join(state, "log", "*"))
		return err == nil && len(names) > 0 && filepath.Base(names[len(names)-1]) >= fmt.Sprintf("%012d", slot)
	})
}

// End waits for the process to end and returns its exit code, -1 after a signal.
func (p *Process) End() int {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(Deadline):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it then says where it stands
		<-p.over
		p.t.Fatalf("it hung:\n%s", p.Said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Ends checks how the process ends.
func (p *Process) Ends(code int, says ...string) {
	p.t.Helper()
	if got := p.End(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s", got, code, p.Said())
	}
	for _, s := range says {
		if !strings.Contains(p.Said(), s) {
			p.t.Errorf("it didn't say %q, but:\n%s", s, p.Said())
		}
	}
}

// Signal sends a signal to the process, which must still be there.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v\n%s", s, err, p.Said())
	}
}

// Try sends a signal to the process, if it is still there.
func (p *Process) Try(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Over is closed once the process has ended.
func (p *Process) Over() <-chan struct{} { return p.over }

// Kill ends the process as a crash would.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.Ends(-1)
}

// Stop ends the process politely.
func (p *Process) Stop(says ...string) {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.Ends(0, append(says, "stopped")...)
}

// Pid is the process's.
func (p *Process) Pid() int { return p.cmd.Process.Pid }
