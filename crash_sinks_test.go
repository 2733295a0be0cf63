package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// A sinkShift is a job that copies records and whose sinks are changed after it
// has been stopped politely, in the middle of its input.
type sinkShift struct {
	name          string
	before, after func(job *weir.Stream[tick], db string)
	old, now      string // renamed
	drop          []string
	// What each table has in the end: of all records, "all", "before" or
	// "behind" the stop.
	tables map[string]string
}

// tick is a record that is a row as it is.
type tick struct {
	N int64 `db:"n"`
}

const ticks = 70

func ticksTo(job *weir.Stream[tick], id, db, table string, eager bool) {
	s := sqlite.Upsert[tick](db, table, "n")
	if eager {
		s = s.Eager()
	}
	job.To(id, s)
}

func sinkShifts() []sinkShift {
	to := func(id, place, table string) func(*weir.Stream[tick], string) {
		return func(job *weir.Stream[tick], db string) { ticksTo(job, id, db+place, table, false) }
	}
	eager := func(id, place, table string) func(*weir.Stream[tick], string) {
		return func(job *weir.Stream[tick], db string) { ticksTo(job, id, db+place, table, true) }
	}
	both := func(sinks ...func(*weir.Stream[tick], string)) func(*weir.Stream[tick], string) {
		return func(job *weir.Stream[tick], db string) {
			for _, s := range sinks {
				s(job, db)
			}
		}
	}
	x, y := to("x", "", "xs"), to("y", "2", "ys")
	return []sinkShift{
		{name: "a follower is added", before: x, after: both(x, y), tables: map[string]string{"xs": "all", "2ys": "behind"}},
		{name: "a decider is added", before: x, after: both(y, x), tables: map[string]string{"xs": "all", "2ys": "behind"}},
		{name: "a table is added", before: x, after: both(x, to("y", "", "ys")), tables: map[string]string{"xs": "all", "ys": "behind"}},
		{name: "an eager one is added", before: x, after: both(x, eager("y", "2", "ys")), tables: map[string]string{"xs": "all", "2ys": "behind"}},
		{name: "the decider's is renamed", before: both(x, y), after: both(to("z", "", "xs"), y), old: "x", now: "z", tables: map[string]string{"xs": "all", "2ys": "all"}},
		{name: "the follower's is renamed", before: both(x, y), after: both(x, to("z", "2", "ys")), old: "y", now: "z", tables: map[string]string{"xs": "all", "2ys": "all"}},
		{name: "the follower is given up", before: both(x, y), after: x, drop: []string{"y"}, tables: map[string]string{"xs": "all", "2ys": "before"}},
		{name: "the decider is given up", before: both(x, y), after: y, drop: []string{"x"}, tables: map[string]string{"xs": "before", "2ys": "all"}},
		{name: "it is moved to another database", before: x, after: y, drop: []string{"x"}, tables: map[string]string{"xs": "before", "2ys": "behind"}},
	}
}

// TestCrashWhileSinksChange crashes the first life of a changed job at every
// effect before its first record, and at some behind it.
func TestCrashWhileSinksChange(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	for _, c := range sinkShifts() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			db := filepath.Join(dir, "out.db")
			first := sim.NewMachine(sim.NewDisk())
			stopped := c.stop(t, first, db)
			left, err := saveDatabase(db)
			if err != nil {
				t.Fatal(err)
			}
			whole, started := sim.NewMachine(first.Image(sim.Killed())), 0
			start := weir.OnStart(func(weir.Started) { started = whole.Effects() })
			if err := c.finish(t.Context(), whole, db, stopped, start); err != nil {
				t.Fatal(err)
			}
			all := c.blows(whole.Effects(), started)
			crashes := 0
			for i, b := range all {
				k, mode := b.k, b.mode
				if err := left.restore(db); err != nil {
					t.Fatal(err)
				}
				m := sim.NewMachine(first.Image(sim.Killed()))
				m.CrashIf(func(e sim.Effect) bool { return e.K == k }, mode)
				switch err := c.run(t.Context(), m, db, c.after, true); {
				case !m.Dead():
					continue // there were fewer effects this time
				case !errors.Is(err, sim.ErrCrashed):
					t.Fatalf("crash %v effect %d: the run ended with %v", mode, k, err)
				}
				crashes++
				images := sim.Images(uint64(k))
				keep := images[i%len(images)]
				if err := c.finish(t.Context(), sim.NewMachine(m.Image(keep)), db, stopped); err != nil {
					trace := m.Trace()
					t.Fatalf("crash %v effect %v, image %v: %v", mode, trace[len(trace)-1], keep, err)
				}
			}
			t.Logf("%d crashes", crashes)
			if crashes < len(all)*8/10 {
				t.Errorf("only %d of %d crashes happened", crashes, len(all))
			}
		})
	}
}

// blows lists where the changed life is crashed. Behind its first record nothing
// is special about it.
func (c sinkShift) blows(effects, started int) (all []blow) {
	stride := 1
	if underRace || testing.Short() {
		stride = 5
	}
	for k := 1; k <= effects; k += stride {
		if k > started {
			stride = 9
		}
		all = append(all, blow{k, sim.Before}, blow{k, sim.After})
	}
	return all
}

// run runs the job on a machine.
func (c sinkShift) run(ctx context.Context, m *sim.Machine, db string, sinks func(*weir.Stream[tick], string), changed bool, opts ...weir.RunOption) error {
	in := make([]tick, ticks)
	for i := range in {
		in[i].N = int64(i)
	}
	job := weir.NewJob("shift")
	sinks(job.From("in", weir.Slices(in)).Map(func(t tick) tick { return t }), db)
	if changed {
		opts = append(opts, weir.Drop(c.drop...))
		if c.old != "" {
			job.Renamed(c.old, c.now)
		}
	}
	opts = append(opts, weir.StateDir("state"), weir.EveryRecords(10), weir.Retain(2), weir.Parallelism(1), weir.Restarts(0))
	return job.Run(sys.With(ctx, m.Env()), opts...)
}

// stop runs the job as it was and stops it; it returns how far it had read.
func (c sinkShift) stop(t *testing.T, m *sim.Machine, db string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := 0
	err := c.run(ctx, m, db, c.before, false, weir.OnCheckpoint(func(e weir.Checkpoint) {
		at, _ = strconv.Atoi(string(e.Positions[0].At))
		if e.Epoch == 2 {
			cancel()
		}
	}))
	if err != nil || at < 10 || at >= ticks-10 {
		t.Fatalf("stopped at %d: %v", at, err)
	}
	return at
}

// finish runs the changed job to its end and compares the tables.
func (c sinkShift) finish(ctx context.Context, m *sim.Machine, db string, stopped int, opts ...weir.RunOption) error {
	if err := c.run(ctx, m, db, c.after, true, opts...); err != nil {
		return fmt.Errorf("the run after it: %w", err)
	}
	for table, part := range c.tables {
		from, to := 0, ticks
		switch part {
		case "before":
			to = stopped
		case "behind":
			from = stopped
		}
		var want []string
		for n := from; n < to; n++ {
			want = append(want, strconv.Itoa(n))
		}
		path, name := db, table
		if rest, ok := strings.CutPrefix(table, "2"); ok {
			path, name = other(db), rest
		}
		got, err := readTicks(path, name)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("table %s (-want +got):\n%s", table, gocmp.Diff(want, got))
		}
	}
	return nil
}

// readTicks reads a table in order.
func readTicks(path, table string) (got []string, err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	rows := map[string]int64{}
	if err := readDatabaseWith(path, map[string]string{table: "SELECT n, n FROM " + table}, rows); err != nil {
		return nil, err
	}
	for n := range int64(len(rows) + ticks) {
		if v, ok := rows[fmt.Sprint(n)]; ok && v == n {
			got = append(got, fmt.Sprint(n))
		}
	}
	return got, nil
}
