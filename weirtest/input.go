package weirtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirstream/weir"
)

// Input is a source that a test feeds. It has one split, "input", and can be
// read again from any position, as a job does after a restart.
type Input[T any] struct {
	mu struct {
		sync.Mutex
		items  []item[T]
		ended  bool
		notify map[chan struct{}]bool
	}
}

// item is a record, or a step of event time.
type item[T any] struct {
	rec  T
	time time.Time // not zero: no record
}

// NewInput returns an empty input.
func NewInput[T any]() *Input[T] {
	in := &Input[T]{}
	in.mu.notify = map[chan struct{}]bool{}
	return in
}

// Send feeds records, in this order.
func (in *Input[T]) Send(recs ...T) {
	for _, r := range recs {
		in.add(item[T]{rec: r})
	}
}

// Advance says that nothing before t will follow: the watermark becomes t, if
// it isn't past it already.
func (in *Input[T]) Advance(t time.Time) { in.add(item[T]{time: t}) }

// End says that nothing will follow: windows close and the job finishes.
func (in *Input[T]) End() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.ended = true
	in.wake()
}

func (in *Input[T]) add(i item[T]) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.items = append(in.mu.items, i)
	in.wake()
}

func (in *Input[T]) wake() {
	for ch := range in.mu.notify {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Splits implements weir.Source.
func (in *Input[T]) Splits(context.Context) ([]string, error) { return []string{"input"}, nil }

// Open implements weir.Source.
func (in *Input[T]) Open(_ context.Context, _ string, at []byte) (weir.Reader[T], error) {
	r := &reader[T]{in: in, ready: make(chan struct{}, 1)}
	if at != nil {
		n, err := strconv.Atoi(string(at))
		if err != nil {
			return nil, fmt.Errorf("position %q: %w", at, err)
		}
		r.pos = n
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.pos < 0 || r.pos > len(in.mu.items) {
		return nil, fmt.Errorf("position %d is out of range: the input has %d items", r.pos, len(in.mu.items))
	}
	for _, i := range in.mu.items[:r.pos] {
		r.see(i.time)
	}
	in.mu.notify[r.ready] = true
	return r, nil
}

type reader[T any] struct {
	in    *Input[T]
	pos   int
	wm    time.Time
	ready chan struct{}
}

// see reports whether t is a step forward.
func (r *reader[T]) see(t time.Time) bool {
	if !t.After(r.wm) {
		return false
	}
	r.wm = t
	return true
}

// Read stops behind a step of event time: what it returns is judged by the
// watermark that stood before, and what follows the step by the new one.
func (r *reader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	n, stepped := len(dst), false
	for r.pos < len(r.in.mu.items) && len(dst)-n < limit {
		i := r.in.mu.items[r.pos]
		if i.time.IsZero() {
			if stepped {
				break
			}
			dst = append(dst, i.rec)
		} else if r.see(i.time) {
			stepped = true
		}
		r.pos++
	}
	end := r.in.mu.ended && r.pos == len(r.in.mu.items)
	if !end && r.pos < len(r.in.mu.items) {
		r.again()
	}
	return dst, end, nil
}

func (r *reader[T]) again() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

func (r *reader[T]) Ready() <-chan struct{} { return r.ready }
func (r *reader[T]) Position() []byte       { return strconv.AppendInt(nil, int64(r.pos), 10) }
func (r *reader[T]) Watermark() time.Time   { return r.wm }

func (r *reader[T]) Close() error {
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	delete(r.in.mu.notify, r.ready)
	return nil
}
