package kafkalab

import (
	"errors"
	"fmt"
	"strconv"
)

// kcat prints a record as a JSON object on a line. Keys, values and headers
// are there byte for byte, as strings in which only quotes, backslashes and
// control characters are escaped: what isn't UTF-8 stays what it is. A JSON
// library would refuse or replace those bytes, so the few forms that kcat
// prints are read here.

var (
	errBroken = errors.New("the line breaks off")
	errForm   = errors.New("not a form that kcat prints")
)

// An envelope is what remains to be read of a line.
type envelope struct{ rest []byte }

// parseRecord reads one line. The record shares no memory with it.
func parseRecord(line []byte) (*Record, error) {
	e, r := &envelope{line}, &Record{Offset: -1, Partition: -1}
	if err := e.expect('{'); err != nil {
		return nil, err
	}
	for {
		name, err := e.text()
		if err != nil {
			return nil, err
		}
		if err := e.expect(':'); err != nil {
			return nil, err
		}
		if err := e.field(r, string(name)); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		if e.next(',') {
			continue
		}
		if err := e.expect('}'); err != nil {
			return nil, err
		}
		if len(e.rest) > 0 || r.Topic == "" || r.Offset < 0 || r.Partition < 0 {
			return nil, errForm
		}
		return r, nil
	}
}

// field reads the value of one field into r.
func (e *envelope) field(r *Record, name string) (err error) {
	var text []byte
	var n int64
	switch name {
	case "topic":
		text, err = e.text()
		r.Topic = string(text)
	case "partition":
		n, err = e.number()
		r.Partition = int32(n)
	case "offset":
		r.Offset, err = e.number()
	case "ts":
		r.Time, err = e.number()
	case "key":
		r.Key, err = e.text()
	case "payload":
		r.Value, err = e.text()
	case "headers":
		r.Headers, err = e.headers()
	case "broker":
		_, err = e.number()
	case "tstype":
		_, err = e.text()
	default:
		return errForm // a field that says that something was left out, or went wrong
	}
	return err
}

// headers reads names and values in turn.
func (e *envelope) headers() ([]Header, error) {
	if err := e.expect('['); err != nil {
		return nil, err
	}
	var all []Header
	for {
		name, err := e.text()
		if err != nil {
			return nil, err
		}
		if err := e.expect(','); err != nil {
			return nil, err
		}
		value, err := e.text()
		if err != nil {
			return nil, err
		}
		all = append(all, Header{string(name), value})
		if e.next(',') {
			continue
		}
		return all, e.expect(']')
	}
}

func (e *envelope) next(c byte) bool {
	if len(e.rest) == 0 || e.rest[0] != c {
		return false
	}
	e.rest = e.rest[1:]
	return true
}

func (e *envelope) expect(c byte) error {
	switch {
	case e.next(c):
		return nil
	case len(e.rest) == 0:
		return errBroken
	}
	return fmt.Errorf("%w: %q where %q belongs", errForm, e.rest[0], c)
}

func (e *envelope) number() (int64, error) {
	n := 0
	for n < len(e.rest) && (e.rest[n] == '-' || e.rest[n] >= '0' && e.rest[n] <= '9') {
		n++
	}
	v, err := strconv.ParseInt(string(e.rest[:n]), 10, 64)
	e.rest = e.rest[n:]
	return v, err
}

// text reads a string, or null as nil.
func (e *envelope) text() ([]byte, error) {
	if len(e.rest) >= 4 && string(e.rest[:4]) == "null" {
		e.rest = e.rest[4:]
		return nil, nil
	}
	if err := e.expect('"'); err != nil {
		return nil, err
	}
	out := []byte{}
	for i := 0; i < len(e.rest); i++ {
		switch c := e.rest[i]; c {
		case '"':
			out = append(out, e.rest[:i]...)
			e.rest = e.rest[i+1:]
			return out, nil
		case '\\':
			out = append(out, e.rest[:i]...)
			e.rest = e.rest[i+1:]
			b, err := e.escaped()
			if err != nil {
				return nil, err
			}
			out = append(out, b)
			i = -1
		}
	}
	return nil, errBroken
}

// escaped reads what stands behind a backslash.
func (e *envelope) escaped() (byte, error) {
	if len(e.rest) == 0 {
		return 0, errBroken
	}
	c := e.rest[0]
	e.rest = e.rest[1:]
	switch c {
	case '"', '\\', '/':
		return c, nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		if len(e.rest) < 4 {
			return 0, errBroken
		}
		v, err := strconv.ParseUint(string(e.rest[:4]), 16, 8) // control characters alone
		e.rest = e.rest[4:]
		return byte(v), err
	}
	return 0, fmt.Errorf("%w: \\%c", errForm, c)
}
