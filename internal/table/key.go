package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Key says how keys of one type are encoded, hashed and kept. It is made by
// KeyOf and never changes. The zero Key is of no use.
type Key struct{ l *keyLayout }

// keyForm is how a table keeps a key.
type keyForm uint8

const (
	keyString    keyForm = iota // the key is a string: its bytes, in the arena
	keyFixed                    // memory of one size without padding, in the entry
	keyComposite                // anything else: encoded, in the arena
)

type keyLayout struct {
	typ    reflect.Type
	form   keyForm
	size   int    // bytes in memory
	parts  []part // composite: what is written, in order
	bools  []int  // fixed: offsets of bools, which must be 0 or 1
	schema string
}

// part is a piece of a composite key.
type part struct {
	kind partKind
	off  uintptr // in the Go value
	size int     // bytes; a string has its own
}

type partKind uint8

const (
	partBytes  partKind = iota
	partBool            // one byte, 0 or 1
	partString          // u32 length, bytes
)

const (
	maxFixed = 128  // bytes of a key in an entry; longer ones go to the arena
	maxParts = 4096 // of a composite key
)

// KeyOf derives how keys of type K are kept. Two keys that are equal in Go have
// equal bytes and the reverse, so strings are compared byte by byte, without
// any Unicode normalisation. It fails, and names the field, where K has a part
// of which that can't be said (floats, padding) or that means nothing in
// another process (pointers, interfaces, channels).
func KeyOf[K comparable]() (Key, error) {
	t := reflect.TypeFor[K]()
	if err := machine(); err != nil {
		return Key{}, err
	}
	w := keyWalk{}
	s, err := w.walk(t, "", 0)
	if err == nil && !w.strings {
		err = padding(t, "")
	}
	if err != nil {
		return Key{}, fmt.Errorf("key type %v: %w", t, err)
	}
	l := &keyLayout{typ: t, size: int(t.Size()), schema: s.String()}
	switch {
	case t.Kind() == reflect.String:
		l.form = keyString
	case !w.strings && !w.blanks && l.size <= maxFixed:
		l.form = keyFixed
		for _, p := range w.parts {
			if p.kind == partBool {
				l.bools = append(l.bools, int(p.off))
			}
		}
	default:
		l.form = keyComposite
		l.parts = w.parts
	}
	return Key{l}, nil
}

// Schema describes the type for the manifest: field names and kinds, named
// types by what underlies them. Tables whose keys have equal schemas can load
// each other's sections. It is empty for the zero Key, of a type that can't be one.
func (k Key) Schema() string {
	if k.l == nil {
		return ""
	}
	return k.l.schema
}

// machine refuses where memory isn't laid out as it is stored.
func machine() error {
	one := uint16(1)
	return checkMachine(unsafe.Sizeof(uintptr(0)), *(*byte)(unsafe.Pointer(&one)) == 1)
}

func checkMachine(word uintptr, little bool) error {
	if word != 8 || !little {
		return fmt.Errorf("keyed state needs a little-endian 64-bit machine: here a word has %d bits (little-endian: %t)", 8*word, little)
	}
	return nil
}

// keyWalk collects the parts of a key type.
type keyWalk struct {
	parts           []part
	strings, blanks bool
}

// walk refuses t or appends its parts; path names it inside the key.
func (w *keyWalk) walk(t reflect.Type, path string, off uintptr) (*shape, error) {
	switch t.Kind() {
	case reflect.String:
		w.strings = true
		return &shape{form: text}, w.add(part{partString, off, 0})
	case reflect.Bool:
		return basicShape("bool"), w.add(part{partBool, off, 1})
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return basicShape(basicName(t.Kind())), w.add(part{partBytes, off, int(t.Size())})
	case reflect.Array:
		elem := t.Elem()
		one := keyWalk{}
		s, err := one.walk(elem, path+"[0]", 0)
		if err != nil {
			return nil, err
		}
		w.strings, w.blanks = w.strings || one.strings, w.blanks || one.blanks
		if t.Len()*len(one.parts) > maxParts && !one.plain(elem) {
			return nil, fmt.Errorf("%san array of %d makes more than %d parts", at(path), t.Len(), maxParts)
		}
		if one.plain(elem) {
			err = w.add(part{partBytes, off, int(t.Size())})
		} else if len(one.parts) > 0 {
			for i := range t.Len() {
				for _, p := range one.parts {
					p.off += off + uintptr(i)*elem.Size()
					err = errors.Join(err, w.add(p))
				}
			}
		}
		if err != nil {
			return nil, err
		}
		return arrayShape(t.Len(), s)
	case reflect.Struct:
		return w.record(t, path, off)
	}
	return nil, fmt.Errorf("%s%s", at(path), refusal(t))
}

func (w *keyWalk) record(t reflect.Type, path string, off uintptr) (*shape, error) {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		into := w
		if f.Name == "_" { // not compared by Go: not part of the key's bytes
			w.blanks = true
			into = &keyWalk{}
		}
		s, err := into.walk(f.Type, join(path, f.Name), off+f.Offset)
		if err != nil {
			return nil, err
		}
		fields = append(fields, field{name: f.Name, shape: s})
	}
	return recordShape(fields)
}

// plain reports whether all bytes of t count, whatever they are.
func (w *keyWalk) plain(t reflect.Type) bool {
	return len(w.parts) == 1 && w.parts[0] == part{partBytes, 0, int(t.Size())}
}

// add appends p, to the last part where both are bytes and touch.
func (w *keyWalk) add(p part) error {
	if n := len(w.parts); n > 0 && p.kind == partBytes {
		if last := &w.parts[n-1]; last.kind == partBytes && last.off+uintptr(last.size) == p.off {
			last.size += p.size
			return nil
		}
	}
	if len(w.parts) == maxParts {
		return fmt.Errorf("it has more than %d parts", maxParts)
	}
	w.parts = append(w.parts, p)
	return nil
}

// padding finds bytes in t that no field covers: what is in them is undefined,
// so equal keys could differ in them.
func padding(t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.Array:
		return padding(t.Elem(), path+"[0]")
	case reflect.Struct:
		end, last := uintptr(0), ""
		gap := func(to uintptr) error {
			if to == end {
				return nil
			}
			return fmt.Errorf("%d bytes of padding after field %s: equal keys could differ there; reorder the fields, or fill the gap with a field _ [%d]byte",
				to-end, join(path, last), to-end)
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if err := gap(f.Offset); err != nil {
				return err
			}
			if err := padding(f.Type, join(path, f.Name)); err != nil {
				return err
			}
			end, last = f.Offset+f.Type.Size(), f.Name
		}
		return gap(t.Size())
	}
	return nil
}

// refusal says why a kind can't be in a key.
func refusal(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return fmt.Sprintf("%v can't be part of a key: -0 equals 0, NaN equals nothing; use an integer (cents, microdegrees) or a string", t)
	case reflect.Pointer, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Sprintf("%v can't be part of a key: an address means nothing in another process; use what it points to", t)
	case reflect.Interface:
		return fmt.Sprintf("%v can't be part of a key: an interface can hold any type; use one type", t)
	}
	return fmt.Sprintf("%v can't be part of a key: use integers, bools, strings, and arrays and structs of these", t)
}

func at(path string) string {
	if path == "" {
		return ""
	}
	return "field " + path + ": "
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// basicName is the schema's word for a kind that is kept as memory.
func basicName(k reflect.Kind) string {
	switch k {
	case reflect.Int:
		return "int64"
	case reflect.Uint:
		return "uint64"
	}
	return k.String()
}

// append encodes the composite key at p.
func (l *keyLayout) append(b []byte, p unsafe.Pointer) []byte {
	for _, q := range l.parts {
		if q.kind == partString {
			s := *(*string)(unsafe.Add(p, q.off))
			b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
			b = append(b, s...)
			continue
		}
		b = append(b, unsafe.Slice((*byte)(unsafe.Add(p, q.off)), q.size)...)
	}
	return b
}

// decode fills the composite key at p from its encoding; strings alias it. It
// reports whether s is such an encoding. With a nil p it only checks.
func (l *keyLayout) decode(p unsafe.Pointer, s string) bool {
	for _, q := range l.parts {
		n := q.size
		if q.kind == partString {
			if len(s) < 4 {
				return false
			}
			n = int(binary.LittleEndian.Uint32(unsafe.Slice(unsafe.StringData(s), 4)))
			s = s[4:]
		}
		if len(s) < n || q.kind == partBool && s[0] > 1 {
			return false
		}
		if p != nil && q.kind == partString {
			*(*string)(unsafe.Add(p, q.off)) = s[:n]
		} else if p != nil {
			copy(unsafe.Slice((*byte)(unsafe.Add(p, q.off)), n), s)
		}
		s = s[n:]
	}
	return s == ""
}

// Hash is xxh3 of the key's canonical encoding. It chooses the key group, which
// is stored: it must never change.
func Hash[K comparable](k Key, key *K) uint64 {
	p := unsafe.Pointer(key)
	switch k.l.form {
	case keyString:
		return xxh3.HashString(*(*string)(p))
	case keyFixed:
		return xxh3.Hash(unsafe.Slice((*byte)(p), k.l.size))
	}
	var room [256]byte
	return xxh3.Hash(k.l.append(room[:0], p))
}

// HashAll hashes a batch: out[i] is the hash of keys[i]. out is at least as
// long as keys.
func HashAll[K comparable](k Key, keys []K, out []uint64) {
	out = out[:len(keys)]
	switch k.l.form {
	case keyString:
		for i, s := range *(*[]string)(unsafe.Pointer(&keys)) {
			out[i] = xxh3.HashString(s)
		}
	case keyFixed:
		for i := range keys {
			out[i] = xxh3.Hash(unsafe.Slice((*byte)(unsafe.Pointer(&keys[i])), k.l.size))
		}
	default:
		var room [256]byte
		b := room[:0]
		for i := range keys {
			b = k.l.append(b[:0], unsafe.Pointer(&keys[i]))
			out[i] = xxh3.Hash(b)
		}
	}
}

// Group is the key group of a hash, of so many groups.
func Group(hash uint64, groups int) int {
	n := uint64(groups)
	if n&(n-1) == 0 {
		return int(hash & (n - 1))
	}
	return int(hash % n)
}
