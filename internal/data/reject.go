package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// Rejected is a record that a split's reader has passed without taking it.
type Rejected struct {
	Mark int64
	Raw  []byte
	Err  error
}

// Kind says what is wrong with a rejected record.
type Kind string

// The kinds of rejected records.
const (
	Undecodable Kind = "decode"     // its source can't read it
	TooLong     Kind = "oversized"  // longer than its source takes
	BadTime     Kind = "event-time" // none, or an impossible one
	Erroneous   Kind = "error"      // an error of a Try function, or of the step itself
	Panicking   Kind = "panic"      // a panic of a user function
	Refused     Kind = "sink"       // a sink refuses it
	TooLate     Kind = "late"       // asked for: see NewLate
)

const (
	maxRaw    = 1 << 20 // bytes kept of a rejected record
	maxReason = 4 << 10 // bytes of text
)

// Letter is a record that was set aside. What is in it follows from the input
// and the job alone: a replay makes the same one.
type Letter struct {
	// Source and Split are empty, and Mark is negative, where no input record
	// is known: Mark is then made of Raw, so that two rows have two.
	Source, Split string
	Mark          int64
	Where         string // in the source's words
	Step          string
	Kind          Kind
	Reason        string
	// Raw is the input record's bytes. Where there is no input record, it is
	// the row that a sink refuses, as JSON.
	Raw []byte
	At  int64 // event time, or MinTime: none is known
}

// Letters is a task's side of the sink for dead letters.
type Letters interface {
	Put(l Letter) error
	Seal(epoch int64) error
	Full() bool // an early barrier would be welcome
}

// Aside is where a run puts records that can't be taken.
type Aside struct {
	Step  int // of the sink
	Sink  string
	Limit Limit
	// Letters makes the side of a task, once a task and before it starts.
	Letters func() Letters
}

// Count is how many records were rejected at a step, in one way.
type Count struct {
	Step string
	Kind Kind
	N    int64
}

// aside is what the tasks of a run share about rejected records.
type aside struct {
	conf   Aside
	asking sync.Mutex // sources are asked about one record at a time

	mu    sync.Mutex
	brake brake
	n     map[Count]int64 // its N is 0
	last  []string        // reasons, the newest last
}

// letters is a task's side of it.
type letters struct {
	all   *aside
	out   Letters
	asked bool  // for an early barrier
	last  int64 // the origin that was counted last
}

// about is what is asked of a source when one of its records is rejected.
type about struct {
	reread func(split string, mark int64) ([]byte, error) // may be nil
	timed  bool                                           // its records have event times
}

// SetAside gives the run a sink for dead letters. Tasks are made after it.
func (r *Run) SetAside(c Aside) {
	r.aside = &aside{conf: c, brake: brake{limit: c.Limit}, n: map[Count]int64{}}
}

// Rejects returns how many records were rejected since the start.
func (r *Run) Rejects() []Count {
	if r.aside == nil {
		return nil
	}
	a := r.aside
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Count, 0, len(a.n))
	for c, n := range a.n {
		c.N = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Kind, b.Kind)) })
	return out
}

// passed says that a source task is about to hand on n records, rejected ones
// among them.
func (r *Run) passed(n int) {
	if r.aside == nil || n == 0 {
		return
	}
	r.aside.mu.Lock()
	defer r.aside.mu.Unlock()
	r.aside.brake.read(int64(n))
}

// careful reports whether a record that can't be taken is set aside: user
// functions are then called with a guard each.
func (t *Task) careful() bool { return t.letters != nil }

// Reject sets the input record origin aside because of cause: it goes to the
// dead letters, in the epoch at hand, or fails the task where there is no sink
// for them. raw is nil where the source has to read it again.
func (t *Task) Reject(step int32, origin int64, raw []byte, cause error) {
	t.reject(step, origin, MinTime, raw, cause)
}

// reject is Reject of a record with an event time.
func (t *Task) reject(step int32, origin, at int64, raw []byte, cause error) {
	d := t.letters
	if d == nil {
		t.Step, t.Origin = step, origin
		t.Fail(cause)
		return
	}
	if t.err != nil {
		return
	}
	l := t.run.letter(step, origin, at, raw, cause)
	counts := l.Kind != TooLate && (origin == noOrigin || origin != d.last)
	d.last = origin
	if t.err = d.all.note(l, counts); t.err != nil {
		return
	}
	if err := d.out.Put(l); err != nil {
		t.Step, t.Origin = int32(d.all.conf.Step), origin
		t.Fail(sinkError{err: err, exact: true})
		return
	}
	if !d.asked && d.out.Full() {
		d.asked = true
		t.run.ctl.Wants(true)
	}
}

// sealLetters ends the epoch of the dead letters, behind all steps of the task.
func (t *Task) sealLetters(epoch int64) {
	d := t.letters
	if d == nil || t.err != nil {
		return
	}
	d.asked = false
	if err := d.out.Seal(epoch); err != nil {
		t.Step = int32(d.all.conf.Step)
		t.Fail(sinkError{err: err})
	}
}

// note counts a letter. An error says that there are too many.
func (a *aside) note(l Letter, counts bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[Count{Step: l.Step, Kind: l.Kind}]++
	where := fmt.Sprintf("source %s, %s", l.Source, l.Where)
	if l.Source == "" {
		where = "none is known"
	}
	if a.last = append(a.last, fmt.Sprintf("step %s: %s; input: %s", l.Step, l.Reason, where)); len(a.last) > 3 {
		a.last = a.last[1:]
	}
	if !counts || a.brake.reject() {
		return nil
	}
	return fmt.Errorf("%w: sink %s: %s; correct the input or the job, or raise the limit (MaxDeadLetters); the last ones:\n  %s",
		ErrInput, a.conf.Sink, a.brake.String(), strings.Join(a.last, "\n  "))
}

// letter describes a rejected record. Its source may read its input again.
func (r *Run) letter(step int32, origin, at int64, raw []byte, cause error) Letter {
	l := Letter{Step: r.stepName(step), Kind: kindOf(cause, raw), Reason: cause.Error(), Raw: raw, At: MinTime}
	r.aside.asking.Lock()
	defer r.aside.asking.Unlock()
	p, known := r.placeOf(origin)
	if !known {
		l.Mark = -1 - int64(xxh3.Hash(raw)>>16)
	} else {
		l.Source, l.Split, l.Mark, l.Where = p.source, p.split, origin&markMask, p.words(origin&markMask)
		of := r.abouts[p.source]
		if of.timed {
			l.At = at
		}
		if raw == nil && of.reread != nil {
			var err error
			if l.Raw, err = of.reread(p.split, l.Mark); err != nil {
				l.Raw, l.Reason = nil, fmt.Sprintf("%s; its bytes can't be read again: %v", l.Reason, err)
			}
		}
	}
	if len(l.Raw) > maxRaw {
		l.Raw = l.Raw[:maxRaw]
	}
	l.Reason = clip(l.Reason, maxReason)
	return l
}

// NewLate sets late records of a step aside and passes them on to next, which
// may be nil.
func NewLate[T any](at At, next Out[T]) Out[T] {
	late := &lateOut[T]{at}
	if next == nil {
		return late
	}
	return Tee[T]{next, late}
}

type lateOut[T any] struct{ at At }

func (o *lateOut[T]) Push(_ *T, at int64) {
	t := o.at.Task
	cause := errors.New("late: its window was closed while its split was idle")
	if t.Behind != MinTime {
		cause = fmt.Errorf("late: the watermark of its split was %s when it was read", time.Unix(0, t.Behind).UTC().Format(time.RFC3339Nano))
	}
	t.reject(o.at.Step, t.Origin, at, nil, as(TooLate, cause))
}

func (o *lateOut[T]) Mark(Mark) {}

// clip cuts a text to n bytes, between two characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// row is what is kept of a record that isn't an input record: the same for
// equal ones.
func row(rec any) []byte {
	if b, err := json.Marshal(rec); err == nil {
		return b
	}
	return fmt.Appendf(nil, "%+v", rec)
}

// kindError is an error that knows its kind.
type kindError struct {
	error
	kind Kind
}

func (e kindError) Unwrap() error { return e.error }

// as says what kind of rejection an error is.
func as(kind Kind, err error) error { return kindError{err, kind} }

// kindOf classifies a rejection. Only a source's reader gives the raw bytes of a
// record that it can't read.
func kindOf(cause error, raw []byte) Kind {
	if k, ok := errors.AsType[kindError](cause); ok {
		return k.kind
	}
	if _, ok := errors.AsType[*PanicError](cause); ok {
		return Panicking
	}
	if errors.Is(cause, ErrOversized) {
		return TooLong
	}
	if raw != nil {
		return Undecodable
	}
	return Erroneous
}
