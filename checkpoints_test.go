package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/file"
)

// checkpointsOf lists a store's checkpoints.
func checkpointsOf(t *testing.T, dir string) []weir.StoredCheckpoint {
	t.Helper()
	all, err := weir.ReadCheckpoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stateOf is what a checkpoint holds of a step, a line for each key.
func stateOf(t *testing.T, dir string, n int64, step string) []string {
	t.Helper()
	var out []string
	for e, err := range weir.ReadState(t.Context(), dir, n, step) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(e.Key)+" "+string(e.Value))
	}
	slices.Sort(out)
	return out
}

// countsJob counts events by key, into a vault.
func countsJob(out weir.Sink[weir.Pair[string, int64]], events ...event) *weir.Job {
	job := weir.NewJob("counts")
	job.From("in", weir.Slice(events...)).KeyBy(keyOf).Count("count", weir.EachBarrier()).To("out", out)
	return job
}

func manyEvents(n int) []event {
	var all []event
	for i := range n {
		all = append(all, sec(string(rune('a'+i%3)), int64(i)))
	}
	return all
}

// TestRollback goes back, forth, and back to where it was: what may be gone back
// to follows from what the sinks hold.
func TestRollback(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	var out vault[weir.Pair[string, int64]]
	job := countsJob(&out, manyEvents(30)...)
	state, keep := weir.StateDir(dir), weir.Retain(100)
	mustRun(t, job, state, keep, weir.EveryRecords(3), weir.Parallelism(2))
	all := checkpointsOf(t, dir)
	if len(all) != 11 || !all[10].Finished || all[10].Records != 30 || all[2].Records != 6 {
		t.Fatalf("%+v", all)
	}
	genesis, six, end := all[0].ID.Slot, all[2].ID.Slot, all[10].ID.Slot
	want := stateOf(t, dir, six, "count")
	wantSame(t, want, []string{`"a" 2`, `"b" 2`, `"c" 2`})

	_, err := job.Rollback(ctx, weir.Rollback{To: end}, state)
	wantErr(t, err, weir.ErrRefused, "stands there already")
	_, err = job.Rollback(ctx, weir.Rollback{To: 999}, state)
	wantErr(t, err, weir.ErrRefused, "no such checkpoint")

	plan, err := job.PlanRollback(ctx, weir.Rollback{To: six}, state)
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"reads 24 records again", "sink out (a vault)"} {
		if !strings.Contains(plan.String(), says) {
			t.Errorf("%q isn't in:\n%s", says, plan)
		}
	}
	id, err := job.Rollback(ctx, weir.Rollback{To: six}, state)
	if err != nil {
		t.Fatal(err)
	}
	back := checkpointsOf(t, dir)[11]
	if back.ID != id || back.Content != all[2].ID || back.Parent != all[10].ID || back.Finished || back.Records != 6 || back.New != 0 || back.Standing != "committed" {
		t.Errorf("the rollback's checkpoint is %+v", back)
	}
	wantSame(t, stateOf(t, dir, id.Slot, "count"), want)
	if out.ledger.ID != id {
		t.Errorf("the ledger names %v, want %v", out.ledger.ID, id)
	}

	// Nothing was read since: the end is no further than what the vault holds.
	if id, err = job.Rollback(ctx, weir.Rollback{To: end}, state); err != nil {
		t.Fatal(err)
	}
	rows := len(out.all())
	mustRun(t, job, state, keep) // finished
	if n := len(out.all()); n != rows {
		t.Errorf("a finished job wrote %d rows", n-rows)
	}
	if _, err = job.Rollback(ctx, weir.Rollback{To: genesis}, state); err != nil {
		t.Fatal(err)
	}
	// Now some is read: what lies ahead of that can't be gone back to.
	stop, cancel := context.WithCancel(ctx)
	mustRunUntil(stop, t, cancel, job, state, keep, weir.EveryRecords(3))
	_, err = job.Rollback(ctx, weir.Rollback{To: id.Slot}, state)
	wantErr(t, err, weir.ErrRefused, "has read further")
	_, err = job.Rollback(ctx, weir.Rollback{To: all[9].ID.Slot}, state)
	wantErr(t, err, weir.ErrRefused, "has read further")
	mustRun(t, job, state, keep, weir.EveryRecords(3), weir.Parallelism(3))
	last := out.epochs[len(out.epochs)-1]
	if len(last) != 3 || last[0].Value != 10 {
		t.Errorf("the last rows are %v", last)
	}
}

// mustRunUntil runs a job until its first checkpoint with records, and a few more
// that were under way.
func mustRunUntil(ctx context.Context, t *testing.T, cancel func(), job *weir.Job, opts ...weir.RunOption) {
	t.Helper()
	defer cancel()
	err := job.Run(ctx, append(opts, weir.OnCheckpoint(func(c weir.Checkpoint) {
		if c.Records > 0 {
			cancel()
		}
	}))...)
	if err != nil {
		t.Fatal(err)
	}
}

// appender is a vault that says that it only appends.
type appender struct {
	vault[weir.Pair[string, int64]]
}

func (a *appender) Spec() weir.SinkSpec {
	s := a.vault.Spec()
	s.Appends = true
	return s
}

func TestRollbackRefusesSinksThatAppend(t *testing.T) {
	dir := t.TempDir()
	var out appender
	job := countsJob(&out, manyEvents(12)...)
	mustRun(t, job, weir.StateDir(dir), weir.EveryRecords(3))
	all := checkpointsOf(t, dir)
	to := weir.Rollback{To: all[2].ID.Slot}
	before := len(checkpointsOf(t, dir))
	_, err := job.Rollback(t.Context(), to, weir.StateDir(dir))
	wantErr(t, err, weir.ErrRefused, "sink out", "--allow-duplicates")
	if n := len(checkpointsOf(t, dir)); n != before {
		t.Errorf("a refused rollback left %d checkpoints of %d", n, before)
	}
	to.AllowDuplicates = true
	if _, err := job.Rollback(t.Context(), to, weir.StateDir(dir)); err != nil {
		t.Fatal(err)
	}
	rows := len(out.all())
	mustRun(t, job, weir.StateDir(dir))
	if len(out.all()) == rows {
		t.Error("nothing was computed again")
	}
}

// TestRollbackOverFiles goes back over a sink that follows and appends: its ledger
// follows, and the lines that are computed again are there twice, and nothing else.
func TestRollbackOverFiles(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	var out vault[weir.Pair[string, int64]]
	declare := func() *weir.Job {
		job := weir.NewJob("files")
		in := job.From("in", weir.Slice(manyEvents(12)...))
		in.KeyBy(keyOf).Count("count", weir.EachBarrier()).To("out", &out)
		in.Map(func(e event) map[string]int64 { return map[string]int64{"n": e.N} }).To("lines", file.JSONLines[map[string]int64](files))
		return job
	}
	state := weir.StateDir(dir)
	mustRun(t, declare(), state, weir.EveryRecords(3))
	all := checkpointsOf(t, dir)
	to := weir.Rollback{To: all[2].ID.Slot}
	_, err := declare().Rollback(t.Context(), to, state)
	wantErr(t, err, weir.ErrRefused, "sink lines")
	to.AllowDuplicates = true
	if _, err := declare().Rollback(t.Context(), to, state); err != nil {
		t.Fatal(err)
	}
	mustRun(t, declare(), state, weir.EveryRecords(3))
	got := map[string]int{}
	names, err := filepath.Glob(filepath.Join(files, "[^._]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			got[line]++
		}
	}
	for n := range 12 {
		want := 1
		if int64(n) >= all[2].Records {
			want = 2
		}
		if line := fmt.Sprintf("{\"n\":%d}\n", n); got[line] != want {
			t.Errorf("%q is there %d times, want %d", line, got[line], want)
		}
	}
	if len(got) != 12 {
		t.Errorf("%d different lines: %v", len(got), got)
	}
}

// TestRollbackToAnotherSchema goes back to state of an older type, and then runs,
// stops and runs again: the old state is converted once, and its base rewritten.
func TestRollbackToAnotherSchema(t *testing.T) {
	type small struct{ Sum int64 }
	type large struct{ Sum, N int64 }
	conf, ctx := t.TempDir(), t.Context()
	dir := weir.StateDir(conf)
	events := manyEvents(30)
	old := weir.NewJob("grown")
	var out vault[string]
	old.From("in", weir.Slice(events...)).KeyBy(keyOf).Fold("sum", small{}, func(a small, e event) small { return small{a.Sum + e.N} }).
		Map(func(p weir.Pair[string, small]) string { return p.Key }).To("out", &out)
	now := weir.NewJob("grown")
	now.From("in", weir.Slice(events...)).KeyBy(keyOf).Fold("sum", large{}, func(a large, e event) large { return large{a.Sum + e.N, a.N + 1} }).
		Map(func(p weir.Pair[string, large]) string { return p.Key }).To("out", &out)
	stop := func(job *weir.Job) {
		ctx, cancel := context.WithCancel(ctx)
		mustRunUntil(ctx, t, cancel, job, dir, weir.EveryRecords(4))
	}
	stop(old)
	target := checkpointsOf(t, conf)[1]
	stop(now)
	if _, err := now.Rollback(ctx, weir.Rollback{To: target.ID.Slot}, dir); err != nil {
		t.Fatal(err)
	}
	mustRun(t, now, dir, weir.EveryRecords(4), weir.Parallelism(3))
	all := checkpointsOf(t, conf)
	wantSame(t, stateOf(t, conf, all[len(all)-1].ID.Slot, "sum"), []string{
		`"a" {"Sum":135,"N":8}`, `"b" {"Sum":145,"N":9}`, `"c" {"Sum":155,"N":9}`})
}

// TestReadWhileRunning looks at a store again and again while a job makes and
// retires checkpoints as fast as it can: what is there can be read, and what isn't
// any more is said to be gone.
func TestReadWhileRunning(t *testing.T) {
	dir := t.TempDir()
	var out vault[weir.Pair[string, int64]]
	running := countsJob(&out, manyEvents(600)...).Start(t.Context(), weir.StateDir(dir), weir.EveryRecords(3), weir.Retain(1), weir.Parallelism(2))
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	looks, gone := 0, 0
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d looks, of which %d found that a checkpoint had gone", looks, gone)
			if looks == 0 {
				t.Error("nothing was looked at")
			}
			return
		default:
		}
		all, err := weir.ReadCheckpoints(t.Context(), dir)
		if err != nil && !errors.Is(err, weir.ErrUnknown) { // the folder isn't there yet
			t.Fatal(err)
		}
		if len(all) == 0 {
			continue
		}
		looks++
		c := all[looks%len(all)]
		sum := int64(0)
		for e, err := range weir.ReadState(t.Context(), dir, c.ID.Slot, "count") {
			if err != nil {
				if !errors.Is(err, weir.ErrUnknown) {
					t.Fatalf("checkpoint %d: %v", c.ID.Slot, err)
				}
				gone, sum = gone+1, c.Records
				break
			}
			n := int64(0)
			for _, d := range e.Value {
				n = 10*n + int64(d-'0')
			}
			sum += n
		}
		if sum != c.Records && c.Epoch > 0 {
			t.Fatalf("checkpoint %d counts %d of %d records", c.ID.Slot, sum, c.Records)
		}
	}
}

// TestReadingMakesNothing looks at what isn't there, and at what can't be written.
func TestReadingMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := weir.ReadCheckpoints(t.Context(), dir)
	wantErr(t, err, weir.ErrUnknown, dir)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking made %s: %v", dir, err)
	}
	empty := t.TempDir()
	if all := checkpointsOf(t, empty); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	for _, err := range weir.ReadState(t.Context(), empty, 1, "count") {
		wantErr(t, err, weir.ErrUnknown, "no checkpoints")
	}
	left, err := os.ReadDir(empty)
	if err != nil || len(left) != 0 {
		t.Errorf("looking left %v, %v", left, err)
	}
}
