package table

import (
	"encoding"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Value says how values of one type are kept and encoded. It is made by ValueOf
// and never changes. The zero Value is of no use.
type Value struct{ l *valueLayout }

type valueLayout struct {
	typ    reflect.Type
	shape  *shape
	schema string
	flat   bool
	words  int      // flat: 8-byte words in an entry
	mask   []uint64 // flat: the bits of each word that count; padding doesn't
	same   plan     // for values that were stored as this type
	enc    cbor.UserBufferEncMode
	dec    cbor.DecMode
}

// maxFlat is the size in bytes up to which a value without pointers is kept in
// its entry.
const maxFlat = 64 << 10

// ValueOf derives how values of type V are kept. Flat ones (no pointers, at
// most 64 KiB) live in the table as memory. All others are boxed: kept as Go
// values and encoded by each Freeze, as canonical CBOR. Boxed values must
// survive that: ValueOf fails, and names the field, where a part would be lost
// or come back as something else. Times keep nanoseconds and the zone's offset
// (in whole minutes), not its name; a pointer to the zero time comes back nil.
func ValueOf[V any]() (Value, error) {
	t := reflect.TypeFor[V]()
	if err := machine(); err != nil {
		return Value{}, err
	}
	l := &valueLayout{typ: t, flat: isFlat(t) && t.Size() <= maxFlat}
	var err error
	if l.flat {
		l.shape, err = flatShape(t, "")
	} else {
		w := boxWalk{above: map[reflect.Type]bool{}}
		l.shape, err = w.walk(t, "")
	}
	if err != nil {
		return Value{}, fmt.Errorf("value type %v: %w", t, err)
	}
	l.schema = l.shape.String()
	l.same = plan{flat: l.flat, whole: true}
	if l.flat {
		l.words = (l.shape.size + 7) / 8
		l.mask = make([]uint64, l.words)
		cover(l.shape, 0, l.mask)
		l.same.words, l.same.bools = l.words, boolsIn(l.shape, 0, nil)
		return Value{l}, nil
	}
	if l.enc, l.dec, err = modes(); err != nil {
		return Value{}, fmt.Errorf("value type %v: %w", t, err)
	}
	return Value{l}, nil
}

// Schema describes the type for the manifest: field names and kinds, named
// types by what underlies them, and the stored name where a tag changes it. It
// is empty for the zero Value, of a type that can't be one.
func (v Value) Schema() string {
	if v.l == nil {
		return ""
	}
	return v.l.schema
}

// Flat reports whether values are kept as memory in the table, at no cost to
// the garbage collector and without encoding them while records wait.
func (v Value) Flat() bool { return v.l.flat }

// modes are the two directions of a boxed value. The same state must give the
// same bytes whatever the order of a map, strings needn't be UTF-8, a slice may
// have any length, and a name in another case is another field.
func modes() (cbor.UserBufferEncMode, cbor.DecMode, error) {
	e := cbor.CoreDetEncOptions()
	e.Time = cbor.TimeRFC3339Nano
	enc, err := e.UserBufferEncMode()
	if err != nil {
		return nil, nil, err
	}
	dec, err := cbor.DecOptions{
		UTF8:              cbor.UTF8DecodeInvalid,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		MaxArrayElements:  1<<31 - 1,
		MaxMapPairs:       1<<31 - 1,
		MaxNestedLevels:   4 * maxDepth,
	}.DecMode()
	return enc, dec, err
}

// isFlat reports whether t has no pointers in it.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return isFlat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isFlat(t.Field(i).Type) {
				return false
			}
		}
		return true
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.UnsafePointer,
		reflect.Chan, reflect.Func, reflect.Interface:
		return false
	}
	return true
}

func flatShape(t reflect.Type, path string) (*shape, error) {
	switch t.Kind() {
	case reflect.Uintptr:
		return nil, fmt.Errorf("%suintptr can't be kept: an address means nothing after a restart", at(path))
	case reflect.Array:
		elem, err := flatShape(t.Elem(), path+"[0]")
		if err != nil {
			return nil, err
		}
		return arrayShape(t.Len(), elem)
	case reflect.Struct:
		var fields []field
		for i := range t.NumField() {
			f := t.Field(i)
			s, err := flatShape(f.Type, join(path, f.Name))
			if err != nil {
				return nil, err
			}
			fields = append(fields, field{name: f.Name, shape: s})
		}
		return recordShape(fields)
	}
	return basicShape(basicName(t.Kind())), nil
}

// cover sets the bits of words that belong to a named part of s at off.
func cover(s *shape, off int, words []uint64) {
	switch s.form {
	case basic:
		for i := off; i < off+s.size; i++ {
			words[i/8] |= 0xff << (i % 8 * 8)
		}
	case array:
		for i := range s.n {
			cover(s.elem, off+i*s.elem.size, words)
		}
	case record:
		for _, f := range s.fields {
			if f.name != "_" {
				cover(f.shape, off+f.off, words)
			}
		}
	}
}

// boolsIn appends the offsets of the bools of a flat shape at off: bytes that
// come from a file must be 0 or 1 there.
func boolsIn(s *shape, off int, to []int) []int {
	switch {
	case s.form == basic && s.name == "bool":
		to = append(to, off)
	case s.form == array:
		for i := range s.n {
			n := len(to)
			to = boolsIn(s.elem, off+i*s.elem.size, to)
			if len(to) == n {
				break
			}
		}
	case s.form == record:
		for _, f := range s.fields {
			to = boolsIn(f.shape, off+f.off, to)
		}
	}
	return to
}

// boxWalk makes the shape of a boxed type, or refuses it.
type boxWalk struct {
	above map[reflect.Type]bool // types that contain the one at hand
	key   bool                  // inside the key of a map
}

func (w *boxWalk) walk(t reflect.Type, path string) (*shape, error) {
	if w.above[t] {
		return nil, fmt.Errorf("%stype %v contains itself: a value could be a ring, which can't be written; keep a map or a slice with indexes", at(path), t)
	}
	if own, err := encodesItself(t); err != nil {
		return nil, fmt.Errorf("%s%w", at(path), err)
	} else if own != "" {
		return &shape{form: leaf, name: own}, nil
	}
	w.above[t] = true
	defer delete(w.above, t)
	switch t.Kind() {
	case reflect.String:
		return &shape{form: text}, nil
	case reflect.Struct:
		fields, err := w.fields(t, path, 0, nil)
		if err != nil {
			return nil, err
		}
		return &shape{form: record, fields: fields, size: int(t.Size())}, nil
	case reflect.Array:
		elem, err := w.walk(t.Elem(), path+"[]")
		if err != nil {
			return nil, err
		}
		return arrayShape(t.Len(), elem)
	case reflect.Slice:
		elem, err := w.walk(t.Elem(), path+"[]")
		return &shape{form: slice, elem: elem}, err
	case reflect.Pointer:
		return w.pointer(t, path)
	case reflect.Map:
		return w.mapping(t, path)
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
		return nil, fmt.Errorf("%s%v can't be kept: it means nothing after a restart", at(path), t)
	case reflect.Interface:
		return nil, fmt.Errorf("%s%v can't be kept: which type was in it would be lost; use one type", at(path), t)
	case reflect.Complex64, reflect.Complex128:
		return nil, fmt.Errorf("%s%v can't be encoded beside parts that need encoding; use two floats", at(path), t)
	}
	return basicShape(basicName(t.Kind())), nil
}

func (w *boxWalk) pointer(t reflect.Type, path string) (*shape, error) {
	switch k := t.Elem().Kind(); {
	case w.key:
		return nil, fmt.Errorf("%sa pointer in a map key would point to something else after a restart; use what it points to", at(path))
	case k == reflect.Pointer, k == reflect.Slice, k == reflect.Map:
		return nil, fmt.Errorf("%s%v can't be kept: nil and a pointer to nil would be written alike", at(path), t)
	}
	elem, err := w.walk(t.Elem(), path)
	return &shape{form: pointer, elem: elem}, err
}

func (w *boxWalk) mapping(t reflect.Type, path string) (*shape, error) {
	outer := w.key
	w.key = true
	key, err := w.walk(t.Key(), path+"[key]")
	w.key = outer
	if err != nil {
		return nil, err
	}
	elem, err := w.walk(t.Elem(), path+"[]")
	return &shape{form: mapping, key: key, elem: elem}, err
}

// fields appends the fields of struct t, at off in the value, under the names
// that the encoding uses: it lifts those of an embedded struct without a tag.
func (w *boxWalk) fields(t reflect.Type, path string, off uintptr, to []field) ([]field, error) {
	for i := range t.NumField() {
		f := t.Field(i)
		path := join(path, f.Name)
		name, opts := tagOf(f)
		for _, opt := range []string{"toarray", "keyasint"} {
			if strings.Contains(","+opts+",", ","+opt+",") {
				return nil, fmt.Errorf("field %s: its tag says %s, but stored fields are found by name; remove it", path, opt)
			}
		}
		embedded := f.Anonymous && f.Type.Kind() == reflect.Struct && name == ""
		switch {
		case f.Name == "_":
			if !isFlat(f.Type) { // never encoded, but it is why the value is boxed
				to = append(to, field{name: "_", shape: &shape{form: leaf, name: f.Type.String()}})
			}
			continue
		case name == "-" && opts == "":
			return nil, fmt.Errorf("field %s: its tag is \"-\", so it would be lost in a restart; remove the tag or the field", path)
		case embedded:
			var err error
			if to, err = w.fields(f.Type, path, off+f.Offset, to); err != nil {
				return nil, err
			}
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer:
			return nil, fmt.Errorf("field %s: an embedded pointer can't be kept; give the field a name", path)
		case !f.IsExported():
			return nil, fmt.Errorf("field %s isn't exported, so it would be lost in a restart; export it (a value without strings, slices, maps and pointers may keep it)", path)
		}
		s, err := w.walk(f.Type, path)
		if err != nil {
			return nil, err
		}
		g := field{name: f.Name, shape: s, off: int(off + f.Offset)}
		if name != f.Name {
			g.wire = name
		}
		for _, other := range to {
			if other.stored() == g.stored() {
				return nil, fmt.Errorf("fields %s and %s would both be stored as %q: one would be lost", other.name, path, g.stored())
			}
		}
		to = append(to, g)
	}
	return to, nil
}

// tagOf gives the name and the options that the encoding reads from a tag.
func tagOf(f reflect.StructField) (name, opts string) {
	tag := f.Tag.Get("cbor")
	if tag == "" {
		tag = f.Tag.Get("json")
	}
	name, opts, _ = strings.Cut(tag, ",")
	return name, opts
}

var (
	timeType = reflect.TypeFor[time.Time]()
	bigType  = reflect.TypeFor[big.Int]()
	halves   = [2][2]reflect.Type{
		{reflect.TypeFor[cbor.Marshaler](), reflect.TypeFor[cbor.Unmarshaler]()},
		{reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.BinaryUnmarshaler]()},
	}
)

// encodesItself gives the path of a type that has an encoding of its own, and
// refuses one that has only half of it.
func encodesItself(t reflect.Type) (string, error) {
	if t == timeType {
		return timeName, nil
	}
	if t == bigType {
		return "math/big.Int", nil
	}
	if t.Name() == "" {
		return "", nil
	}
	p := reflect.PointerTo(t)
	for _, h := range halves {
		switch w, r := p.Implements(h[0]), p.Implements(h[1]); {
		case w && r && t.Kind() != reflect.Interface:
			return t.PkgPath() + "." + t.Name(), nil
		case w && t.Kind() != reflect.Interface:
			return "", fmt.Errorf("type %v writes itself (%v) but can't read itself (%v)", t, h[0], h[1])
		case r && t.Kind() != reflect.Interface:
			return "", fmt.Errorf("type %v reads itself (%v) but can't write itself (%v)", t, h[1], h[0])
		}
	}
	return "", nil
}
