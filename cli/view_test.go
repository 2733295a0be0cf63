package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
)

var update = flag.Bool("update", false, "rewrite the views in testdata; review the difference")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// busy is a job that is doing well, a second apart.
func busy() view {
	at := func(n int64, ago time.Duration) weir.Metrics {
		return weir.Metrics{At: noon.Add(-ago), Job: "ad-clicks", Condition: weir.Active, Since: noon.Add(-83 * time.Second), Ready: noon.Add(-82 * time.Second), Incarnation: 3,
			Sources: []weir.SourceMetrics{{ID: "clicks", Records: 617_000 * n}, {ID: "refunds", Records: 12 * n}},
			Splits: []weir.SplitProgress{
				{Source: "clicks", Split: "a.jsonl", Records: 700_000 * n, Watermark: noon.Add(-3 * time.Minute), Since: noon.Add(-time.Second), Status: weir.Status{Done: 30, Total: 100, Lag: -1}},
				{Source: "clicks", Split: "b.jsonl", Records: 535_000 * n, Watermark: noon.Add(-5 * time.Minute), Since: noon.Add(-40 * time.Second), Status: weir.Status{Done: 13, Total: 100, Lag: -1}},
				{Source: "refunds", Split: "0", Records: 24 * n, Watermark: noon.Add(-2 * time.Second), Since: noon, Status: weir.Status{Lag: 1500}},
			},
			Steps: []weir.StepMetrics{
				{ID: "seen", Kind: "distinct", Records: 617_012 * n, Keys: 1_234_567, Bytes: 61 << 20, Late: 12, Senders: 2, Waited: 1400 * time.Millisecond * time.Duration(n)},
				{ID: "clicks-per-minute", Kind: "window", Records: 600_000 * n, Keys: 90_000, Bytes: 5 << 20, Senders: 2, Waited: 10 * time.Millisecond * time.Duration(n)},
				{ID: "clicks-per-ad", Kind: "count", Records: 600_000 * n, Keys: 300, Bytes: 300 << 10},
			},
			Sinks: []weir.SinkMetrics{
				{ID: "ad-minute", Kind: "transactional", Rows: 90_000 * n, LastCommit: noon.Add(-400 * time.Millisecond), Commit: weir.Durations{Last: 309 * time.Millisecond}},
				{ID: "alarms", Kind: "at least once", Rows: 0},
			},
			DeadLetters: []weir.DeadLetterMetrics{{Step: "seen", Kind: "panic", Records: 2}, {Step: "#3 (map)", Kind: "panic", Records: 1}, {Step: "#3 (map)", Kind: "error", Records: 4}},
			Checkpoints: weir.CheckpointMetrics{Committed: 8, Phases: map[string]weir.Durations{
				weir.PhaseAlign: {Last: 17 * time.Millisecond}, weir.PhaseWrite: {Last: 126 * time.Millisecond}, weir.PhasePrepare: {Last: 24 * time.Microsecond},
				weir.PhaseEnter: {Last: 6 * time.Millisecond}, weir.PhaseCommit: {Last: 309 * time.Millisecond}},
				Pause: weir.Durations{Last: time.Millisecond},
				Last:  &weir.Checkpoint{Epoch: 8, ID: weir.CheckpointID{Slot: 9}, At: noon.Add(-400 * time.Millisecond), Bytes: 300_000, Took: 458 * time.Millisecond}},
			StateBytes: 66 << 20, StateBudget: 4 << 30,
		}
	}
	return view{now: at(2, 0), before: at(1, time.Second)}
}

// troubled is a job that restarts and whose input stands still; its names are
// what a file system allows.
func troubled() view {
	v := busy()
	v.now.Condition, v.now.Waiting = weir.Restarting, "commit epoch 9 in sqlite /srv/weir/clicks.db: database is locked (5)"
	v.now.Restarts = weir.RestartMetrics{ByReason: map[string]int64{"disk-full": 2, "sink": 1}, Last: noon.Add(-2 * time.Second), Reason: "disk-full", Err: errors.New("write segment:\nno space left on device")}
	v.now.Checkpoints.Failed = map[string]int64{weir.PhaseWrite: 3}
	v.now.Splits[1].Split = "日本語の\x1b[2Jファイル.jsonl"
	v.now.Splits[2].Idle = true
	v.now.Sinks[0].Failed = 1
	return v
}

func TestViews(t *testing.T) {
	empty := view{now: weir.Metrics{At: noon, Job: "ad-clicks", Condition: weir.Starting, Since: noon}}
	failed := busy()
	failed.now.Condition, failed.now.Err = weir.Broken, errors.New("job ad-clicks: the disk is full")
	ended := busy()
	ended.now.Condition = weir.Ended
	for i := range ended.now.Splits {
		ended.now.Splits[i].Ended = true
	}
	for name, v := range map[string]view{"busy": busy(), "troubled": troubled(), "empty": empty, "failed": failed, "ended": ended} {
		for _, width := range []int{40, 60, 100, 160} {
			for _, st := range []style{{unicode: true}, {}} {
				file := filepath.Join("testdata", "live", fmt.Sprintf("%s-%d%s.txt", name, width, map[bool]string{false: "-ascii"}[st.unicode]))
				lines := v.render(width, 100, st)
				check(t, file, lines, width, st)
				got := strings.Join(lines, "\n") + "\n"
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("%s:\n%swant:\n%s", file, got, want)
				}
			}
		}
	}
}

// check holds every line to the width and to what can be printed.
func check(t *testing.T, name string, lines []string, width int, st style) {
	t.Helper()
	for _, l := range lines {
		text := unpainted(l)
		if n := cells(text); n > width {
			t.Errorf("%s: %d columns of %d: %q", name, n, width, l)
		}
		for _, r := range text {
			if r < ' ' || !st.unicode && r > '~' {
				t.Errorf("%s: %q in %q", name, r, l)
			}
		}
	}
}

// TestViewFits tries every size: no line is too long, there aren't too many, and
// color changes nothing but color.
func TestViewFits(t *testing.T) {
	for name, v := range map[string]view{"busy": busy(), "troubled": troubled(), "nothing": {}} {
		for width := 1; width < 200; width++ {
			for _, height := range []int{1, 5, 24, 60} {
				inked := v.render(width, height, style{color: true, unicode: true})
				lines := v.render(width, height, style{unicode: true})
				check(t, name, inked, max(20, width), style{unicode: true})
				if len(lines) > max(2, height) || len(inked) != len(lines) {
					t.Fatalf("%s: %d lines of %d, %d with color", name, len(lines), height, len(inked))
				}
				for i := range lines {
					if got := strings.TrimRight(unpainted(inked[i]), " "); got != lines[i] {
						t.Fatalf("%s, width %d: %q with color is %q", name, width, lines[i], got)
					}
				}
			}
		}
	}
}

func TestViewSaysWhatIsCutOff(t *testing.T) {
	all := busy().render(100, 100, style{})
	cut := busy().render(100, 8, style{})
	if want := fmt.Sprintf("~ %d more lines: enlarge the window", len(all)-7-blank(all)); len(cut) != 8 || cut[7] != want {
		t.Errorf("%d lines, the last %q, want %q", len(cut), cut[len(cut)-1], want)
	}
}

func blank(lines []string) (n int) {
	for _, l := range lines {
		if l == "" {
			n++
		}
	}
	return n
}

func TestBars(t *testing.T) {
	st, ascii := style{unicode: true}, style{}
	for share, want := range map[float64][2]string{
		0: {"░░░░░░░░", "[........]"}, 0.5: {"████░░░░", "[####....]"}, 1: {"████████", "[########]"}, 2: {"████████", "[########]"},
		-1: {"░░░░░░░░", "[........]"}, 0.14: {"█▏░░░░░░", "[#.......]"}, 0.99: {"███████▉", "[########]"},
	} {
		if got := st.bar(share); got != want[0] {
			t.Errorf("%v: %s, want %s", share, got, want[0])
		}
		if got := ascii.bar(share); got != want[1] {
			t.Errorf("%v: %s, want %s", share, got, want[1])
		}
	}
}

// TestViewAfterARestart: what is read again isn't counted twice, and a source
// whose splits aren't known yet isn't at its end.
func TestViewAfterARestart(t *testing.T) {
	now := weir.Metrics{At: noon, Job: "j", Condition: weir.Active, Since: noon.Add(-time.Minute), Restore: weir.RestoreMetrics{Restored: true},
		Restarts: weir.RestartMetrics{Last: noon.Add(-time.Second), Reason: "disk-full"}, Sources: []weir.SourceMetrics{{ID: "clicks", Records: 60_000}}}
	text := strings.Join(view{now: now, before: now}.render(80, 24, style{}), "\n")
	if strings.Contains(text, "at the end") || strings.Contains(text, "60,000") || !strings.Contains(text, "no checkpoint yet since one was restored") {
		t.Errorf("before the splits are known:\n%s", text)
	}
	now.Splits = []weir.SplitProgress{{Source: "clicks", Split: "a", Records: 30_000, Ended: true}}
	text = strings.Join(view{now: now, before: now}.render(80, 24, style{}), "\n")
	if !strings.Contains(text, "at the end") || !strings.Contains(text, "30,000") {
		t.Errorf("with the splits:\n%s", text)
	}
}
