package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// roundsOfJob is how many rounds a job lasts.
const roundsOfJob = 10

// kills ends workers with SIGKILL.
func (h *harness) kills(ctx context.Context, l *lab, rounds int) error {
	timed := (rounds + 9) / 10
	if err := h.timeToOutput(ctx, l, timed); err != nil {
		return err
	}
	left := rounds - timed
	deal := &moments{rng: newRand(h.seed, 1)}
	for left > 0 {
		j, err := h.newJob(ctx, l, kafkaToKafka, brisk)
		if err != nil {
			return err
		}
		if err := j.killed(ctx, "kills", deal, min(left, roundsOfJob)); err != nil {
			return err
		}
		if err := j.close(ctx); err != nil {
			return err
		}
		left -= roundsOfJob
	}
	return nil
}

// killed takes a job through so many kills.
func (j *job) killed(ctx context.Context, part string, deal *moments, rounds int) error {
	for rounds > 0 {
		m := deal.next(j.recipe)
		l, err := j.start(ctx, nil)
		if err != nil {
			return err
		}
		var p phase
		hit := false
		l.at(ctx, m, func() { p, hit = l.kill() })
		if err := errors.Join(l.close(), ctx.Err()); err != nil {
			return err
		}
		switch {
		case hit:
			j.hit(part, p)
			rounds--
			if err := j.looked(ctx); err != nil {
				return fmt.Errorf("job %d (%s), life %d, killed at %s: %w", j.jobs, j.recipe.name, j.life, m, err)
			}
		case j.recipe.file && exitCode(l.err) == 0:
			return nil // it has read its file to the end
		default:
			return trial.Failed("job %d (%s), life %d, to be killed at %s, ended with exit code %d: see %s", j.jobs, j.recipe.name, j.life, m, exitCode(l.err), l.said.Name())
		}
	}
	return nil
}

// close lets a job come to its end, checks what it has left, and removes it.
func (j *job) close(ctx context.Context) error {
	v, err := j.finished(ctx)
	if err != nil {
		return err
	}
	return j.accept(ctx, v)
}

func (j *job) finished(ctx context.Context) (verdict, error) {
	if err := j.finish(ctx); err != nil {
		return verdict{}, fmt.Errorf("job %d (%s): %w", j.jobs, j.recipe.name, err)
	}
	v, err := j.check(ctx)
	if err != nil {
		err = fmt.Errorf("job %d (%s): %w", j.jobs, j.recipe.name, err)
	}
	return v, err
}

// accept counts a verdict, and refuses one that finds anything.
func (j *job) accept(ctx context.Context, v verdict) error {
	j.total.add(v)
	if v.wrong() > 0 {
		return trial.Failed("job %d (%s) in %s: %d lost, %d duplicated, %d changed:%s", j.jobs, j.recipe.name, j.dir, v.lost, v.dup, v.changed, v.list())
	}
	return j.remove(ctx)
}
