package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// Exit codes of the binary that a round may see.
const (
	codeRefused = 11
	codeFenced  = 13
	codeFailed  = 15
)

// expiry is the transactions' timeout in the rounds of stopped workers, and
// expired how long those sleep: until the broker has ended their transactions.
const (
	expiry  = time.Second
	expired = 2500 * time.Millisecond
)

// zombies stops workers for longer than their transactions may last, lets a
// successor take over, before that or after it, and wakes them again.
func (h *harness) zombies(ctx context.Context, l *lab, rounds int) error {
	deal := &moments{rng: newRand(h.seed, 2)}
	for rounds > 0 {
		j, err := h.newJob(ctx, l, kafkaToKafka, calm)
		if err != nil {
			return err
		}
		j.timeout = expiry
		n := min(rounds, roundsOfJob)
		if err := j.stopped(ctx, deal, n); err != nil {
			return err
		}
		if err := j.close(ctx); err != nil {
			return err
		}
		rounds -= n
	}
	return nil
}

func (j *job) stopped(ctx context.Context, deal *moments, rounds int) error {
	now, err := j.start(ctx, nil)
	if err != nil {
		return err
	}
	for range rounds {
		m := deal.aimed()
		for m.what == "Fetch" || strings.HasPrefix(m.what, "InitProducerId") {
			m = deal.aimed() // whoever starts has nothing yet that could be lost
		}
		m.lose = false
		now.at(ctx, m, func() {
			now.signal(syscall.SIGSTOP)
			j.hit("zombies", now.phase())
		})
		if now.ended() {
			return trial.Failed("job %d, life %d ended with exit code %d: see %s", j.jobs, j.life, exitCode(now.err), now.said.Name())
		}
		if now, err = j.succeed(ctx, now); err != nil {
			return err
		}
	}
	now.kill()
	return now.close()
}

// succeed starts a successor of a worker that is stopped, wakes the worker, and
// sees it end and the successor go on.
func (j *job) succeed(ctx context.Context, old *life) (*life, error) {
	slept := time.After(expired)
	sleep := func() {
		select {
		case <-slept:
		case <-ctx.Done():
		}
	}
	late := j.rng.IntN(2) == 0
	if late {
		sleep()
	}
	j.notes[map[bool]string{true: "successors of a stopped worker started after its transactions had timed out", false: "successors of a stopped worker started before its transactions timed out"}[late]]++
	next, err := j.start(ctx, nil, "--takeover")
	if err != nil {
		return nil, err
	}
	if err := j.progress(ctx, next, 2); err != nil {
		return nil, err
	}
	if !late {
		sleep()
	}
	old.signal(syscall.SIGCONT)
	code, err := old.end(ctx)
	if e := old.close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("a worker that was woken: %w", err)
	}
	j.notes[fmt.Sprintf("workers that were woken ended with exit code %d", code)]++
	if code != codeFenced {
		return nil, trial.Failed("job %d: a worker that was woken ended with exit code %d: see %s", j.jobs, code, old.said.Name())
	}
	return next, j.progress(ctx, next, 2)
}

// errEnded says that a life ended by itself.
var errEnded = errors.New("it ended")

// progress waits until a process has committed so many more transactions.
func (j *job) progress(ctx context.Context, l *life, n int) error {
	before := l.trace.committed()
	err := until(ctx, fmt.Sprintf("until %d more transactions were committed: see %s", n, l.said.Name()), 5*time.Millisecond, func() (bool, error) {
		if l.ended() {
			return false, errEnded
		}
		return l.trace.committed() >= before+n, nil
	})
	if errors.Is(err, errEnded) {
		return errors.Join(trial.Failed("job %d (%s), life %d ended with exit code %d: see %s", j.jobs, j.recipe.name, j.life, exitCode(l.err), l.said.Name()), err)
	}
	return err
}
