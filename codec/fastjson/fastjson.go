// Package fastjson is codec.JSON at a multiple of its speed, for records whose
// types are plain.
//
// It takes a short way for what nearly all records are made of, and goes it only
// as long as it is sure: at the first byte, type or tag that it has no rule for it
// gives up and lets codec.JSON, that is encoding/json/v2, do all of the record. So
// both accept the same documents, refuse the same ones with the same errors, decode
// to equal records and encode to equal bytes: invalid UTF-8, a name that comes
// twice, names in another case, anything behind the value and a bare null are
// treated as there. What differs:
//
//   - there are no options;
//   - a method UnmarshalJSON or UnmarshalText of the user's that returns an error
//     is called a second time, and should then return it again.
//
// # What is fast
//
// Structs, slices and pointers of strings, bools, integers, floats, time.Time, and
// types with a method UnmarshalJSON or UnmarshalText (to decode; they aren't fast
// to encode). Fields of other types (maps, arrays, []byte, any, types with other
// methods) are handed to encoding/json/v2 one by one; so are structs with embedded
// fields, with more than 64 of them, or with tags other than a name, omitzero and
// omitempty. Slow, but as right, are documents with escapes in the names of members,
// objects of more than 32 unknown members, and all that are wrong.
package fastjson

import (
	"reflect"
	"unsafe"

	"github.com/weirstream/weir/codec"
)

// JSON is a codec of records that are one JSON value each. It is codec.JSON
// without options, and faster.
func JSON[T any]() codec.Codec[T] {
	return fast[T]{slow: codec.JSON[T](), root: compile(reflect.TypeFor[T]())}
}

type fast[T any] struct {
	slow codec.Codec[T]
	root *node
}

func (c fast[T]) Decode(b []byte, v *T) error {
	var zero T
	*v = zero
	d := decoder{b: b}
	if d.document(c.root, unsafe.Pointer(v)) {
		return nil
	}
	return c.slow.Decode(b, v) // which begins by clearing what is in *v by now
}

func (c fast[T]) Encode(dst []byte, v *T) ([]byte, error) {
	if out, ok := c.root.append(dst, unsafe.Pointer(v), 0); ok {
		return out, nil
	}
	return c.slow.Encode(dst, v)
}
