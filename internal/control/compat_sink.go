package control

import (
	"strings"

	"github.com/weirstream/weir/internal/plan"
)

// ledgered reports whether a sink keeps a ledger.
func ledgered(n plan.Node) bool { return n.Sink != nil && n.Sink.Kind != atLeastOnce }

// sink compares where and how a sink commits.
func (c *comparison) sink(ch *Change, old, now plan.Node) {
	was, is := ledgered(old), ledgered(now)
	switch {
	case old.Sink == nil || now.Sink == nil:
	case !was && !is:
		if old.Sink.Target != now.Sink.Target {
			ch.add(Diff{What: "target", Old: old.Sink.Target, New: now.Sink.Target, Fate: Kept, Why: "what went to the old one stays there"})
		}
	case !was && is:
		c.newSinks = append(c.newSinks, now.ID)
		ch.add(Diff{What: "kind", Old: where(old), New: where(now), Fate: Kept,
			Why: "its ledger begins at the checkpoint; what was written before isn't covered by it"})
	case !is:
		ch.add(Diff{What: "kind", Old: where(old), New: where(now), Fate: Refused,
			Why: "it would have no ledger any more", Do: another(old.ID, "the sink")})
	case scheme(old) != scheme(now):
		ch.add(Diff{What: "target", Old: where(old), New: where(now), Fate: Refused,
			Why: "what was committed is in the old one, and so is its ledger", Do: another(old.ID, "the sink")})
	case old.Sink.Place != now.Sink.Place && old.Sink.Place != "" && now.Sink.Place != "":
		ch.add(Diff{What: "target", Old: old.Sink.Place, New: now.Sink.Place, Fate: Refused,
			Why: "what was committed is in the old one, and the new one would get only what is computed from here on", Do: another(old.ID, "the sink")})
	default:
		c.resite(ch, old, now)
	}
}

// resite compares how and where a sink with a ledger commits, where the ledger
// goes with it: another kind in the same database, or a database that was moved.
func (c *comparison) resite(ch *Change, old, now plan.Node) {
	kind, place := old.Sink.Kind != now.Sink.Kind, old.Sink.Participant != now.Sink.Participant
	if kind || place {
		c.resited = append(c.resited, now.ID)
	}
	if kind && site(old) == site(now) {
		place = false
	}
	if kind {
		ch.add(Diff{What: "kind", Old: old.Sink.Kind, New: now.Sink.Kind, Fate: Kept,
			Why: "the ledger stays what it is; after a crash a start may ask for one of the old version first"})
	}
	if place {
		ch.add(Diff{What: "place", Old: site(old), New: site(now), Fate: Kept,
			Why: "if it was moved there with what was committed: a start looks for its ledger, and is refused where there is none"})
	}
}

// scheme is what a participant's name says of its kind of store.
func scheme(n plan.Node) string {
	name, _, _ := strings.Cut(n.Sink.Participant, ":")
	return name
}

// site is where a participant is, without how it commits there.
func site(n plan.Node) string {
	name, _, _ := strings.Cut(n.Sink.Participant, "#")
	return name
}

// where says how and where a sink commits.
func where(n plan.Node) string {
	if n.Sink.Participant == "" {
		return n.Sink.Kind
	}
	return n.Sink.Kind + " in " + n.Sink.Participant
}

// decider notes that another participant decides.
func (c *comparison) decider(was, is string) Diff {
	return Diff{What: "decider", Old: was, New: is, Fate: Kept,
		Why: "the old one has the last word on the checkpoint that is restored, and the new one decides from there on"}
}
