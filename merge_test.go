package weir_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/epoch"
)

// lines is a writer that several goroutines may use.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// TestMergesInTheBackground runs jobs whose chains are merged all the time, stops
// them half-way, and goes on at another parallelism from what merges made.
func TestMergesInTheBackground(t *testing.T) {
	const seed = 20261130
	for _, tasks := range []int{1, 2, 7} {
		t.Run(fmt.Sprintf("parallelism %d", tasks), func(t *testing.T) {
			j := &hitJob{name: "merging", splits: hits(seed, 3, 300), seed: seed, dir: t.TempDir(), counts: &tally{}}
			j.final = oracle(j.splits, whole(j.splits))
			db, state := filepath.Join(t.TempDir(), "out.db"), filepath.Join(t.TempDir(), "state")
			var log lines
			opts := []weir.RunOption{weir.StateDir(state), weir.EveryRecords(hitEvery), weir.Parallelism(tasks),
				weir.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
				weir.ChainLimits(epoch.Limits{Slack: 1, Parts: 2})}
			var running *weir.Running
			ready := make(chan struct{})
			half := weir.OnCheckpoint(func(c weir.Checkpoint) {
				if <-ready; c.Epoch == 15 {
					running.Stop()
				}
			})
			running = j.declare(db).Start(t.Context(), append(opts, half)...)
			close(ready)
			if err := running.Wait(); err != nil {
				t.Fatal(err)
			}
			if n := log.count("msg=merged"); n == 0 {
				t.Fatalf("nothing was merged before the stop:\n%s", log.buf.String())
			}
			mustRun(t, j.declare(db), append(opts, weir.Parallelism(8-tasks))...)
			if err := equalTables(db, j.final); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d merges", log.count("msg=merged"))
		})
	}
}

// TestMergeFindsDamage flips a bit in every segment while a job runs: a merge
// that reads one stops the job, and makes no new state of it.
func TestMergeFindsDamage(t *testing.T) {
	j := &hitJob{name: "merging", splits: hits(7, 1, 400), seed: 7, dir: t.TempDir(), counts: &tally{}}
	db, state := filepath.Join(t.TempDir(), "out.db"), filepath.Join(t.TempDir(), "state")
	err := j.declare(db).Run(t.Context(), weir.StateDir(state), weir.EveryRecords(hitEvery), weir.Parallelism(1),
		weir.ChainLimits(epoch.Limits{Slack: 1, Parts: 2}),
		weir.OnCheckpoint(func(c weir.Checkpoint) {
			if c.Epoch != 10 {
				return
			}
			segments, err := filepath.Glob(filepath.Join(state, "seg", "*"))
			if err != nil || len(segments) == 0 {
				t.Errorf("no segments to damage: %v", err)
			}
			for _, name := range segments {
				b, err := os.ReadFile(name)
				if err != nil {
					t.Error(err)
					continue
				}
				b[len(b)-1] ^= 1
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Error(err)
				}
			}
		}))
	if !errors.Is(err, weir.ErrCorrupt) || !strings.Contains(err.Error(), "SHA-256") {
		t.Fatalf("the run ended with: %v", err)
	}
}
