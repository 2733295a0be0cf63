package data

import (
	"fmt"
	"math"

	"github.com/weirstream/weir/internal/table"
)

// FoldConfig is what a Fold, Reduce or Count needs. Either Add or Count is set;
// First makes the first record the accumulator.
type FoldConfig[K comparable, T, A, R any] struct {
	ID      string
	Key     table.Key
	Value   table.Value
	Zero    func() A
	Add     func(A, T) A
	Count   bool      // A is int64: count records
	First   func(T) A // of Reduce
	Make    func(K, A) R
	Barrier bool // emit what changed, at each barrier; else each update
}

// Fold keeps one accumulator a key.
type Fold[K comparable, T, A, R any] struct {
	At
	c     FoldConfig[K, T, A, R]
	next  Out[R]
	tab   *table.Table[K, A]
	pool  *table.Pool
	clock clock
	ids   [MaxBatch]uint32
	tmp   R
	// guard is set where a record that can't be added is set aside.
	guard *folding[T, A]
	make  func() // guarded: makes tmp
	key   K
	acc   *A
}

// NewFold makes the step in its task.
func NewFold[K comparable, T, A, R any](at At, c FoldConfig[K, T, A, R], next Out[R]) *Fold[K, T, A, R] {
	t := at.Task
	f := &Fold[K, T, A, R]{At: at, c: c, next: next, tab: table.New[K, A](c.Key, c.Value, t.run.Groups),
		pool: table.NewPool(), clock: newClock(t)}
	if t.careful() && !c.Count {
		f.guard = newFolding(c.Value, c.First, c.Zero, c.Add)
		f.make = func() { f.tmp = c.Make(f.key, *f.acc) }
		if c.Barrier {
			f.make = nil
		}
	}
	f.tab.OnLoad(t.loading)
	t.OnRestore(func(rs Restorer) error {
		f.clock.restore(rs.Clocks(c.ID))
		return sections(rs, c.ID, func(_ int64, b []byte, sec Section) ([]byte, error) {
			return f.tab.Load(b, sec.Key, sec.Value, t.owns, nil)
		})
	})
	return f
}

// Batch folds a batch.
func (f *Fold[K, T, A, R]) Batch(b *Batch[K, T]) {
	t, tab := f.Task, f.tab
	ids := f.ids[:b.N]
	if !t.room(tab.Growth(b.N)) {
		return
	}
	tab.Locate(b.Hash[:b.N], b.Keys[:b.N], ids)
	recs, keys, at, origin := b.Recs[:len(ids)], b.Keys[:len(ids)], b.At[:len(ids)], b.Origin[:len(ids)]
	late := behind{late: b.Late}
	for i, id := range ids {
		if t.err != nil {
			return
		}
		t.Step, t.Origin = f.Step, origin[i]
		fresh := id&table.Fresh != 0
		id &^= table.Fresh
		acc := tab.Value(id)
		switch {
		case f.guard != nil:
			f.key, f.acc = keys[i], acc
			if err := f.guard.apply(acc, recs[i], fresh, f.make); err != nil {
				t.reject(f.Step, origin[i], at[i], nil, err)
				if fresh {
					unmake(tab, ids, i)
				}
				continue
			}
		case f.c.Count:
			n := any(acc).(*int64)
			if *n == math.MaxInt64 {
				t.reject(f.Step, origin[i], at[i], nil, errCount)
				continue
			}
			*n++
		case fresh && f.c.First != nil:
			*acc = f.c.First(recs[i])
		default:
			if fresh {
				*acc = f.c.Zero()
			}
			*acc = f.c.Add(*acc, recs[i])
		}
		tab.Touch(id)
		if f.c.Barrier {
			continue
		}
		if len(b.Late) > 0 {
			t.Behind = late.of(i)
		}
		if f.guard == nil {
			f.tmp = f.c.Make(keys[i], *acc)
		}
		f.next.Push(&f.tmp, at[i])
	}
	t.Behind = MinTime
}

// errCount is a count that another record can't be added to.
var errCount = fmt.Errorf("the count of its key is %d, the largest int64: it isn't raised any further", int64(math.MaxInt64))

// Mark emits and saves at a barrier.
func (f *Fold[K, T, A, R]) Mark(m Mark) {
	switch m.Kind {
	case Watermark:
		f.clock.wm = max(f.clock.wm, m.N)
	case Barrier:
		if f.c.Barrier {
			f.Task.Step = f.Step
			f.tab.Changed(func(id uint32) {
				f.tmp = f.c.Make(f.tab.Key(id), *f.tab.Value(id))
				f.next.Push(&f.tmp, f.clock.wm)
			})
		}
		f.save(m.N)
	}
	f.next.Mark(m)
}

func (f *Fold[K, T, A, R]) save(epoch int64) {
	full := f.Task.run.isFull(epoch, f.c.ID)
	fz, err := f.tab.Freeze(f.pool, full)
	if err != nil {
		f.Task.Fail(err)
		return
	}
	p := &part{info: PartInfo{Step: f.c.ID, Full: full, Live: f.tab.Len(), Clocks: f.clock.save(),
		Key: f.c.Key.Schema(), Value: f.c.Value.Schema()}}
	p.add(0, fz)
	f.Task.Save(p)
}
