package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirstream/weir/internal/sim"
)

// TestDiskFaults lets a disk get full, fail to sync or become read-only, at
// each effect of its kind, and then stay so. The run must end with an error
// that names the fault and the file. On the healed disk, with or without a
// power loss in between, the job must go on from its last good checkpoint.
func TestDiskFaults(t *testing.T) {
	faults := []struct {
		err  syscall.Errno
		hits func(sim.Effect) bool
		says string
	}{
		{syscall.ENOSPC, func(e sim.Effect) bool { return e.Op == sim.OpWrite }, "make room"},
		{syscall.EIO, func(e sim.Effect) bool { return e.Op == sim.OpSync || e.Op == sim.OpSyncDir }, "check the disk"},
		{syscall.EROFS, func(e sim.Effect) bool { return e.Op != sim.OpSQL }, "make it writable"},
	}
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			trace := j.dry(t).m.Trace()
			var cases []fault
			for i, f := range faults {
				n := 0
				stride := 3
				if underRace || testing.Short() {
					stride = 10
				}
				if f.err == syscall.EROFS {
					stride *= 5
				}
				for _, e := range trace {
					if f.hits(e) {
						if n++; n%stride == i%stride {
							cases = append(cases, fault{k: e.K, err: f.err, hits: f.hits, says: f.says})
						}
					}
				}
			}
			everyCase(t, len(cases), func(ctx context.Context, i int) error { return j.fail(ctx, cases[i], i) })
			t.Logf("seed %d: %d faults, %d images", j.seed, j.counts.faults.Load(), j.counts.images.Load())
			if n := int(j.counts.faults.Load()); n < len(cases)*9/10 {
				t.Errorf("only %d of %d faults came", n, len(cases))
			}
			goleak.VerifyNone(t)
		})
	}
}

// fault is what effects of some kind get from effect k on.
type fault struct {
	k    int
	err  syscall.Errno
	hits func(sim.Effect) bool
	says string // in the error: what to do
}

func (j *hitJob) fail(ctx context.Context, f fault, n int) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	l := &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: j.tasks}
	var failed []string // files at which calls failed
	l.m.FailIf(func(e sim.Effect) bool {
		if e.K < f.k || !f.hits(e) {
			return false
		}
		failed = append(failed, e.String())
		return true
	}, f.err)
	ran := j.run(ctx, l)
	l.m.Heal()
	if len(failed) == 0 {
		return ran // the life was shorter this time
	}
	what := fmt.Sprintf("%v from effect %d on (%s)", f.err, f.k, failed[0])
	if err := f.told(ran, failed, l.started != nil); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	j.counts.faults.Add(1)
	database, err := saveDatabase(db)
	if err != nil {
		return err
	}
	for _, keep := range []sim.Keep{sim.Killed(), sim.Images(uint64(n))[1+n%5]} {
		err := database.restore(db)
		if err == nil {
			j.counts.images.Add(1)
			_, err = j.finish(ctx, l.m.Image(keep), db)
		}
		if err != nil {
			return fmt.Errorf("%s, then healed, image %v: %w", what, keep, err)
		}
	}
	return os.RemoveAll(filepath.Dir(db))
}

// told says what is wrong with the error that a run on a broken disk returned.
func (f fault) told(err error, failed []string, began bool) error {
	if !errors.Is(err, f.err) {
		return fmt.Errorf("the run ended with %v", err)
	}
	named := false
	for _, e := range failed {
		named = named || strings.Contains(err.Error(), e[strings.LastIndexAny(e, " /")+1:])
	}
	if !named {
		return fmt.Errorf("the error names none of %q: %w", failed, err)
	}
	if began && !strings.Contains(err.Error(), f.says) {
		return fmt.Errorf("the error doesn't say %q: %w", f.says, err)
	}
	return nil
}
