package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// TestCrashInRollback crashes a rollback at each of its effects. Whatever that
// leaves, the job goes on from the checkpoint where it stood or from the one that
// has the old one's content, as a whole, and ends with the right tables.
func TestCrashInRollback(t *testing.T) {
	for _, j := range hitJobs(t) {
		if j.tasks != 2 || j.merge {
			continue // a rollback reads no record: they differ in nothing that it does
		}
		t.Run(j.name, func(t *testing.T) {
			r := j.rolledBack(t)
			stride := 1
			if underRace || testing.Short() {
				stride = 7
			}
			n := len(r.blows) / stride
			for i := range n { // one after the other: a database is known by its place, too
				if err := r.crash(t.Context(), r.blows[i*stride]); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("seed %d: %d places, %d crashes, %d images; %d went on from the old content", j.seed, len(r.blows),
				j.counts.crashes.Load(), j.counts.images.Load(), j.counts.recoveries.Load())
			back, images := j.counts.recoveries.Load(), j.counts.images.Load()
			if got := int(j.counts.crashes.Load()); got < n*9/10 || back == 0 || back == images {
				t.Errorf("%d of %d crashes, %d of %d images went on from the old content", got, n, back, images)
			}
			goleak.VerifyNone(t)
		})
	}
}

// rollback is a job that was stopped, and is to go back.
type rollback struct {
	*hitJob
	life            *life
	database        saved
	current, target weir.StoredCheckpoint
	blows           []blow
}

// rolledBack stops a life and rolls it back without a crash, for its effects.
func (j *hitJob) rolledBack(t *testing.T) *rollback {
	t.Helper()
	r := &rollback{hitJob: j, life: j.newLife(t)}
	j.stop(t, r.life, 4)
	var err error
	if r.database, err = saveDatabase(r.life.db); err != nil {
		t.Fatal(err)
	}
	m := sim.NewMachine(r.life.m.Image(sim.Killed()))
	all, err := weir.ReadCheckpoints(sys.With(t.Context(), m.Env()), "state")
	if err != nil || len(all) < 2 {
		t.Fatalf("%d checkpoints, %v", len(all), err)
	}
	if n := m.Effects(); n > 2 { // a listing syncs its folder, and that is all
		t.Errorf("looking at checkpoints had %d effects: %v", n, m.Trace())
	}
	r.current, r.target = all[len(all)-1], all[0]
	id, err := r.goBack(t.Context(), m, r.life.db)
	if err != nil {
		t.Fatal(err)
	}
	if id.Slot <= r.current.ID.Slot {
		t.Errorf("the rollback made checkpoint %d behind %d", id.Slot, r.current.ID.Slot)
	}
	r.blows = blows(m.Trace())
	went, err := r.goOn(t.Context(), m.Image(sim.Lost()), r.life.db)
	if err != nil || !went {
		t.Fatalf("after the rollback: went on from the old content: %t, %v", went, err)
	}
	return r
}

func (r *rollback) goBack(ctx context.Context, m *sim.Machine, db string) (weir.CheckpointID, error) {
	return r.declare(db).Rollback(sys.With(ctx, m.Env()), weir.Rollback{To: r.target.ID.Slot}, weir.StateDir("state"))
}

// goOn runs the job to its end, and says whether it began from the old content.
func (r *rollback) goOn(ctx context.Context, disk *sim.Disk, db string) (back bool, err error) {
	l := &life{m: sim.NewMachine(disk), db: db, tasks: r.later}
	if err := r.run(ctx, l); err != nil {
		return false, fmt.Errorf("the run after it: %w", err)
	}
	from := r.current
	if back = l.started.Checkpoint != r.current.ID; back {
		from = r.target
	}
	if diff := cmp.Diff(from.Positions, l.started.Positions); diff != "" || l.started.Keys != from.Keys {
		return back, fmt.Errorf("went on from %v with %d entries, and checkpoint %v has %d (-want +got):\n%s",
			l.started.Checkpoint, l.started.Keys, from.ID, from.Keys, diff)
	}
	if err := equalTables(db, r.final); err != nil {
		return back, err
	}
	return back, r.again(ctx, disk, db)
}

func (r *rollback) crash(ctx context.Context, b blow) error {
	db := r.life.db
	if err := r.database.restore(db); err != nil {
		return err
	}
	m := sim.NewMachine(r.life.m.Image(sim.Killed()))
	b.hit(m)
	_, err := r.goBack(ctx, m, db)
	switch {
	case !m.Dead():
		return err
	case err == nil:
		return fmt.Errorf("%v: the rollback ended without an error", b)
	case !errors.Is(err, sim.ErrCrashed):
		return fmt.Errorf("%v: the rollback ended with another error: %w", b, err)
	}
	r.counts.crashes.Add(1)
	left, err := saveDatabase(db)
	if err != nil {
		return err
	}
	images := sim.Images(r.seed + uint64(b.k))
	if b.k%16 != 0 {
		at := (b.k*2 + int(b.mode)) % len(images)
		images = images[at : at+1]
	}
	for _, keep := range images {
		if err := left.restore(db); err != nil {
			return err
		}
		r.counts.images.Add(1)
		back, err := r.goOn(ctx, m.Image(keep), db)
		if err != nil {
			return fmt.Errorf("crash %v effect %v, image %v: %w", b.mode, m.Trace()[len(m.Trace())-1], keep, err)
		}
		if back {
			r.counts.recoveries.Add(1)
		}
	}
	return nil
}
