package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// job is one job from nothing to the end of its input.
type job struct {
	*harness
	dir, db, state string
	in             input
	rules          rules
	eager          bool
	final          table // what the tables must hold at the end
	life           int
}

// job runs one job through a few kills, then to its end, and once more, when
// there must be nothing to do.
func (h *harness) job(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(h.seed, uint64(h.jobs)))
	j := &job{harness: h, dir: filepath.Join(h.dir, fmt.Sprintf("job-%d", h.jobs)), eager: h.jobs%2 == 0}
	j.db, j.state = filepath.Join(j.dir, "clicks.db"), filepath.Join(j.dir, "state")
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		return err
	}
	if err := j.prepare(rng); err != nil {
		return err
	}
	for kills := 4 + rng.IntN(5); kills > 0; kills-- {
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
	j.rules = rules{
		dedup:    []int64{0, 5 * minute, 60 * minute, 60 * minute}[rng.IntN(4)],
		disorder: []int64{1_000, 30_000}[rng.IntN(2)],
		lateness: []int64{0, 2 * minute, 30 * minute}[rng.IntN(3)],
	}
	if j.input != "" {
		j.in, err = read(j.input)
	} else {
		j.in, err = generate(rng, j.rules, j.dir)
	}
	if err == nil {
		j.final, err = j.in.tables(j.rules, nil)
	}
	return err
}

// args draws what may change from life to life.
func (j *job) args(rng *rand.Rand) []string {
	sink := "transactional"
	if j.eager {
		sink = "upsert"
	}
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	args := []string{"run", "--input", j.in.arg, "--db", j.db, "--state", j.state, "--sink", sink, "--progress", "0",
		"--dedup", ms(j.rules.dedup), "--out-of-order", ms(j.rules.disorder), "--lateness", ms(j.rules.lateness),
		"--parallelism", fmt.Sprint(1 + rng.IntN(4)),
		"--batch-size", fmt.Sprint([]int{1, 7, 64, 256, 1024}[rng.IntN(5)]),
		"--retain", fmt.Sprint(1 + rng.IntN(4)),
	}
	if rng.IntN(3) == 0 {
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
	l, err := start(ctx, j.bin, j.state, j.db, filepath.Join(j.dir, fmt.Sprintf("life-%d.txt", j.life)), j.args(rng))
	if err != nil {
		return false, err
	}
	m := moment{what: "its end"}
	if kill {
		m = pick(rng)
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
		return false, failed("job %d, life %d ended with: %v: see %s", j.jobs, j.life, err, l.said.Name())
	}
	p, err := j.look(l, dead)
	if err != nil {
		return false, fmt.Errorf("job %d, life %d, %s, to be killed at %s: %w", j.jobs, j.life, p.name, m, err)
	}
	if dead {
		j.kills++
		j.phases[p]++
	}
	return dead, nil
}

// look compares the tables with the oracle and says what the process was at.
func (j *job) look(l *life, dead bool) (p phase, err error) {
	j.looks++
	d, err := readDisk(j.state)
	if err != nil {
		return p, err
	}
	torn := tornWAL(j.db + "-wal") // before anything opens the database
	db, err := look(j.db, filepath.Join(j.dir, "copy.db"))
	if err != nil {
		return p, err
	}
	p = d.phase(db, l.before, l.read(), torn)
	low, high := table{}, table{}
	committed, found := d.byID(db.named)
	switch {
	case !dead:
		low, high = j.final, j.final
	case found:
		read := map[string]int64{}
		for _, s := range committed.manifest.Splits {
			read[s.Split] = s.Records
		}
		if low, err = j.in.tables(j.rules, read); err != nil {
			return p, err
		}
		high = low
	case db.named != "":
		return p, failed("the ledgers name checkpoint %s, which the log doesn't have", db.named)
	}
	if dead && j.eager {
		high = j.final
	}
	n, first := compare(db.rows, low, high)
	if n > 0 {
		j.wrong += n
		return p, failed("%d wrong rows:%s", n, first)
	}
	return p, nil
}
