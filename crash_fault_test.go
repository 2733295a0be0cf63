package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
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
				stride := 2
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

// TestCorruptState damages a file of the state directory: the next run is
// refused, says which file it is and what to do, and leaves the tables alone.
func TestCorruptState(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			l := j.stopped(t, 6, nil)
			needed := j.needed(t, l)
			rng := j.rng(3)
			var cases []damage
			for i, file := range needed {
				if (underRace || testing.Short()) && i%3 != 0 {
					continue
				}
				bytes, err := l.m.Disk().ReadAll(file)
				if err != nil {
					t.Fatal(err)
				}
				bits := len(bytes) * 8
				for _, bit := range []int{0, 8*8 + 1, bits / 2, bits - 1, rng.IntN(bits), rng.IntN(bits), rng.IntN(bits)} {
					cases = append(cases, damage{file, fmt.Sprintf("bit %d flipped", bit), func(d *sim.Disk) error { return d.Flip(file, bit) }})
				}
				for _, n := range []int{0, 1, len(bytes) / 2, len(bytes) - 1} {
					cases = append(cases, damage{file, fmt.Sprintf("cut to %d of %d bytes", n, len(bytes)), func(d *sim.Disk) error { return d.Truncate(file, n) }})
				}
				cases = append(cases, damage{file, "removed", func(d *sim.Disk) error { return d.Remove(file) }})
			}
			database, err := saveDatabase(l.db)
			if err != nil {
				t.Fatal(err)
			}
			everyCase(t, len(cases), func(ctx context.Context, i int) error {
				db, err := j.place()
				if err != nil {
					return err
				}
				return errors.Join(j.damaged(ctx, l, database, db, cases[i]), os.RemoveAll(filepath.Dir(db)))
			})
			t.Logf("seed %d: %d files damaged in %d ways", j.seed, len(needed), j.counts.spoiled.Load())
			goleak.VerifyNone(t)
		})
	}
}

// damage is done to a file of a state directory.
type damage struct {
	file, how string
	do        func(*sim.Disk) error
}

// stopped runs a life that is stopped politely behind epoch n. at sees each
// checkpoint.
func (j *hitJob) stopped(t *testing.T, n int64, at func(*life, weir.Checkpoint)) *life {
	t.Helper()
	db, err := j.place()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: j.tasks}
	l.onCheck = func(c weir.Checkpoint) {
		if at != nil {
			at(l, c)
		}
		if c.Epoch == n {
			stop()
		}
	}
	if err := j.run(ctx, l); err != nil {
		t.Fatal(err)
	}
	if c := l.checkpoints[len(l.checkpoints)-1]; c.Finished || c.Epoch < n {
		t.Fatalf("stopped behind epoch %d, finished: %v", c.Epoch, c.Finished)
	}
	return l
}

// needed lists the files that a start from the newest checkpoint reads: all of
// the log, and the segments that hold its state.
func (j *hitJob) needed(t *testing.T, l *life) []string {
	t.Helper()
	files, err := sim.NewMachine(l.m.Image(sim.Killed())).Env().Files("state")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := log.Open(sys.NewBlobs(files), "state")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]bool{}
	for _, e := range entries.Entries() {
		if e.Checkpoint == nil {
			continue
		}
		clear(parts)
		for _, s := range e.Checkpoint.Steps {
			for _, p := range s.Parts {
				parts[path.Join("state", p.Segment)] = true
			}
		}
	}
	var out []string
	for _, name := range l.m.Disk().Names() {
		if parts[name] || strings.HasPrefix(name, "state/log/") {
			out = append(out, name)
			delete(parts, name)
		}
	}
	if len(parts) > 0 || len(out) < 8 {
		t.Fatalf("segments %v aren't there; files needed: %q", parts, out)
	}
	return out
}

func (j *hitJob) damaged(ctx context.Context, l *life, database saved, db string, d damage) error {
	// The path of a database is part of its sinks' names, so the job's own is
	// taken by all of these lives in turn.
	return nil
}

// unchanged runs a job that is to be refused, and compares the tables.
func (j *hitJob) unchanged(ctx context.Context, disk *sim.Disk, db string) (refusal error, err error) {
	before, err := readTables(db)
	if err != nil {
		return nil, err
	}
	refusal = j.run(ctx, &life{m: sim.NewMachine(disk), db: db, tasks: j.later})
	after, err := readTables(db)
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("the tables were changed (-before +after):\n%s", cmp.Diff(before, after))
	}
	return refusal, err
}
