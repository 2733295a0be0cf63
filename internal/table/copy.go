package table

import (
	"bytes"
	"fmt"
	"reflect"
	"unsafe"
)

// Shares reports whether a copy of a value shares memory with it that could be
// changed through either: a slice, a map, or what a pointer points to.
func (v Value) Shares() bool { return v.l != nil && !v.l.flat && shares(v.l.typ) }

func shares(t reflect.Type) bool {
	if t == timeType {
		return false // points to its zone, which nobody changes
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return true
	case reflect.Array:
		return shares(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if shares(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// Save writes the value that p points at into buf, in place of what is there,
// as a Freeze would. The value isn't flat.
func (v Value) Save(p any, buf *bytes.Buffer) error {
	buf.Reset()
	if err := v.l.enc.MarshalToBuffer(p, buf); err != nil {
		return fmt.Errorf("encode a value of type %v: %w", v.l.typ, err)
	}
	return nil
}

// Load sets the zero value that p points at to the one that Save wrote.
func (v Value) Load(b []byte, p any) error {
	if err := v.l.dec.Unmarshal(b, p); err != nil {
		return fmt.Errorf("decode a value of type %v: %w", v.l.typ, err)
	}
	return nil
}

// Size is the length of a key's encoding, in bytes.
func Size[K comparable](k Key, key *K) int {
	p := unsafe.Pointer(key)
	switch k.l.form {
	case keyString:
		return len(*(*string)(p))
	case keyFixed:
		return k.l.size
	}
	n := 0
	for _, q := range k.l.parts {
		n += q.size
		if q.kind == partString {
			n += 4 + len(*(*string)(unsafe.Add(p, q.off)))
		}
	}
	return n
}
