package plan

import (
	"fmt"
	"strings"
	"time"
)

// The kinds of sinks, as SinkNode.Kind has them.
const (
	AtLeastOnceSink   = "at least once"
	IdempotentSink    = "idempotent"
	FollowingSink     = "following"
	TransactionalSink = "transactional"
)

// When a window emits, as Node.Emit has it.
const (
	EmitRecord  = "record"
	EmitBarrier = "barrier"
	EmitClose   = "close"
)

// Stateful reports whether the operation keeps state by key. Such a step is
// fed through an exchange, and heads a stage.
func (o Op) Stateful() bool {
	switch o {
	case Fold, Reduce, Count, Distinct, Window:
		return true
	}
	return false
}

// Named reports whether a step of this operation needs an id.
func (o Op) Named() bool { return o == Source || o == Sink || o.Stateful() }

// commits reports whether the sink commits an epoch together with a
// checkpoint's id, as decider or follower.
func (s *SinkNode) commits() bool {
	return s.Kind == TransactionalSink || s.Kind == FollowingSink
}

// ParticipantOf is the name of the participant that a sink belongs to: what it
// shares a transaction with, or its own id where it is alone.
func (g *Graph) ParticipantOf(node int) string {
	n := g.Nodes[node]
	if n.Sink != nil && n.Sink.Participant != "" {
		return n.Sink.Participant
	}
	return n.ID
}

// Store is the decider of a job without a transactional sink: a checkpoint is
// committed by its entry in the store.
const Store = "store"

// Decider is the participant whose commit decides an epoch: of the transactional
// sinks the one with the highest rank, and of these the first declared; or Store.
func (g *Graph) Decider() string {
	decider, rank := Store, 0
	for i, n := range g.Nodes {
		if n.Op != Sink || n.Sink == nil || n.Sink.Kind != TransactionalSink {
			continue
		}
		if decider == Store || n.Sink.Rank > rank {
			decider, rank = g.ParticipantOf(i), n.Sink.Rank
		}
	}
	return decider
}

// Name says which step a node is, for people: `sink "counts"`, or, where it
// has no id, `map (step 3, behind source "clicks")`. The number is the one
// that String prints.
func (g *Graph) Name(node int) string {
	n := g.Nodes[node]
	switch {
	case n.ID != "":
		return fmt.Sprintf("%s %q", n.Op, n.ID)
	case n.Side != "" && len(n.Inputs) == 1:
		return fmt.Sprintf("side output %q of %s", n.Side, g.Name(n.Inputs[0]))
	}
	for up := node; len(g.Nodes[up].Inputs) > 0; {
		if up = g.Nodes[up].Inputs[0]; g.Nodes[up].ID != "" {
			return fmt.Sprintf("%s (step %d, behind %s %q)", n.Op, node, g.Nodes[up].Op, g.Nodes[up].ID)
		}
	}
	return fmt.Sprintf("%s (step %d)", n.Op, node)
}

// rejects reports whether a node is the side output of a stateful step: what
// came too late for it, or again. Of a window it may be declared before the
// window is, on the key that both work on.
func (g *Graph) rejects(node int) bool {
	n := g.Nodes[node]
	if n.Side == "" {
		return false
	}
	of := g.Nodes[n.Inputs[0]].Op
	return of.Stateful() || of == KeyBy
}

// outputs returns, by node, the nodes that it feeds, each once, in their order.
func (g *Graph) outputs() [][]int {
	outs := make([][]int, len(g.Nodes))
	for i, n := range g.Nodes {
		for _, in := range n.Inputs {
			if k := len(outs[in]); k == 0 || outs[in][k-1] != i { // a union may have an input twice
				outs[in] = append(outs[in], i)
			}
		}
	}
	return outs
}

// upstream returns, by node, whether node can be reached from it; node itself
// is included. Dead letters come from every step.
func (g *Graph) upstream(node int) []bool {
	up := make([]bool, len(g.Nodes))
	up[node] = true
	if g.Nodes[node].DeadLetters {
		for i := range up {
			up[i] = true
		}
		return up
	}
	for i := node; i >= 0; i-- { // inputs have smaller numbers
		if up[i] {
			for _, in := range g.Nodes[i].Inputs {
				up[in] = true
			}
		}
	}
	return up
}

// Short writes a duration without the zeros at its end: 1m, not 1m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
