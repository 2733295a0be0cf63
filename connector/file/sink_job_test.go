package file_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// A tallyJob counts letters: each record goes to one sink of a folder, and each
// new count to another. With a database it also keeps totals there.
type tallyJob struct {
	input [][]string
	out   string // folder of the files
	db    string // "": no database; otherwise it decides the epochs
	eager bool   // the database doesn't decide
	pack  string
}

type tallyRow struct {
	Letter string `db:"letter" json:"letter"`
	N      int64  `db:"n" json:"n"`
}

func tallyInput(splits, n int) [][]string {
	all := make([][]string, splits)
	for s := range all {
		for i := range n {
			all[s] = append(all[s], string(rune('a'+(i*i+s)%5)))
		}
	}
	return all
}

func (j tallyJob) declare() *weir.Job {
	job := weir.NewJob("tally")
	letters := job.From("letters", weir.Slices(j.input...))
	letters.Map(func(s string) tallyRow { return tallyRow{s, 0} }).To("raw", packs(file.JSONLines[tallyRow](j.out))[j.pack])
	counts := letters.KeyBy(func(s string) string { return s }).Count("n").
		Map(func(p weir.Pair[string, int64]) tallyRow { return tallyRow{p.Key, p.Value} })
	counts.To("counts", packs(file.JSONLines[tallyRow](j.out))[j.pack])
	if j.db != "" {
		totals := sqlite.Upsert[tallyRow](j.db, "totals", "letter")
		if j.eager {
			totals = totals.Eager()
		}
		counts.To("totals", totals)
	}
	return job
}

// want is what readers find in the end: a row of each record and of each count.
func (j tallyJob) want() (raw, counts, totals []string) {
	n := map[string]int64{}
	for _, split := range j.input {
		for _, s := range split {
			n[s]++
			raw = append(raw, fmt.Sprint(s, 0))
			counts = append(counts, fmt.Sprint(s, n[s]))
		}
	}
	for s, c := range n {
		totals = append(totals, fmt.Sprint(s, c))
	}
	slices.Sort(raw)
	slices.Sort(counts)
	slices.Sort(totals)
	return raw, counts, totals
}

func (j tallyJob) read(ctx context.Context, sink string) ([]string, error) {
	recs, err := published[tallyRow](ctx, j.out, sink, j.pack)
	all := []string{}
	for _, r := range recs {
		all = append(all, fmt.Sprint(r.Letter, r.N))
	}
	slices.Sort(all)
	return all, err
}

func (j tallyJob) readTotals() (all []string, err error) {
	db, err := sql.Open("sqlite", j.db)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.Query("SELECT letter, n FROM totals ORDER BY letter")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r tallyRow
		if err := rows.Scan(&r.Letter, &r.N); err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint(r.Letter, r.N))
	}
	return all, rows.Err()
}

// finished says what is wrong with the output of a job that has come to its end.
func (j tallyJob) finished(ctx context.Context) error {
	raw, counts, totals := j.want()
	for sink, want := range map[string][]string{"raw": raw, "counts": counts} {
		got, err := j.read(ctx, sink)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("sink %s (-want +got):\n%s", sink, diff)
		}
	}
	if j.db == "" {
		return nil
	}
	got, err := j.readTotals()
	if err == nil && !slices.Equal(got, totals) {
		err = fmt.Errorf("totals are %v, want %v", got, totals)
	}
	return err
}

// partial says what readers see that never was to be seen, or is there twice.
func (j tallyJob) partial(ctx context.Context) error {
	raw, counts, _ := j.want()
	for sink, all := range map[string][]string{"raw": raw, "counts": counts} {
		got, err := j.read(ctx, sink)
		if err != nil {
			return err
		}
		for len(got) > 0 && len(all) > 0 {
			if got[0] == all[0] {
				got = got[1:]
			}
			all = all[1:]
		}
		if len(got) > 0 {
			return fmt.Errorf("sink %s has a row %q that is wrong or too many", sink, got[0])
		}
	}
	return nil
}

func (j tallyJob) run(ctx context.Context, m *sim.Machine, opts ...weir.RunOption) error {
	return j.declare().Run(sys.With(ctx, m.Env()),
		append([]weir.RunOption{weir.StateDir("state"), weir.EveryRecords(5), weir.Retain(2), weir.Restarts(0)}, opts...)...)
}

// crash runs a life that ends at its k-th effect, and lets the job finish on
// what that leaves.
func (j tallyJob) crash(t *testing.T, k int, mode sim.Mode, keep sim.Keep) (more bool) {
	t.Helper()
	m := sim.NewMachine(sim.NewDisk())
	m.CrashAt(k, mode)
	err := j.run(t.Context(), m)
	where := fmt.Sprintf("crash %v effect %d, %v", mode, k, keep)
	if m.Dead() != errors.Is(err, sim.ErrCrashed) || !m.Dead() && err != nil {
		t.Fatalf("%s: the run ended with %v", where, err)
	}
	next := sim.NewMachine(m.Image(keep))
	ctx := sys.With(t.Context(), next.Env())
	err = j.partial(ctx)
	if err == nil {
		err = j.run(t.Context(), next, weir.Parallelism(1+k%2))
	}
	if err == nil {
		err = j.finished(ctx)
	}
	if err != nil {
		trace := m.Trace()
		t.Fatalf("%s (%v): %v", where, trace[len(trace)-1], err)
	}
	return m.Dead()
}

// Whole jobs crash at their effects: files alone, files that follow a database,
// files beside eager rows. In the end each row is there once.
func TestJobsOfFilesCrash(t *testing.T) {
	for name, c := range map[string]struct {
		db, eager bool
		pack      string
		stride    int
	}{
		"files alone":          {pack: "jsonl", stride: 3},
		"compressed":           {pack: "jsonl.zst", stride: 29},
		"a database and files": {pack: "jsonl", db: true, stride: 17},
		"eager rows and files": {pack: "jsonl", db: true, eager: true, stride: 17},
	} {
		t.Run(name, func(t *testing.T) {
			crashes := 0
			for k := 1; ; k += c.stride {
				j := tallyJob{input: tallyInput(2, 12), out: "/out", pack: c.pack, eager: c.eager}
				if c.db {
					j.db = filepath.Join(t.TempDir(), "out.db")
				}
				images := sim.Images(uint64(k), uint64(k+1))
				if !j.crash(t, k, sim.Modes()[k%3], images[k%len(images)]) {
					break
				}
				crashes++
			}
			t.Logf("%d crashes", crashes)
		})
	}
}

// A disk that is full for a while costs a restart in place, and nothing else.
func TestJobGoesOnWhenTheDiskDoes(t *testing.T) {
	for _, op := range []sim.Op{sim.OpCreate, sim.OpWrite, sim.OpSync, sim.OpRename, sim.OpSyncDir, sim.OpLink} {
		synctest.Test(t, func(t *testing.T) {
			j := tallyJob{input: tallyInput(2, 40), out: "/out", pack: "jsonl"}
			m := sim.NewMachine(sim.NewDisk())
			seen := 0
			m.FailIf(func(e sim.Effect) bool {
				if e.Op == op && strings.HasPrefix(e.Name, "out/") {
					seen++
				}
				return e.Op == op && strings.HasPrefix(e.Name, "out/") && seen > 6
			}, syscall.ENOSPC)
			restarts := 0
			err := j.run(t.Context(), m, weir.Restarts(3), weir.OnRestart(func(weir.Restart) {
				if restarts++; restarts == 2 {
					m.Heal()
				}
			}))
			if err == nil {
				err = j.finished(sys.With(t.Context(), m.Env()))
			}
			if err != nil || restarts != 2 {
				t.Errorf("%s fails: the run had %d restarts and ended with %v", op, restarts, err)
			}
		})
	}
}

// A slow input, parts that never get full, and polite stops: what is read is
// written once, whenever the job is stopped.
func TestStopsLoseNothing(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	var lines, want []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("{\"item\":\"%d\",\"cents\":%d}\n", i, i))
		want = append(want, lines[i])
	}
	check(t, os.WriteFile(in, []byte(strings.Join(lines, "")), 0o600))
	out := filepath.Join(dir, "out")
	for life := 1; ; life++ {
		ctx, stop := context.WithCancel(t.Context())
		job := weir.NewJob("copy")
		n := 0
		job.From("in", file.Lines(in, codec.JSON[sale]())).Map(func(s sale) sale {
			if n++; n == 300 {
				stop()
			}
			return s
		}).To("out", file.JSONLines[sale](out))
		check(t, job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.Interval(time.Hour), weir.BatchSize(64)))
		stop()
		if n == 0 {
			t.Logf("%d lives", life)
			break
		}
	}
	var got []string
	for _, name := range visible(t, out) {
		b, err := os.ReadFile(filepath.Join(out, name))
		check(t, err)
		got = append(got, slices.Collect(strings.Lines(string(b)))...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}

// Parts that reach their size end an epoch early, whatever the interval. How
// much longer they get follows from how fast the sources can be held.
func TestPartSizeEndsEpochs(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	job := weir.NewJob("cut")
	job.From("in", weir.Slice(manySales()...)).To("out", file.JSONLines[sale](out).MaxPart(50_000))
	check(t, job.Run(t.Context(), weir.StateDir(filepath.Join(dir, "state")), weir.Interval(time.Hour)))
	recs, err := published[sale](t.Context(), out, "out", "jsonl")
	check(t, err)
	if diff := cmp.Diff(manySales(), recs); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
	if n := len(visible(t, out)); n < 3 {
		t.Errorf("%d files, where 1.7 MB were written and parts of 50 KB ask for a barrier", n)
	}
}

// What explain says of a job with files.
func TestExplainFiles(t *testing.T) {
	job := weir.NewJob("explained")
	out := file.JSONLines[int](filepath.Join(t.TempDir(), "results")).Gzip()
	in := job.From("in", weir.Slice(1))
	in.To("out", out)
	in.To("more", out)
	e, err := job.Explain(t.Context(), weir.StateDir(t.TempDir()))
	check(t, err)
	for _, want := range []string{
		"sink out, files of JSON lines (gzip) in results/ (following): each output once",
		"readers ignore names that begin with . or _",
		"commits together with sink more, though a reader may see one before the other",
		"the checkpoint's entry in the store decides the epoch; the sink follows",
	} {
		if !strings.Contains(e.Report, want) {
			t.Errorf("explain doesn't say %q:\n%s", want, e.Report)
		}
	}
}

// A sink that is added to a job begins where the job stands, in a folder that
// the job has and in one that it hasn't.
func TestSinksAreAdded(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	var all []sale
	for i := range 1000 {
		all = append(all, sale{fmt.Sprint(i), float64(i)})
	}
	life := func(stopAt int, more bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		n := 0
		job := weir.NewJob("copy")
		in := job.From("in", weir.Slice(all...)).Map(func(s sale) sale {
			if n++; n == stopAt {
				stop()
			}
			return s
		})
		in.To("first", file.JSONLines[sale](out))
		if more {
			in.To("same", file.JSONLines[sale](out))
			in.To("other", file.JSONLines[sale](out+"2"))
		}
		check(t, job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(100), weir.BatchSize(64)))
	}
	life(300, false)
	had, err := published[sale](t.Context(), out, "first", "jsonl")
	check(t, err)
	life(0, true)
	for sink, c := range map[string]struct {
		dir  string
		want []sale
	}{"first": {out, all}, "same": {out, all[len(had):]}, "other": {out + "2", all[len(had):]}} {
		got, err := published[sale](t.Context(), c.dir, sink, "jsonl")
		check(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%.2000s", sink, diff)
		}
	}
}

// A job that starts over leaves the files of its former life where they are and
// writes all again.
func TestStartOverBesideFiles(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	run := func(state string, opts ...weir.RunOption) error {
		job := weir.NewJob("copy")
		job.From("in", weir.Slice(sale{"tea", 1}, sale{"cake", 2})).To("out", file.JSONLines[sale](out))
		return job.Run(t.Context(), append(opts, weir.StateDir(filepath.Join(dir, state)))...)
	}
	files := func(want int) {
		t.Helper()
		if got := visible(t, out); len(got) != want {
			t.Errorf("readers see %q, want %d files", got, want)
		}
	}
	check(t, run("state"))
	files(1)
	check(t, run("state")) // finished
	files(1)
	check(t, run("state", weir.StartOver()))
	files(2)
	if err := run("another"); !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "--start-over") {
		t.Errorf("another state directory: got %v, want weir.ErrRefused", err)
	}
	files(2)
	check(t, run("another", weir.StartOver()))
	files(3)
	if err := run("state"); !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "were given up") {
		t.Errorf("a run that was given up: got %v, want weir.ErrRefused", err)
	}
	files(3)
}
