// Package store looks at a job's state directory from outside the job: it lists
// checkpoints, reads the state that they hold, compares them and removes them.
// Reading takes no lock, makes nothing, and works while the job runs: what the
// job retires meanwhile is gone, and said to be.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// ErrUnknown reports that what was asked for isn't there: a checkpoint, a step, a
// key that can't be one of the step. The error's text says no more than what.
var ErrUnknown = errors.New("not there")

// UnknownError is an ErrUnknown in words.
type UnknownError struct{ What string }

// Error is the words.
func (e *UnknownError) Error() string { return e.What }

// Unwrap is ErrUnknown.
func (e *UnknownError) Unwrap() error { return ErrUnknown }

func unknown(format string, args ...any) error { return &UnknownError{fmt.Sprintf(format, args...)} }

// Store is a state directory as it was last read. It belongs to one goroutine.
// The caller must Close it.
type Store struct {
	where   string
	files   sys.Files
	blobs   sys.Blobs
	log     *log.Log
	entries []log.Entry // of which none is retired
}

// Open opens and reads the state directory dir. job is whose it must be; empty:
// anybody's. A directory that holds nothing yet is taken for one of a job that
// hasn't started.
func Open(ctx context.Context, dir, job string) (*Store, error) {
	env := sys.From(ctx)
	open := env.View
	if open == nil {
		open = env.Files
	}
	files, err := open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown("there is no state directory %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	s := &Store{where: dir, files: files, blobs: sys.NewBlobs(files)}
	if err = s.Refresh(); err == nil {
		err = s.belongs(job)
	}
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return s, nil
}

// Close closes the state directory.
func (s *Store) Close() error { return s.files.Close() }

// Refresh reads the log again. A job that retires checkpoints meanwhile makes the
// log look as if entries were missing: only what is still so when nothing has
// changed in between is damage.
func (s *Store) Refresh() error {
	for try := 1; ; try++ {
		before, err := s.blobs.List("log/")
		if err != nil {
			return fmt.Errorf("list the log in %s: %w", s.where, err)
		}
		l, err := log.Open(s.blobs, s.where)
		if err == nil {
			s.log, s.entries = l, log.Standing(l.Entries())
			return nil
		}
		if !errors.Is(err, log.ErrCorrupt) {
			return fmt.Errorf("open the checkpoint log: %w", err)
		}
		after, again := s.blobs.List("log/")
		if again != nil || slices.Equal(before, after) || try == 100 {
			return fmt.Errorf("open the checkpoint log: %w", errors.Join(err, again))
		}
	}
}

// belongs refuses a directory of another job, or of nobody's.
func (s *Store) belongs(job string) error {
	if len(s.entries) == 0 {
		names, err := s.files.List(".")
		if err != nil {
			return fmt.Errorf("list %s: %w", s.where, err)
		}
		for _, n := range names {
			if !slices.Contains([]string{"log/", "seg/", "out/", "tmp/", "lock", "reserve"}, n) {
				return refused("%s isn't a state directory: it holds %s, and no checkpoint log", s.where, strings.TrimSuffix(n, "/"))
			}
		}
		return nil
	}
	for _, e := range s.entries {
		if e.Start != nil && job != "" && e.Start.Job != job {
			return refused("state directory %s belongs to job %q, not to %q", s.where, e.Start.Job, job)
		}
	}
	return nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", data.ErrRefused, fmt.Sprintf(format, args...))
}

// Standing says whether a checkpoint counts, as far as the store alone can tell.
type Standing string

// The standings.
const (
	Committed Standing = "committed" // another was built on it, or the store decides, or the log says so
	Undecided Standing = "undecided" // it is the newest one: only a ledger can tell
	Abandoned Standing = "abandoned" // never committed: others were built on what was before it
	GivenUp   Standing = "given up"  // of a life of the job before it was started over
)

// Checkpoint is one checkpoint of the store.
type Checkpoint struct {
	ID log.ID
	*log.Manifest
	Start    *log.Start // under which it was made
	Standing Standing
	New      int64 // bytes of the files that it was the first to name
	Total    int64 // bytes of all files that it names
	Keys     int64 // state entries
}

// Checkpoints returns all checkpoints, oldest first.
func (s *Store) Checkpoints() []Checkpoint {
	j := judge{entries: s.entries, built: map[log.ID]bool{}}
	for _, e := range s.log.Entries() {
		switch {
		case e.Start != nil:
			j.uuid = e.Start.UUID
		case e.Checkpoint != nil:
			j.built[e.Checkpoint.Parent] = true
		case e.Retire != nil:
			for _, c := range e.Retire.Cut {
				j.built[c.Parent] = true
			}
		}
	}
	var all []Checkpoint
	for _, e := range s.entries {
		if e.Checkpoint == nil {
			continue
		}
		c := Checkpoint{ID: e.ID, Manifest: e.Checkpoint, Start: s.start(e.Checkpoint.Incarnation)}
		c.Standing = j.standing(e, c.Start)
		for _, st := range c.Steps {
			c.Keys += st.Live
		}
		c.New, c.Total = sizes(c.Manifest, all)
		all = append(all, c)
	}
	return all
}

// sizes are the bytes of the files that m is the first to name, and of all. Where
// the checkpoint before it is gone, the files' names tell.
func sizes(m *log.Manifest, before []Checkpoint) (fresh, total int64) {
	known, parent := map[string]bool{}, false
	for _, b := range before {
		parent = parent || b.ID == m.Parent
		for _, f := range b.Segments {
			known[f.Name] = true
		}
	}
	for _, f := range m.Segments {
		total += f.Size
		if !known[f.Name] && m.Content.IsZero() && (parent || log.WrittenFor(f.Name, m)) {
			fresh += f.Size
		}
	}
	for _, f := range m.Outputs {
		fresh, total = fresh+f.Size, total+f.Size
	}
	return fresh, total
}

// judge decides about standings.
type judge struct {
	entries []log.Entry
	uuid    string          // of the newest life
	built   map[log.ID]bool // another checkpoint was built on it
}

func (j *judge) standing(e log.Entry, start *log.Start) Standing {
	switch {
	case e.Checkpoint.UUID != j.uuid:
		return GivenUp
	case j.built[e.ID], log.Settled(j.entries, e.ID), start != nil && start.Decider == "store":
		return Committed
	case j.newest(e.Slot):
		return Undecided
	}
	return Abandoned
}

func (j *judge) newest(slot int64) bool {
	return !slices.ContainsFunc(j.entries, func(e log.Entry) bool { return e.Checkpoint != nil && e.Slot > slot })
}

func (s *Store) start(incarnation int64) *log.Start {
	for _, e := range s.entries {
		if e.Slot == incarnation {
			return e.Start
		}
	}
	return nil
}

// Find returns the checkpoint in a slot. Where it isn't, the error says what there
// is instead.
func (s *Store) Find(slot int64) (Checkpoint, error) {
	all := s.Checkpoints()
	for _, c := range all {
		if c.ID.Slot == slot {
			return c, nil
		}
	}
	if len(all) == 0 {
		return Checkpoint{}, unknown("%s holds no checkpoints", s.where)
	}
	what := "it has been retired"
	for _, e := range s.entries {
		switch {
		case e.Slot == slot && e.Start != nil:
			what = "that slot of the log holds the start of an incarnation"
		case e.Slot == slot && e.Retire != nil:
			what = "that slot of the log holds a list of what was retired"
		}
	}
	if slot < 1 || slot >= s.log.Next() {
		what = fmt.Sprintf("the log ends at %d", s.log.Next()-1)
	}
	return Checkpoint{}, unknown("there is no checkpoint %d in %s: %s; the newest is %d", slot, s.where, what, all[len(all)-1].ID.Slot)
}

// Log returns every entry that counts, starts and retirements included.
func (s *Store) Log() []log.Entry { return slices.Clone(s.entries) }

// gone says that a checkpoint was retired while it was read, if it was; and
// otherwise what went wrong.
func (s *Store) gone(c Checkpoint, err error) error {
	if err == nil {
		return nil
	}
	if s.Refresh() == nil {
		if _, missing := s.Find(c.ID.Slot); missing != nil {
			return unknown("checkpoint %d was retired while it was being read; list them again", c.ID.Slot)
		}
	}
	return err
}
