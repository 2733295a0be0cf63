package table

import (
	"bytes"
	"slices"
)

// A Pair is one entry as it is stored: key and value without their lengths. The
// bytes are good until the Visitor that gave them is used again.
type Pair struct{ Key, Value []byte }

// Visitor reads chains of sections a key group at a time, by what is stored
// alone. Its buffers serve one group after the other. It belongs to one
// goroutine.
type Visitor struct {
	m     Merger
	pairs []Pair
}

// Group returns what a chain, oldest section first, holds of one key group: of
// each key the newest value, sorted by the bytes of the keys. keep chooses
// entries by group and stored value, its length included (nil: all).
func (v *Visitor) Group(f *Form, chain []*Stored, group int, keep func(group int, value []byte) bool) ([]Pair, error) {
	v.pairs = v.pairs[:0]
	if len(chain) == 0 {
		return nil, nil
	}
	for _, st := range chain {
		if err := f.fits(&st.s); err != nil {
			return nil, err
		}
	}
	s := &chain[0].s
	v.m.out = v.m.out[:0]
	n, err := v.m.group(chain, group, keep)
	if err != nil {
		return nil, err
	}
	b := v.m.out
	for range n {
		k, err := s.cut(group, &b, s.keyed, s.key)
		if err != nil {
			return nil, err
		}
		val, err := s.cut(group, &b, s.boxed, s.value)
		if err != nil {
			return nil, err
		}
		v.pairs = append(v.pairs, Pair{bare(k, s.keyed), bare(val, s.boxed)})
	}
	slices.SortFunc(v.pairs, func(a, b Pair) int { return bytes.Compare(a.Key, b.Key) })
	return v.pairs, nil
}

// bare is a key or a value without its length.
func bare(b []byte, length bool) []byte {
	if length {
		return b[4:]
	}
	return b
}

// fits compares a section with the schemas.
func (f *Form) fits(s *section) error {
	switch size := (f.value.size + 7) / 8 * 8; {
	case s.keyed != (f.keyForm != keyFixed), !s.keyed && s.key != f.key.size:
		return corrupt("its keys (%d bytes) aren't those of schema %s", s.key, f.key)
	case s.boxed != f.boxed, !s.boxed && s.value != size:
		return corrupt("its values (%d bytes) aren't those of schema %s", s.value, f.value)
	}
	return nil
}

// Groups returns the key groups that the sections of a chain list, sorted.
func Groups(chain []*Stored) []int {
	var all []int
	for _, st := range chain {
		for i := range st.s.listed {
			all = append(all, st.s.group(i).group)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Of is the number of key groups of the job that wrote the section.
func (st *Stored) Of() int { return st.s.groups }
