package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Pool recycles the memory of frozen copies: two of them, as at most two epochs
// are open. Tables may share it; its use is safe from any goroutine.
type Pool struct {
	copies  chan *memory
	buffers chan []byte
	deal    int // bytes that entries are dealt out to at once
	held    atomic.Int64
}

// memory is what a frozen copy is kept in.
type memory struct {
	words  []uint64     // the entries
	tombs  []uint64     // tombstones: hash, key words
	arena  [][]byte     // chunk headers; the table's still grow
	values bytes.Buffer // boxed values: u32 length, bytes
	bytes  int64        // of this, as the pool has counted it
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	return &Pool{copies: make(chan *memory, 2), buffers: make(chan []byte, 1), deal: dealBytes}
}

// slack is how much larger than needed recycled memory may be: more would keep
// the size of one full checkpoint for ever.
func slack(need int) int { return 8*need + 1<<20 }

// Bytes is the memory of the copies that are being encoded and of those kept
// for the next ones.
func (p *Pool) Bytes() int64 { return p.held.Load() }

// count takes in what has become of m; it is called by whoever has it.
func (p *Pool) count(m *memory) {
	n := int64(8*(cap(m.words)+cap(m.tombs)) + 24*cap(m.arena) + m.values.Cap())
	p.held.Add(n - m.bytes)
	m.bytes = n
}

func (p *Pool) take(words int) *memory {
	var m *memory
	select {
	case m = <-p.copies:
	default:
		m = &memory{}
	}
	if n := cap(m.words); n < words || n > slack(words) {
		m.words = make([]uint64, words, words+words/4)
	}
	m.words = m.words[:words]
	return m
}

func (p *Pool) buffer(n int) (b []byte) {
	select {
	case b = <-p.buffers:
	default:
	}
	if had := cap(b); had < n || had > slack(n) {
		b = make([]byte, n, n+n/8)
		p.held.Add(int64(cap(b) - had))
	}
	return b[:n]
}

func (p *Pool) give(b []byte) {
	select {
	case p.buffers <- b:
	default:
		p.held.Add(-int64(cap(b)))
	}
}

// Frozen is a copy of what changed in one table. It belongs to whoever encodes
// it, in any goroutine, while the table goes on changing: key bytes are shared,
// but never change.
type Frozen struct {
	pool   *Pool
	key    *keyLayout
	value  *valueLayout
	groups int
	stride int // words an entry: hash, key words, flat value or its place in values
	n      int // entries and tombstones
	*memory
}

// Entries is the number of entries in the copy, tombstones included.
func (f *Frozen) Entries() int { return f.n }

func (f *Frozen) tombWords() int {
	if f.value.flat {
		return f.stride - f.value.words
	}
	return f.stride - 1
}

// Release gives the copy's memory back to its pool. The copy is of no use
// afterwards; a second call does nothing.
func (f *Frozen) Release() {
	m := f.memory
	if m == nil {
		return
	}
	f.memory = nil
	clear(m.arena) // the pool must not keep keys that have gone
	if cap(m.tombs) > slack(len(m.tombs)) {
		m.tombs = nil
	}
	m.arena, m.tombs = m.arena[:0], m.tombs[:0]
	if m.values.Cap() > slack(m.values.Len()) {
		m.values = bytes.Buffer{}
	}
	m.values.Reset()
	f.pool.count(m)
	select {
	case f.pool.copies <- m:
	default:
		f.pool.held.Add(-m.bytes)
	}
}

// Freeze copies the entries touched since the last call and what was deleted
// since, or with all every entry and no tombstones; then nothing counts as
// changed. Flat values are copied (a few nanoseconds each), boxed ones encoded.
//
// It fails where a boxed value can't be encoded or a key is longer than MaxKey.
// Then everything still counts as changed.
func (t *Table[K, V]) Freeze(p *Pool, all bool) (*Frozen, error) {
	if t.arena.huge > 0 {
		return nil, fmt.Errorf("freeze: %d keys are longer than %d bytes, which can't be saved: use a hash or a prefix as key", t.arena.huge, t.arena.maxKey)
	}
	n, stride := t.changed, t.stride
	if all {
		n = t.live
	}
	if !t.value.flat {
		stride = 1 + t.keyWords + 1
	}
	f := &Frozen{p, t.key, t.value, t.groups, stride, n, p.take(n * stride)}
	if t.value.flat {
		t.copyFlat(f.words, all)
	} else if err := t.copyBoxed(f, all); err != nil {
		f.Release()
		return nil, err
	}
	if !all {
		f.tombs = append(f.tombs, t.tombs...)
		f.n += len(t.tombs) / (1 + t.keyWords)
	}
	f.arena = append(f.arena, t.arena.chunks...)
	p.count(f.memory)
	t.unmark()
	return f, nil
}

// unmark forgets what changed, after it was copied.
func (t *Table[K, V]) unmark() {
	if t.key.form != keyFixed {
		for i := 0; i < len(t.tombs); i += 1 + t.keyWords {
			t.arena.release(t.tombs[i+1])
		}
	}
	if cap(t.tombs) > slack(len(t.tombs)) {
		t.tombs = nil
	}
	t.tombs = t.tombs[:0]
	clear(t.dirty)
	t.changed = 0
}

// marked gives the bits of 64 ids that a freeze writes.
func (t *Table[K, V]) marked(w int, all bool) uint64 {
	if !all {
		return t.dirty[w]
	}
	m := ^t.dead[w]
	if left := int(t.ids) - 64*w; left < 64 {
		m &= 1<<max(left, 0) - 1
	}
	return m
}

func (t *Table[K, V]) copyFlat(dst []uint64, all bool) {
	stride := t.stride
	for w := range t.dirty {
		m := t.marked(w, all)
		if m == 0 {
			continue
		}
		base := unsafe.Slice((*uint64)(t.entry(uint32(64*w))), 64*stride)
		for ; m != 0; m &= m - 1 {
			src := base[bits.TrailingZeros64(m)*stride:][:stride]
			if stride == 3 { // a key and a counter: no call
				dst[0], dst[1], dst[2] = src[0], src[1], src[2]
				dst = dst[3:]
				continue
			}
			dst = dst[copy(dst, src):]
		}
	}
}

// copyBoxed encodes values: each as u32 length and bytes, at the place that the
// entry's last word tells.
func (t *Table[K, V]) copyBoxed(f *Frozen, all bool) error {
	dst, head := f.words, 1+t.keyWords
	for w := range t.dirty {
		for m := t.marked(w, all); m != 0; m &= m - 1 {
			id := uint32(64*w + bits.TrailingZeros64(m))
			copy(dst, unsafe.Slice((*uint64)(t.entry(id)), head))
			from := f.values.Len()
			dst[head] = uint64(from)
			f.values.Write([]byte{0, 0, 0, 0})
			err := t.value.enc.MarshalToBuffer(t.Value(id), &f.values)
			n := f.values.Len() - from - 4
			if err == nil && n > maxBoxed {
				err = fmt.Errorf("it takes %d bytes, at most %d can be saved", n, maxBoxed)
			}
			if err != nil {
				return fmt.Errorf("freeze: encode value of key %.100s: %w", fmt.Sprint(t.Key(id)), err)
			}
			binary.LittleEndian.PutUint32(f.values.Bytes()[from:], uint32(n))
			weigh(&t.weights, id, uint32(n), t.Value(id))
			dst = dst[head+1:]
		}
	}
	return nil
}

// maxBoxed is the length in bytes of an encoded value that can be saved.
const maxBoxed = 1 << 30

// Changed visits the entries touched since the last Freeze, in the order of
// memory. They still count as changed. visit may touch, delete and drop the
// entry at hand.
func (t *Table[K, V]) Changed(visit func(id uint32)) {
	for w := range t.dirty {
		for m := t.dirty[w]; m != 0; m &= m - 1 {
			b := bits.TrailingZeros64(m)
			if t.dirty[w]>>b&1 != 0 {
				visit(uint32(64*w + b))
			}
		}
	}
}
