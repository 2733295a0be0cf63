package data

import (
	"slices"
	"sync/atomic"

	"github.com/weirstream/weir/internal/table"
)

// DistinctConfig is what a Distinct needs. TTL and Admit are nanoseconds.
type DistinctConfig[K comparable, T any] struct {
	ID     string
	Key    table.Key
	Value  table.Value // of int64
	Older  table.Value // of []int64
	TTL    int64
	Admit  int64
	Late   Out[T] // nil: counted and dropped
	Repeat Out[T] // nil: dropped
}

// Distinct passes a record unless one with its key, less than TTL away in event
// time, was passed before. Two records decide that and nothing else: no clock,
// no watermark, no sweep, so that a replay decides alike.
type Distinct[K comparable, T any] struct {
	At
	c     DistinctConfig[K, T]
	next  Out[T]
	tab   *table.Table[K, int64]   // the newest time passed
	older *table.Table[K, []int64] // keys that passed at several times
	pools [2]*table.Pool
	clock clock
	hand  uint32
	late  *atomic.Int64
	ids   [MaxBatch]uint32
	in    [MaxBatch]int32 // admitted records of a batch
	hash  [MaxBatch]uint64
	keys  [MaxBatch]K
}

// NewDistinct makes the step in its task.
func NewDistinct[K comparable, T any](at At, c DistinctConfig[K, T], next Out[T]) *Distinct[K, T] {
	t := at.Task
	d := &Distinct[K, T]{At: at, c: c, next: next, clock: newClock(t), late: t.run.lateOf(c.ID),
		tab:   table.New[K, int64](c.Key, c.Value, t.run.Groups),
		older: table.New[K, []int64](c.Key, c.Older, t.run.Groups),
		pools: [2]*table.Pool{table.NewPool(), table.NewPool()}}
	d.tab.OnLoad(t.loading)
	d.older.OnLoad(t.loading)
	t.OnRestore(func(rs Restorer) error {
		d.clock.restore(rs.Clocks(c.ID))
		return sections(rs, c.ID, func(tag int64, b []byte, sec Section) ([]byte, error) {
			if tag == 1 {
				return d.older.Load(b, sec.Key, c.Older.Schema(), t.owns, func(h uint64, v *[]int64) bool {
					return len(*v) > 0 && !d.expired((*v)[len(*v)-1], d.clock.of(table.Group(h, t.run.Groups)))
				})
			}
			return d.tab.Load(b, sec.Key, sec.Value, t.owns, func(h uint64, v *int64) bool {
				return !d.expired(*v, d.clock.of(table.Group(h, t.run.Groups)))
			})
		})
	})
	return d
}

// expired reports that no admissible record can be a repeat of one at time at.
func (d *Distinct[K, T]) expired(at, wm int64) bool { return wm >= later(at, d.c.TTL+d.c.Admit) }

// Batch passes or drops each record.
func (d *Distinct[K, T]) Batch(b *Batch[K, T]) {
	hash, keys := b.Hash[:b.N], b.Keys[:b.N]
	in := d.in[:0]
	if len(b.Late) > 0 {
		in = d.admit(b)
		for j, i := range in {
			d.hash[j], d.keys[j] = hash[i], keys[i]
		}
		hash, keys = d.hash[:len(in)], d.keys[:len(in)]
	}
	ids := d.ids[:len(hash)]
	if !d.Task.room(d.tab.Growth(len(ids))) {
		return
	}
	d.tab.Locate(hash, keys, ids)
	late := behind{late: b.Late}
	t := d.Task
	for j, id := range ids {
		i := j
		if len(b.Late) > 0 {
			i = int(in[j])
			t.Behind = late.of(i)
		}
		t.Origin = b.Origin[i]
		if d.repeat(id, hash[j], b.At[i]) {
			if d.c.Repeat != nil {
				d.c.Repeat.Push(&b.Recs[i], b.At[i])
			}
			continue
		}
		d.next.Push(&b.Recs[i], b.At[i])
		if t.err != nil {
			return
		}
	}
	t.Behind = MinTime
	d.sweep(2 * b.N)
}

// admit lists the records that aren't late here and sends the others aside.
func (d *Distinct[K, T]) admit(b *Batch[K, T]) []int32 {
	in := d.in[:0]
	late := behind{late: b.Late}
	for i := range b.N {
		wm := late.of(i)
		if wm == MinTime || wm < later(b.At[i], d.c.Admit) {
			in = append(in, int32(i))
			continue
		}
		d.late.Add(1)
		if d.c.Late != nil {
			d.Task.Behind, d.Task.Origin = wm, b.Origin[i]
			d.c.Late.Push(&b.Recs[i], b.At[i])
		}
	}
	d.Task.Behind = MinTime
	return in
}

// repeat reports whether a record at time at repeats one that was passed, and
// otherwise notes it. id is its key's entry, as Locate gave it.
func (d *Distinct[K, T]) repeat(id uint32, hash uint64, at int64) bool {
	fresh := id&table.Fresh != 0
	id &^= table.Fresh
	newest := d.tab.Value(id)
	if !fresh {
		if gap := at - *newest; gap < d.c.TTL && -gap < d.c.TTL {
			return true
		}
		if d.known(id, hash, at, newest) {
			return true
		}
	} else {
		*newest = at
	}
	*newest = max(*newest, at)
	d.tab.Touch(id)
	return false
}

// known handles the rare key that is passed again: the times that aren't the
// newest are kept beside, sorted, for as long as a repeat of them may come.
func (d *Distinct[K, T]) known(id uint32, hash uint64, at int64, newest *int64) bool {
	key := d.tab.Key(id)
	if oid, ok := d.older.Find(hash, key); ok {
		for _, t := range *d.older.Value(oid) {
			if gap := at - t; gap < d.c.TTL && -gap < d.c.TTL {
				return true
			}
		}
	}
	keep := min(at, *newest)
	if d.expired(keep, d.clock.wm) {
		return false
	}
	ids := []uint32{0}
	d.older.Locate([]uint64{hash}, []K{key}, ids)
	oid := ids[0] &^ table.Fresh
	times := d.older.Value(oid)
	*times = slices.DeleteFunc(append(slices.Clone(*times), keep), func(t int64) bool { return d.expired(t, d.clock.wm) })
	slices.Sort(*times)
	d.older.Touch(oid)
	return false
}

// sweep moves the hand on by n entries and forgets what has expired: two
// entries a record, so that the table is clean after half its length.
func (d *Distinct[K, T]) sweep(n int) {
	all := d.tab.IDs()
	for range min(n, int(all)) {
		if d.hand >= all {
			d.hand = 0
		}
		if !d.tab.Dead(d.hand) && d.expired(*d.tab.Value(d.hand), d.clock.wm) {
			d.forget(d.hand)
		}
		d.hand++
	}
}

// forget leaves no tombstone: a restore skips what has expired.
func (d *Distinct[K, T]) forget(id uint32) {
	if d.older.Len() > 0 {
		if oid, ok := d.older.Find(d.tab.HashOf(id), d.tab.Key(id)); ok {
			d.older.Drop(oid)
		}
	}
	d.tab.Drop(id)
}

// Mark saves at a barrier.
func (d *Distinct[K, T]) Mark(m Mark) {
	switch m.Kind {
	case Watermark:
		d.clock.wm = max(d.clock.wm, m.N)
	case Barrier:
		d.save(m.N)
	}
	d.next.Mark(m)
	if d.c.Late != nil {
		d.c.Late.Mark(m)
	}
	if d.c.Repeat != nil {
		d.c.Repeat.Mark(m)
	}
}

func (d *Distinct[K, T]) save(epoch int64) {
	full := d.Task.run.isFull(epoch, d.c.ID)
	if full {
		d.sweep(int(d.tab.IDs()))
	}
	newest, err := d.tab.Freeze(d.pools[0], full)
	if err != nil {
		d.Task.Fail(err)
		return
	}
	older, err := d.older.Freeze(d.pools[1], full)
	if err != nil {
		newest.Release()
		d.Task.Fail(err)
		return
	}
	p := &part{info: PartInfo{Step: d.c.ID, Full: full, Live: d.tab.Len() + d.older.Len(), Clocks: d.clock.save(),
		Key: d.c.Key.Schema(), Value: d.c.Value.Schema()}}
	p.add(0, newest)
	p.add(1, older)
	d.Task.Save(p)
}
