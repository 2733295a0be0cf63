package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/process"
)

// TestTheCheckpointWins: the group's offsets are for lag tools. Whatever somebody
// makes of them while the job is away, it goes on where its checkpoint stands, and
// puts them right again.
func TestTheCheckpointWins(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(at *place)
	}{
		{"deleted", func(at *place) { at.deleteGroup() }},
		{"set ahead", func(at *place) { at.setGroup(func(end int64) int64 { return end }) }},
		{"set behind", func(at *place) { at.setGroup(func(int64) int64 { return 0 }) }},
		{"set behind the end", func(at *place) { at.setGroup(func(end int64) int64 { return end + 1000 }) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := newPlace(t, 3)
			at.produce(at.made(0, 1_000)...)
			launch(t, at.args("--stop-at-end")...).Ends(0, "ended: ")
			at.wantLag(0)
			at.produce(at.made(1_000, 2_000)...)
			c.alter(at)
			launch(t, at.args("--stop-at-end")...).Ends(0, "restored checkpoint")
			at.want(madeCounts(2_000))
			at.wantLag(0)
		})
	}
}

func (p *place) deleteGroup() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	if _, err := p.adm.DeleteGroup(ctx, p.group()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) setGroup(to func(end int64) int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	ends, err := p.adm.ListEndOffsets(ctx, p.input)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var set kadm.Offsets
	ends.Each(func(o kadm.ListedOffset) { set.AddOffset(o.Topic, o.Partition, to(o.Offset), -1) })
	if err := p.adm.CommitAllOffsets(ctx, p.group(), set); err != nil {
		p.t.Fatal(err)
	}
}

// TestPartitionsAdded: partitions that come while the job runs are read from their
// beginning, wherever the others began.
func TestPartitionsAdded(t *testing.T) {
	at := newPlace(t, 2)
	at.produce(at.made(0, 500)...)
	job := launch(t, at.args("--start", "latest", "--checkpoint-interval", "20ms", "--discover", "50ms")...)
	job.Until("started for the first time")
	at.produce(at.made(500, 1_000)...)
	at.shows(job, madeBetween(500, 1_000))
	at.grow(5)
	at.produce(at.made(1_000, 2_000)...) // most likely before the job knows of them
	at.shows(job, madeBetween(500, 2_000))
	job.Kill()
	at.produce(at.made(2_000, 2_500)...)
	launch(t, at.args("--stop-at-end")...).Ends(0, "restored checkpoint")
	at.want(madeBetween(500, 2_500))
	at.wantLag(0)
}

// grow adds partitions to the input topic.
func (p *place) grow(to int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	grown, err := p.adm.UpdatePartitions(ctx, to, p.input)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.partitions = to
}

// TestRetentionPassedTheCheckpoint: records are gone that the job hasn't read. It
// says which, and goes on behind them only if it is told to.
func TestRetentionPassedTheCheckpoint(t *testing.T) {
	at := newPlace(t, 1)
	at.produce(at.made(0, 100)...)
	launch(t, at.args("--stop-at-end")...).Ends(0, "ended: 100 records")
	at.produce(at.made(100, 300)...)
	at.deleteBefore(250)
	gap := []string{at.input, "partition 0", "100", "250", "--accept-loss"}
	launch(t, at.args("--stop-at-end")...).Ends(11, gap...)
	at.want(madeCounts(100))
	p := launch(t, at.args("--stop-at-end", "--accept-loss")...)
	p.Ends(0, "250")
	want := madeBetween(250, 300)
	for key, n := range madeCounts(100) {
		want[key] += n
	}
	at.want(want)
	at.wantLag(0)
	launch(t, at.args("--stop-at-end")...).Ends(0)
	at.want(want)
}

func (p *place) deleteBefore(offset int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Deadline)
	defer cancel()
	var before kadm.Offsets
	before.AddOffset(p.input, 0, offset, -1)
	deleted, err := p.adm.DeleteRecords(ctx, before)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestStart begins at each of the places that --start can name, and a second run
// goes on behind the first, whatever it is told.
func TestStart(t *testing.T) {
	at := newPlace(t, 2)
	at.produce(at.made(0, 600)...)
	first := time.Now()
	// A broker's clock has milliseconds: the next ones must have a later one.
	for time.Now().UnixMilli() <= first.UnixMilli() {
		continue
	}
	between := time.Now().Truncate(time.Millisecond)
	at.produce(at.made(600, 1_000)...)
	for _, c := range []struct {
		start string
		from  int
	}{
		{"earliest", 0},
		{"latest", 1_000},
		{between.UTC().Format(time.RFC3339Nano), 600},
		{fmt.Sprint(between.UnixMilli()), 600},
		{time.Now().Add(time.Hour).UTC().Format(time.RFC3339), 1_000},
		{"committed", 0}, // of a group that nobody has ever been in: from the beginning
	} {
		t.Run(c.start, func(t *testing.T) {
			own := newPlace(t, 2)
			own.input = at.input
			launch(t, own.args("--start", c.start, "--stop-at-end")...).Ends(0, "ended: ")
			own.want(madeBetween(c.from, 1_000))
			launch(t, own.args("--start", "earliest", "--stop-at-end")...).Ends(0, "restored checkpoint")
			own.want(madeBetween(c.from, 1_000))
		})
	}
}

// TestStartCommitted takes a consumer's place: its offsets are read once, when the
// job first starts.
func TestStartCommitted(t *testing.T) {
	at := newPlace(t, 2)
	at.produce(at.made(0, 600)...)
	at.setGroup(func(end int64) int64 { return end })
	at.produce(at.made(600, 1_000)...)
	launch(t, at.args("--start", "committed", "--stop-at-end")...).Ends(0)
	at.want(madeBetween(600, 1_000))
	at.wantLag(0)
}

func madeBetween(from, to int) counts {
	all, before := madeCounts(to), madeCounts(from)
	for k, n := range before {
		if all[k] -= n; all[k] == 0 {
			delete(all, k)
		}
	}
	return all
}
