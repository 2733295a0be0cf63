package fastjson

import (
	"encoding"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// kind is how a value is decoded or encoded.
type kind uint8

const (
	anyKind     kind = iota // by encoding/json/v2
	boolKind                // bool and its like
	intKind                 // signed
	uintKind                // unsigned
	floatKind               // float32, float64
	stringKind              // string and its like
	timeKind                // time.Time itself
	structKind              // with fields
	sliceKind               // of elem
	pointerKind             // to elem
	jsonMethod              // decoding alone: UnmarshalJSON
	textMethod              // decoding alone: UnmarshalText
)

// node is what is known about a type.
type node struct {
	typ      reflect.Type
	dec, enc kind
	bits     int
	size     uintptr // of the type
	elem     *node
	fields   []field
	index    map[string]int // of fields, where there are too many to compare them all
}

// field is one member of a struct.
type field struct {
	name      string
	quoted    string // "name":
	offset    uintptr
	node      *node
	omitzero  bool
	omitempty bool
}

// fewFields are compared one by one: that is quicker than to hash a name.
const fewFields = 12

var (
	timeType      = reflect.TypeFor[time.Time]()
	zeroer        = reflect.TypeFor[interface{ IsZero() bool }]()
	byJSON        = reflect.TypeFor[json.Unmarshaler]()
	byText        = reflect.TypeFor[encoding.TextUnmarshaler]()
	byDecoder     = reflect.TypeFor[json.UnmarshalerFrom]()
	ownMarshalers = []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.MarshalerTo](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
	}
)

func compile(t reflect.Type) *node { return compiler{}.node(t) }

// compiler keeps the nodes of the types that it has met, which may contain
// themselves.
type compiler map[reflect.Type]*node

func (c compiler) node(t reflect.Type) *node {
	if n, ok := c[t]; ok {
		return n
	}
	n := &node{typ: t, size: t.Size()}
	c[t] = n
	k := c.plain(n)
	n.dec, n.enc = k, k
	if t == timeType || t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return n // v2 doesn't look for methods there
	}
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(byDecoder):
		n.dec = anyKind
	case p.Implements(byJSON):
		n.dec = jsonMethod
	case p.Implements(byText):
		n.dec = textMethod
	}
	if slices.ContainsFunc(ownMarshalers, p.Implements) {
		n.enc = anyKind
	}
	return n
}

// plain is what a type is without its methods. It fills in what the node needs.
func (c compiler) plain(n *node) kind {
	t := n.typ
	if t == timeType {
		return timeKind
	}
	if t.PkgPath() == "time" || t.PkgPath() == "encoding/json" {
		return anyKind // v2 has rules of its own for some of these
	}
	switch t.Kind() {
	case reflect.Bool:
		return boolKind
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.bits = t.Bits()
		return intKind
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n.bits = t.Bits()
		return uintKind
	case reflect.Float32, reflect.Float64:
		n.bits = t.Bits()
		return floatKind
	case reflect.String:
		return stringKind
	case reflect.Pointer:
		n.elem = c.node(t.Elem())
		return pointerKind
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return anyKind // base64
		}
		n.elem = c.node(t.Elem())
		return sliceKind
	case reflect.Struct:
		if fields, ok := c.fields(t); ok {
			n.fields = fields
			n.hash()
			return structKind
		}
	}
	return anyKind
}

func (n *node) hash() {
	if len(n.fields) <= fewFields {
		return
	}
	n.index = map[string]int{}
	for i, f := range n.fields {
		n.index[f.name] = i
	}
}

// fields lists the members of a struct; ok is false where v2 may see them another
// way than it is seen here.
func (c compiler) fields(t reflect.Type) (all []field, ok bool) {
	if t.NumField() > 64 {
		return nil, false
	}
	seen := map[string]bool{}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, tagged := sf.Tag.Lookup("json")
		if tag == "-" {
			continue
		}
		if sf.Anonymous || !sf.IsExported() && tagged {
			return nil, false
		}
		if !sf.IsExported() {
			continue
		}
		f, ok := parse(sf, tag)
		if !ok || seen[f.name] {
			return nil, false
		}
		seen[f.name] = true
		if f.omitzero && sf.Type != timeType && (sf.Type.Implements(zeroer) || reflect.PointerTo(sf.Type).Implements(zeroer)) {
			return nil, false
		}
		f.offset, f.node = sf.Offset, c.node(sf.Type)
		all = append(all, f)
	}
	// v2 refuses a struct without any; what it says is its own matter.
	return all, len(all) > 0
}

// parse reads a tag that has a plain name and options that are known here.
func parse(sf reflect.StructField, tag string) (f field, ok bool) {
	name, options, _ := strings.Cut(tag, ",")
	if name == "" {
		name = sf.Name
	}
	if strings.ContainsAny(name, "\\'\"`") || !utf8.ValidString(name) || strings.HasSuffix(tag, ",") {
		return field{}, false
	}
	f.name = name
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "":
			if options != "" {
				return field{}, false
			}
		case "omitzero":
			ok, f.omitzero = !f.omitzero, true
		case "omitempty":
			ok, f.omitempty = !f.omitempty, true
		default:
			return field{}, false
		}
		if option != "" && !ok {
			return field{}, false // twice
		}
	}
	quoted, err := jsontext.AppendQuote(nil, name)
	f.quoted = string(quoted) + ":"
	return f, err == nil
}
