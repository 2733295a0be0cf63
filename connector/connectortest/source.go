package connectortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir"
)

// SourceUnderTest is a source whose records are known. The tests read from
// every position of a split, so a few dozen records each are best.
type SourceUnderTest[T any] struct {
	// New returns the source; each time on the same records.
	New func(t *testing.T) weir.Source[T]
	// Want is what each split holds, in order.
	Want map[string][]T
	// Refused are positions that no split can be read from: of another
	// source, out of range, damaged. At least one.
	Refused [][]byte
	// Endless says that no split has an end: what Want has is only what there is by
	// now. Its readers must then be StatusReaders, whose Lag is 0 when they have
	// read that.
	Endless bool
	// Spoiled is a source with records that can't be taken, and Growing one that
	// gets more splits; nil: New's can't do that.
	Spoiled *SpoiledSource[T]
	Growing *GrowingSource[T]
	// Seed is for the sizes of the reads; 0 draws one, which is logged.
	Seed uint64
}

// Source checks a source and its readers against the contract that weir.Source
// and the interfaces beside it describe.
func Source[T any](t *testing.T, s SourceUnderTest[T]) {
	if s.Seed == 0 {
		s.Seed = rand.Uint64()
	}
	t.Logf("seed %d", s.Seed)
	for _, c := range sourceChecks[T]() {
		if !c.applies(s) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			// A source that hangs is an error and not the end of the test binary.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.run(&sourceRun[T]{t: t, ctx: ctx, src: s.New(t), again: s.New(t), want: s.Want, refused: s.Refused, endless: s.Endless,
				spoiled: s.Spoiled, growing: s.Growing, seed: s.Seed}); err != nil {
				t.Error(err)
			}
		})
	}
}

type sourceRun[T any] struct {
	ctx        context.Context
	src, again weir.Source[T]
	want       map[string][]T
	refused    [][]byte
	endless    bool
	spoiled    *SpoiledSource[T]
	growing    *GrowingSource[T]
	seed       uint64
	t          *testing.T
}

type sourceCheck[T any] struct {
	name string
	run  func(*sourceRun[T]) error
}

// applies reports whether the source can do what the check is about.
func (c sourceCheck[T]) applies(s SourceUnderTest[T]) bool {
	switch c.name {
	case "SetAside", "NotSetAside", "Reread":
		return s.Spoiled != nil
	case "Growing":
		return s.Growing != nil
	}
	return true
}

// sourceChecks are functions that return an error, so that they can be tested
// themselves: each must find its fault in a source that has it.
func sourceChecks[T any]() []sourceCheck[T] {
	each := func(f func(r *sourceRun[T], split string, want []T) error) func(*sourceRun[T]) error {
		return func(r *sourceRun[T]) error {
			var errs []error
			for _, split := range slices.Sorted(maps.Keys(r.want)) {
				if err := f(r, split, r.want[split]); err != nil {
					errs = append(errs, fmt.Errorf("split %q: %w", split, err))
				}
			}
			return errors.Join(errs...)
		}
	}
	return []sourceCheck[T]{
		{"Splits", (*sourceRun[T]).splits},
		{"Whole", each((*sourceRun[T]).whole)},
		{"RandomReads", each((*sourceRun[T]).randomReads)},
		{"EveryPosition", each((*sourceRun[T]).everyPosition)},
		{"PositionsAreTheCallers", each((*sourceRun[T]).positionsAreTheCallers)},
		{"End", each((*sourceRun[T]).end)},
		{"TwoReaders", each((*sourceRun[T]).twoReaders)},
		{"Marks", each((*sourceRun[T]).marks)},
		{"Status", each((*sourceRun[T]).status)},
		{"Refused", each((*sourceRun[T]).refuses)},
		{"SetAside", (*sourceRun[T]).setAside},
		{"NotSetAside", (*sourceRun[T]).notSetAside},
		{"Reread", (*sourceRun[T]).reread},
		{"Growing", (*sourceRun[T]).grows},
	}
}

// splits wants the names that Want has, once each, whoever asks and when.
func (r *sourceRun[T]) splits() error {
	want := slices.Sorted(maps.Keys(r.want))
	var first []string
	for i, src := range []weir.Source[T]{r.src, r.src, r.again} {
		got, err := src.Splits(r.ctx)
		if err != nil {
			return fmt.Errorf("Splits: %w", err)
		}
		if i == 0 {
			first = slices.Clone(got)
			got = slices.Sorted(slices.Values(got))
			if !slices.Equal(got, want) {
				return fmt.Errorf("Splits = %q, want %q", got, want)
			}
		} else if !slices.Equal(got, first) {
			return fmt.Errorf("Splits = %q the first time, and then %q", first, got)
		}
	}
	return nil
}

// whole reads with a batch that is reused, as a task does: a record must not
// change when the next ones are read, nor when the reader is closed.
func (r *sourceRun[T]) whole(split string, want []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	var got []T
	batch := make([]T, 0, 7)
	for end := false; !end && err == nil; {
		batch, end, err = c.read(batch[:0], 7)
		got = append(got, batch...)
	}
	return errors.Join(err, c.Close(), same("all records", got, want))
}

func (r *sourceRun[T]) randomReads(split string, want []T) error {
	rng := rand.New(rand.NewPCG(r.seed, 0))
	for range 5 {
		c, err := r.open(r.src, split, nil)
		if err != nil {
			return err
		}
		var got []T
		for end := false; !end; {
			if got, end, err = c.read(got, 1+rng.IntN(len(want)+2)); err != nil {
				return errors.Join(err, c.Close())
			}
			rest, err := r.rest(split, c.Position())
			if err == nil {
				err = same(fmt.Sprintf("records from position %q, after %d records,", c.Position(), len(got)), rest, want[min(len(got), len(want)):])
			}
			if err != nil {
				return errors.Join(err, c.Close())
			}
		}
		if err := errors.Join(c.Close(), same("all records", got, want)); err != nil {
			return err
		}
	}
	return nil
}

// everyPosition stops after each record, and goes on from there in a reader of
// another source: that is a crash. The start's position, resolved, is one too.
func (r *sourceRun[T]) everyPosition(split string, want []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	var got []T
	for end := false; ; {
		at := c.Position()
		if at == nil {
			return errors.Join(fmt.Errorf("Position is nil after %d records: nil would mean the very first start", len(got)), c.Close())
		}
		rest, err := r.rest(split, at)
		if err == nil {
			err = same(fmt.Sprintf("records from position %q, after %d records,", at, len(got)), rest, want[min(len(got), len(want)):])
		}
		if err != nil || end {
			return errors.Join(err, c.Close(), same("all records", got, want))
		}
		if got, end, err = c.read(got, 1); err != nil {
			return errors.Join(err, c.Close())
		}
	}
}

// positionsAreTheCallers writes into every position it is given, and gives.
func (r *sourceRun[T]) positionsAreTheCallers(split string, want []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	var kept [][]byte // never written to
	var copies []string
	var got []T
	for end := false; !end; {
		at := c.Position()
		kept, copies = append(kept, at), append(copies, string(at))
		scribble(c.Position())
		if now, before := string(c.Position()), copies[len(copies)-1]; now != before {
			return errors.Join(fmt.Errorf("writing into what Position returned changed it from %q to %q", before, now), c.Close())
		}
		if got, end, err = c.read(got, 2); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	if err := errors.Join(c.Close(), same("all records", got, want)); err != nil {
		return err
	}
	for i := range kept {
		if string(kept[i]) != copies[i] {
			return fmt.Errorf("position %q became %q when the reader went on", copies[i], kept[i])
		}
	}
	at := slices.Clone(kept[len(kept)/2])
	c, err = r.open(r.src, split, at)
	if err != nil {
		return err
	}
	before := string(at)
	scribble(at)
	if got := string(c.Position()); got != before {
		err = fmt.Errorf("a reader opened at %q stands at %q once the caller has written into what it gave", before, got)
	}
	return errors.Join(err, c.Close())
}

// end wants the end, once reached, to be reached at each further Read.
func (r *sourceRun[T]) end(split string, want []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	var got []T
	for end := false; !end; {
		if got, end, err = c.read(got, len(want)+1); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	at := string(c.Position())
	for range 3 {
		more, end, err := c.Read(nil, 10)
		if err == nil && (end == r.endless || len(more) > 0) {
			err = fmt.Errorf("after the end Read returned %d records, end %v", len(more), end)
		}
		if err == nil && string(c.Position()) != at {
			err = fmt.Errorf("after the end the position went from %q to %q", at, c.Position())
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

// twoReaders reads a split twice at a time: as while a task is replaced.
func (r *sourceRun[T]) twoReaders(split string, want []T) error {
	var readers [2]*checkedReader[T]
	var got [2][]T
	var end [2]bool
	for i := range readers {
		var err error
		if readers[i], err = r.open(r.src, split, nil); err != nil {
			return err
		}
	}
	var err error
	for err == nil && !(end[0] && end[1]) {
		for i, c := range readers {
			if err == nil {
				got[i], end[i], err = c.read(got[i], 1+2*i)
			}
		}
	}
	if err != nil {
		return errors.Join(err, readers[0].Close(), readers[1].Close())
	}
	return errors.Join(readers[0].Close(), readers[1].Close(), same("the first reader's records", got[0], want), same("the second reader's records", got[1], want))
}

func (r *sourceRun[T]) marks(split string, _ []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	marker, ok := c.Reader.(weir.Marker)
	if !ok {
		return c.Close()
	}
	var all []int64
	seen := map[int64]bool{}
	for end := false; !end; {
		var recs []T
		if recs, end, err = c.read(nil, 3); err != nil {
			return errors.Join(err, c.Close())
		}
		marks := marker.Marks()
		if len(marks) != len(recs) {
			return errors.Join(fmt.Errorf("%d marks for %d records", len(marks), len(recs)), c.Close())
		}
		for _, m := range marks {
			if m < 0 || m >= 1<<48 || seen[m] {
				return errors.Join(fmt.Errorf("mark %d is over 48 bits, or is another record's too", m), c.Close())
			}
			seen[m] = true
		}
		all = append(all, marks...)
	}
	return errors.Join(c.Close(), r.marksFromThe(split, all), r.located(split, all))
}

// marksFromThe middle of a split must be those from its start.
func (r *sourceRun[T]) marksFromThe(split string, all []int64) error {
	half := len(all) / 2
	if half == 0 {
		return nil
	}
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	for n := 0; n < half && err == nil; {
		var recs []T
		recs, _, err = c.read(nil, 1)
		n += len(recs)
	}
	at := c.Position()
	if err := errors.Join(err, c.Close()); err != nil {
		return err
	}
	if c, err = r.open(r.again, split, at); err != nil {
		return err
	}
	var got []int64
	for end := false; !end && err == nil; {
		_, end, err = c.read(nil, 3)
		got = append(got, c.Reader.(weir.Marker).Marks()...)
	}
	if err == nil && !slices.Equal(got, all[half:]) {
		err = fmt.Errorf("marks from position %q are %d, but from the start they were %d", at, got, all[half:])
	}
	return errors.Join(err, c.Close())
}

func (r *sourceRun[T]) located(split string, marks []int64) error {
	loc, ok := r.src.(weir.Locator)
	if !ok {
		return nil
	}
	words := map[string]int64{}
	for _, m := range marks {
		w := loc.Locate(split, m)
		if other, ok := words[w]; ok || w == "" {
			return fmt.Errorf("Locate says %q of mark %d, as of mark %d", w, m, other)
		}
		words[w] = m
	}
	return nil
}

func (r *sourceRun[T]) status(split string, want []T) error {
	c, err := r.open(r.src, split, nil)
	if err != nil {
		return err
	}
	sr, ok := c.Reader.(weir.StatusReader)
	if !ok {
		return c.Close()
	}
	last, read := sr.Status(), 0
	for end := false; !end; {
		var recs []T
		if recs, end, err = c.read(nil, 1); err != nil {
			return errors.Join(err, c.Close())
		}
		read += len(recs)
		st := sr.Status()
		switch {
		case st.Done < last.Done:
			err = fmt.Errorf("status: Done went back from %d to %d", last.Done, st.Done)
		case st.Total > 0 && st.Done > st.Total:
			err = fmt.Errorf("status: Done is %d of %d", st.Done, st.Total)
		case st.Lag >= 0 && st.Lag != int64(len(want)-read):
			err = fmt.Errorf("status: Lag is %d after %d of %d records", st.Lag, read, len(want))
		case end && !r.endless && st.Total > 0 && st.Done != st.Total:
			err = fmt.Errorf("status: Done is %d of %d at the end", st.Done, st.Total)
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
		last = st
	}
	return c.Close()
}

// refuses wants an error from Open, or from the first Read, and no records.
func (r *sourceRun[T]) refuses(split string, _ []T) error {
	if len(r.refused) == 0 {
		return errors.New("SourceUnderTest.Refused names no position to be refused")
	}
	for _, at := range r.refused {
		reader, err := r.src.Open(r.ctx, split, slices.Clone(at))
		if err != nil {
			continue
		}
		recs, end, err := reader.Read(nil, 1)
		if err == nil || len(recs) > 0 {
			return errors.Join(fmt.Errorf("position %q was not refused: Read returned %d records, end %v", at, len(recs), end), reader.Close())
		}
		if err := reader.Close(); err != nil {
			return fmt.Errorf("Close: %w", err)
		}
	}
	return nil
}

// rest reads from a position to the end, by a source that knows nothing else.
func (r *sourceRun[T]) rest(split string, at []byte) ([]T, error) {
	c, err := r.open(r.again, split, slices.Clone(at))
	if err != nil {
		return nil, err
	}
	var got []T
	for end := false; !end && err == nil; {
		got, end, err = c.read(got, 100)
	}
	return got, errors.Join(err, c.Close())
}

func (r *sourceRun[T]) open(src weir.Source[T], split string, at []byte) (*checkedReader[T], error) {
	before := slices.Clone(at)
	reader, err := src.Open(r.ctx, split, at)
	if err != nil {
		return nil, fmt.Errorf("Open at %q: %w", at, err)
	}
	c := &checkedReader[T]{reader, r.ctx, r.endless}
	if at != nil && string(reader.Position()) != string(before) {
		// Another spelling of a position is legal, but it would be compared.
		return nil, errors.Join(fmt.Errorf("a reader opened at %q stands at %q before it has read", before, reader.Position()), c.Close())
	}
	return c, nil
}
