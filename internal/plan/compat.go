package plan

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is what becomes of a part of a job when a checkpoint of an older
// version of the job is restored.
type Verdict string

// The verdicts.
const (
	Kept     Verdict = "kept"
	New      Verdict = "new"
	Migrated Verdict = "migrated" // kept, and rewritten in the new schema
	Refuse   Verdict = "refused"  // it would be lost or mean something else: the job doesn't start
)

// Change is one part of a job under two versions of its graph.
type Change struct {
	What    string // `distinct "seen"`, "key groups"
	Verdict Verdict
	Why     string // what was found; "" where nothing changed
	Do      string // what to do; set where it is refused
}

// String is the change as one line.
func (c Change) String() string {
	s := fmt.Sprintf("%s: %s", c.What, c.Verdict)
	if c.Why != "" {
		s += ", " + c.Why
	}
	if c.Do != "" {
		s += ": " + c.Do
	}
	return s
}

// Compatible says, for the job as a whole and each source, stateful step and
// sink, whether old's checkpoints can be restored into new: first what is in
// new, in its order, then what is only in old. migration is asked where the
// schema of a value has changed, and returns nil if its values can be
// rewritten. Both graphs must be ones that Validate accepts.
func Compatible(old, new *Graph, migration func(oldKey, newKey, oldValue, newValue string) error) []Change {
	c := &comparison{old: old, new: new, migration: migration}
	c.job()
	was := map[string]int{}
	for i, n := range old.Nodes {
		if n.ID != "" {
			was[n.ID] = i
		}
	}
	kept := map[int]bool{}
	for i, n := range new.Nodes {
		if !n.Op.Named() {
			continue
		}
		j, ok := was[n.ID]
		switch {
		case !ok:
			c.added(i)
		case old.Nodes[j].Op != n.Op:
			kept[j] = true
			c.refuse(new.Name(i), fmt.Sprintf("it was a %s", old.Nodes[j].Op), fmt.Sprintf("give the %s another id, and put the %s back or start over", n.Op, old.Nodes[j].Op))
		default:
			kept[j] = true
			c.compare(j, i)
		}
	}
	for j, n := range old.Nodes {
		if n.Op.Named() && !kept[j] {
			c.removed(j)
		}
	}
	return c.out
}

type comparison struct {
	old, new  *Graph
	migration func(oldKey, newKey, oldValue, newValue string) error
	out       []Change
}

func (c *comparison) refuse(what, why, do string) {
	c.out = append(c.out, Change{what, Refuse, why, do})
}

// keep adds what stays, with the changes of settings that it survives.
func (c *comparison) keep(node int, v Verdict, why ...string) {
	c.out = append(c.out, Change{What: c.new.Name(node), Verdict: v, Why: strings.Join(why, "; ")})
}

func (c *comparison) job() {
	if c.old.Job != c.new.Job {
		c.refuse("job", fmt.Sprintf("its name was %q and is %q", c.old.Job, c.new.Job), "give the job its old name, or another state directory")
	}
	if a, b := c.old.KeyGroups, c.new.KeyGroups; a != b {
		c.refuse("key groups", fmt.Sprintf("there were %d and are %d, and their number is fixed when a job first starts", a, b), fmt.Sprintf("set it back to %d, or start over", a))
	} else {
		c.out = append(c.out, Change{What: "key groups", Verdict: Kept})
	}
}

func (c *comparison) added(i int) {
	n := c.new.Nodes[i]
	switch {
	case n.Op == Sink:
		c.refuse(c.new.Name(i), "it is new, and its ledger can't name the checkpoint that is restored", "take it out, or start over")
	case n.Op == Source:
		c.keep(i, New, "read from its start position")
	default:
		c.keep(i, New, "starts empty")
	}
}

func (c *comparison) removed(j int) {
	n := c.old.Nodes[j]
	lost := "its state would be lost"
	switch n.Op {
	case Source:
		lost = "its positions would be lost"
	case Sink:
		lost = "its ledger would stay behind"
	}
	c.out = append(c.out, Change{c.old.Name(j), Refuse, "it isn't in the job any more, and " + lost, "put it back under this id, or start over"})
}

// compare is a step that both graphs have, under one id and operation.
func (c *comparison) compare(j, i int) {
	a, b := c.old.Nodes[j], c.new.Nodes[i]
	switch {
	case b.Op == Sink:
		c.sink(j, i)
	case b.Op == Source:
		c.keep(i, Kept, differences(a, b)...)
	default:
		c.state(j, i)
	}
}

// state is a stateful step: what its entries are keyed by and mean must stay.
func (c *comparison) state(j, i int) {
	a, b, name := c.old.Nodes[j], c.new.Nodes[i], c.new.Name(i)
	const back = "set it back, or give the step another id and start over"
	switch {
	case a.Key != b.Key:
		c.refuse(name, fmt.Sprintf("its key was %s and is %s, so no entry would be found", a.Key, b.Key), back)
	case a.Size != b.Size:
		c.refuse(name, fmt.Sprintf("its windows were %s long and are %s, and open ones can't be cut anew", short(a.Size), short(b.Size)), back)
	case a.Offset != b.Offset:
		c.refuse(name, fmt.Sprintf("the offset of its windows was %s and is %s, and open ones can't be cut anew", short(a.Offset), short(b.Offset)), back)
	case a.Aggregate != b.Aggregate && a.Aggregate != "" && b.Aggregate != "":
		c.refuse(name, fmt.Sprintf("its windows' state is that of %s, and is now to be that of %s", a.Aggregate, b.Aggregate), back)
	case a.Value != b.Value:
		why := fmt.Sprintf("its state was %s and is %s", a.Value, b.Value)
		if err := c.migration(a.Key, b.Key, a.Value, b.Value); err != nil {
			c.refuse(name, why+", and that can't be migrated: "+err.Error(), back)
			return
		}
		c.keep(i, Migrated, append([]string{why}, differences(a, b)...)...)
	default:
		c.keep(i, Kept, differences(a, b)...)
	}
}

// sink is a sink: its ledger must stay the one that the checkpoint fits.
func (c *comparison) sink(j, i int) {
	a, b := c.old.Nodes[j].Sink, c.new.Nodes[i].Sink
	const back = "set it back, or start over"
	switch was, is := c.old.ParticipantOf(j), c.new.ParticipantOf(i); {
	case a.Kind != b.Kind:
		c.refuse(c.new.Name(i), fmt.Sprintf("it was %s and is %s", a.Kind, b.Kind), back)
	case was != is:
		c.refuse(c.new.Name(i), fmt.Sprintf("it belonged to %s and belongs to %s, where no ledger names the checkpoint", was, is), back)
	case a.Target != b.Target:
		c.keep(i, Kept, fmt.Sprintf("its target was %s and is %s; what was written stays where it is", a.Target, b.Target))
	default:
		c.keep(i, Kept)
	}
}

// differences are the settings that hold from the next record on, and that
// state survives.
func differences(a, b Node) []string {
	var out []string
	diff := func(name string, x, y time.Duration) {
		if x != y {
			out = append(out, fmt.Sprintf("%s was %s and is %s", name, short(x), short(y)))
		}
	}
	diff("disorder", a.Disorder, b.Disorder)
	diff("time-to-live", a.TTL, b.TTL)
	diff("Admit", a.Admit, b.Admit)
	diff("lateness", a.Lateness, b.Lateness)
	if a.Emit != b.Emit {
		out = append(out, fmt.Sprintf("it emitted %s and emits %s", emits(a.Emit), emits(b.Emit)))
	}
	if a.EventTime != b.EventTime {
		was := map[bool]string{true: "event times", false: "none"}
		out = append(out, fmt.Sprintf("its records had %s and have %s", was[a.EventTime], was[b.EventTime]))
	}
	return out
}
