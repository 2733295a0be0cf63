package main

import (
	"context"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// others are the kinds of jobs that the example isn't.
var others = []recipe{
	{name: "Kafka to SQLite", binary: "mixed", db: true},
	{name: "file to Kafka", binary: "mixed", file: true, topic: true},
	{name: "Kafka to Kafka, SQLite and files", binary: "mixed", topic: true, db: true, files: true},
}

// mixed kills workers of other kinds of jobs, and looks at their databases after
// each kill.
func (h *harness) mixed(ctx context.Context, l *lab, rounds int) error {
	deal := &moments{rng: newRand(h.seed, 4)}
	for i, r := range others {
		for left := (rounds + i) / len(others); left > 0; {
			j, err := h.newJob(ctx, l, r, brisk)
			if err != nil {
				return err
			}
			before := h.rounds
			if err := j.killed(ctx, "mixed", deal, min(left, roundsOfJob)); err != nil {
				return err
			}
			if err := j.close(ctx); err != nil {
				return err
			}
			left -= h.rounds - before // a file may be at its end before the next kill
			h.notes["kills of a job "+r.name] += h.rounds - before
		}
	}
	return nil
}

// looked holds a job's databases, as a kill has left them, to the checkpoint that
// their ledgers name.
func (j *job) looked(ctx context.Context) error {
	for _, s := range j.sinks {
		d, is := s.(database)
		if !is {
			continue
		}
		rows, named, err := d.read()
		if err != nil {
			return err
		}
		log, err := readStore(j.state)
		if err != nil {
			return err
		}
		e, found := log.checkpoint(named)
		if !found && named != "" {
			return trial.Failed("%s names checkpoint %s, which the store doesn't have", d.path, named)
		}
		in := j.input
		if in == nil {
			if in, err = j.clicksSoFar(ctx); err != nil {
				return err
			}
		}
		want, v := newTally(j.rules), verdict{}
		if _, err := want.advance(in, e.Read()); err != nil {
			return err
		}
		between(&v, "counts.db", rows, want.table, want.table)
		j.total.add(v)
		if v.wrong() > 0 {
			return trial.Failed("%s, as the kill has left it, isn't checkpoint %s:%s", d.path, named, v.list())
		}
	}
	return nil
}

func (j *job) clicksSoFar(ctx context.Context) (map[string][]click, error) {
	recs, err := kcat(ctx, j.lab.Brokers(), j.topic("in"))
	if err != nil {
		return nil, err
	}
	return clicksOf(j.topic("in"), recs)
}
