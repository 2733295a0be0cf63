package codec

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// JSON is the codec of records that are one JSON value each, by the rules of
// encoding/json/v2: names are matched to fields by their case, unknown members
// are ignored, and a missing one leaves its field zero. Invalid UTF-8, a name
// that comes twice in one object and anything behind the value are errors, and
// so is a bare null where T can't be nil: it would pass for an empty record.
//
// The options are those of encoding/json/v2 and jsontext; for example
// json.RejectUnknownMembers(true) or json.MatchCaseInsensitiveNames(true).
// Maps are encoded in the order of their keys, whatever the options.
func JSON[T any](opts ...json.Options) Codec[T] {
	c := jsonCodec[T]{opts: json.JoinOptions(opts...)}
	c.encode = json.JoinOptions(c.opts, json.Deterministic(true), jsontext.Multiline(false))
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		c.null = true
	}
	return c
}

type jsonCodec[T any] struct {
	opts, encode json.Options
	null         bool // T has a nil for JSON's null
}

func (c jsonCodec[T]) Decode(b []byte, v *T) error {
	var zero T
	*v = zero // what was there would be merged with the new value
	if err := json.Unmarshal(b, v, c.opts); err != nil {
		return explain(err)
	}
	if !c.null && jsontext.Value(b).Kind() == 'n' {
		return fmt.Errorf("the JSON value is null, which can't be a record of Go type %v", reflect.TypeFor[T]())
	}
	return nil
}

func (c jsonCodec[T]) Encode(dst []byte, v *T) ([]byte, error) {
	b, err := json.Marshal(v, c.encode)
	if err != nil {
		return dst, fmt.Errorf("encode a record of Go type %v as JSON: %w", reflect.TypeFor[T](), err)
	}
	return append(dst, b...), nil
}

// A decodeError says what is wrong in words that fit behind "line 17: ". The
// JSON package's own message speaks of offsets without saying of what.
type decodeError struct {
	text string
	err  error
}

func (e *decodeError) Error() string { return e.text }
func (e *decodeError) Unwrap() error { return e.err }

func explain(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		where := place(syntax.ByteOffset, syntax.JSONPointer)
		if errors.Is(syntax.Err, io.ErrUnexpectedEOF) || syntax.Err.Error() == io.ErrUnexpectedEOF.Error() {
			return &decodeError{"the JSON value breaks off " + where, err}
		}
		return &decodeError{fmt.Sprintf("not valid JSON: %v %s", syntax.Err, where), err}
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		what := "value"
		if semantic.JSONKind != 0 {
			what = kind(semantic.JSONKind)
		}
		if len(semantic.JSONValue) > 0 && len(semantic.JSONValue) <= 40 {
			what += " " + string(semantic.JSONValue)
		}
		text := fmt.Sprintf("JSON %s %s can't become a Go %v", what, place(semantic.ByteOffset, semantic.JSONPointer), semantic.GoType)
		if semantic.Err != nil {
			text += ": " + semantic.Err.Error()
		}
		return &decodeError{text, err}
	}
	return fmt.Errorf("decode JSON: %w", err)
}

func place(offset int64, at jsontext.Pointer) string {
	if at == "" {
		return fmt.Sprintf("at byte %d", offset)
	}
	return fmt.Sprintf("at byte %d, in %s", offset, at)
}

func kind(k jsontext.Kind) string {
	switch k {
	case '{', '}':
		return "object"
	case '[', ']':
		return "array"
	}
	return k.String()
}
