package connectortest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/weirstream/weir"
)

// SpoiledSource is a source some of whose records can't be taken.
type SpoiledSource[T any] struct {
	// New returns the source; each time on the same records. Its readers are
	// Rejecters.
	New func(t *testing.T) weir.Source[T]
	// Want is what each split holds, in order.
	Want map[string][]SpoiledRecord[T]
}

// SpoiledRecord is one record: Raw is set where it can't be taken, Rec otherwise.
type SpoiledRecord[T any] struct {
	Rec T
	Raw []byte
}

func divide[T any](all []SpoiledRecord[T]) (recs []T, raws [][]byte) {
	for _, r := range all {
		if r.Raw != nil {
			raws = append(raws, r.Raw)
		} else {
			recs = append(recs, r.Rec)
		}
	}
	return recs, raws
}

// eachSpoiled calls f with a source for each split.
func (r *sourceRun[T]) eachSpoiled(f func(src weir.Source[T], split string, want []SpoiledRecord[T]) error) error {
	var errs []error
	for _, split := range slices.Sorted(maps.Keys(r.spoiled.Want)) {
		if err := f(r.spoiled.New(r.t), split, r.spoiled.Want[split]); err != nil {
			errs = append(errs, fmt.Errorf("split %q: %w", split, err))
		}
	}
	return errors.Join(errs...)
}

// setAside reads past the records that can't be taken, in reads of several sizes.
// From the position after each of them, a reader of another source must find what
// follows, and nothing else: that is a crash.
func (r *sourceRun[T]) setAside() error {
	return r.eachSpoiled(func(src weir.Source[T], split string, want []SpoiledRecord[T]) error {
		for _, limit := range []int{1, 2, 7, len(want) + 1} {
			a, err := r.openAside(src, split, nil)
			if err != nil {
				return err
			}
			for end := false; !end && err == nil; {
				var taken int
				if taken, end, err = a.read(limit); err != nil {
					break
				}
				done := len(a.recs) + len(a.bad)
				if taken == 0 || done > len(want) {
					continue
				}
				err = r.restAside(split, a.Position(), want[done:])
			}
			recs, raws := divide(want)
			err = errors.Join(err, a.Close())
			if err == nil {
				err = errors.Join(same("records between those that were set aside", a.recs, recs), sameRaw(a.bad, raws))
			}
			if err != nil {
				return fmt.Errorf("in reads of %d: %w", limit, err)
			}
		}
		return nil
	})
}

// restAside reads what follows a position.
func (r *sourceRun[T]) restAside(split string, at []byte, want []SpoiledRecord[T]) error {
	a, err := r.openAside(r.spoiled.New(r.t), split, slices.Clone(at))
	if err != nil {
		return err
	}
	for end := false; !end && err == nil; {
		_, end, err = a.read(100)
	}
	recs, raws := divide(want)
	err = errors.Join(err, a.Close())
	if err == nil {
		err = errors.Join(same("records behind it", a.recs, recs), sameRaw(a.bad, raws))
	}
	if err != nil {
		return fmt.Errorf("from position %q: %w", at, err)
	}
	return nil
}

func sameRaw(got []weir.Rejected, want [][]byte) error {
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i].Raw, want[i]) {
			return fmt.Errorf("set aside: number %d is %.100q, want %.100q", i, got[i].Raw, want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("set aside: got %d, want %d", len(got), len(want))
	}
	return nil
}

// asideReader reads a split and sets aside what can't be taken.
type asideReader[T any] struct {
	*checkedReader[T]
	recs []T
	bad  []weir.Rejected
}

func (r *sourceRun[T]) openAside(src weir.Source[T], split string, at []byte) (*asideReader[T], error) {
	c, err := r.open(src, split, at)
	if err != nil {
		return nil, err
	}
	rj, ok := c.Reader.(weir.Rejecter)
	if !ok {
		return nil, errors.Join(errors.New("the reader is no weir.Rejecter"), c.Close())
	}
	rj.SetAside()
	return &asideReader[T]{checkedReader: c}, nil
}

// read reads once, and returns how much was taken or set aside.
func (a *asideReader[T]) read(limit int) (taken int, end bool, err error) {
	recs, end, err := a.once(limit)
	if err != nil {
		return 0, false, err
	}
	bad := a.Reader.(weir.Rejecter).Rejected()
	if taken = len(recs) + len(bad); taken > limit {
		return 0, false, fmt.Errorf("Read(max %d) took %d records and set %d aside", limit, len(recs), len(bad))
	}
	for _, rj := range bad {
		if rj.Err == nil || len(rj.Raw) > weir.MaxRejected {
			return 0, false, fmt.Errorf("set aside: error %q, and %d bytes", fmt.Sprint(rj.Err), len(rj.Raw))
		}
		rj.Raw = bytes.Clone(rj.Raw) // it is valid until the next Read
		a.bad = append(a.bad, rj)
	}
	a.recs = append(a.recs, recs...)
	return taken, end, nil
}

// once is one Read that finds something, even if it is only set aside.
func (a *asideReader[T]) once(limit int) ([]T, bool, error) {
	for range 1000 {
		recs, end, err := a.Read(nil, limit)
		if err != nil {
			return nil, false, fmt.Errorf("Read, with bad records set aside: %w", err)
		}
		if end || len(recs)+len(a.Reader.(weir.Rejecter).Rejected()) > 0 {
			return recs, end, nil
		}
		if a.endless && a.Reader.(weir.StatusReader).Status().Lag == 0 {
			return recs, true, nil
		}
		if err := a.wait(); err != nil {
			return nil, false, err
		}
	}
	return nil, false, errStuck
}

// notSetAside wants the first record that can't be taken to stop reading, behind
// all those before it: unless it was asked to, a reader passes over nothing.
func (r *sourceRun[T]) notSetAside() error {
	return r.eachSpoiled(func(src weir.Source[T], split string, want []SpoiledRecord[T]) error {
		first := slices.IndexFunc(want, func(s SpoiledRecord[T]) bool { return s.Raw != nil })
		if first < 0 {
			return nil
		}
		c, err := r.open(src, split, nil)
		if err != nil {
			return err
		}
		var got []T
		for end := false; !end && err == nil; {
			got, end, err = c.read(got, 3)
		}
		if err == nil {
			return errors.Join(fmt.Errorf("a bad record was passed over, although SetAside wasn't called: read %d records", len(got)), c.Close())
		}
		before, _ := divide(want[:first])
		return errors.Join(same("records before the first bad one", got, before), c.Close())
	})
}

// reread wants the bytes of each record that was set aside again, by its mark.
func (r *sourceRun[T]) reread() error {
	return r.eachSpoiled(func(src weir.Source[T], split string, want []SpoiledRecord[T]) error {
		re, ok := src.(weir.Rereader)
		if !ok {
			return nil
		}
		a, err := r.openAside(src, split, nil)
		if err != nil {
			return err
		}
		var marks []int64
		for end := false; !end && err == nil; {
			_, end, err = a.read(3)
			if m, ok := a.Reader.(weir.Marker); ok {
				marks = append(marks, m.Marks()...)
			}
		}
		if err := errors.Join(err, a.Close()); err != nil {
			return err
		}
		for _, rj := range a.bad {
			raw, err := re.Reread(split, rj.Mark)
			if err != nil || !bytes.Equal(raw, rj.Raw) {
				return fmt.Errorf("Reread(%d) = %.100q, error %q; it was set aside as %.100q", rj.Mark, raw, fmt.Sprint(err), rj.Raw)
			}
		}
		for _, m := range marks { // a step may reject them later
			if raw, err := re.Reread(split, m); err != nil || len(raw) == 0 {
				return fmt.Errorf("Reread(%d) of a good record: %d bytes, error %q", m, len(raw), fmt.Sprint(err))
			}
		}
		return nil
	})
}
