package store

import (
	"bytes"
	"encoding/json/jsontext"
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// A Change is one key's state that two checkpoints hold differently. A value that
// only one of them has is nil on the other side.
type Change struct {
	Step     string
	Window   time.Time // its start; zero: the step has none
	Key      jsontext.Value
	Old, New jsontext.Value
}

// SplitChange is one split as two checkpoints hold it; nil where one doesn't.
type SplitChange struct {
	Source, Split string
	Old, New      *data.SplitState
}

// Splits returns the splits that two checkpoints hold differently.
func Splits(a, b Checkpoint) []SplitChange {
	type name struct{ source, split string }
	all := map[name]*SplitChange{}
	var order []name
	add := func(s *data.SplitState, old bool) {
		n := name{s.Source, s.Split}
		if all[n] == nil {
			all[n] = &SplitChange{Source: s.Source, Split: s.Split}
			order = append(order, n)
		}
		if old {
			all[n].Old = s
		} else {
			all[n].New = s
		}
	}
	for i := range a.Splits {
		add(&a.Splits[i], true)
	}
	for i := range b.Splits {
		add(&b.Splits[i], false)
	}
	var out []SplitChange
	for _, n := range order {
		c := all[n]
		if c.Old == nil || c.New == nil || !same(*c.Old, *c.New) {
			out = append(out, *c)
		}
	}
	return out
}

func same(a, b data.SplitState) bool {
	return bytes.Equal(a.Position, b.Position) && a.Watermark == b.Watermark && a.Records == b.Records && a.Late == b.Late && a.Ended == b.Ended
}

// Steps returns the ids of all steps of two checkpoints.
func Steps(a, b Checkpoint) []string {
	var ids []string
	for _, c := range []Checkpoint{a, b} {
		for _, st := range c.Manifest.Steps {
			if !slices.Contains(ids, st.ID) {
				ids = append(ids, st.ID)
			}
		}
	}
	return ids
}

// Diff calls do for every key of a step whose state differs between two
// checkpoints, in the order that State.Each has.
func (s *Store) Diff(a, b Checkpoint, step string, do func(Change) error) error {
	find := func(c Checkpoint) (*State, error) {
		if !slices.ContainsFunc(c.Manifest.Steps, func(st log.Step) bool { return st.ID == step }) {
			return nil, nil
		}
		return s.State(c, step)
	}
	if !slices.Contains(Steps(a, b), step) {
		return unknown("neither checkpoint %d nor %d holds state of step %q, only of %q", a.ID.Slot, b.ID.Slot, step, Steps(a, b))
	}
	old, err := find(a)
	if err != nil {
		return err
	}
	now, err := find(b)
	if err != nil {
		return err
	}
	if old != nil && now != nil && slices.Equal(old.Step.Parts, now.Step.Parts) && slices.Equal(old.Step.Clocks, now.Step.Clocks) {
		return nil
	}
	d := differ{old: old, now: now, do: do, step: step}
	for _, tag := range d.tags() {
		for _, g := range d.groups(tag) {
			if err := d.group(tag, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// differ compares two states of a step; either may be nil.
type differ struct {
	step     string
	old, now *State
	do       func(Change) error
}

func (d *differ) tags() []int64 {
	all := map[int64]bool{}
	for _, st := range []*State{d.old, d.now} {
		if st == nil {
			continue
		}
		for _, tag := range st.tags() {
			all[tag] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (d *differ) groups(tag int64) []int {
	var all []*table.Stored
	for _, st := range []*State{d.old, d.now} {
		if st == nil {
			continue
		}
		all = append(all, st.tables[tag]...)
		if st.Op == plan.Distinct {
			all = append(all, st.tables[data.OlderTimes]...)
		}
	}
	return table.Groups(all)
}

// group compares two sorted lists.
func (d *differ) group(tag int64, group int) error {
	var old, now []pair
	var err error
	if d.old != nil {
		if old, err = d.old.group(tag, group); err != nil {
			return err
		}
	}
	if d.now != nil {
		if now, err = d.now.group(tag, group); err != nil {
			return err
		}
	}
	for len(old) > 0 || len(now) > 0 {
		order := -1 // of the next old key against the next new one
		switch {
		case len(old) == 0:
			order = 1
		case len(now) > 0:
			order = bytes.Compare(old[0].Key, now[0].Key)
		}
		var was, is *pair
		if order <= 0 {
			was, old = &old[0], old[1:]
		}
		if order >= 0 {
			is, now = &now[0], now[1:]
		}
		if err := d.tell(tag, was, is); err != nil {
			return err
		}
	}
	return nil
}

// tell tells of a key, unless both have it alike: as JSON, where it was stored
// with another schema.
func (d *differ) tell(tag int64, was, is *pair) error {
	if was != nil && is != nil && d.old.Step.Value == d.now.Step.Value && bytes.Equal(was.Value, is.Value) && bytes.Equal(was.older, is.older) {
		return nil
	}
	c := Change{Step: d.step}
	for _, side := range []struct {
		st *State
		p  *pair
		to *jsontext.Value
	}{{d.old, was, &c.Old}, {d.now, is, &c.New}} {
		if side.p == nil {
			continue
		}
		e, err := side.st.entry(tag, *side.p)
		if err != nil {
			return err
		}
		c.Key, c.Window, *side.to = e.Key, e.Window, e.Value
	}
	if bytes.Equal(c.Old, c.New) {
		return nil
	}
	return d.do(c)
}
