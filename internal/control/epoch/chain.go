package epoch

import (
	"fmt"
	"maps"
	"slices"
)

// Chain is what the checkpoints hold of one step: a base and its deltas.
type Chain struct {
	Step    string
	Entries int64 // stored in it, deletes and overwritten ones included
	Live    int64 // entries that the step has
	Parts   int   // sections
	// Rewrite asks for a new base whatever the sizes: the step's schema has
	// changed since the chain was written.
	Rewrite bool
}

// Limits say when a chain is too long.
type Limits struct {
	// Deltas outweigh their base when a restore would read twice as much as it
	// keeps; the slack, in entries, leaves small states alone.
	Slack int64
	// A restore opens as many files as a chain has parts. Each task adds one at
	// each barrier, so this limit is one for each task.
	Parts int
	// MergeAbove is how many live entries a step has whose chain is merged in the
	// background. Fewer are saved anew at a barrier: that is quicker than reading
	// them back, and a pause that nobody notices.
	MergeAbove int64
}

// DefaultLimits are what every job runs with.
func DefaultLimits() Limits { return Limits{Slack: 1024, Parts: 64, MergeAbove: 1 << 16} }

// A chain this many times over the limits grows faster than it is merged.
const overdue = 3

// chain is a Chain and how many tasks write to it; 0 before the first barrier.
type chain struct {
	Chain
	tasks int
}

// long reports whether deltas outweigh the base of c, by the given factor.
func (l Limits) long(c chain, factor int64) bool {
	return c.Entries > factor*(2*c.Live+l.Slack) || c.tasks > 0 && c.Parts > int(factor)*l.Parts*c.tasks
}

// full reports whether the next part of the chain should be a base.
func (l Limits) full(c chain) bool {
	return c.Rewrite || c.Live <= l.MergeAbove && l.long(c, 1) || l.long(c, overdue)
}

// merge reports whether the chain should be merged in the background.
func (l Limits) merge(c chain) bool {
	return !c.Rewrite && c.Live > l.MergeAbove && l.long(c, 1)
}

// saved is what the tasks saved of one step at one barrier.
type saved struct {
	full          bool
	entries, live int64
	parts, tasks  int
}

// add counts one task's part. A base of some tasks and deltas of others can't
// be told apart afterwards, so they aren't mixed.
func (o *open) add(s Saved) error {
	have, ok := o.saved[s.Step]
	switch {
	case !s.Full && slices.Contains(o.full, s.Step):
		return fmt.Errorf("step %s saved only what changed, but was asked to save everything", s.Step)
	case ok && have.full != s.Full:
		return fmt.Errorf("step %s saved everything in some tasks and only what changed in others", s.Step)
	}
	have.full = s.Full
	have.tasks++
	have.live += s.Live
	if s.Entries > 0 {
		have.entries += s.Entries
		have.parts++
	}
	o.saved[s.Step] = have
	return nil
}

// extend adds a committed epoch to the chains.
func (m *Machine) extend(o *open) {
	for step, s := range o.saved {
		c := m.chains[step]
		if s.full {
			c = chain{Chain: Chain{Step: step}}
		}
		c.Entries += s.entries
		c.Parts += s.parts
		c.Live, c.tasks = s.live, s.tasks
		m.chains[step] = c
	}
}

// bases names the steps that save everything at the next barrier.
func (m *Machine) bases() []string {
	var full []string
	for _, step := range slices.Sorted(maps.Keys(m.chains)) {
		if m.limits.full(m.chains[step]) {
			full = append(full, step)
		}
	}
	return full
}

// merges names the step whose chain is to be merged next, while none is.
func (m *Machine) merges() []Decision {
	if m.merging != "" || m.done {
		return nil
	}
	for _, step := range slices.Sorted(maps.Keys(m.chains)) {
		if m.limits.merge(m.chains[step]) {
			m.merging = step
			return []Decision{Merge{step}}
		}
	}
	return nil
}

// merged takes a merge into account, unless a new base has made it pointless.
func (m *Machine) merged(e Merged) error {
	if e.Step != m.merging {
		return fmt.Errorf("step %s was merged without being asked to", e.Step)
	}
	m.merging = ""
	if c := m.chains[e.Step]; c.Parts >= e.Parts && c.Entries >= e.Entries {
		c.Parts += e.Into - e.Parts
		c.Entries += e.Holds - e.Entries
		m.chains[e.Step] = c
	}
	return nil
}
