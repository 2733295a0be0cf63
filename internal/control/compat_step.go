package control

import (
	"fmt"

	"github.com/weirstream/weir/internal/plan"
)

// source compares what is set on a source. Its splits and positions are checked
// where they are opened.
func (c *comparison) source(ch *Change, old, now plan.Node) {
	if old.EventTime != now.EventTime {
		ch.add(Diff{What: "event time", Old: yes(old.EventTime), New: yes(now.EventTime), Fate: Kept,
			Why: "it counts for the records from here on"})
	}
	if old.Disorder != now.Disorder {
		ch.add(Diff{What: "disorder", Old: plan.Short(old.Disorder), New: plan.Short(now.Disorder), Fate: Kept,
			Why: "it counts for the records from here on; watermarks stay where they are and never go back"})
	}
}

// step compares a step with state.
func (c *comparison) step(ch *Change, at, i int) {
	old, now := c.old.Nodes[at], c.now.Nodes[i]
	switch now.Op {
	case plan.Window:
		c.window(ch, old, now)
	case plan.Distinct:
		c.distinct(ch, at, i)
	default:
		if old.Emit != now.Emit {
			ch.add(Diff{What: "emission", Old: emission(old.Emit), New: emission(now.Emit), Fate: Kept,
				Why: "at a checkpoint nothing waits to be emitted"})
		}
	}
	c.schema(ch, old, now)
}

// schema compares the types of what is stored.
func (c *comparison) schema(ch *Change, old, now plan.Node) {
	if old.Key != now.Key {
		d := Diff{What: "key", Old: old.Key, New: now.Key, Fate: Migrated, Why: "its state is loaded under it"}
		if err := c.migrate(old.Key, now.Key, now.Value, now.Value); err != nil {
			d.Fate, d.Why, d.Do = Refused, err.Error(), another(old.ID, "the step")
		}
		ch.add(d)
	}
	if old.Value != now.Value {
		d := Diff{What: "state", Old: old.Value, New: now.Value, Fate: Migrated,
			Why: "fields are matched by name: new ones are zero, those that are gone are lost for good"}
		if err := c.migrate(now.Key, now.Key, old.Value, now.Value); err != nil {
			d.Fate, d.Why, d.Do = Refused, err.Error(), another(old.ID, "the step")
		}
		ch.add(d)
	}
	if old.Key != now.Key || old.Value != now.Value {
		c.migrated = append(c.migrated, now.ID)
	}
}

func (c *comparison) window(ch *Change, old, now plan.Node) {
	if old.Size != now.Size || old.Offset != now.Offset {
		ch.add(Diff{What: "window", Old: cut(old), New: cut(now), Fate: Refused,
			Why: "windows that are open can't be divided anew", Do: another(old.ID, "the step")})
	}
	if !sameAggregate(old, now) {
		ch.add(Diff{What: "aggregate", Old: aggregate(old), New: aggregate(now), Fate: Refused,
			Why: "what is stored would mean something else", Do: another(old.ID, "the step")})
	} else if aggregate(old) != aggregate(now) && old.Aggregator != "" {
		ch.add(Diff{What: "aggregate", Old: aggregate(old), New: aggregate(now), Fate: Kept,
			Why: "both are made of what is stored"})
	}
	if old.Lateness != now.Lateness {
		why := "windows that are closed stay closed; those that are open take records for longer"
		if now.Lateness < old.Lateness {
			why = "windows that are past the new limit close as soon as the job goes on, with their results"
		}
		ch.add(Diff{What: "lateness", Old: plan.Short(old.Lateness), New: plan.Short(now.Lateness), Fate: Kept, Why: why})
		c.moved[now.ID] = int64(now.Lateness) - int64(old.Lateness)
	}
	if old.Emit != now.Emit {
		d := Diff{What: "emission", Old: emission(old.Emit), New: emission(now.Emit), Fate: Kept, Why: "it counts from here on"}
		switch {
		case old.Emit == plan.EmitClose:
			d.Fate, d.Do = Refused, another(old.ID, "the step")
			d.Why = "the windows that are open have emitted nothing yet, and what they hold would never be unless more came"
		case now.Emit == plan.EmitClose:
			d.Why = "the windows that are open have emitted results already; their last one comes when they close"
		}
		ch.add(d)
	}
}

// distinct compares what is remembered for how long, and which records are
// still told from a repeat.
func (c *comparison) distinct(ch *Change, at, i int) {
	old, now := c.old.Nodes[at], c.now.Nodes[i]
	was, errWas := c.old.AdmitOf(at)
	is, errIs := c.now.AdmitOf(i)
	if errWas != nil || errIs != nil { // Validate refuses such a job
		was, is = old.Admit, now.Admit
	}
	if old.TTL != now.TTL {
		why := "keys that are older than that are forgotten"
		if now.TTL > old.TTL {
			why = "keys that are forgotten by now stay so: they pass once more"
		}
		ch.add(Diff{What: "time-to-live", Old: plan.Short(old.TTL), New: plan.Short(now.TTL), Fate: Kept, Why: why})
	}
	if was != is {
		d := Diff{What: "admission", Old: plan.Short(was), New: plan.Short(is), Fate: Kept, Why: "it counts for the records from here on"}
		if is > was {
			d.Why = "what is admitted besides is late for the windows behind it, which stay closed"
			if now.Admit > 0 || !c.now.OnlyBehind(i) {
				d.Fate = Refused
				d.Why = "records would be admitted whose repeats have been forgotten, and would pass twice"
				d.Do = fmt.Sprintf("set it back, also with Admit(%v), or give the step another id and give up the old one with --drop %s (Drop)", plan.Short(was), old.ID)
			}
		}
		ch.add(d)
	}
	if by := int64(now.TTL) + int64(is) - int64(old.TTL) - int64(was); by != 0 {
		c.moved[now.ID] = by
	}
}

// sameAggregate reports whether what two windows store means the same.
func sameAggregate(old, now plan.Node) bool {
	if old.Aggregate == "" || now.Aggregate == "" {
		return true // not known
	}
	if old.Aggregate != now.Aggregate {
		return false
	}
	a, b := old.Aggregator, now.Aggregator
	if a == b || a == "" || b == "" { // the user's own can't be told apart
		return true
	}
	total := func(s string) bool { return s == "sum" || s == "mean" } // sum and number of the same
	return total(a) && total(b)
}

func aggregate(n plan.Node) string {
	if n.Aggregator != "" {
		return n.Aggregator
	}
	return n.Aggregate
}

func cut(n plan.Node) string {
	return plan.Short(n.Size) + " at offset " + plan.Short(n.Offset)
}

func emission(word string) string {
	switch word {
	case plan.EmitRecord:
		return "each record"
	case plan.EmitBarrier:
		return "each barrier"
	case plan.EmitClose:
		return "on close"
	}
	return "not known"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
