package data

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// A user function that ends its goroutine fails the run like a panic does.
func TestGoexitInAUserFunction(t *testing.T) {
	in := newFeed(rec{"k", 1, 0}, rec{"k", 2, 1})
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, func(f *flow, t *Task) Out[rec] {
		return &MapOut[rec, string]{At: At{t, 2}, F: func(r rec) string {
			if r.n == 1 {
				runtime.Goexit()
			}
			return r.key
		}, Next: NewSink(At{t, 3}, SinkWriter[string](f.out))}
	})
	err := <-f.failed
	var re *RecordError
	if !errors.As(err, &re) || !errors.Is(err, errGoexit) || !strings.Contains(re.Where, "record 1") {
		t.Fatalf("got %v", err)
	}
}

func TestAPanicNamesTheUsersFrame(t *testing.T) {
	in := newFeed(rec{"k", 1, 0})
	f := start(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, func(f *flow, t *Task) Out[rec] {
		return &MapOut[rec, string]{At: At{t, 2}, F: func(r rec) string { return strings.Repeat(r.key, -1) },
			Next: NewSink(At{t, 3}, SinkWriter[string](f.out))}
	})
	err := <-f.failed
	var pe *PanicError
	if !errors.As(err, &pe) || !strings.Contains(err.Error(), "strings.Repeat") || len(pe.Stack) == 0 {
		t.Fatalf("got %v", err)
	}
}
