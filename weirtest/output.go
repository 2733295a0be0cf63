package weirtest

import (
	"sync"

	"github.com/weirstream/weir"
)

// Output is a sink that keeps what it gets. It is at least once: a restart
// shows the outputs since the last checkpoint again, as it would to any
// receiver that doesn't commit with the checkpoint.
type Output[T any] struct {
	weir.Sink[T]
	mu struct {
		sync.Mutex
		recs []T
	}
}

// NewOutput returns an empty output.
func NewOutput[T any]() *Output[T] {
	o := &Output[T]{}
	o.Sink = weir.Each(func(rec T) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mu.recs = append(o.mu.recs, rec)
		return nil
	})
	return o
}

// Take returns what has come since the last Take, in the order of arrival:
// records of one key keep theirs, others may come either way.
func (o *Output[T]) Take() []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	recs := o.mu.recs
	o.mu.recs = nil
	return recs
}
