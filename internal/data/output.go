package data

import (
	"errors"
	"time"
)

// SinkWriter is the side of a sink that a task calls.
type SinkWriter[T any] interface {
	Write(recs []T, at []int64) error
	Seal(epoch int64) error
}

// filler is a SinkWriter whose buffer can be full.
type filler interface{ Full() bool }

// pointing is a SinkWriter of a user function: it knows which record of the
// batch it is at, so that an error can name it.
type pointing interface{ At() int }

// rejection is an error of Write about one record: those before it were taken, it
// and those behind it weren't.
type rejection interface {
	error
	Rejected() int
}

// refusal is a rejection of a writer that is a user function, which panicked.
type refusal struct {
	error
	at int
}

func (r refusal) Rejected() int { return r.at }
func (r refusal) Unwrap() error { return r.error }

// SinkOut gathers records for a sink and seals it at a barrier.
type SinkOut[T any] struct {
	at    At
	w     SinkWriter[T]
	full  filler
	asked bool
	n     int
	recs  []T
	times []int64
	// origins are the input records that the gathered ones come from.
	origins []int64
	point   pointing // nil: the writer isn't a user function
	meter   *sinkMeter
	from    int // the first record of the Write at hand
	bad     int // the record that the writer rejected last, or -1
}

// NewSink ends a stream in w.
func NewSink[T any](at At, w SinkWriter[T]) *SinkOut[T] {
	o := &SinkOut[T]{at: at, w: w, recs: make([]T, at.Task.run.ReadLen), times: make([]int64, at.Task.run.ReadLen),
		origins: make([]int64, at.Task.run.ReadLen), bad: -1}
	o.full, _ = w.(filler)
	o.point, _ = w.(pointing)
	o.meter = at.Task.run.meterSink(at.Step)
	at.Task.OnIdle(o.flush)
	return o
}

// Push adds one record.
func (o *SinkOut[T]) Push(p *T, at int64) {
	o.recs[o.n], o.times[o.n], o.origins[o.n] = *p, at, o.at.Task.Origin
	if o.n++; o.n == len(o.recs) {
		o.flush()
	}
}

// flush hands over what was gathered. Once the task has failed that is dropped:
// a step that is in the middle of its results goes on to push them.
func (o *SinkOut[T]) flush() {
	t := o.at.Task
	if t.err != nil {
		o.n = 0
	}
	if o.n == 0 {
		return
	}
	t.Step = o.at.Step
	t.writing = o
	began := time.Now()
	o.meter.write(o.write(), time.Since(began))
	t.writing = nil
	o.n = 0
	if o.full != nil && !o.asked && o.full.Full() {
		o.asked = true
		t.run.ctl.Wants(true)
	}
}

// write hands over all records but those that the writer rejects: they are set
// aside, and what stands behind them is written again. It returns how many were
// taken.
func (o *SinkOut[T]) write() (taken int) {
	t := o.at.Task
	taken = o.n
	for o.from = 0; o.from < o.n && t.err == nil; o.from = o.bad + 1 {
		o.bad = -1
		recs, times := o.recs[o.from:o.n], o.times[o.from:o.n]
		var err error
		if o.point != nil && t.careful() {
			err = o.guardedWrite(recs, times)
		} else {
			err = o.w.Write(recs, times)
		}
		if err == nil {
			return taken
		}
		if r, one := errors.AsType[rejection](err); one && r.Rejected() >= 0 && r.Rejected() < len(recs) {
			o.bad = o.from + r.Rejected()
		}
		if o.bad < 0 || !t.careful() {
			t.Fail(sinkError{err: err, exact: o.point != nil || o.bad >= 0})
			return taken - len(recs)
		}
		taken--
		o.reject(err)
	}
	return taken
}

// reject sets the bad record aside. Where no input record caused it, the letter
// holds the record itself.
func (o *SinkOut[T]) reject(err error) {
	t, origin := o.at.Task, o.origins[o.bad]
	var raw []byte
	if origin == noOrigin {
		raw = row(o.recs[o.bad])
	}
	if _, panicked := errors.AsType[*PanicError](err); !panicked {
		err = as(Refused, err)
	}
	t.reject(o.at.Step, origin, o.times[o.bad], raw, err)
}

// guardedWrite makes a panic of the user function a rejection of the record that
// it was at.
func (o *SinkOut[T]) guardedWrite(recs []T, at []int64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = refusal{&PanicError{Value: p, at: panicFrame()}, o.point.At()}
		}
	}()
	return o.w.Write(recs, at)
}

// culprit is the input record of the one that the writer is at.
func (o *SinkOut[T]) culprit() int64 {
	i := o.bad
	if i < 0 && o.point != nil {
		i = o.from + o.point.At()
	}
	if i < 0 || i >= o.n {
		return noOrigin
	}
	return o.origins[i]
}

// Mark seals the epoch at a barrier; a probe hands over what was gathered.
func (o *SinkOut[T]) Mark(m Mark) {
	if m.Kind == Watermark {
		return
	}
	o.flush()
	if m.Kind != Barrier || o.at.Task.err != nil {
		return
	}
	o.asked = false
	o.at.Task.Step = o.at.Step
	if err := o.w.Seal(m.N); err != nil {
		o.at.Task.Fail(sinkError{err: err})
	}
}
