package main

import (
	"bufio"
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

// The tests of this package run the real binary, so they can't hold its clock.
// They wait for what a process says, for files in its state directory and for
// messages in its topics, never for a time to pass: the deadline is only how a test
// ends that has failed.
const deadline = 90 * time.Second

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-kafkaclicks-")
	if err == nil {
		binary = filepath.Join(dir, "kafkaclicks")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", errors.Join(err, os.RemoveAll(dir)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// process is one running binary and what it has said so far.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	over chan struct{}

	mu struct {
		sync.Mutex
		lines []string
		more  chan struct{} // closed at the next line
	}
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), over: make(chan struct{})}
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
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // as a rule it has ended
		<-p.over
	})
	return p
}

// listen ends when the process has.
func (p *process) listen(r io.ReadCloser) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.mu.lines = append(p.mu.lines, s.Text())
		close(p.mu.more)
		p.mu.more = make(chan struct{})
		p.mu.Unlock()
	}
	_ = r.Close()
	_ = p.cmd.Wait() // its outcome is in ProcessState
	close(p.over)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.mu.lines, "\n")
}

// until waits for the process to say something.
func (p *process) until(text string) {
	p.t.Helper()
	late := time.After(deadline)
	for {
		p.mu.Lock()
		more := p.mu.more
		p.mu.Unlock()
		if strings.Contains(p.said(), text) {
			return
		}
		select {
		case <-more:
		case <-p.over:
			if !strings.Contains(p.said(), text) {
				p.t.Fatalf("it ended (%v) without saying %q:\n%s", p.cmd.ProcessState, text, p.said())
			}
		case <-late:
			p.t.Fatalf("after %v it hasn't said %q:\n%s", deadline, text, p.said())
		}
	}
}

// end waits for the process to end and returns its exit code, -1 after a signal.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(deadline):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it then says where it stands
		<-p.over
		p.t.Fatalf("it hung:\n%s", p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends checks how the process ends.
func (p *process) ends(code int, says ...string) {
	p.t.Helper()
	if got := p.end(); got != code {
		p.t.Fatalf("exit code %d, want %d:\n%s", got, code, p.said())
	}
	for _, s := range says {
		if !strings.Contains(p.said(), s) {
			p.t.Errorf("it didn't say %q, but:\n%s", s, p.said())
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v\n%s", s, err, p.said())
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.ends(-1)
}

// stop ends the process politely.
func (p *process) stop(says ...string) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.ends(0, append(says, "stopped")...)
}

// entries waits until the log of a state directory has reached a slot.
func (p *process) entries(state string, slot int) {
	p.t.Helper()
	p.poll(fmt.Sprintf("log slot %d", slot), func() bool {
		names, err := filepath.Glob(filepath.Join(state, "log", "*"))
		return err == nil && len(names) > 0 && filepath.Base(names[len(names)-1]) >= fmt.Sprintf("%012d", slot)
	})
}

// poll waits for what only a look from outside tells.
func (p *process) poll(what string, happened func() bool) {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(deadline); !happened(); {
		select {
		case <-tick.C:
		case <-p.over:
			if !happened() {
				p.t.Fatalf("it ended (%v) before %s:\n%s", p.cmd.ProcessState, what, p.said())
			}
			return
		case <-late:
			p.t.Fatalf("after %v still no %s:\n%s", deadline, what, p.said())
		}
	}
}
