package data

// At names the task and the declared step that an operator belongs to.
type At struct {
	Task *Task
	Step int32
}

// NewMap applies f.
func NewMap[T, R any](at At, f func(T) R, next Out[R]) Out[T] {
	if at.Task.careful() {
		return &TryMapOut[T, R]{At: at, F: guarded(f), Next: next}
	}
	return &MapOut[T, R]{At: at, F: f, Next: next}
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

// NewTryMap applies f, which can fail.
func NewTryMap[T, R any](at At, f func(T) (R, error), next Out[R]) Out[T] {
	if at.Task.careful() {
		f = guardedTry(f)
	}
	return &TryMapOut[T, R]{At: at, F: f, Next: next}
}

// TryMapOut is MapOut for a function that can fail.
type TryMapOut[T, R any] struct {
	At
	F    func(T) (R, error)
	Next Out[R]
	tmp  R
}

// Push maps one record or rejects it.
func (o *TryMapOut[T, R]) Push(p *T, at int64) {
	if o.Task.err != nil {
		return
	}
	o.Task.Step = o.Step
	var err error
	if o.tmp, err = o.F(*p); err != nil {
		o.Task.reject(o.Step, o.Task.Origin, at, nil, err)
		return
	}
	o.Next.Push(&o.tmp, at)
}

// Mark passes on.
func (o *TryMapOut[T, R]) Mark(m Mark) { o.Next.Mark(m) }

// NewFilter passes the records for which f returns true.
func NewFilter[T any](at At, f func(T) bool, next Out[T]) Out[T] {
	if at.Task.careful() {
		return &trySplitOut[T]{At: at, F: guarded(f), Yes: next}
	}
	return &FilterOut[T]{At: at, F: f, Next: next}
}

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

// NewSplit sends each record one of two ways.
func NewSplit[T any](at At, f func(T) bool, yes, no Out[T]) Out[T] {
	if at.Task.careful() {
		return &trySplitOut[T]{At: at, F: guarded(f), Yes: yes, No: no}
	}
	return &SplitOut[T]{At: at, F: f, Yes: yes, No: no}
}

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

// trySplitOut is SplitOut, or with a nil No FilterOut, for a function that can
// fail.
type trySplitOut[T any] struct {
	At
	F       func(T) (bool, error)
	Yes, No Out[T]
}

// Push sends one record one way, or rejects it.
func (o *trySplitOut[T]) Push(p *T, at int64) {
	if o.Task.err != nil {
		return
	}
	o.Task.Step = o.Step
	yes, err := o.F(*p)
	switch {
	case err != nil:
		o.Task.reject(o.Step, o.Task.Origin, at, nil, err)
	case yes:
		o.Yes.Push(p, at)
	case o.No != nil:
		o.No.Push(p, at)
	}
}

// Mark passes on both ways.
func (o *trySplitOut[T]) Mark(m Mark) {
	o.Yes.Mark(m)
	if o.No != nil {
		o.No.Mark(m)
	}
}

// NewFlatMap passes on what f emits.
func NewFlatMap[T, R any](at At, f func(T, func(R)), next Out[R]) Out[T] {
	if at.Task.careful() {
		return NewTryFlatMap(at, func(rec T, emit func(R)) error { f(rec, emit); return nil }, next)
	}
	return &FlatMapOut[T, R]{At: at, F: f, Next: next}
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

// NewTryFlatMap passes on what f emits, once it has returned without an error.
func NewTryFlatMap[T, R any](at At, f func(T, func(R)) error, next Out[R]) Out[T] {
	o := &tryFlatMapOut[T, R]{At: at, F: f, Next: next}
	if at.Task.careful() {
		o.F = func(rec T, emit func(R)) (err error) {
			defer caught(&err)
			return f(rec, emit)
		}
	}
	o.emit = func(r R) { o.recs = append(o.recs, r) }
	return o
}

// tryFlatMapOut gathers what F emits: of a record that is rejected nothing goes
// on.
type tryFlatMapOut[T, R any] struct {
	At
	F    func(T, func(R)) error
	Next Out[R]
	recs []R
	emit func(R)
}

// manyRecords is how many gathered records are room that a step keeps.
const manyRecords = 4 * MaxBatch

// Push calls F and then passes on what it emitted.
func (o *tryFlatMapOut[T, R]) Push(p *T, at int64) {
	t := o.Task
	if t.err != nil {
		return
	}
	t.Step = o.Step
	err := o.F(*p, o.emit)
	for i := 0; i < len(o.recs) && err == nil && t.err == nil; i++ {
		o.Next.Push(&o.recs[i], at)
	}
	clear(o.recs)
	if o.recs = o.recs[:0]; cap(o.recs) > manyRecords {
		o.recs = nil
	}
	if err != nil {
		t.reject(o.Step, t.Origin, at, nil, err)
	}
}

// Mark passes on.
func (o *tryFlatMapOut[T, R]) Mark(m Mark) { o.Next.Mark(m) }

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
