package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// made is a store on a simulated disk, written entry by entry.
type made struct {
	t    *testing.T
	disk *sim.Disk
	b    sys.Blobs
	log  *log.Log
	inc  int64
	uuid string
}

func build(t *testing.T) *made {
	t.Helper()
	m := &made{t: t, disk: sim.NewDisk()}
	files, err := sim.NewMachine(m.disk).Env().Files("state")
	if err != nil {
		t.Fatal(err)
	}
	m.b = sys.NewBlobs(files)
	if m.log, err = log.Open(m.b, "state"); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *made) append(e log.Entry) log.ID {
	m.t.Helper()
	id, err := m.log.Append(e)
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

func (m *made) start(uuid, decider string) {
	m.inc, m.uuid = m.append(log.Entry{Start: &log.Start{Job: "j", UUID: uuid, Nonce: fmt.Sprint("n", m.log.Next()), Decider: decider, At: time.Unix(1, 0),
		Graph: plan.Graph{Job: "j", KeyGroups: 4, Nodes: []plan.Node{{Op: plan.Count, ID: "count"}}}}}).Slot, uuid
}

// point appends a checkpoint whose files are named and made of what is named in
// files, and returns its id.
func (m *made) point(parent log.ID, epoch int64, files ...string) log.ID {
	m.t.Helper()
	c := &log.Manifest{Job: "j", UUID: m.uuid, Incarnation: m.inc, Epoch: epoch, Parent: parent, KeyGroups: 4, At: time.Unix(epoch, 0),
		Splits: []data.SplitState{{Source: "in", Split: "0", Records: 10 * epoch}}}
	for _, f := range files {
		name, body := "seg/"+f, append([]byte("WEIR-SEG\x01\x00\x00\x00\x00\x00\x00\x00"), f...)
		err := m.b.PutIfAbsent(name, func(w io.Writer) error { _, err := w.Write(body); return err })
		if err != nil && !strings.Contains(err.Error(), "exist") {
			m.t.Fatal(err)
		}
		sum := sha256.Sum256(body)
		c.Segments = append(c.Segments, log.Segment{Name: name, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])})
	}
	return m.append(log.Entry{Checkpoint: c})
}

func (m *made) ctx(machine *sim.Machine) context.Context {
	return sys.With(m.t.Context(), machine.Env())
}

func (m *made) open() *Store {
	m.t.Helper()
	s, err := Open(m.ctx(sim.NewMachine(m.disk)), "state", "j")
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// swept does what a start does first, and returns the segments that are left.
func (m *made) swept() []string {
	m.t.Helper()
	files, err := sim.NewMachine(m.disk).Env().Files("state")
	if err != nil {
		m.t.Fatal(err)
	}
	b := sys.NewBlobs(files)
	l, err := log.Open(b, "state")
	if err == nil {
		err = l.Sweep()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	names, err := b.List("seg/")
	if err != nil {
		m.t.Fatal(err)
	}
	return names
}

// standings are the checkpoints with how they stand and what they take.
func standings(s *Store) (out []string) {
	for _, c := range s.Checkpoints() {
		out = append(out, fmt.Sprintf("%d %s %d of %d", c.ID.Slot, c.Standing, c.New, c.Total))
	}
	return out
}

func TestStandings(t *testing.T) {
	m := build(t)
	m.start("life 1", "database")
	old := m.point(log.ID{}, 0)
	m.point(old, 1, "1-1-a-0-n")
	m.start("life 2", "database") // started over
	zero := m.point(log.ID{}, 0)
	one := m.point(zero, 1, "4-1-a-0-n")
	m.point(one, 2, "4-1-a-0-n", "4-2-a-0-n") // never committed
	m.start("life 2", "database")
	two := m.point(one, 2, "4-1-a-0-n", "8-2-a-0-n")
	want := []string{"2 given up 0 of 0", "3 given up 25 of 25", "5 committed 0 of 0", "6 committed 25 of 25", "7 abandoned 25 of 50"}
	check := func(more ...string) {
		t.Helper()
		s := m.open()
		if diff := cmp.Diff(slices.Concat(want, more), standings(s)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	check("9 undecided 25 of 50")
	m.append(log.Entry{Retire: &log.Retire{Incarnation: 8, Settled: two}})
	check("9 committed 25 of 50")
	m.start("life 2", "store")
	three := m.point(two, 3, "8-2-a-0-n")
	check("9 committed 25 of 50", fmt.Sprint(three.Slot, " committed 0 of 25"))
	m.append(log.Entry{Retire: &log.Retire{Incarnation: 11, Slots: []int64{7}, Blobs: []string{"seg/4-2-a-0-n"}}})
	want = want[:4] // what is listed is gone, whether or not its file is
	check("9 committed 25 of 50", "12 committed 0 of 25")
}

func TestFindSaysWhatIsThere(t *testing.T) {
	m := build(t)
	m.start("life", "store")
	zero := m.point(log.ID{}, 0)
	one := m.point(zero, 1)
	m.append(log.Entry{Retire: &log.Retire{Incarnation: 1, Slots: []int64{2}}})
	s := m.open()
	for slot, says := range map[int64]string{0: "ends at 4", 1: "start of an incarnation", 2: "retired", 4: "list of what was retired", 5: "ends at 4"} {
		if _, err := s.Find(slot); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "newest is 3") {
			t.Errorf("slot %d: %v, want %q", slot, err, says)
		}
	}
	if c, err := s.Find(3); err != nil || c.ID != one {
		t.Errorf("%v, %v", c.ID, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRemoveCrashes crashes a removal at each of its effects: the checkpoints are
// all there or all gone, and the next removal does the rest.
func TestRemoveCrashes(t *testing.T) {
	fresh := func() *made {
		m := build(t)
		m.start("life", "database")
		var tip log.ID
		var kept []string
		for epoch := range int64(6) {
			kept = append(kept, fmt.Sprintf("1-%d-a-0-n", epoch))
			tip = m.point(tip, epoch, append(slices.Clone(kept), fmt.Sprintf("1-%d-b-0-n", epoch))...)
		}
		return m
	}
	slots := []int64{2, 4} // part of what they name, later ones name, too
	whole := fresh()
	machine := sim.NewMachine(whole.disk)
	if r, err := Remove(whole.ctx(machine), "state", "j", slots); err != nil || !slices.Equal(r.Slots, slots) || r.Files != 2 || r.Bytes != 50 {
		t.Fatalf("%+v, %v", r, err)
	}
	all := machine.Trace()
	for k := 1; k <= len(all); k++ {
		for _, mode := range sim.Modes() {
			m := fresh()
			machine := sim.NewMachine(m.disk)
			machine.CrashAt(k, mode)
			if _, err := Remove(m.ctx(machine), "state", "j", slots); machine.Dead() && err == nil {
				t.Fatalf("crash %v effect %d: no error", mode, k)
			}
			for _, keep := range sim.Images(uint64(k)) {
				m.disk = machine.Image(keep)
				s := m.open()
				n := len(s.Checkpoints())
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if n != 6 && n != 4 {
					t.Fatalf("crash %v effect %v, image %v: %d checkpoints are left", mode, all[k-1], keep, n)
				}
				if n == 6 {
					if _, err := Remove(m.ctx(sim.NewMachine(m.disk)), "state", "j", slots); err != nil {
						t.Fatalf("crash %v effect %v, image %v, and again: %v", mode, all[k-1], keep, err)
					}
				}
				if left := m.swept(); len(left) != 10 {
					t.Fatalf("crash %v effect %v, image %v, and swept: %q", mode, all[k-1], keep, left)
				}
			}
		}
	}
	t.Logf("%d effects", len(all))
}

func TestRemoveIsRefusedWhileTheJobRuns(t *testing.T) {
	m := build(t)
	m.start("life", "store")
	m.point(m.point(m.point(log.ID{}, 0), 1), 2)
	files, err := sim.NewMachine(m.disk).Env().Files("state")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := files.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	machine := sim.NewMachine(m.disk)
	if _, err := Remove(m.ctx(machine), "state", "j", []int64{2}); !errors.Is(err, sys.ErrLocked) {
		t.Errorf("%v, want sys.ErrLocked", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Remove(m.ctx(machine), "state", "j", []int64{2}); err != nil {
		t.Error(err)
	}
	for _, slot := range []int64{3, 4} { // the newest, and its parent
		if _, err := Remove(m.ctx(machine), "state", "j", []int64{slot}); !errors.Is(err, data.ErrRefused) {
			t.Errorf("checkpoint %d: %v", slot, err)
		}
	}
}

// TestOpenLeavesNothing opens what isn't a state directory.
func TestOpenLeavesNothing(t *testing.T) {
	m := build(t)
	machine := sim.NewMachine(m.disk)
	if _, err := Open(m.ctx(machine), "none", ""); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, err := Remove(m.ctx(machine), "state", "j", []int64{1}); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	for _, e := range machine.Trace() {
		if e.Op != sim.OpSyncDir {
			t.Errorf("looking had the effect %v", e)
		}
	}
	if _, err := Open(m.ctx(machine), "state", "another"); err != nil {
		t.Errorf("an empty folder is anybody's: %v", err)
	}
	m.start("life", "store")
	if _, err := Open(m.ctx(machine), "state", "another"); !errors.Is(err, data.ErrRefused) {
		t.Errorf("%v", err)
	}
}
