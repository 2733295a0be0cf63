package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Each is a sink that calls f for every record, at least once: after a crash it
// is called again for what was read since the last checkpoint. So f must be
// safe to repeat; adding to a number somewhere is not, setting it is.
//
// Each task calls f from its own goroutine, so f runs concurrently with itself
// where the job has more than one. A step before it waits while f runs. An
// error from f stops the job, and the record is handed to f again after the
// next start; it isn't the record's fault. A panic of f is: see [Job.DeadLetters].
func Each[T any](f func(T) error) Sink[T] {
	s := &functionSink[T]{write: func(recs []T, at *int) error {
		for i := range recs {
			*at = i
			if err := f(recs[i]); err != nil {
				return fmt.Errorf("the sink's function returned an error: %w", err)
			}
		}
		return nil
	}}
	s.spec = atLeastOnce("a function", "the function is called for each record at least once; after a crash it is called again for records since the last checkpoint",
		"a function that is safe to repeat: what it sets comes out right, what it adds doesn't")
	if f == nil {
		s.err = errors.New("weir.Each needs a function, and was given nil")
	}
	return s
}

// Print is a sink that writes a line for each record to w, at least once: after
// a crash the lines since the last checkpoint are written again. format gives
// the text; the line's end is added. Tasks format concurrently and write one at
// a time, a batch in one call; w is this sink's alone while the job runs, and
// is not closed. An error from w stops the job.
func Print[T any](w io.Writer, format func(T) string) Sink[T] {
	return printSink(fmt.Sprintf("lines to a %T", w), w, format)
}

// Stdout is Print to standard output, each record as fmt prints it with %+v.
func Stdout[T any]() Sink[T] {
	return printSink("standard output", os.Stdout, func(rec T) string { return fmt.Sprintf("%+v", rec) })
}

func printSink[T any](target string, w io.Writer, format func(T) string) Sink[T] {
	out := &printer{w: w}
	s := &functionSink[T]{write: func(recs []T, at *int) error {
		if len(recs) == 0 {
			return nil
		}
		var lines []byte
		whole := false
		defer func() {
			if !whole { // format has panicked, and the records before that one count as written
				_ = out.print(lines) // the next call says if it failed
			}
		}()
		for i := range recs {
			*at = i
			lines = append(append(lines, format(recs[i])...), '\n')
		}
		whole = true
		return out.print(lines)
	}}
	s.out = out
	s.spec = atLeastOnce(target, "each line is written at least once; after a crash the lines since the last checkpoint are written again",
		"a reader that can tell a repeated line")
	if w == nil || format == nil {
		s.err = errors.New("weir.Print needs a writer and a function, and was given nil")
	}
	return s
}

type printer struct {
	mu  sync.Mutex
	w   io.Writer
	err error // the first one: nothing is written after it
}

func (p *printer) print(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if _, err := p.w.Write(b); err != nil {
		p.err = fmt.Errorf("write lines: %w", err)
	}
	return p.err
}

// begin forgets what went wrong in an earlier run. Without a printer it does
// nothing, and neither does failed.
func (p *printer) begin() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = nil
}

func (p *printer) failed() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func atLeastOnce(target, readers, needs string) SinkSpec {
	return SinkSpec{Kind: AtLeastOnce, Target: target, Readers: readers, Needs: []string{needs}}
}

// functionSink hands records to write as they come. It keeps nothing, so that
// a barrier, a commit and a crash mean nothing to it.
type functionSink[T any] struct {
	spec  SinkSpec
	write func(recs []T, at *int) error // at: which one it is at
	err   error                         // of the declaration
	out   *printer                      // nil: of another function
}

// functionWriter is the sink in one task.
type functionWriter[T any] struct {
	s  *functionSink[T]
	at int
}

func (w *functionWriter[T]) Write(recs []T, _ []int64) error { return w.s.write(recs, &w.at) }
func (w *functionWriter[T]) Seal(int64) error {
	return w.s.out.failed()
}

// At is the index of the record that the function was given last, in the batch
// of the last Write.
func (w *functionWriter[T]) At() int { return w.at }

// Check is asked when the sink is declared.
func (s *functionSink[T]) Check() error { return s.err }

func (s *functionSink[T]) Spec() SinkSpec { return s.spec }

func (s *functionSink[T]) Connect(_ context.Context, sinks []string) (Participant, error) {
	s.out.begin()
	return ledgerless{sinks}, s.err
}

func (s *functionSink[T]) Open(context.Context, Participant, string) (Outlet[T], error) {
	return s, nil
}

func (s *functionSink[T]) Writer(int) Writer[T] { return &functionWriter[T]{s: s} }

// ledgerless is the participant of sinks that can't keep a ledger.
type ledgerless struct{ sinks []string }

func (l ledgerless) Fence(context.Context, Fence) (map[string]Ledger, error) {
	ledgers := map[string]Ledger{}
	for _, s := range l.sinks {
		ledgers[s] = Ledger{}
	}
	return ledgers, nil
}

func (ledgerless) Prepare(context.Context, int64) ([]byte, error) { return nil, nil }
func (ledgerless) Commit(context.Context, Commit) error           { return nil }
func (ledgerless) Flush(context.Context) error                    { return nil }
func (ledgerless) Close() error                                   { return nil }
