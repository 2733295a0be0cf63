package connectortest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/weirstream/weir"
)

// GrowingSource is a source over something that grows while it is read.
type GrowingSource[T any] struct {
	// New returns it from its beginning, on something of its own.
	New func(t *testing.T) GrowingSplits[T]
}

// GrowingSplits is one such source.
type GrowingSplits[T any] struct {
	// Source returns the source; each time, as after a crash, one that knows nothing
	// of the others.
	Source func() weir.Source[T]
	// Grow adds more: to splits, or new splits. It returns all records that there
	// are by then, of each split, and false when it was the last time.
	Grow func() (want map[string][]T, more bool)
}

// grows reads a source as it grows, and crashes between any two calls: whatever
// was read since the last checkpoint is forgotten, splits that it doesn't hold
// are read from their beginning, and each record must have been read once.
func (r *sourceRun[T]) grows() error {
	for crash := 1; ; crash++ {
		g := &growingRun[T]{sourceRun: r, under: r.growing.New(r.t), crash: crash}
		err := errors.Join(g.run(), g.closeAll())
		if err != nil {
			return fmt.Errorf("crash at call %d (the last one: %s): %w", crash, g.last, err)
		}
		if g.calls < crash {
			return nil // it came to its end before
		}
	}
}

// growingRun is one job, whose process crashes once.
type growingRun[T any] struct {
	*sourceRun[T]
	under        GrowingSplits[T]
	src          weir.Source[T]
	readers      map[string]weir.Reader[T]
	got          map[string][]T
	saved        map[string]savedSplit[T]
	calls, crash int
	last         string
}

// savedSplit is a split in a checkpoint.
type savedSplit[T any] struct {
	at  []byte
	got []T
}

// errDied is the crash.
var errDied = errors.New("crashed")

// checkpointEvery calls there is a checkpoint.
const checkpointEvery = 5

// call counts a call that the process is about to make.
func (g *growingRun[T]) call(what string) error {
	if g.calls%checkpointEvery == 0 && g.restored() {
		g.saved = map[string]savedSplit[T]{}
		for split, rd := range g.readers {
			g.saved[split] = savedSplit[T]{rd.Position(), slices.Clone(g.got[split])}
		}
	}
	g.calls++
	g.last = what
	if g.calls == g.crash {
		return errDied
	}
	return nil
}

// restored reports whether the process has everything that was saved.
func (g *growingRun[T]) restored() bool {
	for split := range g.saved {
		if g.readers[split] == nil {
			return false
		}
	}
	return true
}

func (g *growingRun[T]) run() error {
	for more := true; more; {
		var want map[string][]T
		want, more = g.under.Grow()
		for {
			err := g.catchUp(want)
			if err == nil {
				break
			}
			if !errors.Is(err, errDied) {
				return err
			}
			if err := g.closeAll(); err != nil {
				return err
			}
		}
		for split, recs := range want {
			if err := same(fmt.Sprintf("records of split %q", split), g.got[split], recs); err != nil {
				return err
			}
		}
	}
	return nil
}

// catchUp reads until there is as much of each split as there should be.
func (g *growingRun[T]) catchUp(want map[string][]T) error {
	if g.readers == nil {
		g.src, g.readers, g.got = g.under.Source(), map[string]weir.Reader[T]{}, map[string][]T{}
	}
	behind := ""
	for range 1000 {
		behind = ""
		for _, split := range slices.Sorted(maps.Keys(want)) {
			if len(g.got[split]) < len(want[split]) || g.readers[split] == nil {
				behind = split
				break
			}
		}
		if behind == "" {
			return nil
		}
		if err := g.find(); err != nil {
			return err
		}
		if g.readers[behind] == nil {
			return fmt.Errorf("split %q isn't in the list, although it is there", behind)
		}
		if len(g.got[behind]) < len(want[behind]) {
			if err := g.read(behind); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("records of split %q: got %d, want %d, and 1,000 reads were not enough", behind, len(g.got[behind]), len(want[behind]))
}

// find opens the splits that are new, to this process or to all.
func (g *growingRun[T]) find() error {
	if err := g.call("Splits"); err != nil {
		return err
	}
	names, err := g.src.Splits(g.ctx)
	if err != nil {
		return fmt.Errorf("Splits: %w", err)
	}
	for split := range g.readers {
		if !slices.Contains(names, split) {
			return fmt.Errorf("split %q is no longer in the list", split)
		}
	}
	for _, split := range names {
		if g.readers[split] != nil {
			continue
		}
		if err := g.call("Open " + split); err != nil {
			return err
		}
		from := g.saved[split]
		rd, err := g.src.Open(g.ctx, split, slices.Clone(from.at))
		if err != nil {
			return fmt.Errorf("Open %q at %q: %w", split, from.at, err)
		}
		g.readers[split], g.got[split] = rd, slices.Clone(from.got)
	}
	return nil
}

func (g *growingRun[T]) read(split string) error {
	if err := g.call("Read " + split); err != nil {
		return err
	}
	c := &checkedReader[T]{g.readers[split], g.ctx, true}
	recs, end, err := c.Read(nil, 2)
	if err != nil {
		return fmt.Errorf("Read %q: %w", split, err)
	}
	g.got[split] = append(g.got[split], recs...)
	if len(recs) > 0 || end {
		return nil
	}
	return c.wait()
}

// closeAll is the end of a process.
func (g *growingRun[T]) closeAll() error {
	var errs []error
	for _, rd := range g.readers {
		errs = append(errs, rd.Close())
	}
	g.readers = nil
	return errors.Join(errs...)
}
