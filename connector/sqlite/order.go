package sqlite

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// ref is a row of one of several batches.
type ref struct {
	prefix     uint64 // of its key, behind what all keys have in common
	batch, row uint32
}

// sorted lists the rows of batches in key order, one a key: that of the last
// batch which has the key. Rows without a key stay as they are, all of them.
func sorted(batches []*batch, refs []ref) []ref {
	refs = refs[:0]
	if len(batches) > 0 && len(batches[0].lay.keys) == 0 { // in the order of tasks, and as they were written
		for i, b := range batches {
			for row := range b.keys {
				refs = append(refs, ref{0, uint32(i), uint32(row)})
			}
		}
		return refs
	}
	var first []byte
	common := -1
	for _, b := range batches {
		for _, k := range b.keys {
			key := b.bytes(k)
			if common < 0 {
				first, common = key, len(key)
				continue
			}
			common = commonPrefix(first[:common], key)
		}
	}
	for i, b := range batches {
		for row, k := range b.keys {
			refs = append(refs, ref{prefix8(b.bytes(k)[common:]), uint32(i), uint32(row)})
		}
	}
	slices.SortFunc(refs, func(x, y ref) int {
		if x.prefix != y.prefix {
			return cmp.Compare(x.prefix, y.prefix)
		}
		bx, by := batches[x.batch], batches[y.batch]
		if c := bytes.Compare(bx.bytes(bx.keys[x.row]), by.bytes(by.keys[y.row])); c != 0 {
			return c
		}
		return cmp.Compare(x.batch, y.batch)
	})
	if len(batches) < 2 {
		return refs
	}
	n := 0
	for i, r := range refs {
		if i > 0 && sameKey(batches, refs[n-1], r) {
			n--
		}
		refs[n] = r
		n++
	}
	return refs[:n]
}

func sameKey(batches []*batch, x, y ref) bool {
	bx, by := batches[x.batch], batches[y.batch]
	return x.prefix == y.prefix && bytes.Equal(bx.bytes(bx.keys[x.row]), by.bytes(by.keys[y.row]))
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func prefix8(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (56 - 8*i)
	}
	return v
}
