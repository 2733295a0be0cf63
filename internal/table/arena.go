package table

import "unsafe"

// arena keeps the bytes of keys. Bytes that were written never change and their
// memory is never reused, so that strings which alias it stay right whatever
// happens to the table. A chunk goes when no reference to it is left.
//
// A reference is a word: chunk << 42 | offset << 24 | length. A key of
// longKey bytes or more has a chunk of its own, whose length counts instead.
type arena struct {
	chunks [][]byte
	refs   []int32 // references a chunk
	tail   int     // the chunk that takes short keys, if there is any chunk
	spare  []int   // numbers of chunks that have gone
	held   int64   // bytes of all chunks
	used   int64   // bytes that are referred to
	huge   int     // keys longer than maxKey
	maxKey int     // bytes of a key that a section can hold
}

const (
	offsetBits = 18
	lengthBits = 24
	chunkMax   = 1 << offsetBits // 256 KiB
	chunkMin   = 4 << 10         // the first chunk: many tables are small
	ownChunk   = chunkMax / 4    // longer keys don't share a chunk
	longKey    = 1<<lengthBits - 1

	// MaxKey is the length in bytes of an encoded key that can be saved.
	MaxKey = 1 << 30
)

func refChunk(ref uint64) uint64  { return ref >> (offsetBits + lengthBits) }
func refOffset(ref uint64) uint64 { return ref >> lengthBits & (chunkMax - 1) }
func refLength(ref uint64) int    { return int(ref & longKey) }

// at gives the bytes of ref, as a string that aliases the arena.
func (a *arena) at(ref uint64) string { return inArena(a.chunks, ref) }

func inArena(chunks [][]byte, ref uint64) string {
	c := chunks[refChunk(ref)]
	n := refLength(ref)
	if n == longKey {
		n = len(c)
	}
	return unsafe.String((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(c)), refOffset(ref))), n)
}

// store copies s and counts one reference.
func (a *arena) store(s string) uint64 {
	n := len(s)
	if n > a.maxKey {
		a.huge++
	}
	a.used += int64(n)
	if n > ownChunk {
		c := a.add(n)
		a.chunks[c] = append(a.chunks[c], s...)
		a.refs[c]++
		return uint64(c)<<(offsetBits+lengthBits) | uint64(min(n, longKey))
	}
	if len(a.chunks) == 0 {
		a.tail = a.add(chunkMin)
	}
	if t := a.chunks[a.tail]; cap(t)-len(t) < n {
		old := a.tail
		a.tail = a.add(max(n, min(chunkMax, 2*cap(t))))
		if a.refs[old] == 0 {
			a.drop(old)
		}
	}
	c := a.tail
	off := len(a.chunks[c])
	if n == 0 {
		off = 0 // behind a full chunk lies somebody else's memory
	}
	a.chunks[c] = append(a.chunks[c], s...)
	a.refs[c]++
	return uint64(c)<<(offsetBits+lengthBits) | uint64(off)<<lengthBits | uint64(n)
}

func (a *arena) add(size int) int {
	a.held += int64(size)
	c := make([]byte, 0, size)
	if n := len(a.spare); n > 0 {
		i := a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.chunks[i], a.refs[i] = c, 0
		return i
	}
	a.chunks, a.refs = append(a.chunks, c), append(a.refs, 0)
	return len(a.chunks) - 1
}

// release gives one reference back.
func (a *arena) release(ref uint64) {
	c := int(refChunk(ref))
	n := len(a.at(ref))
	a.used -= int64(n)
	if n > a.maxKey {
		a.huge--
	}
	if a.refs[c]--; a.refs[c] == 0 && c != a.tail {
		a.drop(c)
	}
}

func (a *arena) drop(c int) {
	a.held -= int64(cap(a.chunks[c]))
	a.chunks[c] = nil
	a.spare = append(a.spare, c)
}

// sparse reports whether most of the memory is of keys that have gone.
func (a *arena) sparse() bool { return a.held > 1<<20 && a.held > 4*a.used }

func newArena() arena { return arena{maxKey: MaxKey} }
