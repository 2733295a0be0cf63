package weir_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/window"
)

// A hitJob is a job whose whole lives are crashed: two branches behind one
// Distinct, into two tables of one database. Its state directory is on a
// simulated disk, its database is a real file, the calls to which are numbered
// among the effects of the machine.
type hitJob struct {
	name   string
	eager  bool    // the store decides; otherwise the database does
	pair   bool    // the totals are in a database of their own, which follows
	splits [][]hit // the input
	tasks  int     // of the life that is crashed
	merge  bool    // chains are merged in the background as soon as they can be
	later  int     // of the lives after it
	seed   uint64  // of the input and of what is sampled
	dir    string  // for databases
	final  map[string]int64
	counts *tally
}

// tally is what was tried.
type tally struct{ crashes, images, recoveries, faults, spoiled atomic.Int64 }

const (
	hitEvery  = 10 // records of a split between two barriers
	hitRetain = 2
)

func hitJobs(t *testing.T) []*hitJob {
	t.Helper()
	const seed = 20260301
	// Many short lives make garbage and keep nothing.
	percent := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	jobs := []*hitJob{
		{name: "transactional/1 task", splits: hits(seed, 1, 80), tasks: 1, later: 2},
		{name: "transactional/2 tasks", splits: hits(seed+1, 2, 60), tasks: 2, later: 3},
		{name: "eager/1 task", eager: true, splits: hits(seed+2, 1, 80), tasks: 1, later: 3},
		{name: "eager/2 tasks", eager: true, splits: hits(seed+3, 2, 60), tasks: 2, later: 1},
		{name: "pair/2 tasks", pair: true, splits: hits(seed+5, 1, 80), tasks: 2, later: 1},
		{name: "merging/2 tasks", merge: true, splits: hits(seed+4, 1, 80), tasks: 2, later: 1},
	}
	for i, j := range jobs {
		j.seed, j.dir, j.counts = seed+uint64(i), t.TempDir(), &tally{}
		j.final = oracle(j.splits, whole(j.splits))
	}
	return jobs
}

type hitMinuteRow struct {
	Ad     string `db:"ad_id"`
	Minute string `db:"minute"`
	Clicks int64  `db:"clicks"`
}

type hitTotalRow struct {
	Ad     string `db:"ad_id"`
	Clicks int64  `db:"clicks"`
}

func (j *hitJob) declare(db string) *weir.Job {
	minutes := sqlite.Upsert[hitMinuteRow](db, "ad_minute", "ad_id", "minute")
	totals := sqlite.Upsert[hitTotalRow](db, "ad_total", "ad_id")
	emission, emit := window.EachBarrier, []weir.EmitOption{weir.EachBarrier()}
	if j.eager {
		minutes, totals = minutes.Eager(), totals.Eager()
		emission, emit = window.EachRecord, nil
	}
	job := weir.NewJob("hits")
	ads := job.From("hits", weir.Slices(j.splits...),
		weir.EventTime(func(h hit) time.Time { return time.UnixMilli(h.At) }, hitDisorder*time.Millisecond)).
		KeyBy(func(h hit) string { return h.ID }).
		Distinct("seen", hitTTL*time.Millisecond, weir.Admit(hitAdmit*time.Millisecond)).
		KeyBy(func(h hit) string { return h.Ad })
	ads.Window(window.Tumbling(hitMinute*time.Millisecond, window.Lateness(hitLateness*time.Millisecond), emission)).
		Count("per-minute").
		Map(func(r weir.Result[string, int64]) hitMinuteRow {
			return hitMinuteRow{r.Key, r.Start.Format(time.RFC3339), r.Value}
		}).
		To("ad-minute", minutes)
	if j.pair {
		ads.Count("per-ad", emit...).Map(wide).To("ad-total", sqlite.Upsert[hitWideRow](other(db), "ad_total", "ad_id"))
		return job
	}
	ads.Count("per-ad", emit...).
		Map(func(p weir.Pair[string, int64]) hitTotalRow { return hitTotalRow{p.Key, p.Value} }).
		To("ad-total", totals)
	return job
}

// A life is one run of a job on a machine.
type life struct {
	m           *sim.Machine
	db          string
	tasks       int
	started     *weir.Started    // nil: it didn't get to its first record
	effects     int              // until then
	begun       map[string]int64 // of a pair: the tables then
	beginErr    error
	checkpoints []weir.Checkpoint
	onCheck     func(weir.Checkpoint) // may be nil
	restarts    int                   // in place; 0: a run ends with its first error
	retain      int                   // 0: hitRetain
	clock       sys.Clock             // nil: the wall clock
	onStart     func(weir.Started)    // may be nil
}

// run runs the job to its end, and returns with nothing of it left running.
func (j *hitJob) run(ctx context.Context, l *life) error {
	limits := epoch.Limits{}
	if j.merge {
		limits = epoch.Limits{Slack: 1, Parts: 2}
	}
	env := l.m.Env()
	if l.clock != nil {
		env.Clock = l.clock
	}
	return j.declare(l.db).Run(sys.With(ctx, env), weir.ChainLimits(limits), weir.StateDir("state"), weir.EveryRecords(hitEvery),
		weir.Retain(cmp.Or(l.retain, hitRetain)), weir.Restarts(l.restarts),
		weir.Parallelism(l.tasks), weir.OnStart(func(s weir.Started) {
			l.started, l.effects = &s, l.m.Effects()
			if j.pair {
				l.begun, l.beginErr = readTables(l.db)
			}
			if l.onStart != nil {
				l.onStart(s)
			}
		}), weir.OnCheckpoint(func(c weir.Checkpoint) {
			l.checkpoints = append(l.checkpoints, c)
			if l.onCheck != nil {
				l.onCheck(c)
			}
		}))
}

// finish runs the job on what a crash or a fault has left, and checks it: what
// it restores agrees with the tables as they were found, and the tables in the
// end are those of an undisturbed life.
func (j *hitJob) finish(ctx context.Context, disk *sim.Disk, db string) (*life, error) {
	found, err := readTables(db)
	if err != nil {
		return nil, err
	}
	l := &life{m: sim.NewMachine(disk), db: db, tasks: j.later}
	if err := j.run(ctx, l); err != nil {
		return l, fmt.Errorf("the run after it: %w", err)
	}
	if err := j.agrees(l, found); err != nil {
		return l, fmt.Errorf("restored epoch %d: %w", l.started.Epoch, err)
	}
	return l, equalTables(db, j.final)
}

// agrees compares the tables that a life has found with the positions that it
// has restored.
func (j *hitJob) agrees(l *life, found map[string]int64) error {
	upTo, err := reached(j.splits, l.started.Positions)
	if err != nil {
		return err
	}
	committed := oracle(j.splits, upTo)
	switch {
	case !l.started.Restored && slices.Max(upTo) > 0:
		return fmt.Errorf("a first start at %v", upTo)
	case j.eager:
		return between(found, committed, j.final)
	case j.pair:
		return errors.Join(l.beginErr, follows(found, l.begun, committed))
	case !maps.Equal(found, committed):
		return fmt.Errorf("positions are %v, and the tables aren't (-want +got):\n%s", upTo, gocmp.Diff(committed, found))
	}
	return nil
}

// again runs a finished job once more: it has nothing to do.
func (j *hitJob) again(ctx context.Context, disk *sim.Disk, db string) error {
	l := &life{m: sim.NewMachine(disk), db: db, tasks: j.tasks}
	if err := j.run(ctx, l); err != nil {
		return fmt.Errorf("a finished job, run again: %w", err)
	}
	if len(l.checkpoints) > 0 || l.started == nil || !l.started.Restored {
		return fmt.Errorf("a finished job, run again, started with %+v and took %d checkpoints", l.started, len(l.checkpoints))
	}
	return equalTables(db, j.final)
}

// A scar is a life that ended in a crash, with what it left behind.
type scar struct {
	*life
	mode sim.Mode
}

func (s scar) String() string {
	trace := s.m.Trace()
	return fmt.Sprintf("crash %v effect %v", s.mode, trace[len(trace)-1])
}

// A blow says where a life crashes: at the k-th effect, or at the k-th of those
// that can be done by half.
type blow struct {
	k    int
	mode sim.Mode
}

// blows lists all for a life like the one given.
func blows(trace []sim.Effect) (all []blow) {
	half := 0
	for _, e := range trace {
		all = append(all, blow{e.K, sim.Before}, blow{e.K, sim.After})
		if halves(e) {
			half++
			all = append(all, blow{half, sim.Half})
		}
	}
	return all
}

// halves says whether half an effect is something else than all of it.
func halves(e sim.Effect) bool {
	return e.Op == sim.OpWrite || e.Op == sim.OpSync || e.Op == sim.OpSyncDir || e.Op == sim.OpMkdir
}

func (b blow) hit(m *sim.Machine) {
	n := 0
	m.CrashIf(func(e sim.Effect) bool {
		if b.mode != sim.Half || halves(e) {
			n++
		}
		return n == b.k
	}, b.mode)
}

// crash runs a life that ends by a blow, on a disk and a database that another
// may have left. ok is false if it ended before: how many effects there are
// depends on how goroutines interleave.
func (j *hitJob) crash(ctx context.Context, disk *sim.Disk, db string, tasks int, b blow) (s scar, ok bool, err error) {
	s = scar{&life{m: sim.NewMachine(disk), db: db, tasks: tasks}, b.mode}
	b.hit(s.m)
	err = j.run(ctx, s.life)
	switch {
	case !s.m.Dead():
		if err == nil {
			err = equalTables(db, j.final)
		}
		return s, false, err
	case err == nil:
		return s, false, fmt.Errorf("%v: the run ended without an error", s)
	case !errors.Is(err, sim.ErrCrashed):
		return s, false, fmt.Errorf("%v: the run ended with another error: %w", s, err)
	}
	j.counts.crashes.Add(1)
	return s, true, nil
}

// survive takes an image of what a crash left, and lets the job finish on it.
func (j *hitJob) survive(ctx context.Context, s scar, database saved, keep sim.Keep, again bool) error {
	err := database.restore(s.db)
	if err == nil {
		j.counts.images.Add(1)
		disk := s.m.Image(keep)
		if _, err = j.finish(ctx, disk, s.db); err == nil && again {
			err = j.again(ctx, disk, s.db)
		}
	}
	if err != nil {
		return fmt.Errorf("%v, image %v: %w", s, keep, err)
	}
	return nil
}

// place returns where a new database can be.
func (j *hitJob) place() (string, error) {
	dir, err := os.MkdirTemp(j.dir, "db")
	return filepath.Join(dir, "out.db"), err
}

// dry runs a life without a fault, and returns it.
func (j *hitJob) dry(t *testing.T) *life {
	t.Helper()
	db, err := j.place()
	if err != nil {
		t.Fatal(err)
	}
	l := &life{m: sim.NewMachine(sim.NewDisk()), db: db, tasks: j.tasks}
	if err := j.run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if err := equalTables(db, j.final); err != nil {
		t.Fatal(err)
	}
	return l
}

// everyCase calls do for 0 to n-1, a few at a time, and reports the first errors.
func everyCase(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() < 5; i = int(next.Add(1)) - 1 {
				if err := do(t.Context(), i); err != nil {
					failed.Add(1)
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// histogram counts effects by their kind, SQL calls by their name too.
func histogram(trace []sim.Effect) string {
	n := map[string]int{}
	for _, e := range trace {
		op := string(e.Op)
		if e.Op == sim.OpSQL {
			op = e.Name
		}
		n[op]++
	}
	var out []string
	for _, op := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s %d", op, n[op]))
	}
	return strings.Join(out, ", ")
}

// rng returns a generator for one purpose, the same each time.
func (j *hitJob) rng(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(j.seed, purpose)) }
