package fastjson

import (
	"encoding"
	"encoding/json/v2"
	"math"
	"reflect"
	"unicode/utf8"
	"unsafe"
)

// The most that the short way does itself.
const (
	maxDepth   = 100 // containers within each other
	maxUnknown = 32  // names that no field has, in an object and those around it
)

// decoder goes through one document. All its methods return false where they
// aren't sure of what they see, whatever the reason; what is in the record is then
// of no use.
//
// Memory that a record's pointers lead to is zero until it is written, because a
// name is taken only once in an object, so null needs no work.
type decoder struct {
	b     []byte
	i     int // what comes next
	depth int

	// The names that no field has, in the objects that are open, as offsets in b.
	names [maxUnknown]span
	named int
}

// span is a part of the document.
type span struct{ from, to int32 }

func (d *decoder) in(s span) []byte { return d.b[s.from:s.to:s.to] }

// document decodes all of b.
func (d *decoder) document(n *node, p unsafe.Pointer) bool {
	if d.space() == 'n' || len(d.b) > math.MaxInt32 {
		return false // whether T can be null is decided elsewhere
	}
	return d.value(n, p) && d.space() == 0 && d.i == len(d.b)
}

// space passes white space and returns the byte behind it, or 0 at the end.
func (d *decoder) space() byte {
	for d.i < len(d.b) {
		c := d.b[d.i]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return 0
		}
		d.i++
	}
	return 0
}

// next reports whether the word comes next, and passes it.
func (d *decoder) next(word string) bool {
	if len(d.b)-d.i < len(word) || string(d.b[d.i:d.i+len(word)]) != word {
		return false
	}
	d.i += len(word)
	return true
}

// value decodes one value into the zero value of n's type at p.
func (d *decoder) value(n *node, p unsafe.Pointer) bool {
	c := d.space()
	if c == 'n' && n.dec != jsonMethod && n.dec != anyKind {
		return d.next("null")
	}
	switch n.dec {
	case stringKind:
		s, ok := d.str()
		*(*string)(p) = s
		return ok
	case intKind:
		return d.int(n, p)
	case uintKind:
		return d.uint(n, p)
	case floatKind:
		return d.float(n, p)
	case boolKind:
		*(*bool)(p) = c == 't'
		return c == 't' && d.next("true") || c == 'f' && d.next("false")
	case structKind:
		return c == '{' && d.object(n, p)
	case sliceKind:
		return c == '[' && d.array(n, p)
	case pointerKind:
		to := reflect.New(n.elem.typ).UnsafePointer()
		*(*unsafe.Pointer)(p) = to
		return d.value(n.elem, to)
	case timeKind:
		return d.time(p)
	}
	return d.foreign(n, p)
}

// foreign decodes what isn't decoded here.
func (d *decoder) foreign(n *node, p unsafe.Pointer) bool {
	start := d.i
	if n.dec == textMethod {
		text, ok := d.plain()
		return ok && reflect.NewAt(n.typ, p).Interface().(encoding.TextUnmarshaler).UnmarshalText(text) == nil
	}
	if !d.skip() {
		return false
	}
	raw := d.b[start:d.i:d.i]
	if n.dec == jsonMethod {
		return reflect.NewAt(n.typ, p).Interface().(json.Unmarshaler).UnmarshalJSON(raw) == nil
	}
	return json.Unmarshal(raw, reflect.NewAt(n.typ, p).Interface()) == nil
}

// object decodes a struct. Members mostly come in the order of its fields, and
// written as they are encoded here.
func (d *decoder) object(n *node, p unsafe.Pointer) bool {
	d.depth++
	d.i++
	if d.depth > maxDepth {
		return false
	}
	var seen uint64
	expected, base := 0, d.named
	for c := d.space(); c != '}'; {
		i := expected
		if i == len(n.fields) || !d.next(n.fields[i].quoted) {
			name, ok := d.member()
			if !ok {
				return false
			}
			if i = n.find(d.in(name)); i < 0 && !d.unknown(name, base) {
				return false
			}
		}
		ok := false
		switch {
		case i < 0:
			ok = d.skip()
		case seen&(1<<i) == 0:
			seen |= 1 << i
			expected = i + 1
			f := &n.fields[i]
			ok = d.value(f.node, unsafe.Add(p, f.offset))
		}
		if !ok {
			return false
		}
		if c, ok = d.comma('}'); !ok {
			return false
		}
	}
	d.i++
	d.depth--
	d.named = base
	return true
}

// find returns the field of a name, or -1.
func (n *node) find(name []byte) int {
	if n.index != nil {
		if i, ok := n.index[string(name)]; ok {
			return i
		}
		return -1
	}
	for i := range n.fields {
		if n.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// member passes a name and the colon behind it.
func (d *decoder) member() (name span, ok bool) {
	name, escaped, ok := d.quoted()
	if !ok || escaped || d.space() != ':' {
		return span{}, false
	}
	d.i++
	return name, true
}

// comma passes what stands between members and returns the first byte of what
// follows: the end of the container, or of the next member.
func (d *decoder) comma(end byte) (byte, bool) {
	switch c := d.space(); c {
	case end:
		return c, true
	case ',':
		d.i++
		c = d.space()
		return c, c != end
	}
	return 0, false
}

// unknown notes a name that was just passed. It must differ from the others of its
// object, which are those from base on.
func (d *decoder) unknown(name span, base int) bool {
	if d.named == maxUnknown {
		return false
	}
	for _, other := range d.names[base:d.named] {
		if string(d.in(other)) == string(d.in(name)) {
			return false
		}
	}
	d.names[d.named] = name
	d.named++
	return true
}

// array decodes a slice.
func (d *decoder) array(n *node, p unsafe.Pointer) bool {
	d.depth++
	d.i++
	if d.depth > maxDepth {
		return false
	}
	s := reflect.NewAt(n.typ, p).Elem()
	c := d.space()
	if c == ']' {
		s.Set(reflect.MakeSlice(n.typ, 0, 0))
	}
	for i := 0; c != ']'; i++ {
		if i == s.Cap() {
			s.Grow(1)
		}
		s.SetLen(i + 1)
		var ok bool
		if !d.value(n.elem, unsafe.Add(s.UnsafePointer(), uintptr(i)*n.elem.size)) {
			return false
		}
		if c, ok = d.comma(']'); !ok {
			return false
		}
	}
	d.i++
	d.depth--
	return true
}

// skip passes one value of any kind.
func (d *decoder) skip() bool {
	switch c := d.space(); c {
	case '"':
		text, escaped, ok := d.quoted()
		return ok && (!escaped || rightEscapes(d.in(text)))
	case 't':
		return d.next("true")
	case 'f':
		return d.next("false")
	case 'n':
		return d.next("null")
	case '{', '[':
		d.depth++
		d.i++
		if d.depth > maxDepth {
			return false
		}
		ok := c == '{' && d.skipObject() || c == '[' && d.skipArray()
		d.i++
		d.depth--
		return ok
	default:
		_, ok := d.number()
		return ok
	}
}

func (d *decoder) skipObject() bool {
	base := d.named
	for c := d.space(); c != '}'; {
		name, ok := d.member()
		if !ok || !d.unknown(name, base) || !d.skip() {
			return false
		}
		if c, ok = d.comma('}'); !ok {
			return false
		}
	}
	d.named = base
	return true
}

func (d *decoder) skipArray() bool {
	for c := d.space(); c != ']'; {
		if !d.skip() {
			return false
		}
		var ok bool
		if c, ok = d.comma(']'); !ok {
			return false
		}
	}
	return true
}

// str decodes a string.
func (d *decoder) str() (string, bool) {
	text, escaped, ok := d.quoted()
	switch {
	case !ok || text.from == text.to:
		return "", ok
	case escaped:
		b, ok := unescape(make([]byte, 0, text.to-text.from), d.in(text))
		return string(b), ok
	}
	return string(d.in(text)), true
}

// plain passes a string without escapes and returns what is between the quotes.
func (d *decoder) plain() ([]byte, bool) {
	text, escaped, ok := d.quoted()
	return d.in(text), ok && !escaped
}

// quoted passes a string and returns what is between the quotes. Its escapes are
// unchecked.
func (d *decoder) quoted() (text span, escaped, ok bool) {
	if d.i >= len(d.b) || d.b[d.i] != '"' {
		return span{}, false, false
	}
	start := d.i + 1
	end, escaped, ascii := stringEnd(d.b, start)
	if end < 0 {
		return span{}, false, false
	}
	d.i = end + 1
	return span{int32(start), int32(end)}, escaped, ascii || utf8.Valid(d.b[start:end])
}
