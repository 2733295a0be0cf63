// Package codec turns bytes into records and back. A source or a sink takes a
// Codec as an argument, so that what a record looks like and where it comes
// from are chosen independently of each other.
package codec

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// A Codec decodes and encodes records of one type. Its methods keep nothing
// between calls and may be called by many goroutines at once.
type Codec[T any] interface {
	// Decode sets *v, which holds the zero value, to the record that all of b
	// encodes. b is the caller's again when Decode returns: nothing in *v may
	// share memory with it. The error says what is wrong with the bytes and
	// where in them; the caller adds where they came from.
	Decode(b []byte, v *T) error
	// Encode appends the encoding of *v to dst. After an error it returns dst
	// as it was. The same record is always encoded to the same bytes.
	Encode(dst []byte, v *T) ([]byte, error)
}

// Bytes is the codec of records that stay bytes. It refuses nothing, copies
// what it decodes, and never decodes to nil.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Decode(b []byte, v *[]byte) error {
	*v = append(make([]byte, 0, len(b)), b...)
	return nil
}

func (bytesCodec) Encode(dst []byte, v *[]byte) ([]byte, error) {
	return append(dst, *v...), nil
}

// String is the codec of text. Invalid UTF-8 is an error in both directions:
// it would change silently in the first JSON document or database that it
// reached. Bytes is the codec for what may be anything.
func String() Codec[string] { return stringCodec{} }

type stringCodec struct{}

func (stringCodec) Decode(b []byte, v *string) error {
	if !utf8.Valid(b) {
		return invalidUTF8(string(b))
	}
	*v = string(b)
	return nil
}

func (stringCodec) Encode(dst []byte, v *string) ([]byte, error) {
	if !utf8.ValidString(*v) {
		return dst, invalidUTF8(*v)
	}
	return append(dst, *v...), nil
}

var errUTF8 = errors.New("invalid UTF-8")

func invalidUTF8(s string) error {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("%w at byte %d (%#02x)", errUTF8, i, s[i])
		}
		i += n
	}
	return errUTF8
}
