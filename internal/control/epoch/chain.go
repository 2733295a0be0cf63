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

const (
	// Deltas outweigh their base when a restore would read twice as much as it
	// keeps; the slack leaves small states alone.
	slack = 1024
	// A restore opens as many files as a chain has parts.
	maxParts = 64
)

// chain is a Chain and how many tasks write to it; 0 before the first barrier.
type chain struct {
	Chain
	tasks int
}

// full reports whether the next part of the chain should be a base. Each task
// adds a part of its own at each barrier, so the limit is one for each task.
func (c chain) full() bool {
	return c.Rewrite || c.Entries > 2*c.Live+slack || c.tasks > 0 && c.Parts > maxParts*c.tasks
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
		if m.chains[step].full() {
			full = append(full, step)
		}
	}
	return full
}
