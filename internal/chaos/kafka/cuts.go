package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// cuts ends connections before a request is applied and after it was, while its
// answer is on its way. Nobody is killed, and the worker must go on by itself.
func (h *harness) cuts(ctx context.Context, l *lab, rounds int) error {
	rng := newRand(h.seed, 3)
	var deal []moment
	for _, what := range []string{"Produce", "TxnOffsetCommit", "EndTxn", "InitProducerId"} {
		for range rounds {
			deal = append(deal, moment{what: what}, moment{what: what, answer: true})
		}
	}
	rng.Shuffle(len(deal), func(a, b int) { deal[a], deal[b] = deal[b], deal[a] })
	const ofJob = 2 * roundsOfJob
	for len(deal) > 0 {
		j, err := h.newJob(ctx, l, kafkaToKafka, brisk)
		if err != nil {
			return err
		}
		n := min(len(deal), ofJob)
		if err := j.cut(ctx, deal[:n]); err != nil {
			return err
		}
		if err := j.close(ctx); err != nil {
			return err
		}
		deal = deal[n:]
	}
	return nil
}

func (j *job) cut(ctx context.Context, deal []moment) error {
	l, err := j.start(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range deal {
		if err := j.progress(ctx, l, 1); err != nil {
			return err
		}
		t := &trap{what: m.what, answer: m.answer, n: 1 + j.rng.IntN(4)}
		var p phase
		t.do = func() bool { p = l.phase(); return true }
		if m.what == "InitProducerId" {
			// That is asked when a worker starts, one request a producer.
			t.n = 1 + j.rng.IntN(2)
			if _, hit := l.kill(); !hit {
				return trial.Failed("job %d, life %d ended with exit code %d: see %s", j.jobs, j.life, exitCode(l.err), l.said.Name())
			}
			if err := l.close(); err != nil {
				return err
			}
			ready := make(chan struct{})
			t.do = func() bool { <-ready; p = l.phase(); return true }
			l, err = j.start(ctx, t)
			if close(ready); err != nil {
				return err
			}
		} else {
			l.arm(t)
		}
		select {
		case <-t.sprung:
		case <-l.over:
			return trial.Failed("job %d, life %d ended with exit code %d: see %s", j.jobs, j.life, exitCode(l.err), l.said.Name())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return trial.Failed("job %d, life %d: no %s in %s: see %s", j.jobs, j.life, m, patience, l.said.Name())
		}
		j.hit("cuts", p)
		side := "before it was applied"
		if m.answer {
			side = "after it was applied"
		}
		j.notes[fmt.Sprintf("connections cut at %s, %s", m.what, side)]++
	}
	if err := j.progress(ctx, l, 2); err != nil {
		return err
	}
	l.kill()
	return l.close()
}
