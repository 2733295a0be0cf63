package weir

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Slice is a bounded source of the given records, in one split named "0". The
// position is the index of a record, as decimal text. The slice must not be
// changed while the job runs, and must hold the same records when a job
// continues from a checkpoint.
func Slice[T any](recs ...T) Source[T] { return Slices(recs) }

// Slices is Slice with a split for each of the given slices. The splits are
// named "0", "1" and so on.
func Slices[T any](splits ...[]T) Source[T] {
	s := &memorySource[T]{}
	if len(splits) == 0 {
		s.err = errors.New("weir.Slices was given no slice; an empty one is an input without records")
	}
	for _, recs := range splits {
		s.splits = append(s.splits, memorySplit[T]{int64(len(recs)), func(dst []T, from, to int64) []T {
			return append(dst, recs[from:to]...)
		}})
	}
	return s
}

// Generate is a source of the records f(0), f(1), ... f(n-1), in one split
// named "0"; with n 0 it never ends. The position is the argument of the next
// call, as decimal text. f must return the same record each time it is called
// with the same argument: what follows a checkpoint is made again after a
// crash.
func Generate[T any](n int64, f func(i int64) T) Source[T] {
	s := &memorySource[T]{splits: []memorySplit[T]{{n, func(dst []T, from, to int64) []T {
		for i := from; i < to; i++ {
			dst = append(dst, f(i))
		}
		return dst
	}}}}
	switch {
	case f == nil:
		s.err = errors.New("weir.Generate needs a function, and was given nil")
	case n < 0:
		s.err = fmt.Errorf("weir.Generate(%d, ...): give the number of records, or 0 for no end", n)
	case n == 0:
		s.splits[0].n = endless
	}
	return s
}

// endless is more records than a mark can number.
const endless = 1 << 48

// memorySource is a source of records that are known, or made, by their index.
type memorySource[T any] struct {
	splits []memorySplit[T]
	err    error // of the declaration
}

// Check is asked when the source is declared.
func (s *memorySource[T]) Check() error { return s.err }

type memorySplit[T any] struct {
	n    int64
	fill func(dst []T, from, to int64) []T
}

func (s *memorySource[T]) Splits(context.Context) ([]string, error) {
	var names []string
	for i := range s.splits {
		names = append(names, strconv.Itoa(i))
	}
	return names, s.err
}

func (s *memorySource[T]) Open(_ context.Context, split string, at []byte) (Reader[T], error) {
	if s.err != nil {
		return nil, s.err
	}
	i, err := strconv.Atoi(split)
	if err != nil || i < 0 || i >= len(s.splits) || strconv.Itoa(i) != split {
		return nil, fmt.Errorf("there is no split %q: this source has %d, named from \"0\" on", split, len(s.splits))
	}
	r := &memoryReader[T]{memorySplit: s.splits[i]}
	if at == nil {
		return r, nil
	}
	r.next, err = strconv.ParseInt(string(at), 10, 64)
	if err != nil || r.next < 0 || strconv.FormatInt(r.next, 10) != string(at) {
		return nil, fmt.Errorf("%w: position %.40q of split %s is not the index of a record; the checkpoint is of another source, or was changed",
			ErrRefused, at, split)
	}
	if r.next > r.n {
		return nil, fmt.Errorf("%w: position %d of split %s is out of range, it has only %d records: the input is not what it was at the checkpoint; "+
			"give the same records again, or start the job over with --start-over (StartOver)", ErrRefused, r.next, split, r.n)
	}
	return r, nil
}

// Locate counts as the position does, from 0.
func (s *memorySource[T]) Locate(split string, mark int64) string {
	return fmt.Sprintf("record %d of split %s (the first is 0)", mark, split)
}

type memoryReader[T any] struct {
	memorySplit[T]
	next  int64
	marks []int64
}

func (r *memoryReader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	to := min(r.n, r.next+int64(limit))
	dst = r.fill(dst, r.next, to)
	r.marks = r.marks[:0]
	for ; r.next < to; r.next++ {
		r.marks = append(r.marks, r.next)
	}
	return dst, r.next == r.n, nil
}

func (r *memoryReader[T]) Ready() <-chan struct{} { return nil }
func (r *memoryReader[T]) Position() []byte       { return strconv.AppendInt(nil, r.next, 10) }
func (r *memoryReader[T]) Marks() []int64         { return r.marks }
func (r *memoryReader[T]) Close() error           { return nil }

func (r *memoryReader[T]) Status() Status {
	if r.n == endless {
		return Status{Done: r.next, Lag: -1}
	}
	return Status{Done: r.next, Total: r.n, Lag: r.n - r.next}
}
