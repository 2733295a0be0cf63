package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// hurried is a clock on which every wait is over at once: what was waited for is
// the time that it shows.
type hurried struct {
	mu  sync.Mutex
	now time.Time
}

func (c *hurried) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *hurried) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

// sickness is what a disk suffers from, from effect k on: once, or for a time.
type sickness struct {
	name string
	err  syscall.Errno
	hits func(sim.Effect) bool
	last time.Duration // 0: once
}

// sicknesses are of the disk of the state directory, and of the database's.
func sicknesses() []sickness {
	full := func(e sim.Effect) bool { return e.Op == sim.OpWrite || e.Op == sim.OpLink || e.Op == sim.OpMkdir }
	broken := func(e sim.Effect) bool { return e.Op != sim.OpSQL }
	unreadable := func(e sim.Effect) bool { return e.Op == sim.OpList || e.Op == sim.OpOpen || e.Op == sim.OpRead }
	database := func(e sim.Effect) bool { return e.Op == sim.OpSQL }
	return []sickness{
		{"full once", syscall.ENOSPC, full, 0},
		{"full for a while", syscall.ENOSPC, full, 100 * time.Second},
		{"broken once", syscall.EIO, broken, 0},
		{"broken for a while", syscall.EIO, broken, 100 * time.Second},
		{"unreadable once", syscall.EIO, unreadable, 0},
		{"unreadable for a while", syscall.EIO, unreadable, 100 * time.Second},
		{"database's full once", syscall.ENOSPC, database, 0},
		{"database's broken once", syscall.EIO, database, 0},
		{"database's full for a while", syscall.ENOSPC, database, 100 * time.Second},
	}
}

// TestDiskComesBack lets a disk be full or broken at each effect, once or for a
// while. The job goes on in place, by itself, in the same Run, and ends with the
// right tables; at each of its starts they agree with what it has restored.
func TestDiskComesBack(t *testing.T) {
	for n, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			trace := j.dry(t).m.Trace()
			stride := 17
			if underRace || testing.Short() {
				stride = 60
			}
			type one struct {
				sickness
				k int
			}
			var cases []one
			for i, s := range sicknesses() {
				at := 0
				for _, e := range trace {
					if s.hits(e) || s.hits(sim.Effect{Op: sim.OpRead}) {
						if at++; at%stride == (i+n)%stride {
							cases = append(cases, one{s, e.K})
						}
					}
				}
			}
			everyCase(t, len(cases), func(ctx context.Context, i int) error {
				if err := j.sick(ctx, cases[i].sickness, cases[i].k); err != nil {
					return fmt.Errorf("%s from effect %d on: %w", cases[i].name, cases[i].k, err)
				}
				return nil
			})
			t.Logf("seed %d: %d faults in %d runs", j.seed, j.counts.faults.Load(), len(cases))
			if n := int(j.counts.faults.Load()); n < len(cases)*3/4 { // not every life reads near its end
				t.Errorf("only %d of %d faults came", n, len(cases))
			}
			goleak.VerifyNone(t)
		})
	}
}

func (j *hitJob) sick(ctx context.Context, s sickness, k int) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	clock := &hurried{now: time.Unix(noon/1000, 0)}
	l := &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: j.tasks, restarts: 5, clock: clock}
	var fell atomic.Int64 // when, in ns
	reached := false      // by an effect; reading has no number
	l.m.Inject(sim.Fault{Err: s.err, Once: s.last == 0, Match: func(e sim.Effect) bool {
		if reached = reached || e.K >= k; !reached || !s.hits(e) {
			return false
		}
		fell.CompareAndSwap(0, clock.Now().UnixNano())
		return clock.Now().Sub(time.Unix(0, fell.Load())) <= s.last
	}})
	var wrong error
	starts := 0
	l.onStart = func(weir.Started) {
		starts++
		if found, err := readTables(db); err != nil {
			wrong = errors.Join(wrong, err)
		} else if err := j.agrees(l, found); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("start %d, epoch %d: %w", starts, l.started.Epoch, err))
		}
	}
	began := clock.Now()
	if err := errors.Join(j.run(ctx, l), wrong); err != nil {
		return err
	}
	if fell.Load() != 0 {
		j.counts.faults.Add(1)
	}
	if took := clock.Now().Sub(began); took > s.last+3*time.Minute {
		return fmt.Errorf("it took %v", took)
	}
	// A temporary file that couldn't be removed is, by the next start at latest.
	if err := j.again(ctx, l.m.Disk(), db); err != nil {
		return err
	}
	if err := j.tidy(l.m, starts+3); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(db))
}

// tidy checks that a life has left nothing behind on its way, and not many
// starts in its log.
func (j *hitJob) tidy(m *sim.Machine, most int) error {
	for _, name := range m.Disk().Names() {
		if strings.HasPrefix(name, "state/tmp/") {
			return fmt.Errorf("%s was left behind", name)
		}
	}
	files, err := sim.NewMachine(m.Image(sim.Killed())).Env().Files("state")
	if err != nil {
		return err
	}
	entries, err := log.Open(sys.NewBlobs(files), "state")
	if err != nil {
		return err
	}
	starts := 0
	for _, e := range entries.Entries() {
		if e.Start != nil {
			starts++
		}
	}
	if starts > most {
		return fmt.Errorf("%d starts are in the log, more than %d", starts, most)
	}
	return nil
}

// TestFullDiskIsCleared has a disk that is too small for all the checkpoints that
// may gather before some are retired, and large enough for those that are kept:
// the job deletes what it may, although an entry has to be written for it.
func TestFullDiskIsCleared(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			most := func(retain int) int {
				l := j.newLife(t)
				l.retain = retain
				peak := 0
				l.onCheck = func(weir.Checkpoint) { peak = max(peak, l.m.Disk().Used()) }
				if err := j.run(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				return peak
			}
			roomy, tight := most(100), most(1)
			all := 0
			for _, size := range []int{(roomy + tight) / 2, tight + (roomy-tight)/4} {
				l := j.newLife(t)
				l.restarts, l.retain, l.clock = 5, 4, &hurried{now: time.Unix(noon/1000, 0)}
				starts := 0
				l.onStart = func(weir.Started) { starts++ }
				l.m.Disk().SetSize(size)
				if err := j.run(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d bytes, of %d to %d that were needed: %d starts, %d bytes used", size, tight, roomy, starts, l.m.Disk().Used())
				all += starts
				if err := errors.Join(equalTables(l.db, j.final), j.tidy(l.m, starts+2)); err != nil {
					t.Errorf("a disk of %d bytes: %v", size, err)
				}
			}
			if all < 3 {
				t.Error("both disks were large enough")
			}
		})
	}
}
