package weir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirstream/weir/internal/sim"
)

// TestCrashAnywhere crashes whole lives of jobs at each of their effects,
// before it, half-way and after it: genesis, the first checkpoint, the steady
// state, retention and the end of the input. Each crash leaves disks of many
// kinds behind, and on each the job must go on, at another parallelism, as if
// nothing had happened.
func TestCrashAnywhere(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			whole := j.dry(t)
			k := whole.m.Effects()
			t.Logf("seed %d: %d effects, %d checkpoints: %s", j.seed, k, len(whole.checkpoints), histogram(whole.m.Trace()))
			stride := 1
			if underRace || testing.Short() {
				stride = 11
			}
			modes := sim.Modes()
			everyCase(t, k*len(modes)/stride, func(ctx context.Context, i int) error {
				i *= stride
				return j.crashAndSurvive(ctx, 1+i/len(modes), modes[i%len(modes)])
			})
			t.Logf("%d crashes, %d images", j.counts.crashes.Load(), j.counts.images.Load())
			if n := int(j.counts.crashes.Load()); n < k*len(modes)/stride*9/10 {
				t.Errorf("only %d of %d crashes happened", n, k*len(modes)/stride)
			}
			goleak.VerifyNone(t)
		})
	}
}

// crashAndSurvive crashes at effect k and lets the job finish on images of
// that. Every twelfth k gets all images, the others one of them in turn.
func (j *hitJob) crashAndSurvive(ctx context.Context, k int, mode sim.Mode) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	s, ok, err := j.crash(ctx, sim.NewDisk(), db, j.tasks, k, mode)
	if err != nil || !ok {
		return err
	}
	database, err := saveDatabase(db)
	if err != nil {
		return err
	}
	seed := j.seed + uint64(k)
	images := sim.Images(seed, seed+1_000_000)
	all := k%12 == 0
	if !all {
		at := (k*2 + int(mode)) % len(images)
		images = images[at : at+1]
	}
	for i, keep := range images {
		if err := j.survive(ctx, s, database, keep, all && i < 2); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Dir(db))
}

// TestCrashInRecovery crashes a life, and then crashes what recovers from it,
// at each effect before its first record and at some after it.
func TestCrashInRecovery(t *testing.T) {
	for _, j := range hitJobs(t) {
		t.Run(j.name, func(t *testing.T) {
			k := j.dry(t).m.Effects()
			lives := 10
			if underRace || testing.Short() {
				lives = 3
			}
			rng := j.rng(2)
			var cases []recovery
			for i := range lives { // one from each part of a life
				cases = append(cases, recovery{1 + k*i/lives + rng.IntN(k/lives), sim.Modes()[rng.IntN(3)], rng.Uint64()})
			}
			everyCase(t, len(cases), func(ctx context.Context, i int) error { return j.crashRecovery(ctx, cases[i]) })
			t.Logf("seed %d: %d lives of %d effects, %d crashes, of which %d in a recovery; %d images", j.seed, lives, k,
				j.counts.crashes.Load(), j.counts.recoveries.Load(), j.counts.images.Load())
			if n := j.counts.recoveries.Load(); n < int64(5*lives) {
				t.Errorf("only %d crashes in a recovery", n)
			}
			goleak.VerifyNone(t)
		})
	}
}

// recovery is a crash whose recovery is crashed in turn.
type recovery struct {
	k    int
	mode sim.Mode
	seed uint64
}

func (j *hitJob) crashRecovery(ctx context.Context, r recovery) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	s, ok, err := j.crash(ctx, sim.NewDisk(), db, j.tasks, r.k, r.mode)
	if err != nil || !ok {
		return err
	}
	images := sim.Images(r.seed)
	keep := images[r.seed%uint64(len(images))]
	database, err := saveDatabase(db)
	if err != nil {
		return err
	}
	l, err := j.finish(ctx, s.m.Image(keep), db)
	if err != nil {
		return fmt.Errorf("%v, image %v: %w", s, keep, err)
	}
	for n := 1; n <= l.effects+8; n++ {
		if (underRace || testing.Short()) && n%3 != 0 {
			continue
		}
		if err := database.restore(db); err != nil {
			return err
		}
		second, ok, err := j.crash(ctx, s.m.Image(keep), db, j.later, n, sim.Mode((uint64(n)+r.seed)%3))
		var left saved
		if err == nil {
			left, err = saveDatabase(db)
		}
		if err == nil && ok {
			j.counts.recoveries.Add(1)
			err = j.survive(ctx, second, left, images[(uint64(n)*5+r.seed)%uint64(len(images))], false)
		}
		if err != nil {
			return fmt.Errorf("%v, image %v, then in the recovery: %w", s, keep, err)
		}
	}
	return os.RemoveAll(filepath.Dir(db))
}
