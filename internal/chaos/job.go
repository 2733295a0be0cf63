package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// job is one job from nothing to the end of its input.
type job struct {
	*harness
	variant    variant
	members    []party
	dir, state string
	in         input
	rules      trial.Rules
	final      table    // what the sinks must hold at the end
	known      struct { // the last checkpoint that was asked for
		id string
		table
	}
	life   int
	behind bool // the last kill has left a follower behind the decision
}

// job runs one job through a few kills, then to its end, and once more, when
// there must be nothing to do.
func (h *harness) job(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(h.seed, uint64(h.jobs)))
	j := &job{harness: h, dir: filepath.Join(h.dir, fmt.Sprintf("job-%d", h.jobs)), variant: variantOf(h.seed, h.jobs)}
	j.members, j.state = j.parties(), j.path("state")
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return err
	}
	if err := j.prepare(rng); err != nil {
		return err
	}
	for kills := lasting(rng, h.rounds); kills > 0; kills-- {
		dead, err := j.live(ctx, true)
		if err != nil {
			return err
		}
		if !dead {
			break // it has come to its end
		}
	}
	for range 2 {
		if _, err := j.live(ctx, false); err != nil {
			return err
		}
	}
	if h.keep {
		return nil
	}
	return os.RemoveAll(j.dir)
}

// prepare draws the rules and makes the input.
func (j *job) prepare(rng *rand.Rand) (err error) {
	j.rules = trial.Rules{
		Dedup:    []int64{0, 5 * minute, 60 * minute, 60 * minute}[rng.IntN(4)],
		Disorder: []int64{1_000, 30_000}[rng.IntN(2)],
		Lateness: []int64{0, 2 * minute, 30 * minute}[rng.IntN(3)],
	}
	a := fewAds
	if j.variant.followed() {
		a = manyAds
	}
	if j.input != "" {
		j.in, err = read(j.input)
	} else {
		j.in, err = generate(rng, j.rules, a, j.dir)
	}
	if err == nil {
		j.final, err = j.in.tables(j.rules, nil)
	}
	return err
}

// args draws what may change from life to life. State is merged only where there
// are very many checkpoints.
func (j *job) args(rng *rand.Rand, m moment) []string {
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	args := append([]string{"run"}, j.sinkArgs()...)
	args = append(args, "--input", j.in.arg, "--state", j.state, "--progress", "0",
		"--dedup", ms(j.rules.Dedup), "--out-of-order", ms(j.rules.Disorder), "--lateness", ms(j.rules.Lateness),
		"--parallelism", fmt.Sprint(1+rng.IntN(4)),
		"--batch-size", fmt.Sprint([]int{1, 7, 64, 256, 1024}[rng.IntN(5)]),
		"--retain", fmt.Sprint(1+rng.IntN(4)))
	switch {
	case m.what == "merge":
		return append(args, "--checkpoint-records", fmt.Sprint(500+rng.IntN(500)))
	case rng.IntN(3) == 0:
		return append(args, "--checkpoint-records", fmt.Sprint(500+rng.IntN(10_000)))
	}
	return append(args, "--checkpoint-interval", ms(5+rng.Int64N(46)))
}

// live runs one process and looks at what it leaves. It is killed, if it is to
// be and doesn't end before.
func (j *job) live(ctx context.Context, kill bool) (dead bool, err error) {
	j.life++
	j.lives++
	rng := rand.New(rand.NewPCG(j.seed, uint64(j.jobs)<<32|uint64(j.life)))
	m := moment{what: "its end"}
	if kill {
		m = j.moment(rng)
	}
	l, err := start(ctx, j.bin, j.state, j.dir, j.path(fmt.Sprintf("life-%d.txt", j.life)), j.args(rng, m))
	if err != nil {
		return false, err
	}
	if kill {
		err = l.killAt(m)
	} else {
		err = l.end()
	}
	if e := l.close(); e != nil {
		return false, e
	}
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	dead = kill && killed(err)
	if !dead && err != nil {
		return false, trial.Failed("job %d (%s), life %d ended with: %v: see %s", j.jobs, j.variant.name, j.life, err, l.said.Name())
	}
	p, err := j.look(l, dead)
	if err != nil {
		return false, fmt.Errorf("job %d (%s), life %d, %s, to be killed at %s: %w", j.jobs, j.variant.name, j.life, p.name, m, err)
	}
	if dead {
		j.kills++
		j.phases[p]++
		j.hits[j.variant.name]++
	}
	return dead, nil
}

// look compares the sinks with the oracle and says what the process was at.
func (j *job) look(l *life, dead bool) (p phase, err error) {
	j.looks++
	s := scene{parties: j.members, before: l.before, reads: l.reads.count(), fails: l.fails.count()}
	if s.disk, err = readDisk(j.state); err != nil {
		return p, err
	}
	for _, m := range s.parties {
		c, err := m.look(s.disk)
		if err != nil {
			return p, fmt.Errorf("%s: %w", m.name, err)
		}
		s.have = append(s.have, c)
	}
	if err := s.decide(); err != nil {
		return p, err
	}
	p = s.phase()
	j.behind = s.any(func(c contents) bool { return c.named != s.decided.ID })
	for i, m := range s.parties {
		if err := j.compare(s, m, s.have[i], dead); err != nil {
			return p, err
		}
	}
	return p, nil
}

// compare holds one participant to what the clicks amount to: up to the
// checkpoint that it names and, where a reader sees more, no further than to the
// one that is decided, or eagerly to the end.
func (j *job) compare(s scene, m party, c contents, dead bool) error {
	if !dead {
		if c.named != s.decided.ID {
			return trial.Failed("%s: it ended, and its ledger names %q, not checkpoint %s", m.name, c.named, s.decided.ID)
		}
		return j.between(m, "at the end", c.rows, j.final, j.final)
	}
	low, err := j.at(s.disk, c.named)
	if err != nil {
		return err
	}
	if m.eager {
		return j.between(m, "eagerly", c.rows, low, j.final)
	}
	if err := j.between(m, "committed", c.rows, low, low); err != nil || c.shown == nil {
		return err
	}
	high, err := j.at(s.disk, s.decided.ID)
	if err != nil {
		return err
	}
	return j.between(m, "shown", c.shown, low, high)
}

func (j *job) between(m party, what string, got, low, high table) error {
	n, first := compare(got, m.of(low), m.of(high))
	if n == 0 {
		return nil
	}
	j.wrong += n
	return trial.Failed("%s, %s: %d wrong rows:%s", m.name, what, n, first)
}

// at is what the clicks amount to that were read before a checkpoint.
func (j *job) at(d disk, id string) (table, error) {
	if id == "" {
		return table{}, nil
	}
	e, found := d.byID(id)
	if !found {
		return nil, trial.Failed("a ledger names checkpoint %s, which the log doesn't have", id)
	}
	if j.known.id == id {
		return j.known.table, nil
	}
	read := map[string]int64{}
	for _, s := range e.Manifest.Splits {
		read[s.Split] = s.Records
	}
	t, err := j.in.tables(j.rules, read)
	j.known.id, j.known.table = id, t
	return t, err
}

// decide finds the checkpoint that is committed: the one that the decider's
// ledger names, or the newest in the log. Everybody else names it or its parent,
// and publishes nothing that it doesn't name.
func (s *scene) decide() error {
	s.decided = s.newest(trial.KindCheckpoint)
	for i, m := range s.parties {
		if !m.decides {
			continue
		}
		var found bool
		if s.decided, found = s.byID(s.have[i].named); !found && s.have[i].named != "" {
			return trial.Failed("%s names checkpoint %s, which the log doesn't have", m.name, s.have[i].named)
		}
	}
	for i, m := range s.parties {
		c := s.have[i]
		if c.named != s.decided.ID && c.named != s.decided.Manifest.Parent {
			return trial.Failed("%s names checkpoint %q, but %q is decided, behind %q", m.name, c.named, s.decided.ID, s.decided.Manifest.Parent)
		}
		for _, id := range c.ahead {
			if id != s.decided.ID {
				return trial.Failed("%s shows a file of checkpoint %s, but %q is decided", m.name, id, s.decided.ID)
			}
		}
	}
	return nil
}
