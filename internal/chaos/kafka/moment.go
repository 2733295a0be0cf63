package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// moment is when something is done to a process: when its proxy holds a request
// or an answer of a kind for the n-th time, when something has appeared in the
// state directory for the n-th time, or by the clock alone; and after a delay.
type moment struct {
	what   string // as event.is takes it; "segment", "checkpoint entry"; "time"
	answer bool
	n      int
	delay  time.Duration
	lose   bool // what is held is lost with the process, and not delivered
}

func (m moment) String() string {
	side := ""
	if m.answer {
		side = "'s answer"
	}
	return fmt.Sprintf("%s%s %d + %s", m.what, side, m.n, m.delay)
}

func (m moment) wire() bool {
	return m.what != "time" && m.what != "segment" && m.what != "checkpoint entry"
}

// path is the moments on the path of an epoch and of a recovery, each of which
// a round in turn is aimed at.
var path = []moment{
	{what: "InitProducerId a"}, {what: "InitProducerId a", answer: true},
	{what: "InitProducerId b"}, {what: "InitProducerId b", answer: true},
	{what: "InitProducerId", answer: true, n: 2}, {what: "Fetch"},
	{what: "Produce"}, {what: "Produce", answer: true},
	{what: "segment"}, {what: "checkpoint entry"},
	{what: "control"}, {what: "control", answer: true},
	{what: "TxnOffsetCommit"}, {what: "TxnOffsetCommit", answer: true},
	{what: "EndTxn"}, {what: "EndTxn", answer: true},
}

// moments deals moments: half of them by the clock, the rest in turn along the
// path, in an order that the seed decides.
type moments struct {
	rng  *rand.Rand
	left []moment
}

func (d *moments) next(r recipe) moment {
	rng := d.rng
	if rng.IntN(2) == 0 {
		m := moment{what: "time", delay: upTo(rng, 1500*time.Millisecond)}
		if rng.IntN(4) == 0 {
			m.delay = upTo(rng, 150*time.Millisecond)
		}
		return m
	}
	for {
		if m := d.aimed(); r.has(m) {
			return m
		}
	}
}

// has reports whether a moment ever comes for a kind of job.
func (r recipe) has(m moment) bool {
	switch m.what {
	case "Fetch":
		return !r.file
	case "TxnOffsetCommit":
		return r.topic && !r.atLeast && !r.file
	case "Produce":
		return r.topic
	}
	return !m.wire() || r.topic && !r.atLeast
}

// aimed is the next on the path.
func (d *moments) aimed() moment {
	rng := d.rng
	if len(d.left) == 0 {
		for _, i := range rng.Perm(len(path)) {
			d.left = append(d.left, path[i])
		}
	}
	m := d.left[0]
	d.left = d.left[1:]
	switch {
	case m.n > 0:
	case strings.HasPrefix(m.what, "InitProducerId") || m.what == "Fetch":
		m.n = 1
	default:
		m.n = 1 + min(rng.IntN(12), rng.IntN(12))
	}
	if !m.wire() || rng.IntN(4) == 0 {
		m.delay = upTo(rng, 2*time.Millisecond)
	}
	m.lose = rng.IntN(2) == 0
	return m
}

// at does something at a moment: while the proxy holds what the moment is about,
// where it is about that. It returns false when the process ended before.
func (l *life) at(ctx context.Context, m moment, do func()) bool {
	once := make(chan struct{})
	if m.wire() {
		t := l.arm(&trap{what: m.what, answer: m.answer, n: m.n, do: func() bool {
			l.pause(ctx, m.delay)
			do()
			return m.lose
		}})
		once = t.sprung
	} else {
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			defer close(once)
			l.watch(waiting, m)
		}()
	}
	select {
	case <-once:
		if !m.wire() {
			l.pause(ctx, m.delay)
			do()
		}
		return true
	case <-l.over:
	case <-ctx.Done():
	case <-time.After(15 * time.Second): // it doesn't come: by the clock then
		l.disarm()
		do()
		return true
	}
	l.disarm()
	return false
}

// watch returns when something has appeared in the state directory for the n-th
// time.
func (l *life) watch(ctx context.Context, m moment) {
	if m.what == "time" {
		return
	}
	folder, isIt := "seg", func(string) bool { return true }
	if m.what == "checkpoint entry" {
		folder, isIt = "log", func(path string) bool {
			e, err := trial.ReadEntry(path)
			return err == nil && e.Kind == trial.KindCheckpoint
		}
	}
	seen := map[string]bool{}
	for _, path := range trial.List(filepath.Join(l.state, folder)) {
		seen[path] = true
	}
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for count := 0; count < m.n; {
		select {
		case <-ctx.Done():
			return
		case <-l.over:
			return
		case <-tick.C:
		}
		for _, path := range trial.List(filepath.Join(l.state, folder)) {
			if !seen[path] {
				seen[path] = true
				if isIt(path) {
					count++
				}
			}
		}
	}
}
