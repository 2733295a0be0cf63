package table

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/zeebo/xxh3"
)

// Stored is one section where it lies, read no further than its list of key
// groups.
type Stored struct {
	s    section
	at   io.ReaderAt
	body int64   // where the entries begin
	end  int64   // behind the section
	offs []int64 // where each listed group begins
}

// maxHead bounds what the head of a damaged section can make us read.
const maxHead = 1 << 24

// StoredAt reads the head of the section at off. It fails with ErrCorrupt where
// no section can be.
func StoredAt(r io.ReaderAt, off int64) (*Stored, error) {
	head := make([]byte, headerBytes)
	if _, err := r.ReadAt(head, off); err != nil {
		return nil, corrupt("its header can't be read at %d: %v", off, err)
	}
	listed := int64(binary.LittleEndian.Uint32(head[20:]))
	size := binary.LittleEndian.Uint64(head[24:])
	if listed > maxHead/groupBytes || size > 1<<62 {
		return nil, corrupt("%d groups with %d bytes are listed", listed, size)
	}
	full := make([]byte, headerBytes+listed*groupBytes)
	copy(full, head)
	if _, err := r.ReadAt(full[headerBytes:], off+headerBytes); err != nil && listed > 0 {
		return nil, corrupt("its list of groups can't be read at %d: %v", off+headerBytes, err)
	}
	s, _, _, err := parseHead(full)
	if err != nil {
		return nil, err
	}
	if err := s.check(int(size)); err != nil {
		return nil, err
	}
	st := &Stored{s: s, at: r, body: off + int64(len(full))}
	st.end = st.body + int64(size)
	for i, at := 0, st.body; i < s.listed; i++ {
		st.offs = append(st.offs, at)
		at += int64(s.group(i).bytes)
	}
	return st, nil
}

// End is the offset behind the section.
func (st *Stored) End() int64 { return st.end }

// find returns the index of a listed group.
func (st *Stored) find(group int) (i int, ok bool) {
	lo, hi := 0, st.s.listed
	for lo < hi {
		if mid := (lo + hi) / 2; st.s.group(mid).group < group {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < st.s.listed && st.s.group(lo).group == group
}

// read returns the bytes of a listed group in buf, which may grow.
func (st *Stored) read(i int, buf []byte) ([]byte, error) {
	g := st.s.group(i)
	buf = slices.Grow(buf[:0], g.bytes)[:g.bytes]
	if _, err := st.at.ReadAt(buf, st.offs[i]); err != nil && g.bytes > 0 {
		return nil, corrupt("group %d can't be read at %d: %v", g.group, st.offs[i], err)
	}
	return buf, nil
}

// Run is a range of key groups, From to To-1, that is merged at once.
type Run struct{ From, To int }

// Runs divides the key groups that a chain of sections has into ranges of about
// size bytes, or one group where it is larger, so that merging takes no more
// memory than that. wanted chooses groups (nil: all).
func Runs(chain []*Stored, size int, wanted func(group int) bool) []Run {
	sizes := map[int]int{}
	for _, st := range chain {
		for i := range st.s.listed {
			g := st.s.group(i)
			if wanted == nil || wanted(g.group) {
				sizes[g.group] += g.bytes
			}
		}
	}
	groups := make([]int, 0, len(sizes))
	for g := range sizes {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	var runs []Run
	left := 0
	for _, g := range groups {
		if n := len(runs); n > 0 && sizes[g] <= left {
			runs[n-1].To, left = g+1, left-sizes[g]
			continue
		}
		runs = append(runs, Run{g, g + 1})
		left = size - sizes[g]
	}
	return runs
}

// Merger merges chains of sections, a run of key groups at a time. Its buffers
// serve one run after the other. It belongs to one goroutine.
type Merger struct {
	in    [][]byte
	index []uint32 // open addressing: number of the entry + 1
	seen  []found
	out   []byte
	list  []byte
}

// found is a key of the group at hand: the newest of what the chain says of it.
type found struct {
	hash uint64
	key  []byte // as it is stored, with its length
	val  []byte
	live bool
}

// Merge writes one section: of each key in the run the newest value, without
// tombstones, as Load of chain, oldest section first, would leave it. wanted
// chooses groups, keep chooses entries by group and value (nil: all). A section
// without entries is written, too. It returns how many entries it has.
func (m *Merger) Merge(w io.Writer, chain []*Stored, run Run, wanted func(group int) bool, keep func(group int, value []byte) bool) (int, error) {
	first := &chain[0].s
	for _, st := range chain[1:] {
		if s := &st.s; s.keyed != first.keyed || s.boxed != first.boxed || s.key != first.key || s.value != first.value || s.groups != first.groups {
			return 0, corrupt("the sections of one chain have keys and values of different sizes")
		}
	}
	m.out, m.list = m.out[:0], m.list[:0]
	listed, entries := 0, 0
	for g := run.From; g < run.To; g++ {
		if wanted != nil && !wanted(g) {
			continue
		}
		at := len(m.out)
		n, err := m.group(chain, g, keep)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			continue
		}
		le := binary.LittleEndian
		m.list = le.AppendUint32(m.list, uint32(g))
		m.list = le.AppendUint32(m.list, 0)
		m.list = le.AppendUint32(m.list, uint32(n))
		m.list = le.AppendUint64(m.list, uint64(len(m.out)-at))
		listed, entries = listed+1, entries+n
	}
	for _, b := range [][]byte{first.header(listed, len(m.out)), m.list, m.out} {
		if _, err := w.Write(b); err != nil {
			return 0, err
		}
	}
	return entries, nil
}

// header is a section's, up to its list.
func (s *section) header(listed, size int) []byte {
	flags := byte(0)
	if s.keyed {
		flags |= keyLengths
	}
	if s.boxed {
		flags |= valLengths
	}
	le := binary.LittleEndian
	b := append([]byte(magic), version, flags, 0, 0)
	b = le.AppendUint32(b, uint32(s.key))
	b = le.AppendUint32(b, uint32(s.value))
	b = le.AppendUint32(b, uint32(s.groups))
	b = le.AppendUint32(b, uint32(listed))
	return le.AppendUint64(b, uint64(size))
}

// group appends what is alive of one key group to m.out.
func (m *Merger) group(chain []*Stored, group int, keep func(int, []byte) bool) (int, error) {
	total := 0
	for _, st := range chain {
		if i, ok := st.find(group); ok {
			g := st.s.group(i)
			total += g.live + g.deleted
		}
	}
	m.reset(total)
	for len(m.in) < len(chain) {
		m.in = append(m.in, nil)
	}
	for j := len(chain) - 1; j >= 0; j-- { // the newest first: what comes later is older
		st := chain[j]
		i, ok := st.find(group)
		if !ok {
			continue
		}
		var err error
		if m.in[j], err = st.read(i, m.in[j]); err != nil {
			return 0, err
		}
		if err := m.take(&st.s, st.s.group(i), m.in[j]); err != nil {
			return 0, err
		}
	}
	n := 0
	for _, f := range m.seen {
		if !f.live || keep != nil && !keep(group, f.val) {
			continue
		}
		m.out = append(append(m.out, f.key...), f.val...)
		n++
	}
	return n, nil
}

func (m *Merger) reset(entries int) {
	size := 64
	for size < 2*entries {
		size *= 2
	}
	if cap(m.index) < size {
		m.index = make([]uint32, size)
	}
	m.index = m.index[:size]
	clear(m.index)
	clear(m.seen) // it points into buffers that may have been replaced
	m.seen = m.seen[:0]
}

// take notes what one section says of a group, about keys that no newer section
// has said anything about. An entry outdoes the tombstone beside it.
func (m *Merger) take(s *section, g listing, b []byte) error {
	dead := b
	for range g.deleted {
		if _, err := s.cut(g.group, &b, s.keyed, s.key); err != nil {
			return err
		}
	}
	dead = dead[:len(dead)-len(b)]
	for range g.live {
		k, err := s.cut(g.group, &b, s.keyed, s.key)
		if err != nil {
			return err
		}
		v, err := s.cut(g.group, &b, s.boxed, s.value)
		if err != nil {
			return err
		}
		if err := m.add(s, g.group, found{key: k, val: v, live: true}); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return corrupt("%d bytes are left over in group %d", len(b), g.group)
	}
	for range g.deleted {
		k, err := s.cut(g.group, &dead, s.keyed, s.key)
		if err != nil {
			return err
		}
		if err := m.add(s, g.group, found{key: k}); err != nil {
			return err
		}
	}
	return nil
}

// cut takes a key or a value off b, with its length where it has one.
func (s *section) cut(group int, b *[]byte, lengths bool, n int) ([]byte, error) {
	if lengths {
		if len(*b) < 4 {
			return nil, corrupt("group %d ends within an entry", group)
		}
		n = 4 + int(binary.LittleEndian.Uint32(*b))
	}
	if n > len(*b) {
		return nil, corrupt("group %d: an entry takes %d bytes, %d are left", group, n, len(*b))
	}
	v := (*b)[:n:n]
	*b = (*b)[n:]
	return v, nil
}

// add notes a key unless it is known.
func (m *Merger) add(s *section, group int, f found) error {
	key := f.key
	if s.keyed {
		key = key[4:]
	}
	f.hash = xxh3.Hash(key)
	if g := Group(f.hash, s.groups); g != group {
		return corrupt("a key of group %d is listed in group %d", g, group)
	}
	mask := uint64(len(m.index) - 1)
	at := f.hash >> 32 & mask // the low bits are those of the group
	for ; m.index[at] != 0; at = (at + 1) & mask {
		if old := &m.seen[m.index[at]-1]; old.hash == f.hash && bytes.Equal(old.key, f.key) {
			return nil
		}
	}
	m.seen = append(m.seen, f)
	m.index[at] = uint32(len(m.seen))
	return nil
}
