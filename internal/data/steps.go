package data

// At names the task and the declared step that an operator belongs to.
type At struct {
	Task *Task
	Step int32
}

// MapOut applies F. tmp keeps the result off the heap.
type MapOut[T, R any] struct {
	At
	F    func(T) R
	Next Out[R]
	tmp  R
}

// Push maps one record.
func (o *MapOut[T, R]) Push(p *T, at int64) {
	o.Task.Step = o.Step
	o.tmp = o.F(*p)
	o.Next.Push(&o.tmp, at)
}

// Mark passes on.
func (o *MapOut[T, R]) Mark(m Mark) { o.Next.Mark(m) }

// TryMapOut is MapOut for a function that can fail.
type TryMapOut[T, R any] struct {
	At
	F    func(T) (R, error)
	Next Out[R]
	tmp  R
}

// Push maps one record or fails the task.
func (o *TryMapOut[T, R]) Push(p *T, at int64) {
	if o.Task.err != nil {
		return
	}
	o.Task.Step = o.Step
	var err error
	if o.tmp, err = o.F(*p); err != nil {
		o.Task.Fail(err)
		return
	}
	o.Next.Push(&o.tmp, at)
}

// Mark passes on.
func (o *TryMapOut[T, R]) Mark(m Mark) { o.Next.Mark(m) }

// FilterOut drops records.
type FilterOut[T any] struct {
	At
	F    func(T) bool
	Next Out[T]
}

// Push keeps or drops one record.
func (o *FilterOut[T]) Push(p *T, at int64) {
	o.Task.Step = o.Step
	if o.F(*p) {
		o.Next.Push(p, at)
	}
}

// Mark passes on.
func (o *FilterOut[T]) Mark(m Mark) { o.Next.Mark(m) }

// SplitOut sends each record one of two ways.
type SplitOut[T any] struct {
	At
	F       func(T) bool
	Yes, No Out[T]
}

// Push sends one record one way.
func (o *SplitOut[T]) Push(p *T, at int64) {
	o.Task.Step = o.Step
	if o.F(*p) {
		o.Yes.Push(p, at)
	} else {
		o.No.Push(p, at)
	}
}

// Mark passes on both ways.
func (o *SplitOut[T]) Mark(m Mark) {
	o.Yes.Mark(m)
	o.No.Mark(m)
}

// FlatMapOut emits any number of records for one.
type FlatMapOut[T, R any] struct {
	At
	F    func(T, func(R))
	Next Out[R]
	at   int64
	tmp  R
	emit func(R)
}

// Push calls F, whose emissions go on at once.
func (o *FlatMapOut[T, R]) Push(p *T, at int64) {
	if o.emit == nil {
		o.emit = func(r R) {
			o.tmp = r
			o.Next.Push(&o.tmp, o.at)
			o.Task.Step = o.Step
		}
	}
	o.at = at
	o.Task.Step = o.Step
	o.F(*p, o.emit)
}

// Mark passes on.
func (o *FlatMapOut[T, R]) Mark(m Mark) { o.Next.Mark(m) }

// Tee copies a stream to several consumers; with none it drops it.
type Tee[T any] []Out[T]

// Push gives the record to each.
func (o Tee[T]) Push(p *T, at int64) {
	for _, n := range o {
		n.Push(p, at)
	}
}

// Mark passes on to each.
func (o Tee[T]) Mark(m Mark) {
	for _, n := range o {
		n.Mark(m)
	}
}
