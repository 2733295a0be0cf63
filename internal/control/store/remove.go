package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sys"
)

// Removed is what Remove has done.
type Removed struct {
	Slots []int64
	Files int
	Bytes int64
}

// Remove retires checkpoints by their slots, all or none. It takes the store's
// lock, so that no job is at work (sys.ErrLocked), and refuses checkpoints that
// the sinks' ledgers may name.
func Remove(ctx context.Context, dir, job string, slots []int64) (r Removed, err error) {
	s, err := Open(ctx, dir, job)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if len(slots) == 0 {
		return r, nil
	}
	if len(s.entries) == 0 { // and so nothing that a lock file should be put beside
		_, err := s.Find(slots[0])
		return r, err
	}
	lock, err := s.files.Lock("lock")
	if errors.Is(err, sys.ErrLocked) {
		return r, fmt.Errorf("state directory %s is in use: %w: checkpoints can be removed while the job is stopped", dir, err)
	}
	if err != nil {
		return r, fmt.Errorf("state directory %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := s.Refresh(); err != nil { // it may have been at work until now
		return r, err
	}
	return s.remove(slots)
}

func (s *Store) remove(slots []int64) (Removed, error) {
	sizes := map[string]int64{}
	for _, slot := range slots {
		c, err := s.Find(slot)
		if err != nil {
			return Removed{}, err
		}
		for _, f := range c.Segments {
			sizes[f.Name] = f.Size
		}
		for _, f := range c.Outputs {
			sizes[f.Name] = f.Size
		}
	}
	r, err := log.Removal(s.log.Entries(), slots)
	if err != nil {
		return Removed{}, refused("%v", err)
	}
	// Listed first, as always: a crash from here on leaves files that the next
	// start, or the next removal, deletes.
	if _, err := s.log.Append(log.Entry{Retire: &r}); err != nil {
		return Removed{}, fmt.Errorf("enter what is to be removed: %w", err)
	}
	done := Removed{Slots: slices.Clone(r.Slots), Files: len(r.Blobs)}
	for _, name := range r.Blobs {
		done.Bytes += sizes[name]
	}
	if err := s.log.Sweep(); err != nil {
		return done, fmt.Errorf("checkpoints %d are removed, but not all of their files yet: %w; the job's next start deletes the rest", done.Slots, err)
	}
	return done, nil
}
