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
			all := blows(whole.m.Trace())
			n := len(all) / stride
			everyCase(t, n, func(ctx context.Context, i int) error { return j.crashAndSurvive(ctx, all[i*stride]) })
			t.Logf("%d crashes, %d images", j.counts.crashes.Load(), j.counts.images.Load())
			if got := int(j.counts.crashes.Load()); got < n*9/10 {
				t.Errorf("only %d of %d crashes happened", got, n)
			}
			goleak.VerifyNone(t)
		})
	}
}

// crashAndSurvive crashes a life and lets the job finish on images of that. A
// few crashes get all images, the others one of them in turn.
func (j *hitJob) crashAndSurvive(ctx context.Context, b blow) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	s, ok, err := j.crash(ctx, sim.NewDisk(), db, j.tasks, b)
	if err != nil || !ok {
		return err
	}
	database, err := saveDatabase(db)
	if err != nil {
		return err
	}
	seed := j.seed + uint64(b.k)
	images := sim.Images(seed, seed+1_000_000)
	all := b.k%16 == 0
	if !all {
		at := (b.k*2 + int(b.mode)) % len(images)
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
			all := blows(j.dry(t).m.Trace())
			k := len(all)
			lives := 4
			if underRace || testing.Short() {
				lives = 2
			}
			rng := j.rng(2)
			var cases []recovery
			for i := range lives { // one from each part of a life
				cases = append(cases, recovery{all[k*i/lives+rng.IntN(k/lives)], rng.Uint64()})
			}
			everyCase(t, len(cases), func(ctx context.Context, i int) error { return j.crashRecovery(ctx, cases[i]) })
			t.Logf("seed %d: %d lives, each ended by one of %d crashes, %d crashes, of which %d in a recovery; %d images", j.seed, lives, k,
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
	blow
	seed uint64
}

func (j *hitJob) crashRecovery(ctx context.Context, r recovery) error {
	db, err := j.place()
	if err != nil {
		return err
	}
	s, ok, err := j.crash(ctx, sim.NewDisk(), db, j.tasks, r.blow)
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
	// Each effect of the recovery, before, half-way and after it, and some after it.
	trace := l.m.Trace()
	all := blows(trace[:min(l.effects+6, len(trace))])
	for n := range all {
		if (underRace || testing.Short()) && n%4 != 0 {
			continue
		}
		if err := database.restore(db); err != nil {
			return err
		}
		second, ok, err := j.crash(ctx, s.m.Image(keep), db, j.later, all[n])
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
