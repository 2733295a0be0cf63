package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// moment is when a process is killed: once something has happened for the n-th
// time, and after a delay.
type moment struct {
	what  string // "time", or something to watch for
	n     int
	delay time.Duration
}

func (m moment) String() string { return fmt.Sprintf("%s %d + %s", m.what, m.n, m.delay) }

// pick draws a moment. Half of them are just a time, from the first instant on;
// the rest follow what the process says and leaves on disk.
func pick(rng *rand.Rand) moment {
	m := moment{what: "time", n: 1 + min(rng.IntN(12), rng.IntN(12))}
	if rng.IntN(2) == 0 {
		m.delay = upTo(rng, 2*time.Millisecond)
	}
	switch rng.IntN(24) {
	case 0, 1:
		m.delay = upTo(rng, 15*time.Millisecond)
	case 2, 3, 4, 5, 6:
		m.delay = upTo(rng, 300*time.Millisecond)
	case 7:
		m.what, m.n = "start entry", 1
	case 8, 9:
		m.what, m.n = "reads", 1
		m.delay *= 10
	case 10, 11:
		m.what = "segment"
	case 12:
		m.what = "temporary file"
	case 13, 14:
		m.what = "checkpoint entry"
	case 15:
		m.what = "retire entry"
	case 16:
		m.what, m.n = "last checkpoint entry", 1
	case 17, 18, 19:
		m.what, m.delay = "database write", m.delay/10
	case 20, 21:
		m.what, m.n = "merge", 1
	case 22:
		m.what, m.n, m.delay = "restart", 1, upTo(rng, 1200*time.Millisecond)
	}
	return m
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// moment draws one that the job has, often one that only jobs of its variant
// have.
func (j *job) moment(rng *rand.Rand) moment {
	m := pick(rng)
	at := func(n int, what ...string) {
		m = moment{what: what[rng.IntN(len(what))], n: 1 + rng.IntN(n), delay: upTo(rng, 300*time.Microsecond)}
	}
	switch {
	case j.behind && rng.IntN(3) > 0:
		// Whoever is behind is rolled forward soon after the start entry.
		switch {
		case j.variant.files && rng.IntN(2) == 0:
			at(1, "folder's ledger", "published file")
		case j.variant.db:
			at(4, "database write")
		default:
			m = moment{what: "start entry", n: 1, delay: upTo(rng, 40*time.Millisecond)}
		}
	case j.variant.files && (rng.IntN(4) == 0 || m.what == "database write" && !j.variant.db):
		at(12, "published file", "sealed file", "folder's ledger", "checkpoint entry")
	case j.variant.followed() && rng.IntN(4) == 0:
		at(12, "output log", "output log", "checkpoint entry")
	case m.what == "restart" && !canStarve, m.what == "merge" && j.rules.Dedup < 60*minute:
		at(12, "segment")
	}
	return m
}

// watch returns at the moment, or when stop is closed.
func (l *life) watch(m moment, stop <-chan struct{}) {
	happened := true
	switch m.what {
	case "time":
	case "reads":
		happened = l.reads.wait(stop)
	case "restart":
		happened = l.reads.wait(stop) && l.starve(stop)
	default:
		happened = l.see(m, stop)
	}
	if !happened {
		return
	}
	select {
	case <-time.After(m.delay):
	case <-stop:
	}
}

// wait waits for a word and leaves it to be counted.
func (h heard) wait(stop <-chan struct{}) bool {
	select {
	case <-h:
		h.note()
		return true
	case <-stop:
		return false
	}
}

// starve lets the process open no more files, until an error has ended what it
// was at and it starts again in place.
func (l *life) starve(stop <-chan struct{}) bool {
	before, err := limitFiles(l.cmd.Process.Pid, 0)
	if err != nil {
		return false // it has ended
	}
	failed := l.fails.wait(stop)
	_, err = limitFiles(l.cmd.Process.Pid, before)
	return failed && err == nil
}

// see waits until something has happened on the disk for the n-th time.
func (l *life) see(m moment, stop <-chan struct{}) bool {
	seen := map[string]bool{}
	l.fresh(m.what, seen)
	written := l.written()
	for count := 0; count < m.n; {
		pause := 100 * time.Microsecond
		if m.what == "database write" {
			pause = 0 // a transaction is written in less
			if at := l.written(); !at.Equal(written) {
				written, count = at, count+1
			}
		} else {
			for _, path := range l.fresh(m.what, seen) {
				if is(m.what, path) {
					count++
				}
			}
		}
		select {
		case <-stop:
			return false
		case <-time.After(pause):
		}
	}
	return true
}

// written is when the log of a database was last written to.
func (l *life) written() (at time.Time) {
	for _, name := range []string{"clicks.db-wal", "totals.db-wal"} {
		if info, err := os.Stat(filepath.Join(l.dir, name)); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}

// places is where a thing to watch for appears, from the job's folder.
func places(what string) string {
	switch what {
	case "segment", "merge":
		return "state/seg"
	case "temporary file":
		return "state/tmp"
	case "output log":
		return "state/out"
	case "published file":
		return "files"
	case "sealed file":
		return "files/.weir/run-*/stage/*"
	case "folder's ledger":
		return "files/.weir/run-*/ledger"
	}
	return "state/log"
}

// fresh returns the files that weren't there before.
func (l *life) fresh(what string, seen map[string]bool) (fresh []string) {
	dirs, _ := filepath.Glob(filepath.Join(l.dir, places(what))) // the pattern is a good one
	for _, dir := range dirs {
		for _, path := range trial.List(dir) {
			if !seen[path] {
				seen[path] = true
				fresh = append(fresh, path)
			}
		}
	}
	return fresh
}

// is reports whether a new file is what is waited for.
func is(what, path string) bool {
	name := filepath.Base(path)
	switch what {
	case "segment", "temporary file", "output log", "folder's ledger":
		return true
	case "merge":
		return strings.Contains(name, "-merge-")
	case "published file":
		return name[0] != '.'
	case "sealed file":
		return !strings.HasSuffix(name, ".open")
	}
	e, err := trial.ReadEntry(path)
	if err != nil {
		return false // retired since
	}
	switch what {
	case "start entry":
		return e.Kind == trial.KindStart
	case "checkpoint entry":
		return e.Kind == trial.KindCheckpoint
	case "last checkpoint entry":
		return e.Kind == trial.KindCheckpoint && e.Manifest.Finished
	}
	return what == "retire entry" && e.Kind == trial.KindRetire
}
