package table

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CBOR's major types (RFC 8949, section 3.1).
const (
	cborUint   = 0
	cborNegint = 1
	cborBytes  = 2
	cborText   = 3
	cborArray  = 4
	cborMap    = 5
	cborTag    = 6
	cborSimple = 7
)

const (
	cborNull      = 22
	cborUndefined = 23
)

// item is the head of one encoded value.
type item struct {
	major byte
	info  byte
	arg   uint64 // length, number, tag; of a float its bits
}

func (i item) null() bool {
	return i.major == cborSimple && (i.info == cborNull || i.info == cborUndefined)
}

// boxReader reads an encoded value from its start: all of CBOR but what has no
// length, which can't be stored even by a type that encodes itself.
type boxReader struct{ b []byte }

func (r *boxReader) head() (item, error) {
	if len(r.b) == 0 {
		return item{}, corrupt("a value is cut short")
	}
	i := item{major: r.b[0] >> 5, info: r.b[0] & 31}
	r.b = r.b[1:]
	switch n := 1 << max(0, int(i.info)-24); {
	case i.info < 24:
		i.arg = uint64(i.info)
	case i.info > 27:
		return i, corrupt("a value holds what isn't CBOR: %#x", i.major<<5|i.info)
	case len(r.b) < n:
		return i, corrupt("a value is cut short")
	default:
		var word [8]byte
		copy(word[8-n:], r.b[:n])
		i.arg = binary.BigEndian.Uint64(word[:])
		r.b = r.b[n:]
	}
	return i, nil
}

// bytes returns what follows the head of a byte or text string.
func (r *boxReader) bytes(i item) ([]byte, error) {
	if i.arg > uint64(len(r.b)) {
		return nil, corrupt("a string of %d bytes in %d", i.arg, len(r.b))
	}
	b := r.b[:i.arg]
	r.b = r.b[i.arg:]
	return b, nil
}

// each calls do for each of the elements, or pairs, behind a head.
func (r *boxReader) each(i item, do func() error) error {
	if i.arg > uint64(len(r.b)) {
		return corrupt("%d elements in %d bytes", i.arg, len(r.b))
	}
	for range i.arg {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// appendBoxed appends the JSON of one encoded value.
func appendBoxed(to []byte, s *shape, b []byte) ([]byte, error) {
	r := &boxReader{b}
	to, err := r.value(to, s, 0)
	if err == nil && len(r.b) > 0 {
		err = corrupt("%d bytes are left over behind a %s", len(r.b), s)
	}
	return to, err
}

// value appends the JSON of the next item, which is of shape s.
func (r *boxReader) value(to []byte, s *shape, depth int) ([]byte, error) {
	if depth > 4*maxDepth {
		return to, corrupt("a value is nested more than %d deep", 4*maxDepth)
	}
	switch s.form {
	case leaf:
		return r.leaf(to, s, depth)
	case slice, pointer, mapping:
		if len(r.b) > 0 && (item{major: r.b[0] >> 5, info: r.b[0] & 31}).null() {
			r.b = r.b[1:]
			return append(to, "null"...), nil
		}
		if s.form == pointer {
			return r.value(to, s.elem, depth+1)
		}
	}
	i, err := r.head()
	if err != nil {
		return to, err
	}
	switch {
	case s.form == basic:
		return i.basic(to, s)
	case s.form == text && (i.major == cborText || i.major == cborBytes):
		b, err := r.bytes(i)
		return appendText(to, b), err
	case s.form == array || s.form == slice:
		return r.list(to, s, i, depth)
	case s.form == mapping && i.major == cborMap:
		return r.mapping(to, s, i, depth)
	case s.form == record && i.major == cborMap:
		return r.record(to, s, i, depth)
	}
	return to, corrupt("an encoded value (type %d) isn't a %s", i.major, s)
}

// basic appends a number or bool.
func (i item) basic(to []byte, s *shape) ([]byte, error) {
	switch f, isFloat := i.float(); {
	case i.major == cborSimple && (i.info == 20 || i.info == 21) && s.name == "bool":
		return strconv.AppendBool(to, i.info == 21), nil
	case i.major <= cborNegint && s.name != "bool":
		return i.integer(to), nil
	case isFloat && s.name == "float32":
		return appendFloat(to, f, 32), nil
	case isFloat && s.name == "float64":
		return appendFloat(to, f, 64), nil
	}
	return to, corrupt("an encoded value (type %d) isn't a %s", i.major, s)
}

func (i item) integer(to []byte) []byte {
	switch {
	case i.major == cborUint:
		return strconv.AppendUint(to, i.arg, 10)
	case i.arg > math.MaxInt64: // below the least int64
		n := new(big.Int).SetUint64(i.arg)
		return n.Not(n).Append(to, 10)
	}
	return strconv.AppendInt(to, -1-int64(i.arg), 10)
}

func (i item) float() (f float64, ok bool) {
	if i.major != cborSimple {
		return 0, false
	}
	switch i.info {
	case 25:
		return float16(uint16(i.arg)), true
	case 26:
		return float64(math.Float32frombits(uint32(i.arg))), true
	case 27:
		return math.Float64frombits(i.arg), true
	}
	return 0, false
}

// float16 is a float of 16 bits (RFC 8949, appendix D).
func float16(b uint16) float64 {
	exp, mant := int(b>>10&31), float64(b&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(mant, -24)
	case 31:
		f = math.Inf(1)
		if mant != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(mant+1024, exp-25)
	}
	if b>>15 == 1 {
		f = math.Copysign(f, -1)
	}
	return f
}

// list appends an array or slice. Bytes are stored as one string; of a slice
// they are base64, as encoding/json has them, and of an array numbers.
func (r *boxReader) list(to []byte, s *shape, i item, depth int) ([]byte, error) {
	if i.major == cborBytes {
		b, err := r.bytes(i)
		switch {
		case err != nil:
			return to, err
		case s.form == slice:
			to = base64.StdEncoding.AppendEncode(append(to, '"'), b)
			return append(to, '"'), nil
		case len(b) != s.n:
			return to, corrupt("%d bytes aren't a %s", len(b), s)
		}
		return appendList(to, len(b), func(to []byte, i int) ([]byte, error) { return strconv.AppendUint(to, uint64(b[i]), 10), nil })
	}
	if i.major != cborArray {
		return to, corrupt("an encoded value (type %d) isn't a %s", i.major, s)
	}
	to = append(to, '[')
	n := 0
	err := r.each(i, func() (err error) {
		if n++; n > 1 {
			to = append(to, ',')
		}
		to, err = r.value(to, s.elem, depth+1)
		return err
	})
	if err == nil && s.form == array && n != s.n {
		err = corrupt("%d elements aren't a %s", n, s)
	}
	return append(to, ']'), err
}

// member is one entry of a map, as JSON.
type member struct{ key, value string }

// mapping appends a map in the order of its keys' texts.
func (r *boxReader) mapping(to []byte, s *shape, i item, depth int) ([]byte, error) {
	var pairs []member
	err := r.each(i, func() error {
		k, err := r.value(nil, s.key, depth+1)
		if err != nil {
			return err
		}
		v, err := r.value(nil, s.elem, depth+1)
		pairs = append(pairs, member{string(k), string(v)})
		return err
	})
	whole := s.key.form == basic && s.key.name != "bool" && !strings.HasPrefix(s.key.name, "float")
	return appendPairs(to, pairs, whole), err
}

// appendPairs appends an object where all keys can be names, or else a list.
func appendPairs(to []byte, pairs []member, whole bool) []byte {
	names := true
	for i, p := range pairs {
		if whole {
			pairs[i].key = strconv.Quote(p.key)
		} else if p.key[0] != '"' {
			names = false
		}
	}
	slices.SortFunc(pairs, func(a, b member) int { return strings.Compare(a.key, b.key) })
	if !names {
		to, _ = appendList(to, len(pairs), func(to []byte, i int) ([]byte, error) {
			to = append(append(to, `{"key":`...), pairs[i].key...)
			to = append(append(to, `,"value":`...), pairs[i].value...)
			return append(to, '}'), nil
		})
		return to
	}
	to = append(to, '{')
	for i, p := range pairs {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(append(append(to, p.key...), ':'), p.value...)
	}
	return append(to, '}')
}

// record appends a struct in the order of its fields. What was left out when it
// was stored, because it was empty, is left out.
func (r *boxReader) record(to []byte, s *shape, i item, depth int) ([]byte, error) {
	raw := map[string][]byte{}
	err := r.each(i, func() error {
		name, err := r.head()
		if err == nil && name.major != cborText {
			err = corrupt("a field of a %s has no name", s)
		}
		var field []byte
		if err == nil {
			field, err = r.bytes(name)
		}
		if err != nil {
			return err
		}
		before := r.b
		err = r.skip(depth + 1)
		raw[string(field)] = before[:len(before)-len(r.b)]
		return err
	})
	if err != nil {
		return to, err
	}
	to, err = appendRecord(to, s, func(to []byte, f field) ([]byte, error) {
		b, ok := raw[f.stored()]
		delete(raw, f.stored())
		if !ok {
			return to, nil
		}
		in := &boxReader{b}
		return in.value(to, f.shape, depth+1)
	})
	if err == nil && len(raw) > 0 {
		err = corrupt("a value has %d fields that aren't in %s", len(raw), s)
	}
	return to, err
}

// skip passes one item over.
func (r *boxReader) skip(depth int) error {
	_, err := r.any(nil, depth)
	return err
}

// leaf appends a value that encodes itself.
func (r *boxReader) leaf(to []byte, s *shape, depth int) ([]byte, error) {
	if len(r.b) == 0 {
		return to, corrupt("a value is cut short")
	}
	first := item{major: r.b[0] >> 5, info: r.b[0] & 31}
	if s.name == timeName && first.null() { // how the zero time is stored
		r.b = r.b[1:]
		return append(to, `"0001-01-01T00:00:00Z"`...), nil
	}
	read := selfCoded(s.name)
	if first.major != cborBytes || read == nil {
		return r.any(to, depth)
	}
	i, err := r.head()
	if err != nil {
		return to, err
	}
	b, err := r.bytes(i)
	if err != nil {
		return to, err
	}
	if text, err := read(b); err == nil {
		return appendText(to, []byte(text)), nil
	}
	return appendReadable(to, b), nil
}

// selfCoded reads the binary forms of types of the standard library that have a
// text form, too, which encoding/json uses; or is nil.
func selfCoded(name string) func(b []byte) (string, error) {
	switch name {
	case "net/netip.Addr":
		return func(b []byte) (string, error) {
			var a netip.Addr
			err := a.UnmarshalBinary(b)
			if a == (netip.Addr{}) {
				return "", err
			}
			return a.String(), err
		}
	case "net/netip.AddrPort":
		return func(b []byte) (string, error) {
			var a netip.AddrPort
			err := a.UnmarshalBinary(b)
			if a == (netip.AddrPort{}) {
				return "", err
			}
			return a.String(), err
		}
	case "net/netip.Prefix":
		return func(b []byte) (string, error) {
			var a netip.Prefix
			err := a.UnmarshalBinary(b)
			if a == (netip.Prefix{}) {
				return "", err
			}
			return a.String(), err
		}
	}
	return nil
}

// appendReadable appends bytes that nothing is known of.
func appendReadable(to, b []byte) []byte {
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return appendBytes(to, b)
	}
	return appendText(to, b)
}

// any appends the next item, whatever it is.
func (r *boxReader) any(to []byte, depth int) ([]byte, error) {
	if depth > 4*maxDepth {
		return to, corrupt("a value is nested more than %d deep", 4*maxDepth)
	}
	i, err := r.head()
	if err != nil {
		return to, err
	}
	switch i.major {
	case cborUint, cborNegint:
		return i.integer(to), nil
	case cborBytes:
		b, err := r.bytes(i)
		return appendReadable(to, b), err
	case cborText:
		b, err := r.bytes(i)
		return appendText(to, b), err
	case cborArray:
		to = append(to, '[')
		n := 0
		err := r.each(i, func() (err error) {
			if n++; n > 1 {
				to = append(to, ',')
			}
			to, err = r.any(to, depth+1)
			return err
		})
		return append(to, ']'), err
	case cborMap:
		var pairs []member
		err := r.each(i, func() error {
			k, err := r.any(nil, depth+1)
			if err != nil {
				return err
			}
			v, err := r.any(nil, depth+1)
			pairs = append(pairs, member{string(k), string(v)})
			return err
		})
		return appendPairs(to, pairs, false), err
	case cborTag:
		return r.tagged(to, i.arg, depth)
	}
	return i.simple(to)
}

func (i item) simple(to []byte) ([]byte, error) {
	if f, ok := i.float(); ok {
		return appendFloat(to, f, 64), nil
	}
	switch {
	case i.info == 20 || i.info == 21:
		return strconv.AppendBool(to, i.info == 21), nil
	case i.null():
		return append(to, "null"...), nil
	}
	return strconv.AppendUint(to, i.arg, 10), nil
}

// tagged appends what follows a tag: large numbers as such.
func (r *boxReader) tagged(to []byte, tag uint64, depth int) ([]byte, error) {
	const bignum, negative = 2, 3
	if (tag == bignum || tag == negative) && len(r.b) > 0 && r.b[0]>>5 == cborBytes {
		i, err := r.head()
		if err != nil {
			return to, err
		}
		b, err := r.bytes(i)
		n := new(big.Int).SetBytes(b)
		if tag == negative {
			n.Not(n)
		}
		return n.Append(to, 10), err
	}
	to = strconv.AppendUint(append(to, `{"tag":`...), tag, 10)
	to, err := r.any(append(to, `,"value":`...), depth+1)
	return append(to, '}'), err
}
