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
	"testing"

	"github.com/weirstream/weir/internal/process"
)

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) { process.Main(m, "../../../examples/kafkaclicks", "kafkaclicks", &binary) }

// place is where one job leaves its artefacts, and how it is called.
type place struct {
	t    *testing.T
	dir  string // of everything that is looked through afterwards
	args []string
	env  []string
	n    int
}

func (p *place) state() string { return filepath.Join(p.dir, "state") }

// start starts a process whose output goes into two files.
func (p *place) start(verb []string, more ...string) *running {
	p.t.Helper()
	p.n++
	args := append(append(append([]string{}, verb...), p.args...), more...)
	cmd := exec.Command(binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}, p.env...)
	files := []string{p.file("stdout"), p.file("stderr")}
	for i, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		f, err := os.Create(files[i])
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = f.Close() })
		*to = f
	}
	return &running{process.Start(p.t, cmd, func() string {
		var all strings.Builder
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				p.t.Fatal(err)
			}
			all.Write(b)
		}
		return all.String()
	}), p.t}
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
func (p *place) verb(name string, more ...string) (int, *running) {
	p.t.Helper()
	c := p.start(strings.Fields(name), more...)
	return c.End(), c
}

// run starts the job with everything that it can tell.
func (p *place) run(more ...string) *running {
	p.t.Helper()
	return p.start([]string{"run"}, append([]string{"--log-level", "debug", "--live", "off", "--progress", "50ms",
		"--checkpoint-interval", "50ms", "--metrics", "127.0.0.1:0"}, more...)...)
}

// running is a process that runs the binary.
type running struct {
	*process.Process
	t *testing.T
}

// says waits for the process to say all of the texts.
func (p *running) says(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.Until(text)
	}
}

// ended sends a signal and returns the exit code.
func (p *running) ended(s os.Signal) int {
	p.t.Helper()
	p.Signal(s)
	return p.End()
}

// pages keeps what the job answers over HTTP.
func (p *running) pages(at *place) {
	p.t.Helper()
	address := ""
	p.Poll("the address of the metrics", func() bool {
		_, rest, ok := strings.Cut(p.Said(), "http://")
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
