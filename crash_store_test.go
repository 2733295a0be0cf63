package weir_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// TestCorruptState damages a file of the state directory: the next run is
// refused, says which file it is and what to do, and leaves the tables alone.
func TestCorruptState(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			l := j.newLife(t)
			j.stop(t, l, 4)
			needed, note := j.needed(t, l)
			rng := j.rng(3)
			var cases []damage
			for i, file := range needed {
				if i%3 != 0 && (underRace || testing.Short() || !strings.HasPrefix(file, "state/log/")) {
					continue
				}
				bytes, err := l.m.Disk().ReadAll(file)
				if err != nil {
					t.Fatal(err)
				}
				bits := len(bytes) * 8
				for _, bit := range []int{0, 65, bits / 2, bits - 1, rng.IntN(bits), rng.IntN(bits), rng.IntN(bits)} {
					cases = append(cases, damage{file, bit >= 8*headBytes, fmt.Sprintf("bit %d flipped", bit), func(d *sim.Disk) error { return d.Flip(file, bit) }})
				}
				for _, n := range []int{0, 1, len(bytes) / 2, len(bytes) - 1} {
					cases = append(cases, damage{file, false, fmt.Sprintf("cut to %d of %d bytes", n, len(bytes)), func(d *sim.Disk) error { return d.Truncate(file, n) }})
				}
				if file != note {
					cases = append(cases, damage{file, false, "removed", func(d *sim.Disk) error { return d.Remove(file) }})
				}
			}
			database, err := saveDatabase(l.db)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range cases {
				if err := j.damaged(t.Context(), l, database, d, needed); err != nil {
					t.Errorf("%s %s: %v", d.file, d.how, err)
				}
			}
			t.Logf("seed %d: %d files, %d of %d kinds of damage refused", j.seed, len(needed), j.counts.spoiled.Load(), len(cases))
			goleak.VerifyNone(t)
		})
	}
}

// headBytes is where checksums, and not the header, tell that a file is damaged.
const headBytes = 32

// damage is done to a file of a state directory.
type damage struct {
	file string
	sum  bool // only a checksum can tell
	how  string
	do   func(*sim.Disk) error
}

func (j *hitJob) newLife(t *testing.T) *life {
	t.Helper()
	db, err := j.place()
	if err != nil {
		t.Fatal(err)
	}
	return &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: j.tasks}
}

// stop runs a life that is stopped politely behind epoch n.
func (j *hitJob) stop(t *testing.T, l *life, n int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l.onCheck = func(c weir.Checkpoint) {
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
}

// needed lists the files that a start from the newest checkpoint reads: all of
// the log, and the segments that hold its state. note is the log's last entry if
// it only says that all is settled: nobody misses it.
func (j *hitJob) needed(t *testing.T, l *life) (out []string, note string) {
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
		if note = ""; e.Retire != nil && e.Retire.IsZero() {
			note = path.Join("state", log.SlotName(e.Slot))
		}
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
	for _, name := range l.m.Disk().Names() {
		if parts[name] || strings.HasPrefix(name, "state/log/") {
			out = append(out, name)
			delete(parts, name)
		}
	}
	if len(parts) > 0 || len(out) < 8 {
		t.Fatalf("segments %v aren't there; files needed: %q", parts, out)
	}
	return out, note
}

// damaged runs the job on a damaged copy of what a life left.
func (j *hitJob) damaged(ctx context.Context, l *life, database saved, d damage, needed []string) error {
	disk := l.m.Image(sim.Killed())
	if err := errors.Join(d.do(disk), database.restore(l.db)); err != nil {
		return err
	}
	refusal, err := j.unchanged(ctx, disk, l.db)
	if err != nil {
		return err
	}
	if last := lastEntry(needed); d.how == "removed" && d.file == last && errors.Is(refusal, weir.ErrRefused) {
		// As if it had never been there: only the ledger knows of it.
		j.counts.spoiled.Add(1)
		return says(refusal, "ledger", "names")
	}
	if !errors.Is(refusal, weir.ErrCorrupt) {
		return fmt.Errorf("the run ended with %v", refusal)
	}
	j.counts.spoiled.Add(1)
	file := d.file
	if d.how == "removed" && strings.HasPrefix(file, "state/log/") {
		file = "state/log/" // without a retire entry, what it lists is missed
	}
	words := []string{file, "expected", "found", "state directory"}
	if d.sum {
		words = append(words, "SHA-256")
	}
	return says(refusal, words...)
}

func lastEntry(files []string) (last string) {
	for _, f := range files {
		if strings.HasPrefix(f, "state/log/") {
			last = f
		}
	}
	return last
}

// says looks for words in an error.
func says(err error, words ...string) error {
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("the error doesn't say %q: %w", w, err)
		}
	}
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

// TestWrongStore brings together state directories and databases that don't
// belong together, because one of them is an older copy, another one, or gone.
// Both from one backup do.
func TestWrongStore(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			l := j.newLife(t)
			j.stop(t, l, 1)
			oldState, oldTables := l.m.Image(sim.Killed()), j.save(t, l)
			l.m = sim.NewMachine(l.m.Disk())
			j.stop(t, l, 4)
			state, tables := l.m.Disk(), j.save(t, l)
			for _, c := range []struct {
				name     string
				disk     *sim.Disk
				database saved
				says     []string
			}{
				{"older state", oldState, tables, []string{"ledger", "names", "--start-over"}},
				{"older tables", state, oldTables, []string{"ledger", "names", "--start-over"}},
				{"no state", sim.NewDisk(), tables, []string{"hits"}},
				{"no tables", state, saved{}, []string{"ledger", "--start-over"}},
			} {
				if err := c.database.restore(l.db); err != nil {
					t.Fatal(err)
				}
				refusal, err := j.unchanged(t.Context(), c.disk.Image(sim.Killed()), l.db)
				if err == nil {
					err = says(refusal, c.says...)
				}
				if err != nil || !errors.Is(refusal, weir.ErrRefused) {
					t.Errorf("%s: the run ended with %v: %v", c.name, refusal, err)
				}
			}
			if err := oldTables.restore(l.db); err != nil {
				t.Fatal(err)
			}
			if _, err := j.finish(t.Context(), oldState.Image(sim.Killed()), l.db); err != nil {
				t.Errorf("both from one backup: %v", err)
			}
		})
	}
}

func (j *hitJob) save(t *testing.T, l *life) saved {
	t.Helper()
	s, err := saveDatabase(l.db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
