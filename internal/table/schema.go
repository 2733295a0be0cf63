package table

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// form is what a shape is made of.
type form uint8

const (
	basic   form = iota // bool, numbers: name says which
	text                // string
	leaf                // a type that encodes itself: name is its path
	array               // n times elem
	slice               // of elem
	pointer             // to elem
	mapping             // from key to elem
	record              // fields
)

// shape is a type as far as stored state is concerned: forms and field names,
// named types by what underlies them. Its text form is the schema. A shape
// comes from a Go type or from a schema; for flat shapes both give the same
// offsets, which are those of Go on a 64-bit machine.
type shape struct {
	form   form
	name   string
	elem   *shape
	key    *shape
	n      int
	fields []field

	flat        bool // no pointers in it: can be copied as memory
	size, align int  // bytes in memory; not known of boxed shapes from a schema
}

// field is one field of a record. wire is the name it is encoded under where
// that isn't its Go name (a cbor or json tag), and empty otherwise.
type field struct {
	name, wire string
	shape      *shape
	off        int // bytes from the record's start
}

// stored is the name that a field is encoded under.
func (f field) stored() string {
	if f.wire != "" {
		return f.wire
	}
	return f.name
}

// basics gives size and alignment of what a schema names by one word. int and
// uint are written as int64 and uint64: they are the same bytes.
var basics = map[string]int{
	"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
	"float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}

func basicShape(name string) *shape {
	size := basics[name]
	align := min(size, 8)
	if name == "complex64" {
		align = 4
	}
	return &shape{form: basic, name: name, flat: true, size: size, align: align}
}

// maxShape bounds what a schema may describe, so that one from a damaged
// manifest can't overflow a size.
const maxShape = math.MaxInt32

func arrayShape(n int, elem *shape) (*shape, error) {
	s := &shape{form: array, n: n, elem: elem, flat: elem.flat, align: elem.align}
	if n < 0 || n > maxShape || n > 0 && elem.size > maxShape/n {
		return nil, fmt.Errorf("array of %d elements is too large", n)
	}
	s.size = n * elem.size
	return s, nil
}

// recordShape lays the fields out as Go does: each aligned, the whole a
// multiple of the largest alignment, and a byte more behind a last field of no
// size, so that a pointer to it stays inside.
func recordShape(fields []field) (*shape, error) {
	s := &shape{form: record, fields: fields, flat: true, align: 1}
	for i := range fields {
		f := &fields[i]
		if !f.shape.flat {
			s.flat = false
		}
		if !s.flat {
			continue
		}
		s.align = max(s.align, f.shape.align)
		f.off = alignUp(s.size, f.shape.align)
		s.size = f.off + f.shape.size
		if i == len(fields)-1 && f.shape.size == 0 && s.size > 0 {
			s.size++
		}
		if s.size > maxShape {
			return nil, fmt.Errorf("struct of more than %d bytes", maxShape)
		}
	}
	s.size = alignUp(s.size, s.align)
	if !s.flat {
		s.size = 0
	}
	return s, nil
}

func alignUp(n, align int) int {
	if align <= 1 {
		return n
	}
	return (n + align - 1) &^ (align - 1)
}

// String is the schema: canonical, so that equal schemas mean equal shapes.
func (s *shape) String() string {
	var b strings.Builder
	s.print(&b)
	return b.String()
}

func (s *shape) print(b *strings.Builder) {
	switch s.form {
	case basic:
		b.WriteString(s.name)
	case text:
		b.WriteString("string")
	case leaf:
		if s.name == timeName {
			b.WriteString(s.name)
		} else {
			b.WriteString(strconv.Quote(s.name))
		}
	case array:
		fmt.Fprintf(b, "[%d]", s.n)
		s.elem.print(b)
	case slice:
		b.WriteString("[]")
		s.elem.print(b)
	case pointer:
		b.WriteByte('*')
		s.elem.print(b)
	case mapping:
		b.WriteString("map[")
		s.key.print(b)
		b.WriteByte(']')
		s.elem.print(b)
	case record:
		b.WriteString("struct{")
		for i, f := range s.fields {
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(f.name)
			if f.wire != "" {
				b.WriteByte(' ')
				b.WriteString(strconv.Quote(f.wire))
			}
			b.WriteByte(' ')
			f.shape.print(b)
		}
		b.WriteByte('}')
	}
}

const (
	timeName = "time.Time"
	maxDepth = 100     // of nested types
	maxText  = 1 << 20 // bytes of a schema
)

// parseSchema reads what String wrote.
func parseSchema(schema string) (*shape, error) {
	p := &parser{rest: schema}
	if len(schema) > maxText {
		return nil, fmt.Errorf("schema of %d bytes: at most %d are expected", len(schema), maxText)
	}
	s, err := p.shape(0)
	if err == nil && p.rest != "" {
		err = fmt.Errorf("%q is left over", p.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("schema %q: %w", schema, err)
	}
	return s, nil
}

type parser struct{ rest string }

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *parser) need(prefix string) error {
	if !p.take(prefix) {
		return fmt.Errorf("found %.20q where %q was expected", p.rest, prefix)
	}
	return nil
}

func (p *parser) word() string {
	n := strings.IndexAny(p.rest, " ;{}[]*\"")
	if n < 0 {
		n = len(p.rest)
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func (p *parser) quoted() (string, error) {
	q, err := strconv.QuotedPrefix(p.rest)
	if err != nil {
		return "", fmt.Errorf("found %.20q where a quoted name was expected", p.rest)
	}
	p.rest = p.rest[len(q):]
	return strconv.Unquote(q)
}

func (p *parser) shape(depth int) (*shape, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("types are nested more than %d deep", maxDepth)
	}
	switch {
	case p.take("struct{"):
		return p.record(depth)
	case p.take("map["):
		key, err := p.shape(depth + 1)
		if err != nil {
			return nil, err
		}
		if err := p.need("]"); err != nil {
			return nil, err
		}
		elem, err := p.shape(depth + 1)
		return &shape{form: mapping, key: key, elem: elem}, err
	case p.take("[]"):
		elem, err := p.shape(depth + 1)
		return &shape{form: slice, elem: elem}, err
	case p.take("*"):
		elem, err := p.shape(depth + 1)
		return &shape{form: pointer, elem: elem}, err
	case p.take("["):
		n, err := strconv.Atoi(p.word())
		if err != nil {
			return nil, fmt.Errorf("array length: %w", err)
		}
		if err := p.need("]"); err != nil {
			return nil, err
		}
		elem, err := p.shape(depth + 1)
		if err != nil {
			return nil, err
		}
		return arrayShape(n, elem)
	case strings.HasPrefix(p.rest, `"`):
		name, err := p.quoted()
		return &shape{form: leaf, name: name}, err
	}
	switch w := p.word(); {
	case w == "string":
		return &shape{form: text}, nil
	case w == timeName:
		return &shape{form: leaf, name: w}, nil
	case basics[w] > 0:
		return basicShape(w), nil
	default:
		return nil, fmt.Errorf("%q isn't a type", w)
	}
}

// record reads fields up to the closing brace.
func (p *parser) record(depth int) (*shape, error) {
	var fields []field
	for !p.take("}") {
		if len(fields) > 0 {
			if err := p.need("; "); err != nil {
				return nil, err
			}
		}
		f := field{name: p.word()}
		err := p.need(" ")
		if err == nil && f.name == "" {
			err = fmt.Errorf("a field has no name")
		}
		// A quoted word in front of a type is the stored name; without a type
		// behind it, it is the type.
		if err == nil && strings.HasPrefix(p.rest, `"`) {
			var q string
			if q, err = p.quoted(); err == nil && !p.take(" ") {
				f.shape = &shape{form: leaf, name: q}
			}
			if f.shape == nil {
				f.wire = q
			}
		}
		if err == nil && f.shape == nil {
			f.shape, err = p.shape(depth + 1)
		}
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return recordShape(fields)
}
