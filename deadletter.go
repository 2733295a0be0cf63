package weir

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// DeadLetter is a record that a step has rejected. All of it follows from the
// input and the job: a replay rejects the same records and makes the same
// letters. Source, Split, Mark and Step tell letters apart, so that a sink that
// upserts by them holds each once; a step that rejects several results of one
// record keeps one letter of them there.
type DeadLetter struct {
	Source string `json:"source" db:"source"`
	Split  string `json:"split" db:"split"`
	// Mark is the record's number in its split, as its source counts: the byte
	// offset of a line, an offset. Source and Split are empty and Mark is negative
	// where no input record is known, because a watermark or a barrier caused the
	// row that a sink refused.
	Mark int64  `json:"mark" db:"mark"`
	Step string `json:"step" db:"step"` // that rejected it, as errors name it
	// Kind says what was wrong: decode, oversized, event-time, error (of a Try
	// function, or a count that would wrap), panic, sink, late.
	Kind   string `json:"kind" db:"kind"`
	Reason string `json:"reason" db:"reason"` // at most 4 KiB
	// Where is the record in its source's words: "clicks.jsonl, line 17, byte
	// offset 1632".
	Where string `json:"place" db:"place"`
	// EventTime is the zero time where it isn't known.
	EventTime time.Time `json:"event_time,omitzero" db:"event_time"`
	// Raw is the input record as it was read, at most MaxRejected bytes of it. It
	// is empty where a step behind the source has rejected the record and the
	// source isn't a Rereader. Of a row without an input record it is the row, as
	// JSON.
	Raw []byte `json:"raw" db:"raw"`
}

// DeadLetterOption configures DeadLetters.
type DeadLetterOption interface{ deadLetter(*deadLetterConfig) }

type deadLetterConfig struct {
	limit data.Limit
	late  bool
}

type deadLetterOption func(*deadLetterConfig)

func (f deadLetterOption) deadLetter(c *deadLetterConfig) { f(c) }

// MaxDeadLetters sets how many records may be rejected before the job stops, with
// ErrInput: at most n of the last so many records read, or with of 0 at most n
// since the start. The default is 1,000 of 10,000. A negative n allows any
// number. Late records aren't counted for it.
//
// It is a brake, not a result: the last records are counted in blocks of what is
// read at once, so that it may trip a few hundred records late, and a job that is
// started again counts from zero.
func MaxDeadLetters(n, of int64) DeadLetterOption {
	return deadLetterOption(func(c *deadLetterConfig) { c.limit = data.Limit{N: n, Of: of} })
}

// DeadLate sends late records of every window and every Distinct to the dead
// letters, besides where their Late stream goes.
func DeadLate() DeadLetterOption {
	return deadLetterOption(func(c *deadLetterConfig) { c.late = true })
}

// deadLetters is the sink for dead letters, declared.
type deadLetters struct {
	id   string
	node int
	conf deadLetterConfig
}

// DeadLetters gives the job a sink for records that can't be taken: undecodable
// ones and ones that are too long, where the source is a [Rejecter]; without an
// event time or with an impossible one; those that a Try function returns an
// error for or that a user function panics on; rows that a sink refuses with a
// [Rejection]. Without it the first of them stops the job.
//
// A letter is written in the epoch in which its record was read, with the sink's
// own guarantee. The record goes no further on the way that rejected it and leaves
// no trace in state; other branches of the stream get it. A panic that a
// watermark or a barrier causes, in what makes a window's result, has no record to
// set aside and stops the job all the same.
//
// An accumulator of a Fold, Reduce or Aggregate that has slices, maps or pointers
// is encoded before each record, so that a panic can be undone: that costs about
// what saving it does.
func (j *Job) DeadLetters(id string, sink Sink[DeadLetter], opts ...DeadLetterOption) {
	if j.dead != nil {
		j.fail(id, fmt.Errorf("there is a sink for dead letters already, %s: a job has one", j.dead.id))
		return
	}
	d := &deadLetters{id: id, conf: deadLetterConfig{limit: data.Limit{N: 1_000, Of: 10_000}}}
	for _, o := range opts {
		o.deadLetter(&d.conf)
	}
	switch l := d.conf.limit; {
	case l.Of < 0:
		j.fail(id, fmt.Errorf("MaxDeadLetters(%d, %d): give the number of records that the limit is of, or 0 for all since the start", l.N, l.Of))
	case l.Of > 0 && l.N >= l.Of:
		j.fail(id, fmt.Errorf("MaxDeadLetters(%d, %d): so many of so many never stop the job; give fewer, or -1 for any number", l.N, l.Of))
	}
	node, ok := addSink(j, id, sink, plan.Node{DeadLetters: true, Late: d.conf.late})
	if ok {
		d.node, j.dead = node, d
	}
}

// lower gives the run a place for dead letters, before its tasks are made.
func (d *deadLetters) lower(b *build) {
	if d == nil {
		return
	}
	b.run.SetAside(data.Aside{Step: d.node, Sink: d.id, Limit: d.conf.limit, Letters: func() data.Letters {
		w := &letterWriter{w: b.outlets[d.id].(Outlet[DeadLetter]).Writer(b.writers[d.id])}
		b.writers[d.id]++
		w.full, _ = w.w.(Filler)
		return w
	}})
}

// late makes what gets the late records of a step in a task, if anything does.
func late[T any](b *build, side *Stream[T], at data.At) data.Out[T] {
	var out data.Out[T]
	if side != nil {
		out = side.lower(b, at.Task)
	}
	if d := b.job.dead; d != nil && d.conf.late {
		return data.NewLate(at, out)
	}
	return out
}

// deadLettersOf counts them for Progress.
func deadLettersOf(run *data.Run) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for _, c := range run.Rejects() {
		if out[c.Step] == nil {
			out[c.Step] = map[string]int64{}
		}
		out[c.Step][string(c.Kind)] = c.N
	}
	return out
}

// letterWriter is a task's side of the sink.
type letterWriter struct {
	w    Writer[DeadLetter]
	full Filler // may be nil
}

func (w *letterWriter) Put(l data.Letter) error {
	d := DeadLetter{Source: l.Source, Split: text(l.Split), Mark: l.Mark, Step: l.Step, Kind: string(l.Kind),
		Reason: text(l.Reason), Where: text(l.Where), Raw: l.Raw}
	at := l.At
	if at == data.MinTime {
		at = 0
	} else {
		d.EventTime = nanos(at)
	}
	return w.w.Write([]DeadLetter{d}, []int64{at})
}

func (w *letterWriter) Seal(epoch int64) error { return w.w.Seal(epoch) }
func (w *letterWriter) Full() bool             { return w.full != nil && w.full.Full() }

// text makes s something that every sink can store: a reason may quote anything.
func text(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == 0 || r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}
