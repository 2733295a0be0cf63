package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirstream/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sums is a job that fails at a chosen record.
func sums(out *[]int64) Build {
	return func(p *Params) *weir.Job {
		n := p.Int("n", 10, "how many numbers")
		bad := p.Int("bad", -1, "a number that can't be taken")
		p.Duration("pause", time.Minute, "")
		p.Choice("how", "plainly", []string{"plainly", "fancily"}, "")
		p.Bool("loud", false, "")
		if v := p.String("shape", "round", ""); v != "round" && v != "square" {
			p.Bad("shape", v, errors.New("round or square"))
		}
		job := weir.NewJob("sums")
		job.From("numbers", weir.Generate(n, func(i int64) int64 { return i })).
			TryMap(func(i int64) (int64, error) {
				if i == bad {
					return 0, errors.New("it was asked for")
				}
				return i, nil
			}).
			To("out", weir.Each(func(i int64) error { *out = append(*out, i); return nil }))
		return job
	}
}

// invoke runs one command line.
func invoke(t *testing.T, build Build, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{build: build, stdout: &o, stderr: &e, getenv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
	code = a.execute(t.Context(), args)
	return code, o.String(), e.String()
}

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var out []int64
	code, _, stderr := invoke(t, sums(&out), map[string]string{"WEIR_N": "7"}, "run", "--state", dir)
	if code != ExitOK || len(out) != 7 {
		t.Fatalf("code %d, %d records: %s", code, len(out), stderr)
	}
	for _, want := range []string{"started for the first time", "finished: 7 records", "late 0", "checkpoint "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q isn't in:\n%s", want, stderr)
		}
	}
	code, _, stderr = invoke(t, sums(&out), map[string]string{"WEIR_N": "7", "WEIR_STATE": dir}, "run")
	if code != ExitOK || len(out) != 7 || !strings.Contains(stderr, "nothing to do") {
		t.Fatalf("a finished job ran again: code %d, %d records: %s", code, len(out), stderr)
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	var out []int64
	code, _, stderr := invoke(t, sums(&out), map[string]string{"WEIR_N": "7"}, "run", "--n", "3", "--progress", "0")
	if code != ExitOK || len(out) != 3 {
		t.Fatalf("code %d, %d records: %s", code, len(out), stderr)
	}
}

func TestExitCodes(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.MkdirAll(filepath.Join(foreign, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "log", "000000000001"), []byte("not an entry"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no such verb", []string{"fly"}, ExitUsage, `"fly"`},
		{"no such flag", []string{"run", "--fly"}, ExitUsage, "--fly"},
		{"an argument", []string{"run", "fast"}, ExitUsage, "fast"},
		{"not a number", []string{"run", "--n", "many"}, ExitUsage, "whole number"},
		{"not a duration", []string{"run", "--pause", "long"}, ExitUsage, "length of time"},
		{"not a choice", []string{"run", "--how", "badly"}, ExitUsage, "plainly, fancily"},
		{"wrong by a rule of the job", []string{"run", "--shape", "flat"}, ExitUsage, `--shape "flat": it must be round or square`},
		{"right by a rule of the job", []string{"run", "--shape", "square"}, ExitOK, "finished"},
		{"not a switch", []string{"run", "--loud=maybe"}, ExitUsage, "true or false"},
		{"bad parallelism", []string{"run", "--parallelism", "-3"}, ExitUsage, "parallelism -3"},
		{"bad batch size", []string{"run", "--batch-size", "5000"}, ExitUsage, "batch size 5000"},
		{"both triggers", []string{"run", "--checkpoint-records", "5", "--checkpoint-interval", "1s"}, ExitUsage, "exclude"},
		{"bad level", []string{"run", "--log-level", "silly"}, ExitUsage, "silly"},
		{"bad format", []string{"run", "--log-format", "xml"}, ExitUsage, "xml"},
		{"bad record", []string{"run", "--bad", "4"}, ExitInput, "record 4"},
		{"bad store", []string{"run", "--state", foreign}, ExitCorrupt, "000000000001"},
		{"help", []string{"--help"}, ExitOK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out []int64
			code, stdout, stderr := invoke(t, sums(&out), nil, c.args...)
			if code != c.code || !strings.Contains(stderr+stdout, c.says) {
				t.Fatalf("code %d, want %d, with %q in:\n%s", code, c.code, c.says, stderr)
			}
		})
	}
}

func TestExitCodeOfEachClass(t *testing.T) {
	for err, want := range map[error]int{
		weir.ErrDeclaration: ExitUsage, weir.ErrStateMemory: ExitMemory, weir.ErrInput: ExitInput, weir.ErrGrown: ExitRefused, weir.ErrRefused: ExitRefused,
		weir.ErrCorrupt: ExitCorrupt, weir.ErrFenced: ExitFenced, weir.ErrLocked: ExitLocked, context.DeadlineExceeded: ExitFailed,
	} {
		if got := exitCode(fmt.Errorf("job: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
	if got := exitCode(errors.Join(weir.ErrInput, weir.ErrFenced)); got != ExitFenced {
		t.Errorf("a fenced job that failed besides: %d", got)
	}
}

func TestNeededParameter(t *testing.T) {
	build := func(p *Params) *weir.Job {
		p.Need("input", "what to read")
		return weir.NewJob("empty")
	}
	code, _, stderr := invoke(t, build, nil, "run")
	if code != ExitUsage || !strings.Contains(stderr, "WEIR_INPUT") || !strings.Contains(stderr, "what to read") {
		t.Fatalf("code %d: %s", code, stderr)
	}
}

func TestParameterNames(t *testing.T) {
	for name, says := range map[string]string{"state": "every job has", "twice": "twice"} {
		build := func(p *Params) *weir.Job {
			p.String(name, "", "")
			if name == "twice" {
				p.String(name, "", "")
			}
			return weir.NewJob("j")
		}
		if code, _, stderr := invoke(t, build, nil, "run"); code != ExitUsage || !strings.Contains(stderr, says) {
			t.Errorf("--%s: code %d: %s", name, code, stderr)
		}
	}
}

func TestExplain(t *testing.T) {
	var out []int64
	code, stdout, stderr := invoke(t, sums(&out), nil, "explain")
	if code != ExitOK || !strings.Contains(stdout, "at least once") || len(out) != 0 {
		t.Fatalf("code %d, %d records: %s%s", code, len(out), stdout, stderr)
	}
}

func TestLogs(t *testing.T) {
	var out []int64
	code, _, stderr := invoke(t, sums(&out), nil, "run", "--log-level", "info", "--log-format", "json")
	if code != ExitOK || !strings.Contains(stderr, `"job":"sums"`) {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var own bytes.Buffer
	a := &app{build: sums(&out), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, getenv: func(string) (string, bool) { return "", false }}
	WithLogger(slog.New(slog.NewTextHandler(&own, nil))).apply(a)
	if code := a.execute(t.Context(), []string{"run"}); code != ExitOK || !strings.Contains(own.String(), "job=sums") {
		t.Fatalf("code %d: %s", code, own.String())
	}
}

func TestProgressLine(t *testing.T) {
	var buf bytes.Buffer
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := &printer{w: &buf, now: func() time.Time { return now }}
	p.progress(weir.Progress{}) // before the start: nothing
	p.started(weir.Started{Incarnation: 4, Restored: true, Epoch: 2, Records: 1000, Keys: 12345, Took: 1500 * time.Microsecond})
	p.committed(weir.Checkpoint{ID: weir.CheckpointID{Slot: 9}, At: now, Bytes: 300_000, Took: 4 * time.Millisecond})
	now = now.Add(2 * time.Second)
	p.progress(weir.Progress{Records: 1_235_000, Late: map[string]int64{"minutes": 1200, "seen": 0}, Splits: []weir.SplitProgress{
		{Source: "clicks", Split: "a", Watermark: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), Status: weir.Status{Done: 30, Total: 100}},
		{Source: "clicks", Split: "b", Watermark: time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC), Status: weir.Status{Done: 13, Total: 100}},
	}})
	p.restarting(weir.Restart{Reason: "disk-full", Attempt: 2, Wait: 4 * time.Second, Err: errors.New("no space")})
	p.progress(weir.Progress{Records: 9, Splits: make([]weir.SplitProgress, 1)})
	want := `restored checkpoint 0 (epoch 2: 1,000 records read, 12,345 state entries) in 2ms, incarnation 4
12:00:02  617,000 rec/s  1,235,000 records, 21 %  watermark 2026-01-01T00:00:01Z  late 1,200 (minutes)  checkpoint 9: 2s ago, 293.0 KiB, took 4ms
failed (disk-full), restart 2 in 4s: no space
12:00:02  restarting (disk-full), attempt 2  checkpoint 9: 2s ago, 293.0 KiB, took 4ms
`
	if got := buf.String(); got != want {
		t.Fatalf("got:\n%swant:\n%s", got, want)
	}
}

// TestLastLine: a run that was stopped before a checkpoint of its own doesn't
// say that there was nothing to do.
func TestLastLine(t *testing.T) {
	restored := weir.Started{Incarnation: 4, Restored: true, Checkpoint: weir.CheckpointID{Slot: 7}, Records: 1000}
	for _, tt := range []struct {
		start   weir.Started
		last    *weir.Checkpoint
		stopped bool
		dead    map[string]map[string]int64
		want    string
	}{
		{start: restored, want: "nothing to do: the input was read to its end by an earlier run"},
		{start: restored, stopped: true, want: "stopped without a new checkpoint: a later run goes on from checkpoint 7 (1,000 records read)"},
		{stopped: true, want: "stopped before it had started: no checkpoint was changed"},
		{start: weir.Started{Incarnation: 1}, want: "ended without a checkpoint"},
		{start: restored, last: &weir.Checkpoint{ID: weir.CheckpointID{Slot: 9}, Records: 1200}, stopped: true,
			want: "stopped: 1,200 records in 1s, late 0, checkpoint 9: a later run goes on there"},
		{start: restored, last: &weir.Checkpoint{ID: weir.CheckpointID{Slot: 9}, Records: 1200},
			dead: map[string]map[string]int64{"clicks": {"decode": 1100, "oversized": 2}, "sink counts": {"sink": 3}},
			want: "ended: 1,200 records in 1s, late 0, dead 1,105, checkpoint 9: a later run goes on there"},
		{start: restored, last: &weir.Checkpoint{ID: weir.CheckpointID{Slot: 9}, Records: 1200, Bytes: 5, Finished: true},
			dead: map[string]map[string]int64{"clicks": {"decode": 1}},
			want: "finished: 1,200 records in 1s, late 0, dead 1, checkpoint 9 (5 B)"},
	} {
		var buf bytes.Buffer
		p := &printer{w: &buf, now: time.Now}
		p.mu.start, p.mu.last = tt.start, tt.last
		p.ended(weir.Progress{DeadLetters: tt.dead}, time.Second, tt.stopped)
		if got := strings.TrimSuffix(buf.String(), "\n"); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestHint: a wrong command line names the verb whose help has the flag.
func TestHint(t *testing.T) {
	var out []int64
	for _, tt := range []struct{ args, says string }{
		{"run --progress -1s", "--progress -1s: it can't be negative; 0 means none"},
		{"run --parallelism x", `--parallelism "x": it must be a whole number`},
		{"run --metrics foo", `--metrics "foo": it must be a port`},
	} {
		code, _, stderr := invoke(t, sums(&out), nil, strings.Fields(tt.args)...)
		if code != ExitUsage || !strings.Contains(stderr, tt.says) || !strings.HasSuffix(stderr, " run --help'\n") {
			t.Errorf("%s: code %d, %s", tt.args, code, stderr)
		}
	}
}
