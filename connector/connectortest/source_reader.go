package connectortest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weirstream/weir"
)

// checkedReader reads as a task does, and checks each answer by itself.
type checkedReader[T any] struct {
	weir.Reader[T]
	ctx     context.Context
	endless bool
}

// read reads until there is a record or the end: of what has no end, until all was
// read that there is by now.
func (c *checkedReader[T]) read(dst []T, limit int) ([]T, bool, error) {
	before := slices.Clone(dst)
	for range 1000 {
		recs, end, err := c.Read(dst, limit)
		if err != nil {
			return recs, false, fmt.Errorf("Read: %w", err)
		}
		if n := len(recs) - len(before); n < 0 || n > limit {
			return recs, false, fmt.Errorf("Read(max %d) went from %d records to %d", limit, len(before), len(recs))
		}
		if err := same("records that were in dst", recs[:len(before)], before); err != nil {
			return recs, false, err
		}
		if end && c.endless {
			return recs, false, errors.New("Read says that this is the end, and there is none")
		}
		if end || len(recs) > len(before) {
			return recs, end, nil
		}
		if c.endless {
			sr, ok := c.Reader.(weir.StatusReader)
			if !ok {
				return recs, false, errors.New("the reader has no end and no Status")
			}
			if sr.Status().Lag == 0 {
				return recs, true, nil
			}
		}
		if err := c.wait(); err != nil {
			return recs, false, err
		}
	}
	return dst, false, errStuck
}

var errStuck = errors.New("1,000 times Read returned nothing though there was something to read by Ready")

// wait returns when Read may find more.
func (c *checkedReader[T]) wait() error {
	ready := c.Ready()
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-c.ctx.Done():
		return errors.New("Ready never came, though Read hadn't reached the end")
	}
}

func scribble(b []byte) {
	for i := range b {
		b[i] ^= 0xff
	}
}

// same compares record by record: a whole split in an error helps nobody.
func same[T any](what string, got, want []T) error {
	for i := range min(len(got), len(want)) {
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("%s: number %d is %+v, want %+v", what, i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: got %d, want %d", what, len(got), len(want))
	}
	return nil
}
