package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/plan"
)

// changes is how a job as declared stands to the one that wrote the store.
type changes struct {
	added    []string // steps and sources that start with nothing
	migrated []string // steps whose schema has changed, in a way that loads
	refused  []string // one sentence each: step, old, new, and what to do

	dropped  []string          // steps whose state is given up, as was asked for
	renamed  map[string]string // steps, sources and sinks by their new id: the old one
	newSinks []string          // they get a ledger at the checkpoint that is restored
	oldSinks []string          // given up, as was asked for: the store must show that they are at the checkpoint
}

// compare says whether what old left behind still means the same to declared.
// migrate is table.Migration: nil where state of one schema loads as another.
func compare(old, declared plan.Graph, migrate func(fromKey, toKey, fromValue, toValue string) error) changes {
	var c changes
	if old.KeyGroups != declared.KeyGroups {
		c.refuse("the job has %d key groups, but its state is divided into %d: the number is fixed when a job first starts; set it back",
			declared.KeyGroups, old.KeyGroups)
	}
	have := byID(old)
	for _, n := range declared.Nodes {
		if !named(n) {
			continue
		}
		o, ok := have[n.ID]
		delete(have, n.ID)
		switch {
		case ok:
			c.compareStep(o, n, migrate)
		case n.Op == plan.Sink:
			c.refuse("sink %s is new: it would lack what was committed before; add it to a job with a state directory of its own", n.ID)
		default:
			c.added = append(c.added, n.ID)
		}
	}
	for _, n := range old.Nodes {
		if _, ok := have[n.ID]; !ok || !named(n) {
			continue
		}
		switch n.Op {
		case plan.Source:
			c.refuse("source %s is gone, and with it how far it was read; declare it again under this id", n.ID)
		case plan.Sink:
			c.refuse("sink %s is gone, although checkpoints were committed to it; declare it again under this id", n.ID)
		default:
			c.refuse("step %s (%s) is gone, and its state would be dropped; declare it again under this id", n.ID, n.Op)
		}
	}
	return c
}

func (c *changes) refuse(format string, args ...any) {
	c.refused = append(c.refused, fmt.Sprintf(format, args...))
}

// compareStep compares two declarations of one id.
func (c *changes) compareStep(old, now plan.Node, migrate func(fromKey, toKey, fromValue, toValue string) error) {
	if old.Op != now.Op {
		c.refuse("step %s was a %s and is a %s: its state would mean something else; give the new step a new id and keep the old one", now.ID, old.Op, now.Op)
		return
	}
	switch now.Op {
	case plan.Source:
		return // splits and positions are checked where they are opened
	case plan.Sink:
		if old, now := sinkNode(old), sinkNode(now); old.Kind != now.Kind || old.Participant != now.Participant {
			c.refuse("sink %s was %s and is %s: what is committed where can't be carried over; set it back, or use another state directory and another target",
				now.id, old, now)
		}
		return
	case plan.Window:
		if old.Size != now.Size || old.Offset != now.Offset {
			c.refuse("step %s had windows of %v at offset %v and has windows of %v at offset %v: open windows can't be divided anew; set it back, or give the step a new id and keep the old one",
				now.ID, old.Size, old.Offset, now.Size, now.Offset)
		}
		// A window that was closed is told from an open one by its end and the
		// lateness: with another one, closed windows would open again.
		if old.Lateness != now.Lateness {
			c.refuse("step %s took records up to %v late and takes them up to %v late: which windows are closed would change; set it back, or give the step a new id and keep the old one",
				now.ID, old.Lateness, now.Lateness)
		}
		if old.Aggregate != now.Aggregate && old.Aggregate != "" && now.Aggregate != "" {
			c.refuse("step %s was a %s in windows and is a %s: its state means something else; set it back, or give the step a new id and keep the old one",
				now.ID, old.Aggregate, now.Aggregate)
		}
	}
	if old.Key == now.Key && old.Value == now.Value {
		return
	}
	if err := migrate(old.Key, now.Key, old.Value, now.Value); err != nil {
		c.refuse("step %s was keyed by %s with values %s and is keyed by %s with values %s: %v", now.ID, old.Key, old.Value, now.Key, now.Value, err)
		return
	}
	c.migrated = append(c.migrated, now.ID)
}

// sink is what must not change of one.
type sink struct{ id, Kind, Participant string }

func sinkNode(n plan.Node) sink {
	s := sink{id: n.ID}
	if n.Sink != nil {
		s.Kind, s.Participant = n.Sink.Kind, n.Sink.Participant
	}
	return s
}

func (s sink) String() string {
	if s.Participant == "" {
		return s.Kind
	}
	return s.Kind + " in " + s.Participant
}

// err returns what is refused as one error, or nil.
func (c changes) err() error {
	if len(c.refused) == 0 {
		return nil
	}
	return refused("the job has changed since its last checkpoint: %s", strings.Join(c.refused, "; "))
}

// rewrites reports whether a step's stored state has another schema.
func (c changes) rewrites(step string) bool { return slices.Contains(c.migrated, step) }

// named reports whether a node stands for something that the store knows.
func named(n plan.Node) bool { return n.ID != "" && n.Side == "" }

func byID(g plan.Graph) map[string]plan.Node {
	m := map[string]plan.Node{}
	for _, n := range g.Nodes {
		if named(n) {
			m[n.ID] = n
		}
	}
	return m
}
