package main

import (
	"bufio"
	"database/sql"
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
// They wait for what a process says and for files in its state directory, never
// for a time to pass: the deadline is only how a test ends that has failed.
const deadline = 60 * time.Second

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-adclicks-")
	if err == nil {
		binary = filepath.Join(dir, "adclicks")
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

// entries waits until the log of a state directory has reached a slot.
func (p *process) entries(state string, slot int) {
	p.t.Helper()
	p.poll(fmt.Sprintf("log slot %d", slot), func() bool {
		names, err := filepath.Glob(filepath.Join(state, "log", "*"))
		return err == nil && len(names) > 0 && filepath.Base(names[len(names)-1]) >= fmt.Sprintf("%012d", slot)
	})
}

// poll waits for what only a look at a file tells.
func (p *process) poll(what string, happened func() bool) {
	p.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(deadline); !happened(); {
		select {
		case <-tick.C:
		case <-p.over:
			if !happened() {
				p.t.Fatalf("it ended (%v) before %s:\n%s", p.cmd.ProcessState, what, p.said())
			}
		case <-late:
			p.t.Fatalf("after %v still no %s:\n%s", deadline, what, p.said())
		}
	}
}

// place is a job's files.
type place struct{ input, db, state string }

func newPlace(t *testing.T) place {
	dir := t.TempDir()
	return place{filepath.Join(dir, "clicks.jsonl"), filepath.Join(dir, "clicks.db"), filepath.Join(dir, "state")}
}

func (p place) args(sink string, more ...string) []string {
	return append([]string{"run", "--input", p.input, "--db", p.db, "--state", p.state, "--sink", sink, "--progress", "0"}, more...)
}

// length is how many clicks a long input has: with often, a hundred checkpoints,
// of which tests wait for the first few and then act.
const length = 100_000

// long writes an input that a process needs some time for: five ads in turn,
// a tenth of a second apart.
func (p place) long(t *testing.T) {
	t.Helper()
	f, err := os.Create(p.input)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range length {
		fmt.Fprintf(w, `{"click_id":"c%d","ad_id":"ad-%d","user_id":"u","ts":%q}`+"\n", i, i%5, clickTime(i).Format("2006-01-02T15:04:05.000Z"))
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func clickTime(i int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 100 * time.Millisecond)
}

// longRows is what the first n clicks of a long input amount to.
func longRows(n int) rows {
	r := rows{map[[2]string]int64{}, map[string]int64{}}
	for i := range n {
		ad := fmt.Sprintf("ad-%d", i%5)
		r.totals[ad]++
		r.minutes[[2]string{ad, clickTime(i).Truncate(time.Minute).Format(time.RFC3339)}]++
	}
	return r
}

func mustRows(t *testing.T, db string) rows {
	t.Helper()
	r, err := readRows(db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantRows(t *testing.T, db string, want rows) {
	t.Helper()
	got := mustRows(t, db)
	if n := got.differ(want); n > 0 {
		t.Fatalf("%d of %d and %d rows are wrong", n, len(got.minutes), len(got.totals))
	}
}

// lock takes SQLite's write lock, as a process may hold it that was stopped in
// a transaction, and returns how to let go.
func lock(t *testing.T, path string) (release func()) {
	t.Helper()
	release, err := tryLock(t, path, int(deadline.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func tryLock(t *testing.T, path string, ms int) (release func(), err error) {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", path, ms))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	release = sync.OnceFunc(func() {
		_, err := db.Exec("ROLLBACK")
		if err := errors.Join(err, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release, nil
}

// often makes many epochs in a life.
var often = []string{"--checkpoint-records", "1000"}

var bothSinks = []string{transactional, upsert}

func eachSink(t *testing.T, test func(t *testing.T, sink string)) {
	for _, sink := range bothSinks {
		t.Run(sink, func(t *testing.T) { test(t, sink) })
	}
}

// stop stops a process with SIGSTOP, where it doesn't hold the database's write
// lock: there nobody else could write, whatever incarnation it was.
func (p *process) stop(db string) {
	p.t.Helper()
	p.poll("a moment without the write lock", func() bool {
		p.signal(syscall.SIGSTOP)
		p.poll("a stop", p.stopped)
		release, err := tryLock(p.t, db, 0)
		if err == nil {
			release()
			return true
		}
		p.signal(syscall.SIGCONT)
		return false
	})
}

// stopped reports whether the signal has reached every thread: one that syncs a
// file is stopped only behind that, and the others go on until then.
func (p *process) stopped() bool {
	pid := fmt.Sprint(p.cmd.Process.Pid)
	threads, err := filepath.Glob(filepath.Join("/proc", pid, "task", "*", "stat"))
	if err != nil || len(threads) == 0 {
		state, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(b), ") ") // behind the name
		if err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

func TestSecondProcessIsRefused(t *testing.T) {
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		at.long(t)
		first := launch(t, at.args(sink, often...)...)
		first.until("started for the first time")
		first.signal(syscall.SIGSTOP)
		launch(t, at.args(sink)...).ends(14, "is in use", "--takeover", at.state, fmt.Sprintf("process %d", first.cmd.Process.Pid))
		first.signal(syscall.SIGCONT)
		first.ends(0, "finished")
		wantRows(t, at.db, longRows(length))
	})
}

// TestStoppedProcess fences a process that sleeps. When it wakes it must end,
// and may not have changed a row.
func TestStoppedProcess(t *testing.T) {
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		at.long(t)
		first := launch(t, at.args(sink, often...)...)
		first.entries(at.state, 5)
		first.stop(at.db)
		before := mustRows(t, at.db)
		if before.differ(longRows(length)) == 0 {
			t.Fatal("the first process had no work left")
		}
		launch(t, at.args(sink, "--takeover", "--checkpoint-interval", "50ms")...).ends(0, "finished")
		wantRows(t, at.db, longRows(length))
		watched(t, at.db)
		first.signal(syscall.SIGCONT)
		first.ends(13, "fenced by a newer start")
		wantRows(t, at.db, longRows(length))
		if n, err := rewritten(at.db, longRows(length)); err != nil || n > 0 {
			t.Errorf("the fenced process wrote %d rows again, %v", n, err)
		}
	})
}

func watched(t *testing.T, db string) {
	t.Helper()
	if err := watchWrites(db); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedWhileTheOtherWorks wakes the first process when the one that took
// over has come half-way.
func TestStoppedWhileTheOtherWorks(t *testing.T) {
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		at.long(t)
		first := launch(t, at.args(sink, often...)...)
		first.entries(at.state, 4)
		first.stop(at.db)
		second := launch(t, at.args(sink, "--takeover", "--checkpoint-interval", "50ms")...)
		second.until("restored checkpoint")
		first.signal(syscall.SIGCONT)
		first.ends(13, "fenced by a newer start")
		second.ends(0, "finished")
		wantRows(t, at.db, longRows(length))
	})
}

// TestTakeoverWaitsForTheWriteLock has somebody hold SQLite's write lock: both
// the process that works and the one that takes over wait, and say for what.
func TestTakeoverWaitsForTheWriteLock(t *testing.T) {
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		at.long(t)
		first := launch(t, at.args(sink, often...)...)
		first.entries(at.state, 4)
		release := lock(t, at.db)
		const says = "waiting: the write lock of "
		first.until(says)
		second := launch(t, at.args(sink, "--takeover")...)
		second.until(says)
		second.until("a stopped process may hold the lock")
		release()
		first.ends(13, "fenced by a newer start")
		second.ends(0, "finished")
		wantRows(t, at.db, longRows(length))
	})
}

func TestKilledAndStartedAgain(t *testing.T) {
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		at.long(t)
		for life := range 3 {
			p := launch(t, at.args(sink, often...)...)
			if life > 0 {
				p.until("restored checkpoint")
			}
			p.entries(at.state, 5*(life+1))
			p.signal(syscall.SIGKILL)
			p.ends(-1)
			if _, err := os.Stat(filepath.Join(at.state, "lock")); err != nil {
				t.Fatalf("the lock file isn't there, so the test shows nothing: %v", err)
			}
		}
		launch(t, at.args(sink)...).ends(0, "restored checkpoint", "finished")
		wantRows(t, at.db, longRows(length))
		launch(t, at.args(sink)...).ends(0, "nothing to do")
	})
}

// TestPoliteStop: the tables hold all that was read, and no window was closed,
// or the clicks after the restart would be late for it.
func TestPoliteStop(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(s.String(), func(t *testing.T) {
			eachSink(t, func(t *testing.T, sink string) {
				at := newPlace(t)
				at.long(t)
				p := launch(t, at.args(sink, append(often, "--lateness", "0")...)...)
				p.entries(at.state, 5)
				p.signal(s)
				p.ends(0, "stopping: taking a last checkpoint", "stopped: ")
				read := 0
				_, rest, _ := strings.Cut(p.said(), "stopped: ")
				if _, err := fmt.Sscan(strings.ReplaceAll(rest, ",", ""), &read); err != nil || read <= 0 || read >= length {
					t.Fatalf("%d records were read, %v, in:\n%s", read, err, p.said())
				}
				wantRows(t, at.db, longRows(read))
				launch(t, at.args(sink, "--lateness", "0")...).ends(0, "restored checkpoint", "finished", "late 0")
				wantRows(t, at.db, longRows(length))
			})
		})
	}
}

// TestSecondSignal: while somebody holds the write lock there is no last
// checkpoint, and who can't wait for it needn't.
func TestSecondSignal(t *testing.T) {
	at := newPlace(t)
	at.long(t)
	p := launch(t, at.args(transactional, often...)...)
	p.entries(at.state, 5)
	release := lock(t, at.db)
	p.until("waiting: ")
	p.signal(syscall.SIGTERM)
	p.until("stopping: taking a last checkpoint; a second signal exits at once")
	// The first may count twice if it comes at once again, so a person presses
	// until it helps.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for over, late := false, time.After(deadline); !over; {
		select {
		case <-tick.C:
			_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended just now
		case <-p.over:
			over = true
		case <-late:
			over = true // and ends says what the process said
		}
	}
	p.ends(130)
	release()
	launch(t, at.args(transactional)...).ends(0, "finished")
	wantRows(t, at.db, longRows(length))
}
