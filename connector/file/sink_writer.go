package file

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

var errSinkClosed = errors.New("file: the sink is closed")

// target is one sink of a participant.
type target struct {
	sink, prefix string
	config       partConfig
	p            *participant

	mu    sync.Mutex
	tasks []*taskParts // in the order of their tasks
}

// taskParts is what one task writes: the part of the epoch at hand and those
// that are sealed. The task's goroutine writes and seals; control's takes what
// is sealed, and closes.
type taskParts struct {
	t    *target
	task int

	mu     sync.Mutex
	open   *part // nil: nothing was written in this epoch
	sealed map[int64]*part
	err    error // the first one of this task
}

func (t *target) newTask(task int) *taskParts {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &taskParts{t: t, task: task, sealed: map[int64]*part{}}
	t.tasks = append(t.tasks, w)
	slices.SortStableFunc(t.tasks, func(a, b *taskParts) int { return a.task - b.task })
	return w
}

func (t *target) all() []*taskParts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.tasks)
}

// take hands a sealed part over; nil if the task wrote nothing in the epoch.
func (w *taskParts) take(epoch int64) (*part, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	p := w.sealed[epoch]
	delete(w.sealed, epoch)
	return p, nil
}

// close drops all that wasn't taken.
func (w *taskParts) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = errSinkClosed
	}
	var errs []error
	if w.open != nil {
		errs = append(errs, w.open.drop())
	}
	for _, p := range w.sealed {
		errs = append(errs, p.drop())
	}
	w.open, w.sealed = nil, nil
	return errors.Join(errs...)
}

type outlet[R any] struct {
	t    *target
	json codec.Codec[R]
}

// Writer returns the writer of one task.
func (o outlet[R]) Writer(task int) weir.Writer[R] {
	return &writer[R]{taskParts: o.t.newTask(task), json: o.json}
}

// writer turns records into lines of the task's part.
type writer[R any] struct {
	*taskParts
	json codec.Codec[R]
}

// Write encodes the records. Their lines go to the part's file in pieces, so
// that little of an epoch is kept in memory.
func (w *writer[R]) Write(recs []R, _ []int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	for i := range recs {
		if w.open == nil {
			w.open = newPart(w.t.p, w.t.config.format)
		}
		p := w.open
		line, err := w.encode(p.lines, &recs[i])
		if err != nil {
			return &rejection{w.t.sink, i, err}
		}
		p.raw += int64(len(line)-len(p.lines)) + 1
		p.lines = append(line, '\n')
		if int64(len(p.lines)) >= min(partBuffer, w.t.config.max) {
			if err := p.flush(); err != nil {
				w.err = fmt.Errorf("file: sink %q, task %d: %w", w.t.sink, w.task, w.t.p.explain(err))
				return w.err
			}
		}
	}
	return nil
}

// encode appends a record. A method of the record's type that panics is an
// error of that record.
func (w *writer[R]) encode(dst []byte, rec *R) (line []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &weir.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return w.json.Encode(dst, rec)
}

// Seal ends the epoch's part.
func (w *writer[R]) Seal(epoch int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.open != nil && w.open.raw > 0 {
		w.sealed[epoch] = w.open
		w.open = nil
	}
	return nil
}

// Full reports whether the part has reached its size.
func (w *writer[R]) Full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open != nil && w.open.raw >= w.t.config.max
}

// rejection is a record that has no JSON.
type rejection struct {
	sink string
	at   int
	err  error
}

func (r *rejection) Error() string {
	return fmt.Sprintf("file: sink %q: the record can't be written as JSON: %v", r.sink, r.err)
}

func (r *rejection) Unwrap() []error { return []error{weir.ErrInput, r.err} }

// Rejected is the record's place in what was given to Write.
func (r *rejection) Rejected() int { return r.at }
