package table

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// ParseKey reads a key as a person writes it: JSON, as AppendKey gives it, and
// a text also as it is. It returns every stored key that this can mean, the most
// likely first: a text in quotes may be meant with or without them.
func (f *Form) ParseKey(s string) ([][]byte, error) {
	v, err := parseJSON(s)
	if f.keyForm == keyString {
		all := [][]byte{[]byte(s)}
		if t, ok := textOf(v); err == nil && ok && t != s {
			all = append(all, []byte(t))
		}
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("key %q isn't JSON, as keys of type %s are written: %w", s, f.key, err)
	}
	b, err := appendJSONKey(nil, f.key, v, "")
	if err != nil {
		return nil, fmt.Errorf("key %s doesn't fit type %s: %w", s, f.key, err)
	}
	return [][]byte{b}, nil
}

// GroupOf is the key group of a stored key, of so many groups.
func GroupOf(key []byte, groups int) int { return Group(xxh3.Hash(key), groups) }

func parseJSON(s string) (any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows it")
	}
	return v, nil
}

// textOf is the text that a JSON value stands for: a string, or its bytes.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case map[string]any:
		s, ok := v["base64"].(string)
		b, err := base64.StdEncoding.DecodeString(s)
		return string(b), ok && err == nil && len(v) == 1
	}
	return "", false
}

// appendJSONKey appends the stored form of v. Keys have no padding, so their
// memory is their parts in order, too.
func appendJSONKey(to []byte, s *shape, v any, path string) ([]byte, error) {
	switch s.form {
	case basic:
		return appendJSONNumber(to, s, v, path)
	case text:
		t, ok := textOf(v)
		if !ok {
			return to, fmt.Errorf("%s%v isn't a text", at(path), v)
		}
		return append(binary.LittleEndian.AppendUint32(to, uint32(len(t))), t...), nil
	case array:
		list, ok := v.([]any)
		if !ok || len(list) != s.n {
			return to, fmt.Errorf("%s%v isn't a list of %d", at(path), v, s.n)
		}
		var err error
		for i, e := range list {
			if to, err = appendJSONKey(to, s.elem, e, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return to, err
			}
		}
		return to, nil
	case record:
		return appendJSONRecord(to, s, v, path)
	}
	return to, fmt.Errorf("%sa %s can't be part of a key", at(path), s)
}

func appendJSONRecord(to []byte, s *shape, v any, path string) ([]byte, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return to, fmt.Errorf("%s%v isn't an object", at(path), v)
	}
	known := map[string]bool{}
	var err error
	for _, f := range s.fields {
		if f.name == "_" {
			continue
		}
		known[f.name] = true
		e, ok := object[f.name]
		if !ok {
			return to, fmt.Errorf("field %s is missing", join(path, f.name))
		}
		if to, err = appendJSONKey(to, f.shape, e, join(path, f.name)); err != nil {
			return to, err
		}
	}
	for name := range object {
		if !known[name] {
			return to, fmt.Errorf("there is no field %s", join(path, name))
		}
	}
	return to, nil
}

func appendJSONNumber(to []byte, s *shape, v any, path string) ([]byte, error) {
	if b, ok := v.(bool); ok && s.name == "bool" {
		if b {
			return append(to, 1), nil
		}
		return append(to, 0), nil
	}
	n, ok := v.(json.Number)
	if !ok || s.name == "bool" {
		return to, fmt.Errorf("%s%v isn't a %s", at(path), v, s)
	}
	var word uint64
	var err error
	if strings.HasPrefix(s.name, "u") {
		word, err = strconv.ParseUint(n.String(), 10, 8*s.size)
	} else {
		var i int64
		i, err = strconv.ParseInt(n.String(), 10, 8*s.size)
		word = uint64(i)
	}
	if err != nil {
		return to, fmt.Errorf("%s%v isn't a %s: %w", at(path), v, s, errors.Unwrap(err))
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], word)
	return append(to, b[:s.size]...), nil
}
