package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"
)

// A section is one table's frozen entries. Little-endian; docs/formats.md
// has the same table.
//
//	offset  bytes  what
//	0       4      magic "WTBL"
//	4       1      version: 1
//	5       1      flags: 1 keys have a length, 2 values have a length
//	6       2      0
//	8       4      bytes of a key without a length, else 0
//	12      4      bytes of a value without a length (a multiple of 8), else 0
//	16      4      key groups of the job
//	20      4      n: key groups listed
//	24      8      bytes of all entries
//	32      20 n   the groups that have entries, ascending, each:
//	               u32 group, u32 tombstones, u32 entries, u64 bytes
//	32+20n         the entries, group by group: first the tombstones (a key each),
//	               then key and value of each entry
//
// A key or a value with a length is u32 length, bytes. A key may have both a
// tombstone and an entry in one section: it was deleted and made again, and the
// entry counts.
const (
	magic       = "WTBL"
	version     = 1
	keyLengths  = 1
	valLengths  = 2
	headerBytes = 32
	groupBytes  = 20
)

// dealBytes bounds the buffer that entries are dealt out to, unless one key
// group is larger: more groups take another pass.
const dealBytes = 64 << 20

// share is what one key group has in a section.
type share struct {
	deleted, live int
	bytes         int
	next, nextDel int // where the next entry and tombstone go in the buffer
	delBytes      int
}

// Encode writes the section. Entries lie in memory as the table has them, and
// in the section by key group: gathering them a group at a time would cost two
// cache misses each, so they are dealt out to all groups' places in one buffer,
// in a pass over the copy.
func (f *Frozen) Encode(w io.Writer) error {
	shares := f.shares()
	if _, err := w.Write(f.header(shares)); err != nil {
		return fmt.Errorf("write state section: %w", err)
	}
	for from := 0; from < f.groups; {
		size, to := 0, from
		for ; to < f.groups; to++ {
			if s := &shares[to]; size > 0 && size+s.bytes > f.pool.deal {
				break
			} else {
				s.nextDel = size
				s.next = size + s.delBytes
				size += s.bytes
			}
		}
		if size > 0 {
			buf := f.pool.buffer(size)
			f.deal(buf, shares, from, to)
			_, err := w.Write(buf)
			f.pool.give(buf)
			if err != nil {
				return fmt.Errorf("write state section: %w", err)
			}
		}
		from = to
	}
	return nil
}

// shares counts what each group has.
func (f *Frozen) shares() []share {
	shares := make([]share, f.groups)
	keyed, key, value := f.key.form != keyFixed, 4, 8*f.value.words
	if !keyed {
		key = f.key.size
	}
	for i, n := 0, f.tombWords(); i < len(f.tombs); i += n {
		s := &shares[Group(f.tombs[i], f.groups)]
		s.deleted++
		s.delBytes += key
		if keyed {
			s.delBytes += f.keyLen(f.tombs[i+1])
		}
	}
	for i := 0; i < len(f.words); i += f.stride {
		e := f.words[i : i+f.stride]
		s := &shares[Group(e[0], f.groups)]
		s.live++
		s.bytes += key + value
		if keyed {
			s.bytes += f.keyLen(e[1])
		}
		if !f.value.flat {
			s.bytes += len(f.boxedAt(e))
		}
	}
	for i := range shares {
		shares[i].bytes += shares[i].delBytes
	}
	return shares
}

func (f *Frozen) keyLen(ref uint64) int {
	if n := refLength(ref); n != longKey {
		return n
	}
	return len(f.arena[refChunk(ref)])
}

// boxedAt is the encoded value of entry e with its length in front.
func (f *Frozen) boxedAt(e []uint64) []byte {
	b := f.values.Bytes()[e[len(e)-1]:]
	return b[:4+binary.LittleEndian.Uint32(b)]
}

func (f *Frozen) header(shares []share) []byte {
	flags, key := byte(0), f.key.size
	if f.key.form != keyFixed {
		flags, key = keyLengths, 0
	}
	if !f.value.flat {
		flags |= valLengths
	}
	le := binary.LittleEndian
	b := append([]byte(magic), version, flags, 0, 0)
	b = le.AppendUint32(b, uint32(key))
	b = le.AppendUint32(b, uint32(8*f.value.words))
	b = le.AppendUint32(b, uint32(f.groups))
	b = append(b, make([]byte, 12)...)
	n, size := 0, 0
	for g, s := range shares {
		if s.live+s.deleted == 0 {
			continue
		}
		b = le.AppendUint32(b, uint32(g))
		b = le.AppendUint32(b, uint32(s.deleted))
		b = le.AppendUint32(b, uint32(s.live))
		b = le.AppendUint64(b, uint64(s.bytes))
		n++
		size += s.bytes
	}
	le.PutUint32(b[20:], uint32(n))
	le.PutUint64(b[24:], uint64(size))
	return b
}

// deal writes the entries of groups from to to-1 to their places in buf.
func (f *Frozen) deal(buf []byte, shares []share, from, to int) {
	for i, n := 0, f.tombWords(); i < len(f.tombs); i += n {
		g := Group(f.tombs[i], f.groups)
		if g < from || g >= to {
			continue
		}
		s := &shares[g]
		s.nextDel = f.putKey(buf, s.nextDel, f.tombs[i:i+n])
	}
	for i := 0; i < len(f.words); i += f.stride {
		e := f.words[i : i+f.stride : i+f.stride]
		g := Group(e[0], f.groups)
		if g < from || g >= to {
			continue
		}
		s := &shares[g]
		at := f.putKey(buf, s.next, e)
		if f.value.flat {
			for j, word := range e[len(e)-len(f.value.mask):] {
				binary.LittleEndian.PutUint64(buf[at:], word&f.value.mask[j])
				at += 8
			}
		} else {
			at += copy(buf[at:], f.boxedAt(e))
		}
		s.next = at
	}
}

// putKey writes the key of entry or tombstone e and gives the place behind it.
func (f *Frozen) putKey(buf []byte, at int, e []uint64) int {
	if f.key.form == keyFixed {
		if f.key.size == 8 {
			binary.LittleEndian.PutUint64(buf[at:], e[1])
			return at + 8
		}
		return at + copy(buf[at:], unsafe.Slice((*byte)(unsafe.Pointer(&e[1])), f.key.size))
	}
	key := inArena(f.arena, e[1])
	binary.LittleEndian.PutUint32(buf[at:], uint32(len(key)))
	return at + 4 + copy(buf[at+4:], key)
}
