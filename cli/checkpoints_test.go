package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// tally is a job with a step of each kind, of which two have clashing parameters:
// --step and --key mean something else to the verbs.
func tally(hold <-chan struct{}) Build {
	type place struct {
		Site string
		N    int32
	}
	return func(p *Params) *weir.Job {
		p.Need("input", "nobody reads it")
		p.String("key", "", "a name that a verb has, too")
		n := p.Int("n", 40, "how many numbers")
		job := weir.NewJob("tally")
		in := job.From("numbers", weir.Generate(n, func(i int64) int64 { return i }),
			weir.EventTime(func(i int64) time.Time { return time.Unix(1_772_366_400+i*10, 0) }, 0)).
			TryMap(func(i int64) (int64, error) {
				if hold != nil && i == n-1 {
					<-hold
				}
				return i, nil
			})
		drop := weir.Each(func(int64) error { return nil })
		in.KeyBy(func(i int64) string { return "k" + strconv.FormatInt(i%3, 10) }).Count("count").
			Map(func(p weir.Pair[string, int64]) int64 { return p.Value }).To("counts", drop)
		in.KeyBy(func(i int64) place { return place{"s", int32(i % 2)} }).Fold("sum", int64(0), func(a, i int64) int64 { return a + i }).
			Map(func(p weir.Pair[place, int64]) int64 { return p.Value }).To("sums", drop)
		in.KeyBy(func(i int64) string { return "all" }).Window(window.Tumbling(time.Minute, window.Lateness(time.Hour))).Count("minutes").
			Map(func(r weir.Result[string, int64]) int64 { return r.Value }).To("windows", drop)
		return job
	}
}

// ran is a state directory in which the job has been run to its end.
func ran(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	code, _, stderr := invoke(t, tally(nil), nil, "run", "--input", "x", "--state", dir, "--checkpoint-records", "10", "--progress", "0", "--parallelism", "2")
	if code != ExitOK {
		t.Fatalf("code %d: %s", code, stderr)
	}
	return dir
}

// numbers are the checkpoints of a state directory, oldest first.
func numbers(t *testing.T, dir string) []string {
	t.Helper()
	code, stdout, stderr := invoke(t, tally(nil), nil, "checkpoints", "ls", "--json", "--state", dir)
	var rows []struct {
		N    int64
		Kind string
	}
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || code != ExitOK {
		t.Fatalf("code %d, %v: %s%s", code, err, stdout, stderr)
	}
	var ns []string
	for _, r := range rows {
		if r.Kind == "checkpoint" {
			ns = append(ns, strconv.FormatInt(r.N, 10))
		}
	}
	return ns
}

// TestCheckpoints asks each verb that only reads, without a parameter of the job.
func TestCheckpoints(t *testing.T) {
	dir := ran(t)
	ns := numbers(t, dir) // genesis, and after 10, 20, 30 and 40 records
	if len(ns) != 5 {
		t.Fatalf("checkpoints %v", ns)
	}
	twenty, thirty := ns[2], ns[3]
	for _, c := range []struct {
		args string
		says []string
	}{
		{"ls", []string{"STANDING", "\n" + twenty + " ", "committed, finished"}},
		{"ls --all", []string{"start, store decides"}},
		{"show " + twenty, []string{"checkpoint " + twenty + ": epoch 2, committed", "numbers  0      20        20", "count    count   3     ", "minutes  window  4     ", "struct{Site string; N int32}"}},
		{"show --json " + twenty, []string{`"position": "20"`, `"op": "window"`, `"records": 20`}},
		{"show " + twenty + " --step count", []string{`"k0"  7` + "\n", `"k1"  7` + "\n", `"k2"  6` + "\n"}},
		{"show " + twenty + " --step count --key k2", []string{`"k2"  6` + "\n"}},
		{"show " + twenty + ` --step count --key "k2"`, []string{`"k2"  6` + "\n"}},
		{"show " + twenty + " --step count --key k2 --json", []string{`{"key":"k2","value":6}` + "\n"}},
		{"show " + twenty + ` --step sum --key {"Site":"s","N":1}`, []string{`{"Site":"s","N":1}  100` + "\n"}},
		{"show " + twenty + " --step minutes --key all", []string{`"all"  2026-03-01T12:00:00Z  6` + "\n", `"all"  2026-03-01T12:03:00Z  2` + "\n"}},
		{"show " + twenty + " --step minutes --limit 1", []string{"the first 1 of 4"}},
		{"export " + twenty + " --step minutes", []string{`{"key":"all","window":"2026-03-01T12:00:00Z","value":6}` + "\n"}},
		{"export " + twenty + " --step count", []string{`{"key":"k2","value":6}` + "\n"}},
		{"diff " + twenty + " " + thirty, []string{"position 20, 20 records", "position 30, 30 records", `~ "k2"  6 -> 10`, `+ "all"  2026-03-01T12:04:00Z  6`,
			"0 added, 0 removed, 3 changed"}},
		{"diff " + thirty + " " + twenty + " --step minutes", []string{`- "all"  2026-03-01T12:04:00Z  6`, "0 added, 1 removed, 1 changed"}},
		{"diff " + twenty + " " + thirty + " --limit 1 --step count", []string{"the first 1 of 3"}},
		{"diff " + twenty + " " + thirty + " --json", []string{`{"step":"count","key":"k2","old":6,"new":10}` + "\n"}},
		{"diff " + twenty + " " + twenty, []string{"0 added, 0 removed, 0 changed"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"checkpoints"}, strings.Split(c.args, " ")...)
			code, stdout, stderr := invoke(t, tally(nil), map[string]string{"WEIR_STATE": dir, "WEIR_LIMIT": "0", "WEIR_JSON": "true"}, args...)
			if code != ExitOK || stderr != "" {
				t.Fatalf("code %d: %s%s", code, stdout, stderr)
			}
			for _, s := range c.says {
				if !strings.Contains(stdout, s) {
					t.Errorf("%q isn't in:\n%s", s, stdout)
				}
			}
		})
	}
}

// TestCheckpointsRefuse has what can't be done, with its exit code.
func TestCheckpointsRefuse(t *testing.T) {
	dir, base := ran(t), t.TempDir()
	ns := numbers(t, dir)
	n := ns[2]
	foreign, other := filepath.Join(base, "foreign"), filepath.Join(base, "other")
	for name, data := range map[string]string{filepath.Join(foreign, "letter.txt"): "dear"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out []int64
	if code, _, stderr := invoke(t, sums(&out), nil, "run", "--state", other, "--progress", "0"); code != ExitOK {
		t.Fatal(stderr)
	}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"ls", ExitUsage, "--state (or WEIR_STATE) is missing"},
		{"ls --state " + filepath.Join(base, "none"), ExitUsage, "there is no state directory"},
		{"ls --state " + foreign, ExitRefused, "letter.txt"},
		{"ls --state " + other, ExitRefused, `belongs to job "sums", not to "tally"`},
		{"ls 5 --state " + dir, ExitUsage, "takes no arguments"},
		{"fly", ExitUsage, `no verb "fly"`},
		{"show --state " + dir, ExitUsage, "show takes N, as ls numbers checkpoints; none is given\nsee '"},
		{"show x --state " + dir, ExitUsage, `"x" isn't the number`},
		{"show 0 --state " + dir, ExitUsage, `"0" isn't the number`},
		{"show 99 --state " + dir, ExitUsage, "there is no checkpoint 99"},
		{"show 1 --state " + dir, ExitUsage, "the start of an incarnation"},
		{"show " + n + " --step none --state " + dir, ExitUsage, `no state of step "none", only of ["count" "minutes" "sum"]`},
		{"show " + ns[0] + " --step count --state " + dir, ExitUsage, "nor of any other"},
		{"show " + n + " --key k --state " + dir, ExitUsage, "--key needs --step"},
		{"show " + n + " --step count --key none --state " + dir, ExitUsage, "holds nothing of key none"},
		{"show " + n + " --step sum --key none --state " + dir, ExitUsage, "isn't JSON, as keys of type struct"},
		{"show " + n + ` --step sum --key {"Site":"s"} --state ` + dir, ExitUsage, "field N is missing"},
		{"export " + n + " --state " + dir, ExitUsage, "--step is missing"},
		{"diff " + n + " --state " + dir, ExitUsage, "takes N M, as ls"},
		{"diff " + n + " 99 --state " + dir, ExitUsage, "there is no checkpoint 99"},
		{"diff " + n + " " + n + " --step none --state " + dir, ExitUsage, `holds state of step "none"`},
		{"rm --state " + dir, ExitUsage, "takes N..., as ls"},
		{"rm 99 --state " + dir, ExitUsage, "there is no checkpoint 99"},
		{"rm " + n + " 99 --state " + dir, ExitUsage, "there is no checkpoint 99"},
		{"rm " + ns[4] + " --state " + dir, ExitRefused, ns[4] + " can't be removed"},
		{"rm " + n + " --state " + filepath.Join(base, "none"), ExitUsage, "there is no state directory"},
		{"rollback " + n + " --state " + dir, ExitUsage, "--input (or WEIR_INPUT) is missing"},
		{"rollback " + n + " --input x", ExitUsage, "--state (or WEIR_STATE) is missing"},
		{"rollback " + n + " --input x --start-over --state " + dir, ExitUsage, "exclude each other"},
		{"rollback " + n + " --input x --state " + dir, ExitUsage, "say --yes"},
		{"rollback 99 --input x --yes --state " + dir, ExitUsage, "there is no checkpoint 99"},
		{"rollback " + ns[4] + " --input x --yes --state " + dir, ExitRefused, "stands there already"},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := invoke(t, tally(nil), nil, append([]string{"checkpoints"}, strings.Split(c.args, " ")...)...)
			if code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("code %d, want %d, with %q in:\n%s%s", code, c.code, c.says, stdout, stderr)
			}
		})
	}
	if after := numbers(t, dir); !slices.Equal(after, ns) {
		t.Errorf("refused verbs left checkpoints %v of %v", after, ns)
	}
}

// TestCheckpointsOfDamagedState flips a bit in the segment that holds the state.
func TestCheckpointsOfDamagedState(t *testing.T) {
	dir := ran(t)
	n := numbers(t, dir)[1]
	names, err := filepath.Glob(filepath.Join(dir, "seg", "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"show", n, "--step", "count"}, {"export", n, "--step", "count"}, {"show", n, "--step", "count", "--key", "k0"},
		{"rollback", n, "--input", "x", "--yes"}} {
		code, stdout, stderr := invoke(t, tally(nil), map[string]string{"WEIR_STATE": dir}, append([]string{"checkpoints"}, args...)...)
		if code != ExitCorrupt || !strings.Contains(stderr, "seg/") || !strings.Contains(stderr, "SHA-256") {
			t.Errorf("%v: code %d: %s%s", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := invoke(t, tally(nil), nil, "checkpoints", "show", n, "--state", dir); code != ExitOK {
		t.Errorf("what the log says of it can't be read: %s", stderr)
	}
}

// TestCheckpointsRemoved removes some, and goes on.
func TestCheckpointsRemoved(t *testing.T) {
	dir := ran(t)
	ns := numbers(t, dir)
	code, stdout, stderr := invoke(t, tally(nil), nil, "checkpoints", "rm", ns[1], ns[0], "--state", dir)
	if code != ExitOK || !strings.Contains(stdout, "removed "+ns[0]+", "+ns[1]) {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	if left := numbers(t, dir); !slices.Equal(left, ns[2:]) {
		t.Errorf("left are %v of %v", left, ns)
	}
	code, _, stderr = invoke(t, tally(nil), nil, "checkpoints", "show", ns[1], "--state", dir)
	if code != ExitUsage || !strings.Contains(stderr, "it has been retired") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr := invoke(t, tally(nil), nil, "run", "--input", "x", "--state", dir); code != ExitOK || !strings.Contains(stderr, "nothing to do") {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// TestCheckpointsRolledBack asks first, goes back, and runs on.
func TestCheckpointsRolledBack(t *testing.T) {
	dir := ran(t)
	ns := numbers(t, dir)
	roll := func(answer string) (int, string, string) {
		var o, e strings.Builder
		a := &app{build: tally(nil), stdin: strings.NewReader(answer), stdout: &o, stderr: &e, getenv: func(string) (string, bool) { return "", false }}
		code := a.execute(t.Context(), []string{"checkpoints", "rollback", ns[2], "--input", "x", "--state", dir})
		return code, o.String(), e.String()
	}
	for _, answer := range []string{"", "\n", "no\n", "yesterday\n"} {
		if code, stdout, stderr := roll(answer); code != ExitUsage || !strings.Contains(stdout, "reads 20 records again") || !strings.Contains(stderr, "nothing was changed") {
			t.Errorf("the answer %q: code %d: %s%s", answer, code, stdout, stderr)
		}
	}
	if code, stdout, stderr := roll("Yes\n"); code != ExitOK || !strings.Contains(stdout, "rolled back: checkpoint ") {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	_, stdout, _ := invoke(t, tally(nil), nil, "checkpoints", "ls", "--state", dir)
	if !strings.Contains(stdout, "committed, rollback to "+ns[2]) {
		t.Error(stdout)
	}
	code, _, stderr := invoke(t, tally(nil), nil, "run", "--input", "x", "--state", dir)
	if code != ExitOK || !strings.Contains(stderr, "20 records read") || !strings.Contains(stderr, "finished: 40 records") {
		t.Errorf("code %d: %s", code, stderr)
	}
	all := numbers(t, dir)
	_, stdout, _ = invoke(t, tally(nil), nil, "checkpoints", "show", all[len(all)-1], "--step", "count", "--state", dir)
	if want := "\"k0\"  14\n"; !strings.Contains(stdout, want) {
		t.Errorf("%q isn't in:\n%s", want, stdout)
	}
}

// TestCheckpointsWhileRunning looks while the job runs; what changes the store is
// refused then.
func TestCheckpointsWhileRunning(t *testing.T) {
	dir, hold, stop := filepath.Join(t.TempDir(), "state"), make(chan struct{}), make(chan error, 1)
	committed := make(chan struct{}, 100)
	p := &Params{values: map[string]string{"input": "x"}}
	running := tally(hold)(p).Start(t.Context(), weir.StateDir(dir), weir.EveryRecords(10), weir.OnCheckpoint(func(weir.Checkpoint) { committed <- struct{}{} }))
	go func() { stop <- running.Wait() }()
	for range 3 {
		<-committed
	}
	ns := numbers(t, dir)
	for _, args := range []string{"ls", "show " + ns[1], "show " + ns[1] + " --step count --key k0", "export " + ns[1] + " --step minutes", "diff " + ns[1] + " " + ns[2]} {
		if code, _, stderr := invoke(t, tally(nil), nil, append([]string{"checkpoints"}, append(strings.Split(args, " "), "--state", dir)...)...); code != ExitOK {
			t.Errorf("%s: code %d: %s", args, code, stderr)
		}
	}
	for _, args := range []string{"rm " + ns[0], "rollback " + ns[1] + " --input x --yes"} {
		code, _, stderr := invoke(t, tally(nil), nil, append([]string{"checkpoints"}, append(strings.Split(args, " "), "--state", dir)...)...)
		if code != ExitLocked || !strings.Contains(stderr, "in use") {
			t.Errorf("%s: code %d: %s", args, code, stderr)
		}
	}
	close(hold)
	if err := <-stop; err != nil {
		t.Fatal(err)
	}
}

// TestExportIsInterrupted ends a long list at once when it is told to.
func TestExportIsInterrupted(t *testing.T) {
	dir := ran(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var o, e strings.Builder
	a := &app{build: tally(nil), stdout: &o, stderr: &e, getenv: func(string) (string, bool) { return "", false }}
	if code := a.execute(ctx, []string{"checkpoints", "export", numbers(t, dir)[2], "--step", "count", "--state", dir}); code != ExitSignal {
		t.Errorf("code %d: %s%s", code, o.String(), e.String())
	}
}
