package table

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt reports bytes that aren't a section, or a damaged one.
var ErrCorrupt = errors.New("damaged state section")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// section is a parsed header. Its groups are checked: they add up, and their
// entries fit into their bytes, so that counts can be trusted for sizes.
type section struct {
	keyed, boxed bool // keys, values have a length
	key, value   int  // bytes otherwise
	groups       int
	listed       int
	list         []byte
	body         []byte
}

// listing is one group of a section.
type listing struct {
	group         int
	deleted, live int
	bytes         int
}

func (s *section) group(i int) listing {
	b := s.list[groupBytes*i:]
	le := binary.LittleEndian
	return listing{int(le.Uint32(b)), int(le.Uint32(b[4:])), int(le.Uint32(b[8:])), int(le.Uint64(b[12:]))}
}

func parseSection(b []byte) (s section, rest []byte, err error) {
	s, size, b, err := parseHead(b)
	if err != nil {
		return s, nil, err
	}
	if size > uint64(len(b)) {
		return s, nil, corrupt("its entries take %d bytes, %d are left", size, len(b))
	}
	s.body, rest = b[:size], b[size:]
	return s, rest, s.check(len(s.body))
}

// parseHead reads what stands before the entries, which take size bytes.
func parseHead(b []byte) (s section, size uint64, rest []byte, err error) {
	if len(b) < headerBytes {
		return s, 0, nil, corrupt("%d bytes are left, its header takes %d", len(b), headerBytes)
	}
	if string(b[:4]) != magic {
		return s, 0, nil, corrupt("it starts with %q, not with %q", b[:4], magic)
	}
	if b[4] != version {
		return s, 0, nil, corrupt("its version is %d, this program reads version %d", b[4], version)
	}
	if b[5] > keyLengths|valLengths || b[6] != 0 || b[7] != 0 {
		return s, 0, nil, corrupt("unknown flags %x", b[5:8])
	}
	le := binary.LittleEndian
	s = section{
		keyed: b[5]&keyLengths != 0, boxed: b[5]&valLengths != 0,
		key: int(le.Uint32(b[8:])), value: int(le.Uint32(b[12:])),
		groups: int(le.Uint32(b[16:])), listed: int(le.Uint32(b[20:])),
	}
	if s.keyed && s.key != 0 || s.boxed && s.value != 0 || s.key > maxFixed || s.value > maxFlat || s.value%8 != 0 {
		return s, 0, nil, corrupt("keys of %d and values of %d bytes (flags %d)", s.key, s.value, b[5])
	}
	size = le.Uint64(b[24:])
	b = b[headerBytes:]
	if s.listed > s.groups || len(b) < s.listed*groupBytes {
		return s, 0, nil, corrupt("%d groups of %d are listed, %d bytes are left", s.listed, s.groups, len(b))
	}
	s.list, rest = b[:s.listed*groupBytes], b[s.listed*groupBytes:]
	return s, size, rest, nil
}

// check compares the listed groups with each other and with the size of the
// body.
func (s *section) check(body int) error {
	least := func(keyed bool, size int) int {
		if keyed {
			return 4
		}
		return size
	}
	key, value := least(s.keyed, s.key), least(s.boxed, s.value)
	left, before := body, -1
	for i := range s.listed {
		g := s.group(i)
		if g.group <= before || g.group >= s.groups {
			return corrupt("group %d of %d follows group %d", g.group, s.groups, before)
		}
		before = g.group
		if g.bytes < 0 || g.bytes > left {
			return corrupt("group %d takes %d bytes, %d are left", g.group, g.bytes, left)
		}
		left -= g.bytes
		need := g.deleted*key + g.live*(key+value)
		switch {
		case need > g.bytes, !s.keyed && !s.boxed && need < g.bytes:
			return corrupt("group %d has %d entries and %d tombstones in %d bytes", g.group, g.live, g.deleted, g.bytes)
		case key == 0 && g.deleted > 1, key+value == 0 && g.live > 1:
			return corrupt("group %d has the one key without bytes more than once", g.group)
		}
	}
	if left != 0 {
		return corrupt("%d bytes belong to no group", left)
	}
	return nil
}
