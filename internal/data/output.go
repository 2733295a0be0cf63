package data

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
}

// NewSink ends a stream in w.
func NewSink[T any](at At, w SinkWriter[T]) *SinkOut[T] {
	o := &SinkOut[T]{at: at, w: w, recs: make([]T, at.Task.run.ReadLen), times: make([]int64, at.Task.run.ReadLen),
		origins: make([]int64, at.Task.run.ReadLen)}
	o.full, _ = w.(filler)
	o.point, _ = w.(pointing)
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

// flush hands over what was gathered.
func (o *SinkOut[T]) flush() {
	t := o.at.Task
	if o.n == 0 || t.err != nil {
		return
	}
	t.Step = o.at.Step
	t.writing = o
	err := o.w.Write(o.recs[:o.n], o.times[:o.n])
	if err != nil {
		t.Fail(sinkError{err: err, exact: o.point != nil})
	}
	t.writing = nil
	o.n = 0
	if o.full != nil && !o.asked && o.full.Full() {
		o.asked = true
		t.run.ctl.Wants(true)
	}
}

// culprit is the input record of the one that the writer is at.
func (o *SinkOut[T]) culprit() int64 {
	i := 0
	if o.point != nil {
		i = o.point.At()
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
