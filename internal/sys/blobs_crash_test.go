package sys_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// object is one put of the scenario that is crashed, in the order of the puts.
// The second takes more than one write.
type object struct {
	name    string
	content []byte
}

func objects() []object {
	random := func(n int) []byte {
		b, rng := make([]byte, n), rand.New(rand.NewPCG(1, 2))
		for i := range b {
			b[i] = byte(rng.IntN(255) + 1) // no zeros, which a torn write leaves
		}
		return b
	}
	return []object{{"log/1", random(20)}, {"seg/deep/1", random(70 << 10)}, {"log/2", random(3000)}}
}

// putAll is a process that puts every object which isn't there yet. It returns
// which of them it relies on from now on, and its first error.
func putAll(m *sim.Machine, all []object) (relies []object, err error) {
	f, err := m.Env().Files("state")
	if err != nil {
		return nil, err
	}
	if err := sys.CleanTemp(f); err != nil {
		return nil, err
	}
	b := sys.NewBlobs(f)
	for _, o := range all {
		if err := b.PutIfAbsent(o.name, bytesOf(o.content)); err != nil && !errors.Is(err, fs.ErrExist) {
			return relies, err
		}
		relies = append(relies, o)
	}
	return relies, nil
}

// checkObjects says what is wrong on a disk: an object that is there in part,
// or one that isn't there although somebody relies on it.
func checkObjects(d *sim.Disk, all, relies []object) error {
	for _, o := range all {
		got, err := d.ReadAll("state/" + o.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(got, o.content) {
			return fmt.Errorf("%s is there with %d bytes that aren't the %d put", o.name, len(got), len(o.content))
		}
	}
	for _, o := range relies {
		if _, err := d.ReadAll("state/" + o.name); err != nil {
			return fmt.Errorf("it was put for good: %w", err)
		}
	}
	return nil
}

// restart checks an image, and that the next process can rely on what it lists
// there, and can put the rest.
func restart(image *sim.Disk, all, relies []object) error {
	if err := checkObjects(image, all, relies); err != nil {
		return err
	}
	m := sim.NewMachine(image)
	f, err := m.Env().Files("state")
	if err != nil {
		return err
	}
	listed := ""
	for _, prefix := range []string{"log/", "seg/deep/"} {
		names, err := sys.NewBlobs(f).List(prefix)
		if err != nil {
			return err
		}
		listed += strings.Join(names, " ") + " "
	}
	relies = nil
	for _, o := range all {
		if strings.Contains(listed, o.name+" ") {
			relies = append(relies, o)
		}
	}
	if err := checkObjects(m.Image(sim.Lost()), all, relies); err != nil {
		return fmt.Errorf("listed %q, then all unsynced was lost: %w", listed, err)
	}
	if _, err := putAll(m, all); err != nil {
		return fmt.Errorf("put again: %w", err)
	}
	if err := checkObjects(m.Image(sim.Lost()), all, all); err != nil {
		return fmt.Errorf("put again, then all unsynced was lost: %w", err)
	}
	return nil
}

// seeds are those of the random images, each of another mixture.
func seeds(n uint64) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}

// crashEverywhere runs a process on copies of a disk, crashes it at each effect
// in each mode, and calls check with what it relied on by then.
func crashEverywhere(disk *sim.Disk, all []object, check func(m *sim.Machine, at string, relies []object)) int {
	for k := 1; ; k++ {
		for _, mode := range sim.Modes() {
			m := sim.NewMachine(disk.Image(sim.Killed()))
			m.CrashAt(k, mode)
			relies, err := putAll(m, all)
			if !m.Dead() {
				return k - 1
			}
			trace := m.Trace()
			at := fmt.Sprintf("crash %v %v", mode, trace[len(trace)-1])
			if err != nil && !errors.Is(err, sim.ErrCrashed) {
				at += fmt.Sprintf(" (which ended with %v)", err)
			}
			check(m, at, relies)
		}
	}
}

func TestPutIfAbsentCrashes(t *testing.T) {
	all := objects()
	n := crashEverywhere(sim.NewDisk(), all, func(m *sim.Machine, at string, relies []object) {
		for _, keep := range sim.Images(seeds(30)...) {
			if err := restart(m.Image(keep), all, relies); err != nil {
				t.Errorf("%s, image %v: %v", at, keep, err)
			}
		}
	})
	if n < 25 {
		t.Errorf("only %d effects: the scenario doesn't reach its end", n)
	}
}

// TestPutIfAbsentCrashesTwice kills the process, which loses nothing but makes
// nothing durable either, and loses power in the next one.
func TestPutIfAbsentCrashesTwice(t *testing.T) {
	all := objects()
	crashEverywhere(sim.NewDisk(), all, func(m *sim.Machine, first string, relied []object) {
		crashEverywhere(m.Image(sim.Killed()), all, func(m *sim.Machine, second string, relies []object) {
			relies = append(relies, relied...)
			for _, keep := range []sim.Keep{sim.Lost(), sim.Zeros(), sim.Random(uint64(m.Effects()))} {
				if err := checkObjects(m.Image(keep), all, relies); err != nil {
					t.Errorf("%s, killed, then %s, image %v: %v", first, second, keep, err)
				}
			}
		})
	})
}

func TestPutIfAbsentFaults(t *testing.T) {
	all := objects()
	for _, c := range []struct {
		name        string
		err         error
		done, stays bool
	}{
		{"full disk", syscall.ENOSPC, false, false},
		{"I/O error", syscall.EIO, false, false},
		{"answer lost", syscall.EIO, true, false},
		{"read-only from then on", syscall.EROFS, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k := 1; ; k++ {
				m := sim.NewMachine(sim.NewDisk())
				m.Inject(sim.Fault{Match: func(e sim.Effect) bool { return e.K == k || c.stays && e.K > k }, Err: c.err, Done: c.done, Once: !c.stays})
				relies, err := putAll(m, all)
				trace := m.Trace()
				if len(trace) < k {
					break
				}
				hit := trace[k-1]
				// A temporary file that stays is no reason to fail.
				temp := hit.Op == sim.OpRemove && (!c.stays || k == len(trace))
				if !temp && !errors.Is(err, c.err) {
					t.Errorf("%v fails: the process got error %v", hit, err)
				}
				for _, keep := range append(sim.Images(seeds(6)...), sim.Killed()) {
					if err := restart(m.Image(keep), all, relies); err != nil {
						t.Errorf("%v fails, image %v: %v", hit, keep, err)
					}
				}
				// The same process goes on, once the disk works again.
				m.Heal()
				if _, err := putAll(m, all); err != nil {
					t.Errorf("%v fails, then the disk is healed: %v", hit, err)
				}
				if err := checkObjects(m.Image(sim.Lost()), all, all); err != nil {
					t.Errorf("%v fails, then the disk is healed: %v", hit, err)
				}
			}
		})
	}
}

// TestZombiePutsNothingHalf lets a process clean up after one that it takes
// for dead but that works on, and be half-way through a put of its own when the
// other one links.
func TestZombiePutsNothingHalf(t *testing.T) {
	disk := sim.NewDisk()
	open := func() (sys.Files, sys.Blobs) {
		f, err := sim.NewMachine(disk).Env().Files("state")
		must(t, err)
		return f, sys.NewBlobs(f)
	}
	_, zombie := open()
	files, b := open()
	half, linked, done := make(chan bool), make(chan bool), make(chan error)
	err := zombie.PutIfAbsent("log/1", func(io.Writer) error {
		must(t, sys.CleanTemp(files))
		go func() {
			done <- b.PutIfAbsent("log/2", func(w io.Writer) error {
				_, err := w.Write(make([]byte, 100<<10))
				close(half)
				<-linked
				return errors.Join(err, bytesOf(make([]byte, 10))(w))
			})
		}()
		<-half
		return nil
	})
	close(linked)
	must(t, <-done)
	wants(t, "the zombie's put", err, fs.ErrNotExist, "log/1")
	lists(t, files, "log", "2")
	if got, err := b.Get("log/2"); err != nil || len(got) != 100<<10+10 {
		t.Errorf("the other put has %d bytes, error %v", len(got), err)
	}
}

// TestLinkedObjectStays fails the sync behind the link: somebody may have read
// the object by then, so it must stay as it is.
func TestLinkedObjectStays(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	f, err := m.Env().Files("state")
	must(t, err)
	b := sys.NewBlobs(f)
	must(t, b.PutIfAbsent("log/1", bytesOf(nil)))
	m.FailIf(func(e sim.Effect) bool { return e.Op == sim.OpSyncDir }, syscall.EIO)
	wants(t, "put", b.PutIfAbsent("log/2", bytesOf([]byte("x"))), syscall.EIO, "state/log")
	lists(t, f, "log", "1", "2")
	// What is there can't be vouched for as long as the folder can't be synced.
	wants(t, "put again", b.PutIfAbsent("log/2", bytesOf([]byte("x"))), syscall.EIO, "state/log")
	_, err = b.List("log/")
	wants(t, "list", err, syscall.EIO, "state/log")
	lists(t, f, "log", "1", "2")
}

func TestDeleteIsDurable(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	f, err := m.Env().Files("state")
	must(t, err)
	b := sys.NewBlobs(f)
	must(t, b.PutIfAbsent("log/1", bytesOf(nil)))
	must(t, b.PutIfAbsent("log/2", bytesOf(nil)))
	must(t, b.Delete("log/1"))
	must(t, f.Remove("log/2")) // as a process does that is killed before it syncs
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{{"deleted", func() error { return nil }, "state/log/2"}, {"deleted again", func() error { return b.Delete("log/2") }, ""}} {
		must(t, c.do())
		if got := strings.Join(m.Image(sim.Lost()).Names(), " "); got != c.want {
			t.Errorf("%s, then all unsynced was lost: got %q, want %q", c.what, got, c.want)
		}
	}
}
