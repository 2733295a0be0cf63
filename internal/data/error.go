package data

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrInput is what a job stops with because of its input or a user function:
// an undecodable record, an impossible event time, an error of a Try function,
// a panic.
var ErrInput = errors.New("bad input")

// ErrRefused reports that a checkpoint and what is there now don't fit
// together: nothing was guessed and nothing was changed. The wrapping error
// says what was found and what to do.
var ErrRefused = errors.New("refused to run")

// ErrGrown reports input behind the end of a finished job.
var ErrGrown = errors.New("input has grown since the job finished")

// ErrOversized is wrapped by the error of a rejected record that is too long for
// its source, and is counted apart from those that can't be decoded.
var ErrOversized = errors.New("too long")

// RecordError says which record stopped which step.
type RecordError struct {
	Step  string // the step's id, or its operation and place
	Task  string
	Where string // the input record, in its source's words; "" if none caused it
	Err   error
}

// Error implements error.
func (e *RecordError) Error() string {
	where := e.Where
	if where == "" {
		where = "no input record (a watermark or a barrier caused it)"
	}
	return fmt.Sprintf("step %s, task %s: %v; input: %s", e.Step, e.Task, e.Err, where)
}

// Unwrap returns the cause and ErrInput.
func (e *RecordError) Unwrap() []error { return []error{ErrInput, e.Err} }

// PanicError is a panic in a user function.
type PanicError struct {
	Value any
	Stack []byte // of the task's goroutine, as runtime/debug prints it
	at    string
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in a user function: %v%s", e.Value, e.at)
}

func newPanic(v any) *PanicError {
	return &PanicError{Value: v, Stack: debug.Stack(), at: panicFrame()}
}

// panicFrame is the innermost frame that is neither the runtime's nor ours:
// where a user will look first.
func panicFrame() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, own) {
			return fmt.Sprintf(" (in %s, %s:%d)", f.Function, f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// own is the prefix of the engine's functions.
const own = "github.com/weirstream/weir/internal/data."

// errGoexit is a user function that ended its task's goroutine.
var errGoexit = errors.New("the user function ended its goroutine: runtime.Goexit, or t.Fatal and its like in a test, which must be called by the test itself")

// sinkError marks an error that isn't the record's fault: the same record may
// pass at the next start.
type sinkError struct {
	err   error
	exact bool // it is known which record the sink was at
}

func (e sinkError) Error() string { return e.err.Error() }
func (e sinkError) Unwrap() error { return e.err }

// blame adds the step and the input record to an error of a user function.
func (t *Task) blame(err error) error {
	var have *RecordError
	var sink sinkError
	if errors.As(err, &have) || errors.Is(err, ErrStateMemory) {
		return err
	}
	step := t.run.stepName(t.Step)
	origin := t.Origin
	if t.writing != nil {
		origin = t.writing.culprit()
	}
	if errors.As(err, &sink) {
		where := ""
		if sink.exact {
			where = "; input: " + t.run.locate(origin)
		}
		return fmt.Errorf("step %s, task %s: %w%s", step, t.name, sink.err, where)
	}
	return &RecordError{Step: step, Task: t.name, Where: t.run.locate(origin), Err: err}
}
