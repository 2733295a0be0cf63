package secrets_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// deadline is how a test ends that has failed; nothing waits for a time to pass.
const deadline = 90 * time.Second

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-secrets-")
	if err == nil {
		binary = filepath.Join(dir, "kafkaclicks")
		build := exec.Command("go", "build", "-o", binary, "./examples/kafkaclicks")
		build.Dir = "../../.."
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
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

// place is where one job leaves its artefacts, and how it is called.
type place struct {
	t    *testing.T
	dir  string // of everything that is looked through afterwards
	args []string
	env  []string
	n    int
}

func (p *place) state() string { return filepath.Join(p.dir, "state") }

// command makes a process whose output goes into two files.
func (p *place) command(verb []string, more ...string) *process {
	p.t.Helper()
	p.n++
	args := append(append(append([]string{}, verb...), p.args...), more...)
	out := &process{t: p.t, cmd: exec.Command(binary, args...), over: make(chan struct{}),
		files: [2]string{p.file("stdout"), p.file("stderr")}}
	out.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}, p.env...)
	for i, to := range []*io.Writer{&out.cmd.Stdout, &out.cmd.Stderr} {
		f, err := os.Create(out.files[i])
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = f.Close() })
		*to = f
	}
	return out
}

func (p *place) file(kind string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%02d.%s", p.n, kind))
}

// note keeps what was seen from outside.
func (p *place) note(what string, b []byte) {
	p.t.Helper()
	p.n++
	if err := os.WriteFile(p.file(what), b, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// verb runs one that ends by itself, and returns its exit code.
func (p *place) verb(name string, more ...string) (int, *process) {
	p.t.Helper()
	c := p.command(strings.Fields(name), more...)
	c.start()
	return c.end(), c
}

// run starts the job with everything that it can tell.
func (p *place) run(more ...string) *process {
	p.t.Helper()
	c := p.command([]string{"run"}, append([]string{"--log-level", "debug", "--live", "off", "--progress", "50ms",
		"--checkpoint-interval", "50ms", "--metrics", "127.0.0.1:0"}, more...)...)
	c.start()
	return c
}

// process is one running binary.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	over  chan struct{}
	files [2]string
}

func (p *process) start() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its outcome is in ProcessState
		close(p.over)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // as a rule it has ended
		<-p.over
	})
}

func (p *process) said() string {
	var all strings.Builder
	for _, name := range p.files {
		b, err := os.ReadFile(name)
		if err != nil {
			p.t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// until waits for what only a look from outside tells.
func (p *process) until(what string, happened func() bool) {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
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

// says waits for the process to say all of the texts.
func (p *process) says(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf("%q", text), func() bool { return strings.Contains(p.said(), text) })
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

func (p *process) signal(s os.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v\n%s", s, err, p.said())
	}
	return p.end()
}

// pages keeps what the job answers over HTTP.
func (p *process) pages(at *place) {
	p.t.Helper()
	address := ""
	p.until("the address of the metrics", func() bool {
		_, rest, ok := strings.Cut(p.said(), "http://")
		if ok {
			address = "http://" + strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("/ \"\n", r) })[0]
		}
		return ok
	})
	for _, page := range []string{"/metrics", "/healthz", "/readyz", "/status"} {
		resp, err := http.Get(address + page)
		if err != nil {
			p.t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			p.t.Fatal(err)
		}
		if len(b) == 0 {
			p.t.Errorf("%s%s is empty", address, page)
		}
		at.note("page"+strings.ReplaceAll(page, "/", "-"), b)
	}
	http.DefaultClient.CloseIdleConnections()
}
