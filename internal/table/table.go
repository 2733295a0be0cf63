// Package table is the keyed state of one step in one task: a table from keys
// to values that can be frozen at a barrier in a few nanoseconds a changed key,
// encoded in the background, and loaded again by tables that own other key
// groups.
//
// Entries are dense, with ids that stay the same as the table grows; an index
// of 8 bytes a cell leads to them. Keys of variable length are bytes in an
// arena. Where values are flat, nothing of this holds a pointer that the
// garbage collector would follow.
package table

import (
	"fmt"
	"unsafe"
)

const (
	// Fresh is set in an id by Locate where it made the entry.
	Fresh = 1 << 31
	// MaxBatch is how many keys one call of Locate takes.
	MaxBatch = 1024

	maxIDs   = Fresh - 1
	minIndex = 8 // log2 of the cells of an empty table
)

// Table is the keyed state. It belongs to one goroutine, the task's; what
// Freeze returns belongs to another and shares nothing that changes.
//
// An entry is words: the hash, the key (a reference into the arena, or its
// memory), the value where it is flat. An index cell is the hash's high half
// and an id + 1; 0 is an empty cell. The cell's place comes from the hash's
// high bits: its low bits choose the key group, and a task owns few groups.
type Table[K comparable, V any] struct {
	key    *keyLayout
	value  *valueLayout
	groups int

	keyWords int
	stride   int     // words an entry
	valueAt  uintptr // bytes from an entry to its value

	index []uint64
	shift uint8 // hash >> shift is the place in the index

	slabBits uint8            // log2 of the entries a slab
	slabs    []unsafe.Pointer // to (1 << slabBits) * stride words each
	boxes    [][]V            // boxed values, in slabs alike
	weights  weights          // what boxed values point to
	ids      uint32           // handed out so far
	free     []uint32         // of these, deleted
	live     int

	arena   arena
	dirty   []uint64 // a bit an id: a freeze walks memory in order
	changed int      // bits set in dirty
	dead    []uint64 // a bit an id: deleted
	tombs   []uint64 // hash and key words of what was deleted since the freeze

	onLoad  func(more int64) error
	refs    [MaxBatch]uint64
	first   [MaxBatch]uint64 // Locate: the keys' cells
	scratch *scratch         // composite keys only
}

// scratch holds the encoded keys of one batch.
type scratch struct {
	bytes []byte
	ends  [MaxBatch]int
	keys  [MaxBatch]string
}

// New returns an empty table for keys and values as k and v describe them
// (which must be made for K and V), and a job with so many key groups.
func New[K comparable, V any](k Key, v Value, groups int) *Table[K, V] {
	if k.l.typ != typeOf[K]() || v.l.typ != typeOf[V]() || groups < 1 {
		panic(fmt.Sprintf("table of %v and %v, %d groups: made with the layouts of %v and %v", typeOf[K](), typeOf[V](), groups, k.l.typ, v.l.typ))
	}
	t := &Table[K, V]{key: k.l, value: v.l, groups: groups, keyWords: 1, arena: newArena()}
	if k.l.form == keyFixed {
		t.keyWords = max(1, (k.l.size+7)/8)
	}
	if k.l.form == keyComposite {
		t.scratch = &scratch{}
	}
	t.stride = 1 + t.keyWords + v.l.words
	if v.l.words > 0 {
		t.valueAt = uintptr(8 * (1 + t.keyWords))
	}
	t.slabBits = 10
	if t.stride > 64 {
		t.slabBits = 6
	}
	t.index, t.shift = make([]uint64, 1<<minIndex), 64-minIndex
	return t
}

// Len is the number of entries.
func (t *Table[K, V]) Len() int { return t.live }

// Dirty is how many entries the next Freeze would write: those touched since
// the last one, and tombstones.
func (t *Table[K, V]) Dirty() int { return t.changed + len(t.tombs)/(1+t.keyWords) }

// IDs is the number of ids handed out: all ids are below it. Dead tells those
// that are free.
func (t *Table[K, V]) IDs() uint32 { return t.ids }

// Dead reports whether id was deleted and not given out again.
func (t *Table[K, V]) Dead(id uint32) bool { return t.dead[id>>6]&(1<<(id&63)) != 0 }

// Bytes is the memory that the table holds. What boxed values point to is an
// estimate, from the length of their encodings when they were last saved or
// loaded.
func (t *Table[K, V]) Bytes() int64 {
	var v V
	slab := 8 * t.stride << t.slabBits
	n := 8*(len(t.index)+cap(t.slabs)+cap(t.dirty)+cap(t.dead)+cap(t.tombs)) + 4*cap(t.free) + len(t.slabs)*slab
	n += (len(t.boxes) << t.slabBits) * int(unsafe.Sizeof(v))
	n += cap(t.arena.chunks)*28 + 4*cap(t.weights.sizes)
	return int64(n) + t.arena.held + t.weights.bytes() + int64(unsafe.Sizeof(*t))
}

// OnLoad sets what Load calls now and then while it fills the table, and ends
// with its error: more is the bytes that it is about to take at once, or 0.
func (t *Table[K, V]) OnLoad(check func(more int64) error) { t.onLoad = check }

// Growth is the memory that Locate would take at once, on top of Bytes, for n
// keys that are all new: while the index grows, the old one and the new one are
// there together. It is 0 unless the index has to grow.
func (t *Table[K, V]) Growth(n int) int64 {
	if 4*(t.live+n) <= 3*len(t.index) {
		return 0
	}
	return 8 * int64(indexSize(t.live+n, len(t.index)))
}

func (t *Table[K, V]) entry(id uint32) unsafe.Pointer {
	slab := t.slabs[id>>(t.slabBits&31)]
	return unsafe.Add(slab, uintptr(id&(1<<(t.slabBits&31)-1))*uintptr(t.stride)*8)
}

// Value points at the value of id. It stays right until id is deleted or the
// table is reset; whoever writes through it calls Touch.
func (t *Table[K, V]) Value(id uint32) *V {
	if !t.value.flat {
		return &t.boxes[id>>(t.slabBits&31)][id&(1<<(t.slabBits&31)-1)]
	}
	return (*V)(unsafe.Add(t.entry(id), t.valueAt))
}

// Key gives the key of id. Strings in it alias memory that never changes, and
// may be kept.
func (t *Table[K, V]) Key(id uint32) K {
	p := unsafe.Add(t.entry(id), 8)
	switch t.key.form {
	case keyFixed:
		return *(*K)(p)
	case keyString:
		s := t.arena.at(*(*uint64)(p))
		return *(*K)(unsafe.Pointer(&s))
	}
	var k K
	t.key.decode(unsafe.Pointer(&k), t.arena.at(*(*uint64)(p)))
	return k
}

// HashOf gives the hash of id's key.
func (t *Table[K, V]) HashOf(id uint32) uint64 { return *(*uint64)(t.entry(id)) }

// Touch marks id as changed, so that the next Freeze writes it. An entry that
// was made and never touched isn't saved.
func (t *Table[K, V]) Touch(id uint32) {
	w := &t.dirty[id>>6]
	if bit := uint64(1) << (id & 63); *w&bit == 0 {
		*w |= bit
		t.changed++
	}
}

// Delete removes the entry id. A tombstone remains for the next Freeze, so that
// what earlier checkpoints hold of the key is gone on restore; it takes the
// memory of the key until then. A table that is never frozen uses Drop.
func (t *Table[K, V]) Delete(id uint32) {
	e := unsafe.Slice((*uint64)(t.entry(id)), 1+t.keyWords)
	if t.key.size > 0 || len(t.tombs) == 0 { // the one key without bytes: once
		t.tombs = append(t.tombs, e...)
	}
	t.remove(id)
}

// Drop removes the entry id without a trace: for what a restore leaves out
// anyway, because Load's keep refuses it.
func (t *Table[K, V]) Drop(id uint32) {
	if t.key.form != keyFixed {
		t.arena.release(*(*uint64)(unsafe.Add(t.entry(id), 8)))
	}
	t.remove(id)
}

// remove takes id out of everything but the arena.
func (t *Table[K, V]) remove(id uint32) {
	t.unindex(id)
	bit := uint64(1) << (id & 63)
	if t.dirty[id>>6]&bit != 0 {
		t.dirty[id>>6] &^= bit
		t.changed--
	}
	t.dead[id>>6] |= bit
	t.free = append(t.free, id)
	t.live--
	if !t.value.flat {
		var zero V
		*t.Value(id) = zero
		t.weights.set(id, 0)
	}
	if t.arena.sparse() {
		t.repack()
	}
}

// repack copies the keys that are left to new chunks. It runs when a quarter of
// the bytes are left, so a deleted key pays for a part of it.
func (t *Table[K, V]) repack() {
	old := t.arena
	t.arena = newArena()
	t.arena.maxKey = old.maxKey
	move := func(ref *uint64) { *ref = t.arena.store(old.at(*ref)) }
	for id := range t.ids {
		if !t.Dead(id) {
			move((*uint64)(unsafe.Add(t.entry(id), 8)))
		}
	}
	for i := 0; i < len(t.tombs); i += 1 + t.keyWords {
		move(&t.tombs[i+1])
	}
}

// Reset empties the table for another use, as if it were new: it leaves no
// tombstones. It keeps the memory of entries; that of keys goes, because
// strings may alias it.
func (t *Table[K, V]) Reset() {
	clear(t.index)
	clear(t.dirty)
	clear(t.dead)
	for _, b := range t.boxes {
		clear(b)
	}
	t.weights.reset()
	t.ids, t.free, t.live, t.changed = 0, t.free[:0], 0, 0
	t.tombs = t.tombs[:0]
	maxKey := t.arena.maxKey
	t.arena = newArena()
	t.arena.maxKey = maxKey
}
