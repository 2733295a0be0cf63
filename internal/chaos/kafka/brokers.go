package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// brokers kills brokers with SIGKILL and starts them again: at random, while a
// transaction is open, and right when EndTxn was answered.
func (h *harness) brokers(ctx context.Context, l *lab, rounds int) error {
	name := map[bool]string{true: "brokers", false: "cluster"}[l.nodes == 1]
	deal := h.brokerMoments(rounds, l.nodes)
	for len(deal) > 0 {
		j, err := h.newJob(ctx, l, kafkaToKafka, calm)
		if err != nil {
			return err
		}
		// A transaction survives its broker's absence, or times out in it.
		j.timeout = []time.Duration{10 * time.Second, time.Minute}[j.rng.IntN(2)]
		n := min(len(deal), roundsOfJob/2)
		if err := j.bereaved(ctx, name, deal[:n]); err != nil {
			return err
		}
		if err := j.close(ctx); err != nil {
			return err
		}
		deal = deal[n:]
	}
	return nil
}

// brokerMoments is as many moments of each kind, in a random order.
func (h *harness) brokerMoments(n, nodes int) (deal []moment) {
	rng := newRand(h.seed, 5+nodes)
	for i := range n {
		m := []moment{
			{what: "time", delay: upTo(rng, time.Second)},
			{what: "EndTxn", answer: true, n: 1 + rng.IntN(5)},
			{what: "Produce", answer: true, n: 1 + rng.IntN(5)},
			{what: "EndTxn", n: 1 + rng.IntN(5)},
		}[i%4]
		deal = append(deal, m)
	}
	rng.Shuffle(n, func(a, b int) { deal[a], deal[b] = deal[b], deal[a] })
	return deal
}

func (j *job) bereaved(ctx context.Context, part string, deal []moment) error {
	l, err := j.start(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range deal {
		if l, err = j.going(ctx, l, 2); err != nil {
			return err
		}
		node, err := j.victim(ctx)
		if err != nil {
			return err
		}
		var p phase
		var died error
		kill := func() {
			was := l.trace.now() // to look at the disk first would take longer than markers do
			died = j.lab.KillNode(ctx, node)
			s, err := readStore(j.state)
			p, died = was.phase(s), errors.Join(died, err)
		}
		if !l.at(ctx, m, kill) {
			return trial.Failed("job %d, life %d ended with exit code %d: see %s", j.jobs, j.life, exitCode(l.err), l.said.Name())
		}
		if died != nil {
			return died
		}
		j.hit(part, p)
		j.notes[fmt.Sprintf("%s: a broker was killed at %s", part, strings.TrimSuffix(moment{what: m.what, answer: m.answer}.String(), " 0 + 0s"))]++
		away := time.Duration(0)
		if j.lab.nodes > 1 {
			away = upTo(j.rng, 6*time.Second)
		} else if j.rng.IntN(2) == 0 {
			away = upTo(j.rng, 2*time.Second)
		}
		select {
		case <-time.After(away):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := j.lab.StartNode(ctx, node); err != nil {
			return err
		}
		if l, err = j.going(ctx, l, 2); err != nil {
			return err
		}
		if err := j.lab.whole(ctx); err != nil {
			return err
		}
	}
	l.kill()
	return l.close()
}

// victim is the node to be killed: any, or one that matters most to the job.
func (j *job) victim(ctx context.Context) (int, error) {
	switch {
	case j.lab.nodes == 1:
		return 1, nil
	case j.rng.IntN(3) == 0:
		return 1 + j.rng.IntN(j.lab.nodes), nil
	case j.rng.IntN(2) == 0:
		return j.lab.leader(ctx, j.topic("out"), 0)
	}
	return j.lab.leader(ctx, j.controlTopic(), 0)
}

// going waits until the job commits again. A process that has given up is
// started again, as whoever runs it would do; and one that has refused to start
// because of markers that a broker has lost, after doctor has resolved that.
func (j *job) going(ctx context.Context, l *life, n int) (*life, error) {
	for range 10 {
		err := j.progress(ctx, l, n)
		if err == nil || !errors.Is(err, errEnded) {
			return l, err
		}
		code := exitCode(l.err)
		j.notes[fmt.Sprintf("workers that ended with exit code %d after their broker was killed", code)]++
		if e := l.close(); e != nil {
			return nil, e
		}
		switch {
		case code == codeRefused && j.lab.nodes == 1:
			if err := j.resolve(ctx, l); err != nil {
				return nil, err
			}
		case code != codeFailed:
			return nil, err
		}
		if l, err = j.start(ctx, nil); err != nil {
			return nil, err
		}
	}
	return nil, trial.Failed("job %d doesn't go on: see %s", j.jobs, l.said.Name())
}

// lostMarkers is what a refusal must name.
var lostMarkers = regexp.MustCompile(`(?i)partition.*offset|offset.*partition|/\d+.*offset \d+`)

// resolve lets doctor end the transactions that lost their markers.
func (j *job) resolve(ctx context.Context, l *life) error {
	said, err := os.ReadFile(l.said.Name())
	if err != nil {
		return err
	}
	if !lostMarkers.Match(said) {
		return trial.Failed("job %d, life %d refused to start and doesn't name a partition and an offset: see %s", j.jobs, j.life, l.said.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := append([]string{"doctor", "--repair", "--yes", "--brokers", strings.Join(j.lab.Brokers(), ",")}, j.args()[1:]...)
	c := exec.CommandContext(ctx, j.recipe.bin(j.harness), args...)
	out, err := c.CombinedOutput()
	if e := os.WriteFile(j.path(fmt.Sprintf("doctor-%d.txt", j.life)), out, 0o600); e != nil {
		return e
	}
	if err != nil {
		return trial.Failed("job %d: doctor ended with %v: see %s", j.jobs, err, j.path(fmt.Sprintf("doctor-%d.txt", j.life)))
	}
	j.notes["lost markers that were refused, and resolved by doctor"]++
	return nil
}
