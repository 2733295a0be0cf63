package weir

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/plan"
)

// alias is what a step, source or sink was called in earlier versions of a job.
type alias struct{ old, now string }

// Renamed says that what has the id now was called old in an earlier version of
// the job: a step keeps its state, a source its positions, a sink its ledger. It
// may stay in the job for as long as stores of the earlier version are around;
// [Job.Plan] says when the newest checkpoint doesn't need it any more.
//
// Run returns an error where no step, source or sink has the id now, where one
// still has the id old, and where an id is in two aliases.
func (j *Job) Renamed(old, now string) *Job {
	j.aliases = append(j.aliases, alias{old, now})
	return j
}

// Drop gives up steps, sources and sinks that the job no longer declares: their
// state, positions and ledgers. Without it a job that lacks an id of the newest
// checkpoint is refused. What a sink has written stays where it is. Use it once,
// until the job has taken a checkpoint; [Job.Plan] says when it isn't needed.
func Drop(ids ...string) RunOption {
	return runOption(func(c *runConfig) { c.drop = append(c.drop, ids...) })
}

// Guessed says that the job was declared without something that it depends on,
// such as a parameter that wasn't given: other is the same job, declared with
// another guess in its place. What differs between the two depends on the guess,
// and isn't compared by [Job.Plan]: why, which names what is missing, is said
// instead. The option may be given for several such things. A job with it can be
// looked at and not run.
func Guessed(other *Job, why string) RunOption {
	return runOption(func(c *runConfig) { c.guessed = append(c.guessed, guess{other, why}) })
}

// guess is one thing that isn't known.
type guess struct {
	other *Job
	why   string
}

type guesses []guess

// why says all that isn't known.
func (gs guesses) why() string {
	var whys []string
	for _, g := range gs {
		whys = append(whys, g.why)
	}
	return strings.Join(whys, ", ")
}

// certain is the job's graph with the steps marked that depend on guesses.
func (j *Job) certain(gs guesses) plan.Graph {
	known := j.graph
	known.Nodes = slices.Clone(known.Nodes)
	for _, g := range gs {
		unfit := map[string]bool{}
		for _, e := range append(slices.Clone(j.unfits), g.other.unfits...) {
			var of stepError
			if errors.As(e, &of) {
				unfit[of.step] = true
			}
		}
		for i, n := range j.graph.Nodes {
			others := g.other.graph.Nodes
			if i >= len(others) || !reflect.DeepEqual(n, others[i]) || n.ID != "" && unfit[n.ID] {
				known.Nodes[i].Unsure = strings.TrimPrefix(known.Nodes[i].Unsure+", "+g.why, ", ")
			}
		}
	}
	return known
}

// renamed is the aliases as control wants them: the old id by the new one.
func (j *Job) renamed() map[string]string {
	m := make(map[string]string, len(j.aliases))
	for _, a := range j.aliases {
		m[a.now] = a.old
	}
	return m
}

// identities returns what is wrong with aliases and with what is to be dropped.
func (j *Job) identities(drop []string) []error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	declared := func(id string) bool { return slices.Contains(j.ids(), id) }
	var olds, nows []string
	for _, a := range j.aliases {
		switch {
		case a.old == "" || a.now == "":
			add("Renamed(%q, %q): an id is empty: give the old one and the new one", a.old, a.now)
		case a.old == a.now:
			add("Renamed(%q, %q): the ids are the same: leave it out", a.old, a.now)
		case slices.Contains(olds, a.now) || slices.Contains(nows, a.old):
			add("Renamed(%q, %q): with the others it is a chain: give the oldest id and the one of now, in one step", a.old, a.now)
		case slices.Contains(olds, a.old) || slices.Contains(nows, a.now):
			add("Renamed(%q, %q): one of the ids has been renamed before: an id has one alias", a.old, a.now)
		case !declared(a.now):
			add("Renamed(%q, %q): no step, source or sink has the id %q", a.old, a.now, a.now)
		case declared(a.old):
			add("Renamed(%q, %q): the job still declares %q: give what that is now another id", a.old, a.now, a.old)
		}
		olds, nows = append(olds, a.old), append(nows, a.now)
	}
	for _, id := range drop {
		switch {
		case id == "":
			add("an id to be dropped is empty")
		case declared(id):
			add("%s is to be dropped, but the job declares it: give it another id, so that nothing is taken for its old state", id)
		case slices.Contains(olds, id):
			add("%s is to be dropped, but Renamed says that it lives on under another id: leave one of the two out", id)
		}
	}
	return errs
}
