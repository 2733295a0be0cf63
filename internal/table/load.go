package table

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Load applies the section at the start of b and gives what follows it. key and
// value are the schemas that it was written with. Sections are applied in the
// order in which they were written, into a table that nothing else has filled:
// later ones win, tombstones delete. What was loaded doesn't count as changed.
//
// owns chooses key groups; bytes of others aren't read (nil: all). keep chooses
// entries by hash and value, which it may change (nil: all); a refused entry
// also ends what an earlier section said of its key.
//
// Load fails with ErrMigration where Migration would, and with ErrCorrupt where
// b isn't a section of this job. Then the table is half filled, and of no use.
// The table copies what it keeps of b.
func (t *Table[K, V]) Load(b []byte, key, value string, owns func(group int) bool, keep func(hash uint64, v *V) bool) (rest []byte, err error) {
	s, rest, err := parseSection(b)
	if err != nil {
		return nil, err
	}
	if err := keyMigration(key, t.key.schema); err != nil {
		return nil, err
	}
	l := &loader[K, V]{t: t, keep: keep, boxed: s.boxed}
	if value == t.value.schema {
		l.plan = t.value.same
	} else if l.plan, err = planOf(value, t.value.shape); err != nil {
		return nil, err
	}
	if err := t.fits(&s, &l.plan, value); err != nil {
		return nil, err
	}
	owned := 0
	for i := range s.listed {
		if g := s.group(i); owns == nil || owns(g.group) {
			owned += g.live
		}
	}
	if t.live+owned > maxIDs {
		return nil, fmt.Errorf("load: %d entries are more than a table can hold (%d): run the job with more tasks", t.live+owned, maxIDs)
	}
	if more := t.Growth(owned); more > 0 {
		if err := l.check(more); err != nil {
			return nil, err
		}
	}
	t.reserve(owned)
	l.alloc(owned)
	at := 0
	for i := range s.listed {
		g := s.group(i)
		if owns == nil || owns(g.group) {
			if err := l.group(g, s.body[at:at+g.bytes]); err != nil {
				return nil, err
			}
		}
		at += g.bytes
	}
	l.flush()
	return rest, nil
}

// checked is how many entries are loaded between two calls of what OnLoad set.
const checked = 1 << 15

func (l *loader[K, V]) check(more int64) error {
	l.since = 0
	if l.t.onLoad == nil {
		return nil
	}
	return l.t.onLoad(more)
}

// fits compares a section's header with the schemas and the table.
func (t *Table[K, V]) fits(s *section, p *plan, value string) error {
	switch {
	case s.groups != t.groups:
		return corrupt("it has %d key groups, the job has %d: the number is fixed when a job first starts", s.groups, t.groups)
	case s.keyed != (t.key.form != keyFixed), !s.keyed && s.key != t.key.size:
		return corrupt("its keys (%d bytes) aren't those of schema %s", s.key, t.key.schema)
	case s.boxed == p.flat, p.flat && s.value != 8*p.words:
		return corrupt("its values (%d bytes) aren't those of schema %s", s.value, value)
	}
	return nil
}

// loader fills a table a batch at a time.
type loader[K comparable, V any] struct {
	t     *Table[K, V]
	keep  func(uint64, *V) bool
	plan  plan
	boxed bool // values in the section have a length

	n     int // entries in the batch
	hash  []uint64
	ids   []uint32
	texts []string // keys in the arena: bytes of the section
	fixed []K      // keys in the entry
	vals  []V
	sizes []uint32 // of boxed values' encodings
	since int      // entries since the last check
}

func (l *loader[K, V]) alloc(entries int) {
	var v V
	n := max(1, min(256, entries, maxFlat/max(1, int(unsafe.Sizeof(v)))))
	l.hash, l.ids, l.vals = make([]uint64, n), make([]uint32, n), make([]V, n)
	if l.boxed {
		l.sizes = make([]uint32, n)
	}
	if l.t.key.form == keyFixed {
		l.fixed = make([]K, n)
	} else {
		l.texts = make([]string, n)
	}
}

// group applies one key group. A key's tombstone and its entry are in the same
// group, so entries that wait in the batch are never those of a tombstone here.
func (l *loader[K, V]) group(g listing, b []byte) error {
	var err error
	for range g.deleted {
		if b, err = l.readKey(g.group, b); err != nil {
			return err
		}
		l.drop()
	}
	for range g.live {
		if b, err = l.readKey(g.group, b); err != nil {
			return err
		}
		if b, err = l.readValue(g.group, b); err != nil {
			return err
		}
		if l.keep != nil && !l.keep(l.hash[l.n], &l.vals[l.n]) {
			l.drop()
			continue
		}
		if l.n++; l.n == len(l.hash) {
			l.flush()
		}
		if l.since++; l.since == checked {
			if err := l.check(0); err != nil {
				return err
			}
		}
	}
	if len(b) > 0 {
		return corrupt("%d bytes are left over in group %d", len(b), g.group)
	}
	return nil
}

// readKey reads a key to the batch's next place.
func (l *loader[K, V]) readKey(group int, b []byte) ([]byte, error) {
	k, n := l.t.key, l.t.key.size
	if k.form != keyFixed {
		if len(b) < 4 {
			return nil, corrupt("group %d ends within a key", group)
		}
		n = int(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	if n > len(b) || n > MaxKey {
		return nil, corrupt("group %d: a key takes %d bytes, %d are left", group, n, len(b))
	}
	raw := b[:n:n]
	h := xxh3.Hash(raw)
	if Group(h, l.t.groups) != group {
		return nil, corrupt("a key of group %d is listed in group %d", Group(h, l.t.groups), group)
	}
	l.hash[l.n] = h
	if k.form != keyFixed {
		s := unsafe.String(unsafe.SliceData(raw), n)
		if k.form == keyComposite && !k.decode(nil, s) {
			return nil, corrupt("group %d: a key of %d bytes isn't a %s", group, n, k.schema)
		}
		l.texts[l.n] = s
		return b[n:], nil
	}
	for _, at := range k.bools {
		if raw[at] > 1 {
			return nil, corrupt("group %d: byte %d of a key is a bool and holds %d", group, at, raw[at])
		}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&l.fixed[l.n])), n), raw)
	return b[n:], nil
}

// readValue reads a value to the batch's next place.
func (l *loader[K, V]) readValue(group int, b []byte) ([]byte, error) {
	n, v := 8*l.plan.words, &l.vals[l.n]
	if l.boxed {
		if len(b) < 4 {
			return nil, corrupt("group %d ends within a value", group)
		}
		n = int(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	if n > len(b) {
		return nil, corrupt("group %d: a value takes %d bytes, %d are left", group, n, len(b))
	}
	raw := b[:n]
	if l.boxed {
		var zero V
		*v = zero
		if err := l.t.value.dec.Unmarshal(raw, v); err != nil {
			return nil, corrupt("group %d: a value isn't a %s: %v", group, l.t.value.schema, err)
		}
		l.sizes[l.n] = uint32(n)
		return b[n:], nil
	}
	for _, at := range l.plan.bools {
		if raw[at] > 1 {
			return nil, corrupt("group %d: byte %d of a value is a bool and holds %d", group, at, raw[at])
		}
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
	if l.plan.whole {
		copy(to, raw)
		return b[n:], nil
	}
	var zero V
	*v = zero
	for _, p := range l.plan.moves {
		copy(to[p.to:p.to+p.size], raw[p.from:])
	}
	return b[n:], nil
}

// drop removes the entry of the key at the batch's next place.
func (l *loader[K, V]) drop() {
	t, i := l.t, l.n
	var c uint64
	if t.key.form == keyFixed {
		c = t.index[t.probeFixed(l.hash[i], &l.fixed[i])]
	} else {
		c = t.index[t.probeString(l.hash[i], l.texts[i])]
	}
	if c != 0 {
		t.Drop(uint32(c) - 1)
	}
}

// flush puts the batch into the table.
func (l *loader[K, V]) flush() {
	t, hash, ids := l.t, l.hash[:l.n], l.ids[:l.n]
	if t.key.form == keyFixed {
		t.locateFixed(hash, l.fixed[:l.n], ids)
	} else {
		t.locateStrings(hash, l.texts[:l.n], ids)
	}
	for i, id := range ids {
		v := t.Value(id &^ Fresh)
		*v = l.vals[i]
		if l.boxed {
			weigh(&t.weights, id&^Fresh, l.sizes[i], v)
		}
	}
	l.n = 0
}
