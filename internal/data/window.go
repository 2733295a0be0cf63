package data

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/weirstream/weir/internal/table"
)

// Emission says when a window's results are emitted.
type Emission uint8

// The emission modes.
const (
	OnClose     Emission = iota // once, at the end plus lateness
	EachBarrier                 // what changed, at each barrier and at the close
	EachRecord                  // every update
)

// WindowConfig is what an aggregate in tumbling windows needs. Times are
// nanoseconds. Add is nil where Count is true.
type WindowConfig[K comparable, T, A, R any] struct {
	ID       string
	Key      table.Key
	Value    table.Value
	Size     int64
	Start    func(at int64) int64 // of the window that holds at
	Lateness int64
	Emit     Emission
	Zero     func() A
	Add      func(A, T) A
	First    func(T) A // of Reduce
	Count    bool      // A is int64: count records
	Make     func(key K, start int64, acc A) R
	Late     Out[T] // nil: counted and dropped
}

// Window keeps one accumulator a key and window. A window is a table of its
// own, so that closing it deletes nothing and leaves no tombstones.
type Window[K comparable, T, A, R any] struct {
	At
	c     WindowConfig[K, T, A, R]
	next  Out[R]
	open  []pane[K, A] // sorted by start
	spare []*table.Table[K, A]
	pool  *table.Pool
	clock clock
	late  *atomic.Int64
	size  Size // of the tables, unless stale
	stale bool
	ids   [MaxBatch]uint32
	win   [MaxBatch]int64
	idx   [MaxBatch]int32
	hash  [MaxBatch]uint64
	keys  [MaxBatch]K
	tmp   R
	// guard is set where a record that can't be added is set aside.
	guard *folding[T, A]
	make  func() // guarded: makes tmp
	key   K
	start int64
	acc   *A
}

type pane[K comparable, A any] struct {
	start int64
	tab   *table.Table[K, A]
}

// NewWindow makes the step in its task.
func NewWindow[K comparable, T, A, R any](at At, c WindowConfig[K, T, A, R], next Out[R]) *Window[K, T, A, R] {
	t := at.Task
	w := &Window[K, T, A, R]{At: at, c: c, next: next, pool: table.NewPool(), clock: newClock(t), late: t.run.lateOf(c.ID)}
	if t.careful() && !c.Count {
		w.guard = newFolding(c.Value, c.First, c.Zero, c.Add)
		if c.Emit == EachRecord {
			w.make = func() { w.tmp = c.Make(w.key, w.start, *w.acc) }
		}
	}
	t.OnRestore(func(rs Restorer) error {
		w.clock.restore(rs.Clocks(c.ID))
		err := sections(rs, c.ID, func(start int64, b []byte, sec Section) ([]byte, error) {
			return w.pane(start).Load(b, sec.Key, sec.Value, t.owns, func(h uint64, _ *A) bool {
				return !w.closed(start, w.clock.of(table.Group(h, t.run.Groups)))
			})
		})
		w.stale = true
		w.open = slices.DeleteFunc(w.open, func(p pane[K, A]) bool { return p.tab.Len() == 0 })
		return err
	})
	return w
}

// closed reports whether time wm has closed the window: "at" is late.
func (w *Window[K, T, A, R]) closed(start, wm int64) bool {
	return wm >= later(start, w.c.Size+w.c.Lateness)
}

// later is t plus d, which isn't negative, or the end of time.
func later(t, d int64) int64 {
	if t > EndOfTime-d {
		return EndOfTime
	}
	return t + d
}

// pane returns the table of a window, newest first: that is where records are.
func (w *Window[K, T, A, R]) pane(start int64) *table.Table[K, A] {
	i := len(w.open)
	for ; i > 0 && w.open[i-1].start >= start; i-- {
		if w.open[i-1].start == start {
			return w.open[i-1].tab
		}
	}
	w.stale = true
	var tab *table.Table[K, A]
	if n := len(w.spare); n > 0 {
		tab, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		tab = table.New[K, A](w.c.Key, w.c.Value, w.Task.run.Groups)
		tab.OnLoad(func(more int64) error {
			w.stale = true
			return w.Task.loading(more)
		})
	}
	w.open = slices.Insert(w.open, i, pane[K, A]{start, tab})
	return tab
}

const (
	dropped  = MinTime // in win: late, or done with
	maxSpare = 4       // tables kept for the next windows
)

// Batch adds one batch.
func (w *Window[K, T, A, R]) Batch(b *Batch[K, T]) {
	n := b.N
	start, oldest, same := int64(MinTime), int64(EndOfTime), true
	for i, at := range b.At[:n] {
		if at < start || at >= start+w.c.Size {
			start = w.c.Start(at)
			oldest = min(oldest, start)
			same = same && i == 0
		}
		w.win[i] = start
	}
	if len(b.Late) > 0 || w.closed(oldest, w.clock.most()) {
		same = w.dropLate(b) && same
	}
	switch {
	case w.c.Emit == EachRecord:
		w.inOrder(b)
	case same:
		w.add(start, b, nil)
	default:
		w.byWindow(b)
	}
	w.Task.Behind = MinTime
}

// dropLate marks the records that are late for their window: by their own
// split's watermark, or, where a split was idle and came back or the lateness
// was raised since, because the window has been closed without it.
// none: there were none.
func (w *Window[K, T, A, R]) dropLate(b *Batch[K, T]) (none bool) {
	none = true
	late := behind{late: b.Late}
	for i := range b.N {
		wm := late.of(i)
		if !w.closed(w.win[i], max(wm, w.clock.of(table.Group(b.Hash[i], w.Task.run.Groups)))) {
			continue
		}
		w.win[i], none = dropped, false
		w.late.Add(1)
		if w.c.Late != nil {
			w.Task.Behind, w.Task.Origin = wm, b.Origin[i]
			w.c.Late.Push(&b.Recs[i], b.At[i])
		}
	}
	return none
}

// byWindow makes one pass a distinct window, of which there are few.
func (w *Window[K, T, A, R]) byWindow(b *Batch[K, T]) {
	for from := 0; from < b.N; {
		start, m := int64(dropped), 0
		first := b.N
		for i := from; i < b.N; i++ {
			s := w.win[i]
			switch {
			case s == dropped:
			case start == dropped || s == start:
				start = s
				w.idx[m], w.win[i] = int32(i), dropped
				m++
			case first == b.N:
				first = i
			}
		}
		if m > 0 {
			w.add(start, b, w.idx[:m])
		}
		from = first
	}
}

// inOrder adds runs of records of one window, so that results come in the
// records' order: which windows share a batch is a matter of timing.
func (w *Window[K, T, A, R]) inOrder(b *Batch[K, T]) {
	for i := 0; i < b.N; {
		start, m := w.win[i], 0
		for ; i < b.N && w.win[i] == start; i++ {
			w.idx[m] = int32(i)
			m++
		}
		if start != dropped {
			w.add(start, b, w.idx[:m])
		}
	}
}

// add adds the records with the given indexes (nil: all) to one window.
func (w *Window[K, T, A, R]) add(start int64, b *Batch[K, T], idx []int32) {
	hash, keys := b.Hash[:b.N], b.Keys[:b.N]
	if idx != nil && len(idx) < b.N {
		for j, i := range idx {
			w.hash[j], w.keys[j] = hash[i], keys[i]
		}
		hash, keys = w.hash[:len(idx)], w.keys[:len(idx)]
	}
	tab := w.pane(start)
	ids := w.ids[:len(hash)]
	if !w.Task.room(tab.Growth(len(ids))) {
		return
	}
	had, was := tab.Len(), tab.Bytes()
	tab.Locate(hash, keys, ids)
	w.size.Keys += tab.Len() - had
	w.size.Bytes += tab.Bytes() - was
	if w.c.Count && w.c.Emit != EachRecord {
		for j, id := range ids {
			id &^= table.Fresh
			n := any(tab.Value(id)).(*int64)
			if *n == math.MaxInt64 {
				w.full(b, idx, j)
				continue
			}
			*n++
			tab.Touch(id)
		}
		return
	}
	w.fold(start, tab, b, idx, ids, keys)
}

// full rejects a record that would be one too many for its count.
func (w *Window[K, T, A, R]) full(b *Batch[K, T], idx []int32, j int) {
	if idx != nil {
		j = int(idx[j])
	}
	w.Task.reject(w.Step, b.Origin[j], b.At[j], nil, errCount)
}

func (w *Window[K, T, A, R]) fold(start int64, tab *table.Table[K, A], b *Batch[K, T], idx []int32, ids []uint32, keys []K) {
	t := w.Task
	late := behind{late: b.Late}
	for j, id := range ids {
		i := j
		if idx != nil {
			i = int(idx[j])
		}
		if t.err != nil {
			return
		}
		t.Step, t.Origin = w.Step, b.Origin[i]
		acc := tab.Value(id &^ table.Fresh)
		switch fresh := id&table.Fresh != 0; {
		case w.guard != nil:
			w.key, w.start, w.acc = keys[j], start, acc
			if err := w.guard.apply(acc, b.Recs[i], fresh, w.make); err != nil {
				t.reject(w.Step, b.Origin[i], b.At[i], nil, err)
				if fresh {
					unmake(tab, ids, j)
					w.stale = true
				}
				continue
			}
		case w.c.Count:
			n := any(acc).(*int64)
			if *n == math.MaxInt64 {
				w.full(b, idx, j)
				continue
			}
			*n++
		case fresh && w.c.First != nil:
			*acc = w.c.First(b.Recs[i])
		default:
			if fresh {
				*acc = w.c.Zero()
			}
			*acc = w.c.Add(*acc, b.Recs[i])
		}
		tab.Touch(id &^ table.Fresh)
		if w.c.Emit != EachRecord {
			continue
		}
		if len(b.Late) > 0 {
			t.Behind = late.of(i)
		}
		if w.guard == nil {
			w.tmp = w.c.Make(keys[j], start, *acc)
		}
		w.next.Push(&w.tmp, start+w.c.Size-1)
	}
}

// Mark closes windows on a watermark, emits and saves at a barrier.
func (w *Window[K, T, A, R]) Mark(m Mark) {
	switch m.Kind {
	case Watermark:
		w.advance(m.N)
	case Barrier:
		if w.c.Emit == EachBarrier {
			for _, p := range w.open {
				w.emitChanged(p)
			}
		}
		w.save(m.N)
	}
	w.next.Mark(m)
	if w.c.Late != nil {
		w.c.Late.Mark(m)
	}
}

// advance closes every window that time has passed. Its results go out before
// the watermark does, so that no step behind can have closed on them.
func (w *Window[K, T, A, R]) advance(wm int64) {
	w.clock.wm = max(w.clock.wm, wm)
	n := 0
	for n < len(w.open) && w.closed(w.open[n].start, w.clock.wm) {
		p := w.open[n]
		switch w.c.Emit {
		case OnClose:
			w.emitAll(p)
		case EachBarrier:
			w.emitChanged(p)
		}
		if len(w.spare) < maxSpare {
			p.tab.Reset()
			w.spare = append(w.spare, p.tab)
		}
		n++
	}
	w.open = slices.Delete(w.open, 0, n)
	w.stale = w.stale || n > 0
}

func (w *Window[K, T, A, R]) emitChanged(p pane[K, A]) {
	p.tab.Changed(func(id uint32) { w.emit(p, id) })
}

func (w *Window[K, T, A, R]) emitAll(p pane[K, A]) {
	for id := range p.tab.IDs() {
		if !p.tab.Dead(id) {
			w.emit(p, id)
		}
	}
}

func (w *Window[K, T, A, R]) emit(p pane[K, A], id uint32) {
	w.Task.Step = w.Step
	w.tmp = w.c.Make(p.tab.Key(id), p.start, *p.tab.Value(id))
	w.next.Push(&w.tmp, p.start+w.c.Size-1)
}

func (w *Window[K, T, A, R]) save(epoch int64) {
	full := w.Task.run.isFull(epoch, w.c.ID)
	p := &part{info: PartInfo{Step: w.c.ID, Full: full, Clocks: w.clock.save(),
		Key: w.c.Key.Schema(), Value: w.c.Value.Schema()}}
	for _, o := range w.open {
		p.info.Live += o.tab.Len()
		if !full && o.tab.Dirty() == 0 {
			continue
		}
		fz, err := o.tab.Freeze(w.pool, full)
		if err != nil {
			p.Release()
			w.Task.Fail(err)
			return
		}
		p.add(o.start, fz)
	}
	w.stale = true // what values point to is known better now
	w.Task.Save(p)
}
