package table

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"unsafe"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// Locate finds or makes the entry of each key, in order: ids[i] is that of
// keys[i], whose hash is hash[i] (see HashAll). The three have one length, at
// most MaxBatch. Where it made the entry, the id has Fresh set and the value is
// zero. Keys are copied. It doesn't mark anything as changed: see Touch.
//
// Keys of any length are taken, but a table that holds one longer than MaxKey
// can't be frozen.
func (t *Table[K, V]) Locate(hash []uint64, keys []K, ids []uint32) {
	keys, ids = keys[:len(hash)], ids[:len(hash)]
	switch t.key.form {
	case keyFixed:
		t.locateFixed(hash, keys, ids)
	case keyString:
		t.locateStrings(hash, *(*[]string)(unsafe.Pointer(&keys)), ids)
	default:
		t.locateStrings(hash, t.encodeAll(keys), ids)
	}
}

// Find gives the id of key, whose hash is hash.
func (t *Table[K, V]) Find(hash uint64, key K) (id uint32, ok bool) {
	var c uint64
	switch t.key.form {
	case keyFixed:
		c = t.index[t.probeFixed(hash, &key)]
	case keyString:
		c = t.index[t.probeString(hash, *(*string)(unsafe.Pointer(&key)))]
	default:
		one := [1]K{key}
		c = t.index[t.probeString(hash, t.encodeAll(one[:])[0])]
	}
	return uint32(c) - 1, c != 0
}

// encodeAll gives the encodings of composite keys. They last until its next
// call.
func (t *Table[K, V]) encodeAll(keys []K) []string {
	s := t.scratch
	if cap(s.bytes) > 1<<20 {
		s.bytes = nil // one batch of huge keys doesn't hold its memory for ever
	}
	s.bytes = s.bytes[:0]
	for i := range keys {
		s.bytes = t.key.append(s.bytes, unsafe.Pointer(&keys[i]))
		s.ends[i] = len(s.bytes)
	}
	from := 0
	for i, end := range s.ends[:len(keys)] {
		s.keys[i] = unsafe.String(unsafe.SliceData(s.bytes[from:]), end-from)
		from = end
	}
	return s.keys[:len(keys)]
}

// candidates gives the cell of each key: the first on its probe that has its
// hash's high half, or an empty one. The first of each probe is read before
// anything is decided: these loads don't depend on each other, so that their
// cache misses overlap.
func (t *Table[K, V]) candidates(hash []uint64) []uint64 {
	t.reserve(len(hash))
	cells, index, shift := t.first[:len(hash)], t.index, t.shift&63
	for i, h := range hash {
		cells[i] = index[h>>shift]
	}
	mask := uint64(len(index) - 1)
	for i, h := range hash {
		c := cells[i]
		if c>>32 == h>>32 || c == 0 {
			continue
		}
		at := h >> shift
		for c != 0 && c>>32 != h>>32 {
			at = (at + 1) & mask
			c = index[at]
		}
		cells[i] = c
	}
	return cells
}

// locateStrings goes over the batch in steps, each of which reads one kind of
// memory for all keys: the index, the entries, the arena.
func (t *Table[K, V]) locateStrings(hash []uint64, keys []string, ids []uint32) {
	cells := t.candidates(hash)
	keys, ids, refs := keys[:len(cells)], ids[:len(cells)], t.refs[:len(cells)]
	for i, c := range cells {
		refs[i] = noRef
		if c != 0 {
			id := uint32(c) - 1
			if e := (*[2]uint64)(t.entry(id)); e[0] == hash[i] {
				ids[i], refs[i] = id, e[1]
			}
		}
	}
	for i, ref := range refs {
		if ref == noRef || !sameKey(t.arena.at(ref), keys[i]) {
			ids[i] = t.findOrMakeString(hash[i], keys[i])
		}
	}
}

func (t *Table[K, V]) locateFixed(hash []uint64, keys []K, ids []uint32) {
	cells := t.candidates(hash)
	keys, ids = keys[:len(cells)], ids[:len(cells)]
	for i, c := range cells {
		h := hash[i]
		if c != 0 {
			id := uint32(c) - 1
			e := t.entry(id)
			if *(*uint64)(e) == h && *(*K)(unsafe.Add(e, 8)) == keys[i] {
				ids[i] = id
				continue
			}
		}
		ids[i] = t.findOrMakeFixed(h, &keys[i])
	}
}

// noRef is no reference into an arena: the last one would need 4 M chunks.
const noRef = math.MaxUint64

// sameKey compares keys; those of 8 to 16 bytes, which is what most are,
// without a call.
func sameKey(a, b string) bool {
	n := len(a)
	if n != len(b) {
		return false
	}
	if n < 8 || n > 16 {
		return a == b
	}
	p, q := unsafe.Pointer(unsafe.StringData(a)), unsafe.Pointer(unsafe.StringData(b))
	last := n - 8
	return *(*uint64)(p) == *(*uint64)(q) && *(*uint64)(unsafe.Add(p, last)) == *(*uint64)(unsafe.Add(q, last))
}

// probeString gives the place of key's cell, or of the empty one where it would
// be.
func (t *Table[K, V]) probeString(h uint64, key string) uint64 {
	mask := uint64(len(t.index) - 1)
	for at := h >> (t.shift & 63); ; at = (at + 1) & mask {
		c := t.index[at]
		if c == 0 {
			return at
		}
		if c>>32 == h>>32 {
			e := (*[2]uint64)(t.entry(uint32(c) - 1))
			if e[0] == h && t.arena.at(e[1]) == key {
				return at
			}
		}
	}
}

func (t *Table[K, V]) probeFixed(h uint64, key *K) uint64 {
	mask := uint64(len(t.index) - 1)
	for at := h >> (t.shift & 63); ; at = (at + 1) & mask {
		c := t.index[at]
		if c == 0 {
			return at
		}
		if c>>32 == h>>32 {
			e := t.entry(uint32(c) - 1)
			if *(*uint64)(e) == h && *(*K)(unsafe.Add(e, 8)) == *key {
				return at
			}
		}
	}
}

func (t *Table[K, V]) findOrMakeString(h uint64, key string) uint32 {
	at := t.probeString(h, key)
	if c := t.index[at]; c != 0 {
		return uint32(c) - 1
	}
	id := t.make(h, at)
	*(*uint64)(unsafe.Add(t.entry(id), 8)) = t.arena.store(key)
	return id | Fresh
}

func (t *Table[K, V]) findOrMakeFixed(h uint64, key *K) uint32 {
	at := t.probeFixed(h, key)
	if c := t.index[at]; c != 0 {
		return uint32(c) - 1
	}
	id := t.make(h, at)
	*(*K)(unsafe.Add(t.entry(id), 8)) = *key
	return id | Fresh
}

// make takes an id for the empty cell at, with a hash, a zero key and a zero
// value.
func (t *Table[K, V]) make(h, at uint64) uint32 {
	var id uint32
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		t.dead[id>>6] &^= 1 << (id & 63)
	} else {
		id = t.newID()
	}
	t.live++
	e := unsafe.Slice((*uint64)(t.entry(id)), t.stride)
	clear(e)
	e[0] = h
	t.index[at] = h&^(1<<32-1) | uint64(id+1)
	return id
}

func (t *Table[K, V]) newID() uint32 {
	id := t.ids
	if id == maxIDs {
		panic(fmt.Sprintf("a table of %d entries is full: run the job with more tasks", maxIDs))
	}
	t.ids++
	if slab := int(id >> t.slabBits); slab == len(t.slabs) {
		n := 1 << t.slabBits
		t.slabs = append(t.slabs, unsafe.Pointer(unsafe.SliceData(make([]uint64, n*t.stride))))
		if !t.value.flat {
			t.boxes = append(t.boxes, make([]V, n))
			t.weights.sizes = append(t.weights.sizes, make([]uint32, n)...)
		}
		t.dirty = append(t.dirty, make([]uint64, n/64)...)
		t.dead = append(t.dead, make([]uint64, n/64)...)
	}
	return id
}

// reserve makes room in the index for n more keys: it is at most three quarters
// full.
func (t *Table[K, V]) reserve(n int) {
	need, size := t.live+n, len(t.index)
	if 4*need <= 3*size {
		return
	}
	size = indexSize(need, size)
	shift := uint8(64 - bits.TrailingZeros(uint(size)))
	old := t.index
	t.index, t.shift = make([]uint64, size), shift
	mask := uint64(size - 1)
	for _, c := range old { // the cell holds the hash's high half: no entry is read
		if c == 0 {
			continue
		}
		at := c >> (shift & 63)
		for t.index[at] != 0 {
			at = (at + 1) & mask
		}
		t.index[at] = c
	}
}

// indexSize is the cells that an index of so many needs for need keys.
func indexSize(need, cells int) int {
	for 4*need > 3*cells {
		cells *= 2
	}
	return cells
}

// unindex empties id's cell and moves those behind it up, so that no probe ends
// too early.
func (t *Table[K, V]) unindex(id uint32) {
	mask := uint64(len(t.index) - 1)
	at := t.HashOf(id) >> (t.shift & 63)
	for uint32(t.index[at]) != id+1 {
		at = (at + 1) & mask
	}
	for next := (at + 1) & mask; t.index[next] != 0; next = (next + 1) & mask {
		home := t.index[next] >> (t.shift & 63)
		if (next-home)&mask >= (next-at)&mask {
			t.index[at], at = t.index[next], next
		}
	}
	t.index[at] = 0
}
