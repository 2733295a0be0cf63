package table

import (
	"errors"
	"fmt"
	"strings"
)

// ErrMigration reports stored state whose types don't fit those of the job:
// the wrapping error names the field and both types.
var ErrMigration = errors.New("stored state doesn't fit the types of this job")

// Migration says whether state that was written with one pair of schemas can be
// loaded by a table with another: nil where Load would accept it, and otherwise
// an error (ErrMigration) that names every field that stands in the way.
//
// Keys must be the same. Fields of values are matched by name: added ones are
// zero, removed ones are dropped, moved ones follow their name. A field with
// another type is refused, and so is a value of which no field is left. A flat
// struct may become a boxed one (a string field was added) as long as its
// fields stay; the reverse is refused.
func Migration(fromKey, toKey, fromValue, toValue string) error {
	if err := keyMigration(fromKey, toKey); err != nil {
		return err
	}
	if fromValue == toValue {
		return nil
	}
	to, err := parseSchema(toValue)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMigration, err)
	}
	_, err = planOf(fromValue, to)
	return err
}

func keyMigration(from, to string) error {
	if from == to {
		return nil
	}
	return fmt.Errorf("%w: keys were %s, are %s: state can't move to other keys; keep the key's type, or give the step a new id", ErrMigration, from, to)
}

// plan is how a stored value becomes one of today's type.
type plan struct {
	flat  bool    // stored as memory
	words int     // of a stored flat value
	bools []int   // offsets in it that must be 0 or 1
	whole bool    // stored flat memory is today's
	moves []piece // otherwise: what to copy
}

// piece is a run of bytes that is copied from a stored flat value.
type piece struct{ from, to, size int }

// planOf decides how values stored with schema from become values of shape to,
// which has another schema.
func planOf(from string, to *shape) (plan, error) {
	old, err := parseSchema(from)
	if err != nil {
		return plan{}, fmt.Errorf("%w: %w", ErrMigration, err)
	}
	wasFlat, isFlat := old.flat && old.size <= maxFlat, to.flat && to.size <= maxFlat
	p := plan{flat: wasFlat}
	m := &match{boxed: !wasFlat, grows: wasFlat && !isFlat}
	if wasFlat {
		p.words = (old.size + 7) / 8
		p.bools = boolsIn(old, 0, nil)
	}
	switch {
	case !wasFlat && isFlat:
		m.refuse("values were encoded (%s), are plain memory now (%s): that isn't converted; keep a string, slice, map or pointer field in the type", old, to)
	default:
		m.shapes("", old, to, 0, 0)
	}
	if len(m.problems) > 0 {
		return plan{}, fmt.Errorf("%w: %s", ErrMigration, strings.Join(m.problems, "; "))
	}
	p.moves = m.moves
	return p, nil
}

// match walks an old and a new shape together.
type match struct {
	boxed    bool // the old value is encoded: names are those it is stored under
	grows    bool // flat becomes boxed
	moves    []piece
	problems []string
}

func (m *match) refuse(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

func (m *match) shapes(path string, old, now *shape, from, to int) {
	// When a flat value grows, only numbers are surely laid out alike.
	if (!m.grows || old.form == basic) && old.String() == now.String() {
		m.move(from, to, old.size)
		return
	}
	if old.form != now.form {
		m.retyped(path, old, now)
		return
	}
	switch old.form {
	case record:
		m.records(path, old, now, from, to)
	case array:
		if old.n != now.n {
			m.retyped(path, old, now)
			return
		}
		for i := range old.n {
			m.shapes(fmt.Sprintf("%s[%d]", path, i), old.elem, now.elem, from+i*old.elem.size, to+i*now.elem.size)
			if m.boxed || len(m.problems) > 0 {
				break // all elements alike
			}
		}
	case slice, pointer:
		m.shapes(path+"[]", old.elem, now.elem, 0, 0)
	case mapping:
		if old.key.String() != now.key.String() {
			m.retyped(path, old, now)
			return
		}
		m.shapes(path+"[]", old.elem, now.elem, 0, 0)
	default:
		m.retyped(path, old, now)
	}
}

// move copies a part of an old flat value. Neighbours become one piece.
func (m *match) move(from, to, size int) {
	if m.boxed || size == 0 {
		return
	}
	if n := len(m.moves); n > 0 {
		if p := &m.moves[n-1]; p.from+p.size == from && p.to+p.size == to {
			p.size += size
			return
		}
	}
	m.moves = append(m.moves, piece{from, to, size})
}

func (m *match) retyped(path string, old, now *shape) {
	if path == "" {
		m.refuse("values were %s, are %s", old, now)
		return
	}
	m.refuse("field %s was %s, is %s", path, old, now)
}

func (m *match) records(path string, old, now *shape, from, to int) {
	kept := 0
	byName := map[string]field{}
	byStored := map[string]field{}
	for _, f := range now.fields {
		if f.name == "_" {
			continue
		}
		if _, twice := byName[f.name]; twice && m.grows {
			m.refuse("there are two fields %s now", join(path, f.name))
		}
		byName[f.name], byStored[f.stored()] = f, f
	}
	for _, f := range old.fields {
		if f.name == "_" {
			continue
		}
		g, ok := byName[f.name]
		if m.boxed {
			if s, found := byStored[f.stored()]; found {
				g = s
			} else if ok {
				m.refuse("field %s was stored as %q, is stored as %q: its values would be lost; keep the tag", join(path, f.name), f.stored(), g.stored())
				continue
			}
		}
		switch {
		case g.shape != nil:
			kept++
			m.shapes(join(path, f.name), f.shape, g.shape, from+f.off, to+g.off)
		case m.grows:
			m.refuse("field %s %s is gone, in the same step in which the value got parts that need encoding: keep it for one checkpoint", join(path, f.name), f.shape)
		}
	}
	if kept == 0 && len(old.fields) > 0 && len(now.fields) > 0 && len(m.problems) == 0 {
		m.refuse("%snone of the stored fields is left: stored %s, now %s", at(path), old, now)
	}
}
