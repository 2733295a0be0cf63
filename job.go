package weir

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/internal/plan"
)

// Job is a dataflow under construction. It isn't safe for concurrent use until
// it is complete; then it can be run, one run at a time.
type Job struct {
	graph    plan.Graph
	errs     []error
	sources  []func(*build) error
	sinks    []*sinkStep
	splits   []splitLister
	notify   []notifier
	examined []examined
	dead     *deadLetters // nil: not asked for
	aliases  []alias
	unfits   []error // of connectors, each a stepError
}

// splitLister lists the splits of a source.
type splitLister struct {
	source string
	list   func(context.Context) ([]string, error)
	grows  func() bool // there may come more
}

// NewJob returns an empty job. The name is the job's identity: its state
// directory and the ledgers in its sinks belong to it.
func NewJob(name string) *Job {
	return &Job{graph: plan.Graph{Job: name, KeyGroups: defaultKeyGroups}}
}

// Name returns the job's name.
func (j *Job) Name() string { return j.graph.Job }

// KeyGroups sets the number of key groups: the units in which keyed state can
// move between tasks, and so the most tasks that a keyed step can have. The
// default is 128; it is fixed when a job first starts.
func (j *Job) KeyGroups(n int) *Job {
	j.graph.KeyGroups = n
	return j
}

// add declares a step and returns its number.
func (j *Job) add(n plan.Node) int {
	j.graph.Nodes = append(j.graph.Nodes, n)
	return len(j.graph.Nodes) - 1
}

// fail remembers an error of declaration: a fluent step needs no error result.
func (j *Job) fail(step string, err error) {
	j.errs = append(j.errs, fmt.Errorf("step %s: %w", step, err))
}

// unfit remembers what a connector says is wrong with how it is declared.
func (j *Job) unfit(step string, err error) {
	if err != nil {
		j.unfits = append(j.unfits, stepError{step, err})
	}
}

// stepError is an error of declaration of a connector's.
type stepError struct {
	step string
	err  error
}

func (e stepError) Error() string { return fmt.Sprintf("step %s: %v", e.step, e.err) }
func (e stepError) Unwrap() error { return e.err }

// need remembers that an argument is nil, and reports whether it is.
func (j *Job) need(step, what string, missing bool) bool {
	if missing {
		j.fail(step, fmt.Errorf("its %s is nil", what))
	}
	return missing
}

// ids are the steps' ids, as the user gave them, by their numbers.
func (j *Job) ids() []string {
	out := make([]string, len(j.graph.Nodes))
	for i, n := range j.graph.Nodes {
		out[i] = n.ID
	}
	return out
}

// steps names the declared steps for error messages.
func (j *Job) steps() []string {
	out := make([]string, len(j.graph.Nodes))
	for i, n := range j.graph.Nodes {
		out[i] = fmt.Sprintf("#%d (%s)", i, n.Op)
		if n.ID != "" {
			out[i] = fmt.Sprintf("%s (%s)", n.ID, n.Op)
		}
	}
	return out
}
