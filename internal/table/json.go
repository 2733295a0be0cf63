package table

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json/jsontext"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// A Form turns stored keys and values into JSON by their schemas alone, without
// the Go types that they were written from. What it gives is what encoding/json
// would, with these differences: names are those that state is stored under;
// fields of plain memory are all there, exported or not; a text that isn't
// UTF-8, and the bytes of a type that encodes itself, are {"base64": "..."}
// where they aren't readable; NaN and infinities are strings; a map with other
// keys than texts, whole numbers and times is a list of {"key": k, "value": v}.
type Form struct {
	key, value *shape
	keyForm    keyForm
	boxed      bool
}

// FormOf reads the schemas of a step's keys and values.
func FormOf(key, value string) (*Form, error) {
	k, err := parseSchema(key)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	v, err := parseSchema(value)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return &Form{key: k, value: v, keyForm: formOfKey(k), boxed: !v.flat || v.size > maxFlat}, nil
}

// formOfKey is how KeyOf keeps keys of a shape.
func formOfKey(s *shape) keyForm {
	strings, blanks := false, false
	var walk func(s *shape)
	walk = func(s *shape) {
		switch s.form {
		case text:
			strings = true
		case array:
			walk(s.elem)
		case record:
			for _, f := range s.fields {
				blanks = blanks || f.name == "_"
				walk(f.shape)
			}
		}
	}
	walk(s)
	switch {
	case s.form == text:
		return keyString
	case !strings && !blanks && s.size <= maxFixed:
		return keyFixed
	}
	return keyComposite
}

// AppendKey appends the JSON of a key as it is stored, without its length.
func (f *Form) AppendKey(to, key []byte) ([]byte, error) {
	switch f.keyForm {
	case keyString:
		return appendText(to, key), nil
	case keyFixed:
		if len(key) != f.key.size {
			return to, corrupt("a key of %d bytes isn't a %s", len(key), f.key)
		}
		return appendMemory(to, f.key, key)
	}
	to, rest, err := appendParts(to, f.key, key)
	if err == nil && len(rest) > 0 {
		err = corrupt("a key of %d bytes isn't a %s", len(key), f.key)
	}
	return to, err
}

// AppendValue appends the JSON of a value as it is stored, without its length.
func (f *Form) AppendValue(to, value []byte) ([]byte, error) {
	if f.boxed {
		return appendBoxed(to, f.value, value)
	}
	if len(value) != (f.value.size+7)/8*8 {
		return to, corrupt("a value of %d bytes isn't a %s", len(value), f.value)
	}
	return appendMemory(to, f.value, value)
}

// appendMemory appends the JSON of a shape without pointers.
func appendMemory(to []byte, s *shape, b []byte) ([]byte, error) {
	switch s.form {
	case basic:
		return appendBasic(to, s.name, b)
	case array:
		return appendList(to, s.n, func(to []byte, i int) ([]byte, error) {
			return appendMemory(to, s.elem, b[i*s.elem.size:])
		})
	case record:
		return appendRecord(to, s, func(to []byte, f field) ([]byte, error) {
			return appendMemory(to, f.shape, b[f.off:])
		})
	}
	return to, corrupt("a %s isn't plain memory", s)
}

// appendParts appends the JSON of a key that is stored part by part, and
// returns what follows it.
func appendParts(to []byte, s *shape, b []byte) (_, rest []byte, err error) {
	switch s.form {
	case basic:
		if len(b) < s.size {
			return to, b, corrupt("a key ends within a %s", s.name)
		}
		to, err = appendBasic(to, s.name, b)
		return to, b[s.size:], err
	case text:
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return to, b, corrupt("a key ends within a text")
		}
		n := binary.LittleEndian.Uint32(b)
		return appendText(to, b[4:4+n]), b[4+n:], nil
	case array:
		to, err = appendList(to, s.n, func(to []byte, _ int) (_ []byte, err error) {
			to, b, err = appendParts(to, s.elem, b)
			return to, err
		})
		return to, b, err
	case record:
		to, err = appendRecord(to, s, func(to []byte, f field) (_ []byte, err error) {
			to, b, err = appendParts(to, f.shape, b)
			return to, err
		})
		return to, b, err
	}
	return to, b, corrupt("a %s can't be part of a key", s)
}

func appendList(to []byte, n int, elem func(to []byte, i int) ([]byte, error)) ([]byte, error) {
	to = append(to, '[')
	for i := range n {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = elem(to, i); err != nil {
			return to, err
		}
	}
	return append(to, ']'), nil
}

// appendRecord appends an object with the record's fields but blank ones, in
// their order. A field for which nothing is appended is left out.
func appendRecord(to []byte, s *shape, value func(to []byte, f field) ([]byte, error)) ([]byte, error) {
	to = append(to, '{')
	first := true
	for _, f := range s.fields {
		if f.name == "_" {
			continue
		}
		before := len(to)
		if !first {
			to = append(to, ',')
		}
		to = append(appendText(to, []byte(f.stored())), ':')
		n := len(to)
		var err error
		if to, err = value(to, f); err != nil {
			return to, err
		}
		if len(to) == n {
			to = to[:before]
			continue
		}
		first = false
	}
	return append(to, '}'), nil
}

// appendBasic appends the JSON of a number or bool at the start of b.
func appendBasic(to []byte, name string, b []byte) ([]byte, error) {
	le := binary.LittleEndian
	switch name {
	case "bool":
		if b[0] > 1 {
			return to, corrupt("a bool holds %d", b[0])
		}
		return strconv.AppendBool(to, b[0] == 1), nil
	case "int8":
		return strconv.AppendInt(to, int64(int8(b[0])), 10), nil
	case "uint8":
		return strconv.AppendUint(to, uint64(b[0]), 10), nil
	case "int16":
		return strconv.AppendInt(to, int64(int16(le.Uint16(b))), 10), nil
	case "uint16":
		return strconv.AppendUint(to, uint64(le.Uint16(b)), 10), nil
	case "int32":
		return strconv.AppendInt(to, int64(int32(le.Uint32(b))), 10), nil
	case "uint32":
		return strconv.AppendUint(to, uint64(le.Uint32(b)), 10), nil
	case "int64":
		return strconv.AppendInt(to, int64(le.Uint64(b)), 10), nil
	case "uint64":
		return strconv.AppendUint(to, le.Uint64(b), 10), nil
	case "float32":
		return appendFloat(to, float64(math.Float32frombits(le.Uint32(b))), 32), nil
	case "float64":
		return appendFloat(to, math.Float64frombits(le.Uint64(b)), 64), nil
	case "complex64":
		return appendComplex(to, float64(math.Float32frombits(le.Uint32(b))), float64(math.Float32frombits(le.Uint32(b[4:]))), 32), nil
	case "complex128":
		return appendComplex(to, math.Float64frombits(le.Uint64(b)), math.Float64frombits(le.Uint64(b[8:])), 64), nil
	}
	return to, corrupt("a %s isn't a number", name)
}

// appendFloat writes a float as encoding/json does: shortest, with an exponent
// where it is far from one.
func appendFloat(to []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(to, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(to, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(to, `"-Infinity"`...)
	}
	format, size := byte('f'), math.Abs(f)
	if size != 0 && (bits == 64 && (size < 1e-6 || size >= 1e21) || bits == 32 && (float32(size) < 1e-6 || float32(size) >= 1e21)) {
		format = 'e'
	}
	to = strconv.AppendFloat(to, f, format, -1, bits)
	if n := len(to); format == 'e' && n >= 4 && to[n-4] == 'e' && to[n-3] == '-' && to[n-2] == '0' {
		to[n-2] = to[n-1] // e-09 is e-9
		to = to[:n-1]
	}
	return to
}

func appendComplex(to []byte, re, im float64, bits int) []byte {
	to = appendFloat(append(to, `{"real":`...), re, bits)
	to = appendFloat(append(to, `,"imag":`...), im, bits)
	return append(to, '}')
}

// appendText appends a text as a JSON string, or its bytes where it isn't UTF-8:
// a replacement character would make two keys look like one.
func appendText(to, s []byte) []byte {
	if !utf8.Valid(s) {
		return appendBytes(to, s)
	}
	to, _ = jsontext.AppendQuote(to, s) // fails for invalid UTF-8 alone
	return to
}

const bytesHead = `{"base64":"`

func appendBytes(to, b []byte) []byte {
	to = base64.StdEncoding.AppendEncode(append(to, bytesHead...), b)
	return append(to, `"}`...)
}
