package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/weirtest"
)

// countJob counts what an input is fed.
func countJob(in weir.Source[event], out weir.Sink[weir.Pair[string, int64]]) *weir.Job {
	job := weir.NewJob("running")
	job.From("in", in, weir.EventTime(eventTime, 0).MaxAhead(0)).KeyBy(keyOf).Count("count").To("out", out)
	return job
}

// TestIntervalCheckpoints has checkpoints by time, with a clock of its own.
func TestIntervalCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := weirtest.NewInput[event]()
		var at []time.Duration
		began := time.Now()
		run := countJob(in, new(gathered[weir.Pair[string, int64]]).sink()).Start(t.Context(), weir.Interval(10*time.Second),
			weir.OnCheckpoint(func(c weir.Checkpoint) {
				if c.Epoch > 0 {
					at = append(at, c.At.Sub(began))
				}
			}))
		in.Send(sec("a", 1))
		<-time.After(35 * time.Second)
		synctest.Wait()
		if fmt.Sprint(at) != "[10s 20s 30s]" {
			t.Errorf("checkpoints at %v, want at 10, 20 and 30 s", at)
		}
		in.End()
		if err := run.Wait(); err != nil {
			t.Error(err)
		}
		if len(at) != 4 || at[3] != 35*time.Second {
			t.Errorf("checkpoints at %v, want the last at the end of the input", at)
		}
	})
}

func TestCheckpointSettleAndProgress(t *testing.T) {
	in := weirtest.NewInput[event]()
	var got gathered[weir.Pair[string, int64]]
	run := countJob(in, got.sink()).Start(t.Context(), weir.Interval(0), weir.Parallelism(3))
	in.Send(sec("a", 5), sec("b", 7), sec("a", 6))
	if err := run.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(got.all()); n != 3 {
		t.Errorf("%d results after settling, want 3", n)
	}
	c, err := run.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Epoch != 1 || c.Records != 3 || c.Finished || c.ID.IsZero() || len(c.Positions) != 1 || string(c.Positions[0].At) != "3" {
		t.Errorf("checkpoint %+v", c)
	}
	run.Progress() // asks for new figures, which are there once something has passed
	if err := run.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := run.Progress()
	if p.Records != 3 || p.Behind != 1 || len(p.Splits) != 1 || p.Splits[0].Watermark != time.UnixMilli(noon+7_000).UTC() ||
		p.Checkpoint == nil || p.Checkpoint.ID != c.ID {
		t.Errorf("progress %+v", p)
	}
	run.Stop()
	run.Stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Checkpoint(t.Context()); err == nil {
		t.Error("a checkpoint of a job that has ended gave no error")
	}
	if err := run.Settle(t.Context()); err == nil {
		t.Error("settling a job that has ended gave no error")
	}
}

// TestCancelIsAPoliteStop: Run returns nil, and nothing is lost or repeated.
func TestCancelIsAPoliteStop(t *testing.T) {
	dir := weir.StateDir(t.TempDir())
	var got vault[int64]
	declare := func(seen func(int64)) *weir.Job {
		job := weir.NewJob("cancelled")
		job.From("in", weir.Generate(0, func(i int64) int64 { return i })).
			Map(func(n int64) int64 { seen(n); return n }).To("out", &got)
		return job
	}
	for life := range int64(3) {
		ctx, cancel := context.WithCancel(t.Context())
		err := declare(func(n int64) {
			if n == 5_000*(life+1) {
				cancel()
			}
		}).Run(ctx, dir, weir.EveryRecords(2_000))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := got.all()
	if int64(len(rows)) <= 15_000 {
		t.Errorf("%d rows; the last life stopped behind 15000", len(rows))
	}
	for i, n := range rows {
		if n != int64(i) {
			t.Fatalf("row %d is %d", i, n)
		}
	}
}

// TestCancelledBeforeTheStart runs nothing and is no error either.
func TestCancelledBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got vault[int64]
	job := weir.NewJob("cancelled")
	job.From("in", weir.Generate(0, func(i int64) int64 { return i })).To("out", &got)
	if err := job.Run(ctx, weir.StateDir(t.TempDir())); err != nil {
		t.Fatal(err)
	}
}

// TestWhatAStartTells before the first record, at the first start and later.
func TestWhatAStartTells(t *testing.T) {
	dir := weir.StateDir(t.TempDir())
	in := []event{sec("a", 1), sec("b", 2), sec("a", 3), sec("c", 4), sec("d", 5)}
	var starts []weir.Started
	var checks []weir.Checkpoint
	life := func(f func(event) (event, error), more ...weir.RunOption) error {
		job := weir.NewJob("told")
		job.From("in", weir.Slice(in...)).TryMap(f).KeyBy(keyOf).Count("count").To("out", new(gathered[weir.Pair[string, int64]]).sink())
		return job.Run(t.Context(), append(more, dir, weir.EveryRecords(4),
			weir.OnStart(func(s weir.Started) { starts = append(starts, s) }),
			weir.OnCheckpoint(func(c weir.Checkpoint) { checks = append(checks, c) }))...)
	}
	crash, committed := crashCommitted[event](5, 1)
	if err := life(crash, committed); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if err := life(crashAt[event](0)); err != nil {
		t.Fatal(err)
	}
	if len(starts) != 2 {
		t.Fatalf("%d starts were told", len(starts))
	}
	first, second := starts[0], starts[1]
	if first.Restored || first.Keys != 0 || first.Records != 0 || string(first.Positions[0].At) != "0" {
		t.Errorf("the first start told %+v", first)
	}
	if !second.Restored || second.Keys != 3 || second.Records != 4 || second.Epoch != 1 || string(second.Positions[0].At) != "4" ||
		second.Incarnation <= first.Incarnation {
		t.Errorf("the second start told %+v", second)
	}
	last := checks[len(checks)-1]
	if !last.Finished || last.Records != 5 || last.Epoch != 2 || last.ID == second.Checkpoint {
		t.Errorf("the last checkpoint told %+v", last)
	}
}

// TestErrorOfASettledJob: whoever waits for a failing job is told why.
func TestErrorOfASettledJob(t *testing.T) {
	in := weirtest.NewInput[int]()
	job := weir.NewJob("fails")
	job.From("in", in).TryMap(crashAt[int](2)).To("out", new(gathered[int]).sink())
	run := job.Start(t.Context(), weir.Interval(0))
	in.Send(1, 2)
	settled := run.Settle(t.Context())
	err := run.Wait()
	if !errors.Is(err, errCrash) || settled == nil || !strings.Contains(settled.Error(), errCrash.Error()) {
		t.Errorf("Settle: %v, Wait: %v; want both to name the cause", settled, err)
	}
}
