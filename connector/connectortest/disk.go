package connectortest

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim"
)

// simDir is where the targets lie on a simulated disk.
const simDir = "/sim/out"

func newDiskWorld(s SinkUnderTest) *world {
	w := newWorldIn(s, simDir)
	w.follows = true
	return w
}

// on starts a process on a disk, in a world that goes its own way.
func (w *world) on(disk *sim.Disk) (*world, *sim.Machine) {
	m := sim.NewMachine(disk)
	return w.clone(m.Env()), m
}

// diskEpochs is how much of the scenario is played on simulated disks: one epoch
// of two tasks, one of one, and an empty one.
const diskEpochs = 3

// run lives to the end of it.
func (w *world) run(t *testing.T) error { return w.live(w.context(t.Context()), diskEpochs) }

// testDisk crashes at each effect on a disk, takes some of the images that this
// may leave, each kind in its turn, and goes on from there: once without and
// once with another crash. The store's log is durable as soon as something is
// entered.
func testDisk(t *testing.T, s SinkUnderTest) {
	if !s.Files {
		t.Log("SinkUnderTest.Files is false: nothing to test")
		return
	}
	t.Run("from nothing", func(t *testing.T) {
		crashEverywhere(t, func() (*world, *sim.Disk) { return newDiskWorld(s), sim.NewDisk() })
	})
	t.Run("behind", func(t *testing.T) {
		crashEverywhere(t, func() (*world, *sim.Disk) { return behind(t, s) })
	})
}

func crashEverywhere(t *testing.T, base func() (*world, *sim.Disk)) {
	points := 0
	for k := 1; ; k++ {
		for _, mode := range sim.Modes() {
			w, disk := base()
			w, m := w.on(disk)
			m.CrashAt(k, mode)
			err := w.run(t)
			if !m.Dead() {
				must(t, err)
				t.Logf("%d crash points", points)
				return
			}
			points++
			trace := m.Trace()
			where := fmt.Sprintf("crash %v effect %v", mode, trace[len(trace)-1])
			if err != nil && !errors.Is(err, sim.ErrCrashed) {
				t.Fatalf("%s: %v", where, err)
			}
			images := sim.Images(uint64(4*k), uint64(4*k+1), uint64(4*k+2), uint64(4*k+3))
			for i, keep := range images {
				turn := (k + int(mode) + i) % len(images)
				if turn > 3 {
					continue // another crash nearby has its turn
				}
				where := fmt.Sprintf("%s, %v", where, keep)
				disk := m.Image(keep)
				if turn == 0 {
					crashAgain(t, w, disk.Image(sim.Killed()), k, where)
				}
				recoverOn(t, w, disk, where)
			}
		}
	}
}

// crashAgain crashes also the next life after a crash.
func crashAgain(t *testing.T, w *world, disk *sim.Disk, k int, where string) {
	t.Helper()
	next, m := w.on(disk)
	m.CrashAt(1+k*7%29, sim.Modes()[k%3])
	if err := next.run(t); err != nil && !errors.Is(err, sim.ErrCrashed) {
		t.Fatalf("%s, the next life: %v", where, err)
	}
	if trace := m.Trace(); m.Dead() {
		where = fmt.Sprintf("%s, then at effect %v", where, trace[len(trace)-1])
	}
	for _, keep := range []sim.Keep{sim.Killed(), sim.Lost(), sim.Random(uint64(k))} {
		recoverOn(t, next, m.Image(keep), fmt.Sprintf("%s, %v", where, keep))
	}
}

// recoverOn goes on after a crash: what was decided is there at once, and the
// rest in the end.
func recoverOn(t *testing.T, w *world, disk *sim.Disk, where string) {
	t.Helper()
	w, _ = w.on(disk)
	ctx := w.context(t.Context())
	l, epoch, err := w.begin(ctx)
	if err != nil {
		t.Fatalf("%s: recover: %v", where, err)
	}
	w.check(t, int(epoch))
	for n := epoch + 1; n <= diskEpochs; n++ {
		if err := l.epoch(ctx, n); err != nil {
			t.Fatalf("%s: epoch %d: %v", where, n, err)
		}
	}
	must(t, l.close())
	w.check(t, diskEpochs)
	if t.Failed() {
		t.Fatal(where)
	}
}

// testFull lets each effect fail, with and without being done, once and until
// somebody makes room. Nothing is lost and nothing is there twice.
func testFull(t *testing.T, s SinkUnderTest) {
	if !s.Files {
		t.Log("SinkUnderTest.Files is false: nothing to test")
		return
	}
	for _, fault := range []struct {
		name string
		sim.Fault
	}{
		{"once", sim.Fault{Once: true}},
		{"once, but done", sim.Fault{Once: true, Done: true}},
		{"from then on", sim.Fault{}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			for k := 1; ; k++ {
				w, m := newDiskWorld(s).on(sim.NewDisk())
				hit := false
				f := fault.Fault
				f.Err = syscall.ENOSPC
				f.Match = func(e sim.Effect) bool {
					match := e.K == k || e.K > k && !f.Once && (e.Op == sim.OpCreate || e.Op == sim.OpWrite || e.Op == sim.OpMkdir)
					hit = hit || match
					return match
				}
				m.Inject(f)
				first := w.run(t)
				second := w.run(t) // in the same process, as a job restarts in place
				if !hit {
					must(t, first)
					t.Logf("%d effects", k-1)
					return
				}
				where := fmt.Sprintf("effect %v fails", m.Trace()[k-1])
				for _, err := range []error{first, second} {
					if err != nil && !errors.Is(err, syscall.ENOSPC) {
						t.Fatalf("%s: %v", where, err)
					}
				}
				m.Heal()
				if err := w.run(t); err != nil {
					t.Fatalf("%s, and then there is room: %v", where, err)
				}
				w.check(t, diskEpochs)
				after, _ := w.on(m.Image(sim.Lost()))
				after.check(t, diskEpochs)
				if t.Failed() {
					t.Fatal(where)
				}
			}
		})
	}
}
