package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// AdmitOf is how far behind the watermark of its own split a record may be at
// a distinct step: its Admit, or else the largest size + lateness of the
// windows that its output reaches. It is an error if a branch of the output
// has no window, because nothing then says how late is too late. The graph's
// shape must be one that Validate accepts.
func (g *Graph) AdmitOf(node int) (time.Duration, error) {
	n := g.Nodes[node]
	if n.Op != Distinct {
		return 0, fmt.Errorf("%s admits every record: only distinct steps have a limit", g.Name(node))
	}
	if n.Admit > 0 {
		return n.Admit, nil
	}
	ends := g.branches(node)
	if err := g.unlimited(node, ends); err != nil {
		return 0, err
	}
	var admit time.Duration
	for _, end := range ends {
		a, err := g.accepts(end)
		if err != nil {
			return 0, err
		}
		admit = max(admit, a)
	}
	if admit == 0 {
		return 0, fmt.Errorf("%s: no window follows it, so nothing says how late a record may be: give its Admit option", g.Name(node))
	}
	return admit, nil
}

// accepts is how far behind its split a record can be and still count at a
// window or distinct step.
func (g *Graph) accepts(node int) (time.Duration, error) {
	n := g.Nodes[node]
	if n.Op == Distinct {
		return g.AdmitOf(node)
	}
	return sum(n.Size, n.Lateness), nil
}

// branches returns the nodes that end the branches of a distinct step's
// output: each is a window or a distinct step, which limit lateness, or else
// another stateful step or a sink, which don't. What a window or a running
// result feeds is another matter than the records that pass here.
func (g *Graph) branches(node int) []int {
	outs := g.outputs()
	seen := make([]bool, len(g.Nodes))
	var ends []int
	var walk func(i int)
	walk = func(i int) {
		for _, to := range outs[i] {
			if seen[to] || g.rejects(to) {
				continue
			}
			seen[to] = true
			if op := g.Nodes[to].Op; op.Stateful() || op == Sink {
				ends = append(ends, to)
			} else {
				walk(to)
			}
		}
	}
	walk(node)
	slices.Sort(ends)
	return ends
}

// unlimited is the error of a distinct step some of whose branches have no window.
func (g *Graph) unlimited(node int, ends []int) error {
	var open []string
	for _, end := range ends {
		if op := g.Nodes[end].Op; op != Window && op != Distinct {
			open = append(open, g.Name(end))
		}
	}
	if open == nil {
		return nil
	}
	return fmt.Errorf("%s: its output reaches %s without a window in between, so nothing says how late a record may be there: give its Admit option",
		g.Name(node), strings.Join(open, " and "))
}

// sum adds two durations, of which a negative one counts as none, up to the
// longest.
func sum(a, b time.Duration) time.Duration {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// OnlyBehind reports whether every window that a distinct step's output reaches
// gets all its records through that step: then it closes no earlier than time
// has come there.
func (g *Graph) OnlyBehind(node int) bool {
	fed := make([]bool, len(g.Nodes)) // by a source, past the step
	for i, n := range g.Nodes {
		fed[i] = i != node && (n.Op == Source || slices.ContainsFunc(n.Inputs, func(in int) bool { return fed[in] }))
	}
	for _, end := range g.branches(node) {
		switch g.Nodes[end].Op {
		case Window:
			if fed[end] {
				return false
			}
		case Distinct:
			if fed[end] || g.Nodes[end].Admit == 0 && !g.OnlyBehind(end) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
