package control

import (
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/plan"
)

// migration is table.Migration: nil where state of one schema loads as another.
type migration func(fromKey, toKey, fromValue, toValue string) error

// asked is what the user says of ids that have changed.
type asked struct {
	renamed map[string]string // new id: old id
	drop    []string
}

// comparison is one comparing of two declarations.
type comparison struct {
	changes
	old, now plan.Graph
	asked    asked
	migrate  migration
	left     map[string]bool // ids of old that nothing has answered for yet
}

// compare decides for each id what becomes of it between the job that wrote the
// store and the job as declared. It is the one place that decides it, for plan
// and for run, and it is pure.
func compare(old, declared plan.Graph, ask asked, migrate migration) changes {
	c := &comparison{old: old, now: declared, asked: ask, migrate: migrate, left: map[string]bool{}}
	c.renamed, c.moved = map[string]string{}, map[string]int64{}
	have := byID(old)
	for id := range have {
		c.left[id] = true
	}
	c.job()
	for i, n := range declared.Nodes {
		if named(n) {
			c.declared(have, i)
		}
	}
	for i, n := range old.Nodes {
		if named(n) && c.left[n.ID] {
			c.gone(i)
		}
	}
	c.unneeded(have)
	return c.changes
}

// job compares what belongs to no step.
func (c *comparison) job() {
	ch := Change{Op: "job", Fate: Kept}
	if was, is := c.old.KeyGroups, c.now.KeyGroups; was != is {
		ch.add(Diff{What: "key groups", Old: fmt.Sprint(was), New: fmt.Sprint(is), Fate: Refused,
			Why: "the state is divided into them, and the number is fixed when a job first starts", Do: fmt.Sprintf("set it back to %d", was)})
	}
	if !c.guessed() {
		if was, is := c.old.Decider(), c.now.Decider(); was != is {
			ch.add(c.decider(was, is))
		}
	}
	c.all = append(c.all, ch)
}

// guessed reports whether a sink is declared without all that it needs.
func (c *comparison) guessed() bool {
	return slices.ContainsFunc(c.now.Nodes, func(n plan.Node) bool { return n.Unsure != "" })
}

// declared compares one step, source or sink of the job as it is now.
func (c *comparison) declared(have map[string]int, i int) {
	n := c.now.Nodes[i]
	ch := Change{ID: n.ID, Op: string(n.Op), Fate: Kept}
	at, ok := have[n.ID]
	if was, alias := c.asked.renamed[n.ID]; !ok && alias && c.left[was] {
		if at, ok = have[was]; ok {
			ch.Was, ch.Fate = was, Renamed
			c.renamed[n.ID] = was
		}
	}
	if !ok {
		c.fresh(&ch, n)
	} else {
		c.left[c.old.Nodes[at].ID] = false
		c.same(&ch, at, i)
	}
	c.all = append(c.all, ch)
}

// same compares two declarations of what is one step, source or sink.
func (c *comparison) same(ch *Change, at, i int) {
	old, now := c.old.Nodes[at], c.now.Nodes[i]
	if old.Op != now.Op {
		ch.add(Diff{What: "operation", Old: string(old.Op), New: string(now.Op), Fate: Refused,
			Why: "what there is of it would mean something else", Do: another(old.ID, "the "+stepWord(now.Op))})
		return
	}
	if now.Unsure != "" {
		ch.add(Diff{What: "settings", Old: "known", New: "unknown", Fate: Unknown, Why: now.Unsure})
		return
	}
	switch now.Op {
	case plan.Source:
		c.source(ch, old, now)
	case plan.Sink:
		c.sink(ch, old, now)
	default:
		c.step(ch, at, i)
	}
}

// fresh notes what the store knows nothing of.
func (c *comparison) fresh(ch *Change, n plan.Node) {
	ch.Fate = New
	switch {
	case n.Op == plan.Source:
		ch.Why = "it is read from its start; what it brings for windows that are closed by now is late"
		c.added = append(c.added, n.ID)
	case n.Op != plan.Sink:
		ch.Why = "it starts with nothing, and knows only the records from here on"
		c.added = append(c.added, n.ID)
	case ledgered(n):
		ch.Why = "it gets what is computed from here on, and a ledger that begins at the checkpoint"
		c.newSinks = append(c.newSinks, n.ID)
	default:
		ch.Why = "it gets what is computed from here on"
	}
}

// gone notes what the job no longer declares.
func (c *comparison) gone(i int) {
	n := c.old.Nodes[i]
	ch := Change{ID: n.ID, Op: string(n.Op), Fate: Dropped}
	lost := "its state"
	switch n.Op {
	case plan.Source:
		lost = "how far it was read"
	case plan.Sink:
		lost = "its ledger"
	}
	switch {
	case n.Op == plan.Sink && !ledgered(n):
		ch.Why = "it is gone, and nothing was kept of it"
	case slices.Contains(c.asked.drop, n.ID):
		ch.Why = "it is gone, and " + lost + " is given up, as was asked for"
		if n.Op == plan.Sink {
			c.oldSinks = append(c.oldSinks, n.ID)
		}
	default:
		ch.Fate, ch.Why = Refused, "it is gone, and "+lost+" would be lost"
		ch.Do = fmt.Sprintf("declare it again, say what its id is now (Renamed), or give it up with --drop %s (Drop)", n.ID)
	}
	if ch.Fate == Dropped {
		c.dropped = append(c.dropped, n.ID)
	}
	c.all = append(c.all, ch)
}

// unneeded notes aliases and drops that find nothing in the store.
func (c *comparison) unneeded(have map[string]int) {
	for _, n := range c.now.Nodes {
		was, ok := c.asked.renamed[n.ID]
		if !ok || !named(n) || c.renamed[n.ID] == was {
			continue
		}
		if _, ok := have[was]; ok {
			c.notes = append(c.notes, fmt.Sprintf("Renamed(%q, %q) does nothing: the store has %s under that id, with what belongs to it, besides %s", was, n.ID, n.ID, was))
		} else {
			c.notes = append(c.notes, fmt.Sprintf("Renamed(%q, %q) isn't needed any more: the newest checkpoint has nothing named %s", was, n.ID, was))
		}
	}
	for _, id := range c.asked.drop {
		if _, ok := have[id]; !ok {
			c.notes = append(c.notes, fmt.Sprintf("--drop %s isn't needed: the newest checkpoint has nothing of that name", id))
		}
	}
}

// another is the way out where what there is of an id can't be carried over.
func another(id, what string) string {
	return fmt.Sprintf("set it back, or give %s another id and give up the old one with --drop %s (Drop)", what, id)
}

// named reports whether a node stands for something that the store knows.
func named(n plan.Node) bool { return n.ID != "" && n.Side == "" }

// byID has the node number of each id.
func byID(g plan.Graph) map[string]int {
	m := map[string]int{}
	for i, n := range g.Nodes {
		if named(n) {
			m[n.ID] = i
		}
	}
	return m
}
