package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// everything is a process that has each kind of effect once, but for two
// writes, and goes on after errors as a dead process can't. It returns the
// errors in order, and what the database saw.
func everything(m *sim.Machine) (errs []error, database []string) {
	note := func(err error) { errs = append(errs, err) }
	env := sys.From(sys.With(context.Background(), m.Env()))
	f, err := env.Files(".")
	note(err)
	if err != nil {
		return errs, nil
	}
	_, err = f.Lock("LOCK")
	note(err)
	note(f.Mkdir("a/b"))
	x, err := f.Create("x")
	note(err)
	if err == nil {
		for range 2 {
			_, err = io.WriteString(x, "abcd")
			note(err)
		}
		note(x.Sync())
	}
	note(f.Link("x", "y"))
	note(f.Rename("y", "a/z"))
	note(f.Remove("x"))
	note(f.SyncDir("."))
	note(env.SQL("commit", func() error {
		database = append(database, "commit")
		return nil
	}))
	return errs, database
}

const lastEffect = 11

func TestTrace(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	errs, _ := everything(m)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range m.Trace() {
		got = append(got, e.String())
	}
	want := []string{"1: lock LOCK", "2: mkdir a/b", "3: create x", "4: write x", "5: write x", "6: sync x", "7: link x -> y",
		"8: rename y -> a/z", "9: remove x", "10: syncdir .", "11: sql commit"}
	if !slices.Equal(got, want) || m.Effects() != lastEffect {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestCrash crashes at each effect and says what other processes then see, and
// what is left when all that is volatile is lost.
func TestCrash(t *testing.T) {
	const full, gone = "LOCK= a/z=abcdabcd", ""
	const synced = "LOCK= y=abcdabcd" // the rename waits for a sync of folder a
	for k, c := range map[int]struct{ before, half, after, lost string }{
		1:  {"", "LOCK=", "LOCK=", gone},
		2:  {"LOCK=", "LOCK=", "LOCK=", gone},
		3:  {"LOCK=", "LOCK= x=", "LOCK= x=", gone},
		4:  {"LOCK= x=", "LOCK= x=ab", "LOCK= x=abcd", gone},
		5:  {"LOCK= x=abcd", "LOCK= x=abcdab", "LOCK= x=abcdabcd", gone},
		6:  {"LOCK= x=abcdabcd", "LOCK= x=abcdabcd", "LOCK= x=abcdabcd", gone},
		7:  {"LOCK= x=abcdabcd", "LOCK= x=abcdabcd y=abcdabcd", "LOCK= x=abcdabcd y=abcdabcd", gone},
		8:  {"LOCK= x=abcdabcd y=abcdabcd", "LOCK= a/z=abcdabcd x=abcdabcd", "LOCK= a/z=abcdabcd x=abcdabcd", gone},
		9:  {"LOCK= a/z=abcdabcd x=abcdabcd", full, full, gone},
		10: {full, full, full, gone},
		11: {full, full, full, synced},
	} {
		for mode, want := range map[sim.Mode]string{sim.Before: c.before, sim.Half: c.half, sim.After: c.after} {
			t.Run(fmt.Sprintf("%v %d", mode, k), func(t *testing.T) {
				m := sim.NewMachine(sim.NewDisk())
				m.CrashAt(k, mode)
				errs, database := everything(m)
				if !m.Dead() || m.Effects() != k {
					t.Fatalf("dead: %t, after %d effects", m.Dead(), m.Effects())
				}
				<-m.Crashed()
				alive := true
				for i, err := range errs[1:] {
					alive = alive && i+1 < k
					if alive && err != nil || !alive && !errors.Is(err, sim.ErrCrashed) {
						t.Errorf("call %d: got error %v", i+1, err)
					}
				}
				if done := len(database) == 1; done != (k == lastEffect && mode != sim.Before) {
					t.Errorf("the database saw %q", database)
				}
				if got := shows(t, m.Disk()); got != want {
					t.Errorf("the disk shows %q, want %q", got, want)
				}
				lost := c.lost
				if k == 10 && mode == sim.After {
					lost = synced
				} else if k == 10 && mode == sim.Half {
					lost = "LOCK=" // the older half of five changes
				}
				if got := shows(t, m.Image(sim.Lost())); got != lost {
					t.Errorf("with all lost the disk shows %q, want %q", got, lost)
				}
			})
		}
	}
}

func TestDeadProcess(t *testing.T) {
	disk := sim.NewDisk()
	m := sim.NewMachine(disk)
	f := open(t, m, ".")
	x, err := f.Create("x")
	must(t, err)
	l, err := f.Lock("LOCK")
	must(t, err)
	effects := m.Effects()
	m.Crash()
	m.Crash()
	<-m.Crashed()
	_, openErr := f.Open("x")
	_, listErr := f.List(".")
	_, lockErr := f.Lock("LOCK")
	_, filesErr := m.Env().Files(".")
	_, createErr := f.Create("y")
	_, writeErr := x.Write([]byte("x"))
	_, readErr := x.Read(make([]byte, 1))
	_, readAtErr := x.ReadAt(make([]byte, 1), 0)
	_, sizeErr := x.Size()
	sqlErr := m.Env().SQL("q", func() error {
		t.Error("a dead process reached the database")
		return nil
	})
	for what, err := range map[string]error{"open": openErr, "list": listErr, "lock": lockErr, "files": filesErr, "create": createErr,
		"write": writeErr, "read": readErr, "read at": readAtErr, "size": sizeErr, "sql": sqlErr, "sync": x.Sync(), "link": f.Link("x", "y"),
		"rename": f.Rename("x", "y"), "remove": f.Remove("x"), "mkdir": f.Mkdir("d"), "syncdir": f.SyncDir("."),
		"close file": x.Close(), "unlock": l.Close(), "close": f.Close()} {
		if !errors.Is(err, sim.ErrCrashed) {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	if got := shows(t, disk); got != "LOCK= x=" || m.Effects() != effects {
		t.Errorf("the disk shows %q after %d effects, want %d", got, m.Effects(), effects)
	}
	// Another process on the disk gets the lock that died with the first.
	if _, err := open(t, sim.NewMachine(disk), ".").Lock("LOCK"); err != nil {
		t.Error(err)
	}
}

func TestTwoProcesses(t *testing.T) {
	disk := sim.NewDisk()
	one, two := sim.NewMachine(disk), sim.NewMachine(disk)
	f, g := open(t, one, "state"), open(t, two, "state")
	play(t, f, "create x\nwrite x 1")
	play(t, g, "!create x\ncreate y\nwrite y 2")
	held, err := f.Lock("LOCK")
	must(t, err)
	if _, err := g.Lock("LOCK"); !errors.Is(err, sys.ErrLocked) {
		t.Errorf("got error %v", err)
	}
	one.CrashIf(func(e sim.Effect) bool { return e.Op == sim.OpRemove }, sim.Before)
	if err := f.Remove("y"); !errors.Is(err, sim.ErrCrashed) {
		t.Errorf("got error %v", err)
	}
	l, err := g.Lock("LOCK")
	must(t, err)
	if err := held.Close(); !errors.Is(err, sim.ErrCrashed) {
		t.Errorf("got error %v", err)
	}
	if _, err := open(t, sim.NewMachine(disk), "state").Lock("LOCK"); !errors.Is(err, sys.ErrLocked) {
		t.Errorf("the dead process gave up a lock that isn't its own: got error %v", err)
	}
	must(t, l.Close())
	if got, want := shows(t, disk), "state/LOCK= state/x=1 state/y=2"; got != want {
		t.Errorf("the disk shows %q, want %q", got, want)
	}
}

func TestFaults(t *testing.T) {
	for k := 1; k <= lastEffect; k++ {
		for _, done := range []bool{false, true} {
			m := sim.NewMachine(sim.NewDisk())
			m.Inject(sim.Fault{Match: func(e sim.Effect) bool { return e.K == k }, Err: syscall.EIO, Done: done})
			errs, database := everything(m)
			first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
			if first != k || !errors.Is(errs[first], syscall.EIO) {
				t.Errorf("effect %d fails: call %d is the first to fail, errors %v", k, first, errs)
			}
			for _, e := range m.Trace()[k-1 : k] {
				if msg := errs[first].Error(); !strings.Contains(msg, string(e.Op)) || !strings.Contains(msg, e.Name) {
					t.Errorf("effect %v fails: error %q doesn't say so", e, msg)
				}
			}
			if k == lastEffect && (len(database) == 1) != done {
				t.Errorf("done: %t; the database saw %q", done, database)
			}
		}
	}
}

func TestWriteThatFails(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	f := open(t, m, ".")
	x, err := f.Create("x")
	must(t, err)
	full := func(e sim.Effect) bool { return e.Op == sim.OpWrite }
	m.FailIf(full, syscall.ENOSPC)
	for range 2 {
		n, err := io.WriteString(x, "abcd")
		if n != 2 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("wrote %d bytes, error %v", n, err)
		}
	}
	m.Heal()
	m.Inject(sim.Fault{Match: full, Err: syscall.EINTR, Once: true, Done: true})
	if n, err := io.WriteString(x, "ef"); n != 2 || !errors.Is(err, syscall.EINTR) {
		t.Errorf("wrote %d bytes, error %v", n, err)
	}
	if n, err := io.WriteString(x, "gh"); n != 2 || err != nil {
		t.Errorf("wrote %d bytes, error %v", n, err)
	}
	if got, want := shows(t, m.Disk()), "x=ababefgh"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSQLErrors(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	own := errors.New("busy")
	if err := m.Env().SQL("begin", func() error { return own }); err != own {
		t.Errorf("the database's own error became %v", err)
	}
	// The process dies while the database works: the answer is lost.
	err := m.Env().SQL("commit", func() error {
		m.Crash()
		return nil
	})
	if !errors.Is(err, sim.ErrCrashed) {
		t.Errorf("got error %v", err)
	}
}

// TestCrashAmongGoroutines has many goroutines at work when the process dies:
// nothing is done behind its last effect.
func TestCrashAmongGoroutines(t *testing.T) {
	for _, mode := range sim.Modes() {
		m := sim.NewMachine(sim.NewDisk())
		f := open(t, m, ".")
		const k = 50
		m.CrashAt(k, mode)
		var all sync.WaitGroup
		for g := range 4 {
			all.Go(func() {
				for i := 0; ; i++ {
					err := errors.Join(f.Mkdir(fmt.Sprintf("%d-%d", g, i)), m.Env().SQL("q", func() error { return nil }))
					if errors.Is(err, sim.ErrCrashed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		<-m.Crashed()
		made := 0
		for _, e := range m.Trace() {
			if e.Op == sim.OpMkdir && (e.K < k || mode != sim.Before) {
				made++
			}
		}
		names, err := open(t, sim.NewMachine(m.Disk()), ".").List(".")
		if len(names) != made || err != nil || m.Effects() != k {
			t.Errorf("%v: %d folders after %d effects, %d were made, error %v", mode, len(names), m.Effects(), made, err)
		}
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	_, err := open(t, m, "state").Open("no")
	var p *fs.PathError
	if !errors.As(err, &p) || p.Path != "state/no" || p.Op != "open" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

// TestFullDisk has a disk of a size: what doesn't fit is written by half, and
// deleting makes room.
func TestFullDisk(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	files, err := m.Env().Files("d")
	if err != nil {
		t.Fatal(err)
	}
	m.Disk().SetSize(100)
	write := func(name string, n int) error {
		f, err := files.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(make([]byte, n))
		return errors.Join(err, f.Close())
	}
	if err := write("a", 60); err != nil {
		t.Fatal(err)
	}
	if err := files.Link("a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := write("c", 50); !errors.Is(err, syscall.ENOSPC) || m.Disk().Used() != 85 {
		t.Errorf("50 bytes behind 60 of 100: %v, %d used", err, m.Disk().Used())
	}
	for _, name := range []string{"a", "b"} {
		if err := files.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := write("e", 75); err != nil || m.Disk().Used() != 100 {
		t.Errorf("75 bytes behind 25 of 100: %v, %d used", err, m.Disk().Used())
	}
}

// TestUnreadable has reads that fail, which aren't effects.
func TestUnreadable(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	files, err := m.Env().Files("d")
	if err != nil {
		t.Fatal(err)
	}
	before := m.Effects()
	m.Inject(sim.Fault{Match: func(e sim.Effect) bool { return e.Op == sim.OpList && e.K == 0 && e.Name == "d" }, Err: syscall.EIO, Once: true})
	if _, err := files.List("."); !errors.Is(err, syscall.EIO) {
		t.Errorf("the list failed with %v", err)
	}
	if _, err := files.List("."); err != nil || m.Effects() != before {
		t.Errorf("then with %v, after %d effects", err, m.Effects()-before)
	}
}
