package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/process"
)

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) { process.Main(m, ".", "adclicks", &binary) }

// running is a process that runs the job.
type running struct {
	*process.Process
	t *testing.T
}

func launch(t *testing.T, args ...string) *running {
	t.Helper()
	return &running{process.Launch(t, binary, args...), t}
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
	release, err := tryLock(t, path, int(process.Deadline.Milliseconds()))
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
func (p *running) stop(db string) {
	p.t.Helper()
	p.Poll("a moment without the write lock", func() bool {
		p.Signal(syscall.SIGSTOP)
		p.Poll("a stop", p.stopped)
		release, err := tryLock(p.t, db, 0)
		if err == nil {
			release()
			return true
		}
		p.Signal(syscall.SIGCONT)
		return false
	})
}

// stopped reports whether the signal has reached every thread: one that syncs a
// file is stopped only behind that, and the others go on until then.
func (p *running) stopped() bool {
	pid := fmt.Sprint(p.Pid())
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
		first.Until("started for the first time")
		first.Signal(syscall.SIGSTOP)
		launch(t, at.args(sink)...).Ends(14, "is in use", "--takeover", at.state, fmt.Sprintf("process %d", first.Pid()))
		first.Signal(syscall.SIGCONT)
		first.Ends(0, "finished")
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
		first.Entries(at.state, 5)
		first.stop(at.db)
		before := mustRows(t, at.db)
		if before.differ(longRows(length)) == 0 {
			t.Fatal("the first process had no work left")
		}
		launch(t, at.args(sink, "--takeover", "--checkpoint-interval", "50ms")...).Ends(0, "finished")
		wantRows(t, at.db, longRows(length))
		watched(t, at.db)
		first.Signal(syscall.SIGCONT)
		first.Ends(13, "fenced by a newer start")
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
		first.Entries(at.state, 4)
		first.stop(at.db)
		second := launch(t, at.args(sink, "--takeover", "--checkpoint-interval", "50ms")...)
		second.Until("restored checkpoint")
		first.Signal(syscall.SIGCONT)
		first.Ends(13, "fenced by a newer start")
		second.Ends(0, "finished")
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
		first.Entries(at.state, 4)
		release := lock(t, at.db)
		const says = "waiting: the write lock of "
		first.Until(says)
		second := launch(t, at.args(sink, "--takeover")...)
		second.Until(says)
		second.Until("a stopped process may hold the lock")
		release()
		first.Ends(13, "fenced by a newer start")
		second.Ends(0, "finished")
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
				p.Until("restored checkpoint")
			}
			p.Entries(at.state, 5*(life+1))
			p.Signal(syscall.SIGKILL)
			p.Ends(-1)
			if _, err := os.Stat(filepath.Join(at.state, "lock")); err != nil {
				t.Fatalf("the lock file isn't there, so the test shows nothing: %v", err)
			}
		}
		launch(t, at.args(sink)...).Ends(0, "restored checkpoint", "finished")
		wantRows(t, at.db, longRows(length))
		launch(t, at.args(sink)...).Ends(0, "nothing to do")
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
				p.Entries(at.state, 5)
				p.Signal(s)
				p.Ends(0, "stopping: taking a last checkpoint", "stopped: ")
				read := 0
				_, rest, _ := strings.Cut(p.Said(), "stopped: ")
				if _, err := fmt.Sscan(strings.ReplaceAll(rest, ",", ""), &read); err != nil || read <= 0 || read >= length {
					t.Fatalf("%d records were read, %v, in:\n%s", read, err, p.Said())
				}
				wantRows(t, at.db, longRows(read))
				launch(t, at.args(sink, "--lateness", "0")...).Ends(0, "restored checkpoint", "finished", "late 0")
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
	p.Entries(at.state, 5)
	release := lock(t, at.db)
	p.Until("waiting: ")
	p.Signal(syscall.SIGTERM)
	p.Until("stopping: taking a last checkpoint; a second signal exits at once")
	// The first may count twice if it comes at once again, so a person presses
	// until it helps.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for over, late := false, time.After(process.Deadline); !over; {
		select {
		case <-tick.C:
			p.Try(os.Interrupt)
		case <-p.Over():
			over = true
		case <-late:
			over = true // and ends says what the process said
		}
	}
	p.Ends(130)
	release()
	launch(t, at.args(transactional)...).Ends(0, "finished")
	wantRows(t, at.db, longRows(length))
}
