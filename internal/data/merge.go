package data

// Merge makes several ways through one task one: what follows sees records in
// the order in which they were pushed, whichever way they came. With a consumer
// for each way they would pass each other in its batches.
type Merge[T any] struct {
	next Out[T]
	ways []*way[T]
	wm   int64
}

// NewMerge returns a merge in front of next, without a way yet.
func NewMerge[T any](next Out[T]) *Merge[T] { return &Merge[T]{next: next, wm: MinTime} }

// Way adds a way. All are added before the task starts.
func (m *Merge[T]) Way() Out[T] {
	w := &way[T]{m: m, next: m.next, wm: MinTime}
	m.ways = append(m.ways, w)
	return w
}

type way[T any] struct {
	m    *Merge[T]
	next Out[T]
	wm   int64
	here bool // has delivered the barrier or probe
}

// Push passes on.
func (w *way[T]) Push(p *T, at int64) { w.next.Push(p, at) }

// Mark passes the lowest watermark on, and a barrier or a probe once every way
// has delivered it. A task sends these down all its ways before it reads on, so
// none can be a record ahead.
func (w *way[T]) Mark(m Mark) {
	all := w.m
	if m.Kind == Watermark {
		w.wm = max(w.wm, m.N)
		low := w.wm
		for _, o := range all.ways {
			low = min(low, o.wm)
		}
		if low > all.wm {
			all.wm = low
			w.next.Mark(Mark{Watermark, low})
		}
		return
	}
	w.here = true
	for _, o := range all.ways {
		if !o.here {
			return
		}
	}
	for _, o := range all.ways {
		o.here = false
	}
	w.next.Mark(m)
}
