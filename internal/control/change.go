package control

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
)

// Fate is what becomes of a step, a source or a sink, and of what the store and
// its ledgers hold of it, when a job goes on as it is declared now.
type Fate string

// The fates, in the order in which one hides another.
const (
	Kept     Fate = "kept"
	New      Fate = "new"      // it starts with nothing
	Dropped  Fate = "dropped"  // what there is of it is given up
	Renamed  Fate = "renamed"  // kept under another id
	Migrated Fate = "migrated" // its state is converted as it is loaded
	Unknown  Fate = "not compared"
	Refused  Fate = "refused"
)

func (f Fate) rank() int {
	return slices.Index([]Fate{Kept, New, Dropped, Renamed, Migrated, Unknown, Refused}, f)
}

// Change is what becomes of one id. That of the job as a whole has none.
type Change struct {
	ID    string `json:"id,omitempty"`
	Op    string `json:"op"`            // as in plan.Node, or "job"
	Was   string `json:"was,omitempty"` // the id that it had
	Fate  Fate   `json:"fate"`
	Why   string `json:"why,omitempty"` // of the fate, where no difference gives it
	Do    string `json:"do,omitempty"`  // likewise
	Diffs []Diff `json:"diffs,omitempty"`
}

// Diff is one thing that is declared in another way than before.
type Diff struct {
	What string `json:"what"`
	Old  string `json:"old"`
	New  string `json:"new"`
	Fate Fate   `json:"fate"` // kept, migrated, not compared or refused
	Why  string `json:"why,omitempty"`
	Do   string `json:"do,omitempty"`
}

// add notes a difference; the worst one is the change's own fate.
func (c *Change) add(d Diff) {
	c.Diffs = append(c.Diffs, d)
	if d.Fate.rank() > c.Fate.rank() {
		c.Fate = d.Fate
	}
}

// Same reports whether nothing is different.
func (c Change) Same() bool { return c.Fate == Kept && len(c.Diffs) == 0 }

// name is the id with what it is, for sentences.
func (c Change) name() string {
	if c.ID == "" {
		return "the job"
	}
	return stepWord(plan.Op(c.Op)) + " " + c.ID
}

// stepWord is what messages call an operation.
func stepWord(op plan.Op) string {
	switch op {
	case plan.Source, plan.Sink:
		return string(op)
	}
	return "step"
}

// refusals are sentences: what was found and what to do.
func (c Change) refusals() []string {
	var out []string
	if c.Fate == Refused && c.Why != "" {
		out = append(out, sentence(c.name()+" "+strings.TrimPrefix(c.Why, "it "), c.Do))
	}
	for _, d := range c.Diffs {
		if d.Fate == Refused {
			out = append(out, sentence(fmt.Sprintf("%s: %s was %s and is %s: %s", c.name(), d.What, d.Old, d.New, d.Why), d.Do))
		}
	}
	return out
}

func sentence(what, do string) string {
	if do == "" {
		return what
	}
	return what + "; " + do
}

// changes is how a job as declared stands to the one that wrote the store.
type changes struct {
	all   []Change // in the order of declaration, those that are gone last
	notes []string // what was asked for and isn't needed

	added    []string          // steps and sources that start with nothing
	migrated []string          // steps whose stored state has another schema
	dropped  []string          // steps, sources and sinks that are given up
	renamed  map[string]string // steps, sources and sinks by their new id: the old one
	newSinks []string          // they get a ledger at the checkpoint that is restored
	oldSinks []string          // given up, as was asked for: the store must show that they are at the checkpoint
	// resited are sinks that commit in another way or at another place, where
	// their ledger must be: at the checkpoint, as nothing can be rolled forward.
	resited []string
	// moved has, by step (its new id), by how much its clocks are moved, so that
	// what was closed or forgotten stays that under another lateness or
	// time-to-live.
	moved map[string]int64
}

// refused returns one sentence for each thing that is.
func (c changes) refused() []string {
	var out []string
	for _, ch := range c.all {
		out = append(out, ch.refusals()...)
	}
	return out
}

// err returns what is refused as one error, or nil.
func (c changes) err() error {
	r := c.refused()
	if len(r) == 0 {
		return nil
	}
	return refused("the job has changed since its last checkpoint: %s", strings.Join(r, "; "))
}

// rewrites says of a step in a manifest whether its state has another schema than
// the job saves it with. The manifest tells that and not the job's last start,
// which may have ended before anything was saved.
func rewrites(g plan.Graph) func(log.Step) bool {
	at := byID(g)
	return func(st log.Step) bool {
		i, ok := at[st.ID]
		return ok && (g.Nodes[i].Key != st.Key || g.Nodes[i].Value != st.Value)
	}
}

// tell logs what a run goes on with that is different.
func (c changes) tell(l *slog.Logger) {
	for _, ch := range c.all {
		if ch.Same() {
			continue
		}
		args := []any{"what", ch.name(), "fate", string(ch.Fate)}
		if ch.Was != "" {
			args = append(args, "was", ch.Was)
		}
		if ch.Why != "" {
			args = append(args, "why", ch.Why)
		}
		for _, d := range ch.Diffs {
			args = append(args, d.What, fmt.Sprintf("%s -> %s", d.Old, d.New))
		}
		l.Info("changed since the last checkpoint", args...)
	}
	for _, n := range c.notes {
		l.Info("needless", "what", n)
	}
}
