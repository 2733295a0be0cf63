package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/internal/control/log"
	checkpoints "github.com/weirstream/weir/internal/control/store"
)

// Preview is what a start would find different from the job that wrote the
// newest checkpoint.
type Preview struct {
	Where    string
	ID       log.ID        // of the newest checkpoint; zero: there is none
	Manifest *log.Manifest // likewise; nil: none
	// Undecided: whether it counts, or the one before it, only the ledgers of the
	// sinks can tell.
	Undecided bool
	Changes   []Change
	Notes     []string
	Refused   error // what Run would return for it; nil: nothing is refused
}

// Look compares the job as declared with its store, as Run does before it reaches
// its sinks. It takes no lock, makes and changes nothing, and may be called while
// the job runs. What sinks and input have to say is not part of it.
func Look(ctx context.Context, c Config) (Preview, error) {
	p := Preview{Where: c.StateDir}
	if c.StateDir == "" {
		p.Where = "memory"
		return p, nil
	}
	s, err := checkpoints.Open(ctx, c.StateDir, "")
	switch {
	case errors.Is(err, checkpoints.ErrUnknown):
		return p, nil // there is no such folder, and Run makes it
	case err != nil:
		return p, err
	}
	entries := s.Log()
	if err := s.Close(); err != nil {
		return p, fmt.Errorf("close the state directory: %w", err)
	}
	p.Refused = foreign(entries, c.Graph.Job, p.Where)
	if p.Refused != nil || c.StartOver {
		return p, nil //nolint:nilerr // that it is refused is the answer
	}
	p.look(c, entries)
	return p, nil
}

// look compares the job with the newest checkpoint.
func (p *Preview) look(c Config, entries []log.Entry) {
	j := &job{process: &process{Config: c, where: p.Where}, life: lifeOf(entries)}
	newest := j.life.newest()
	if newest == nil {
		return
	}
	p.ID, p.Manifest = newest.ID, newest.Checkpoint
	var change changes
	change, p.Refused = j.changed(newest)
	p.Changes, p.Notes = change.all, change.notes
	made := j.life.start(p.Manifest.Incarnation)
	p.Undecided = made != nil && made.Decider != storeDecides && !j.life.settled(p.ID)
	if !p.Undecided || p.Refused != nil {
		return
	}
	for _, e := range j.life.entries {
		if e.Checkpoint == nil || e.ID != p.Manifest.Parent || e.Checkpoint.Incarnation == p.Manifest.Incarnation {
			continue
		}
		if _, err := j.changed(&e); err != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("if %s hasn't committed checkpoint %d, the job goes on from checkpoint %d, which an earlier version made, and then: %v",
				made.Decider, p.ID.Slot, e.ID.Slot, err))
		}
	}
}

// foreign refuses the store of another job.
func foreign(entries []log.Entry, job, where string) error {
	for _, e := range entries {
		if e.Start != nil && e.Start.Job != job {
			return refused("state directory %s belongs to job %q, not to %q: give each job a directory of its own", where, e.Start.Job, job)
		}
	}
	return nil
}
