package sys_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// TestProbeLeavesNothing: a disk is tried as it is used, whatever comes of it.
func TestProbeLeavesNothing(t *testing.T) {
	m := sim.NewMachine(sim.NewDisk())
	files, err := m.Env().Files("d")
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.ProbeStore(files, 100_000); err != nil {
		t.Fatal(err)
	}
	var ops []sim.Op
	for _, e := range m.Trace() {
		ops = append(ops, e.Op)
	}
	for _, op := range []sim.Op{sim.OpWrite, sim.OpSync, sim.OpLink, sim.OpSyncDir, sim.OpRemove} {
		if !slices.Contains(ops, op) {
			t.Errorf("a probe without %s", op)
		}
	}
	m.Disk().SetSize(50_000)
	if err := sys.ProbeStore(files, 100_000); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("100,000 bytes on a disk of 50,000: %v", err)
	}
	if err := sys.ProbeStore(files, 40_000); err != nil {
		t.Errorf("40,000 bytes on a disk of 50,000: %v", err)
	}
	for _, op := range []sim.Op{sim.OpSync, sim.OpLink} {
		m.Inject(sim.Fault{Match: func(e sim.Effect) bool { return e.Op == op }, Err: syscall.EIO, Once: true})
		if err := sys.ProbeStore(files, 40_000); !errors.Is(err, syscall.EIO) {
			t.Errorf("a %s that fails: %v", op, err)
		}
	}
	if used := m.Disk().Used(); used != 0 {
		t.Errorf("%d bytes are left: %q", used, m.Disk().Names())
	}
	m.CrashIf(func(e sim.Effect) bool { return e.Op == sim.OpLink }, sim.After)
	if err := sys.ProbeStore(files, 40_000); !errors.Is(err, sim.ErrCrashed) {
		t.Errorf("a crash: %v", err)
	}
	again := sim.NewMachine(m.Image(sim.Killed()))
	if files, err = again.Env().Files("d"); err != nil {
		t.Fatal(err)
	}
	if err := sys.ProbeStore(files, 40_000); err != nil || again.Disk().Used() != 0 {
		t.Errorf("after a crash: %v, %d bytes left", err, again.Disk().Used())
	}
}
