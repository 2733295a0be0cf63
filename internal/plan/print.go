package plan

import (
	"fmt"
	"strings"
)

// String is the graph for people: each step below what feeds it, with its
// number, id and settings, and then the stages. A step with several inputs
// stands below the first, and the others refer to it. The same graph always
// gives the same text.
func (g *Graph) String() string {
	p := &printer{g: g, outs: g.outputs()}
	fmt.Fprintf(&p.b, "job %s, %d key groups\n\n", g.Job, g.KeyGroups)
	for i, n := range g.Nodes {
		if len(n.Inputs) == 0 {
			p.tree(i, 0)
		}
	}
	p.b.WriteString("\nstages\n")
	for _, s := range g.Stages() {
		fmt.Fprintf(&p.b, "  %s: %s\n", s.Name, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Nodes), " ", ", "), "[]"))
	}
	return p.b.String()
}

type printer struct {
	g    *Graph
	outs [][]int
	b    strings.Builder
}

// tree prints a node and what it feeds, indented.
func (p *printer) tree(i, depth int) {
	p.line(i, depth, p.g.describe(i))
	for _, to := range p.outs[i] {
		if first := p.g.Nodes[to].Inputs[0]; first != i {
			p.line(to, depth+1, fmt.Sprintf("%s, below step %d", p.g.Nodes[to].Op, first))
			continue
		}
		p.tree(to, depth+1)
	}
}

func (p *printer) line(i, depth int, text string) {
	fmt.Fprintf(&p.b, "%3d  %s%s\n", i, strings.Repeat("  ", depth), text)
}

// describe is one step with its settings.
func (g *Graph) describe(i int) string {
	n := g.Nodes[i]
	head := string(n.Op)
	if n.Side != "" {
		head = fmt.Sprintf("side output %s", n.Side)
	}
	if n.ID != "" {
		head += " " + n.ID
	}
	if s := g.settings(i); len(s) > 0 {
		head += ": " + strings.Join(s, ", ")
	}
	return head
}

// settings lists what is set on a step, in words.
func (g *Graph) settings(i int) []string {
	out := g.declared(i)
	if why := g.Nodes[i].Unsure; why != "" {
		out = append(out, why)
	}
	return out
}

func (g *Graph) declared(i int) []string {
	n := g.Nodes[i]
	out := n.reads()
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if n.Key != "" {
		add("key %s", n.Key)
	}
	if n.Value != "" {
		add("state %s", n.Value)
	}
	switch n.Op {
	case Source:
		switch {
		case !n.EventTime:
			add("no event time")
		case n.Disorder == 0:
			add("event time, in order")
		default:
			add("event time, up to %s out of order", Short(n.Disorder))
		}
	case Fold, Reduce, Count:
		if n.Emit != "" {
			add("emits %s", emits(n.Emit))
		}
	case Distinct:
		add("time-to-live %s", Short(n.TTL))
		if a, err := g.AdmitOf(i); err != nil {
			add("admission unknown")
		} else if n.Admit > 0 {
			add("admits what is less than %s behind", Short(a))
		} else {
			add("admits what is less than %s behind, as its windows do", Short(a))
		}
	case Window:
		if n.Aggregate != "" {
			add("%s", n.Aggregate)
		}
		add("tumbling %s", Short(n.Size))
		if n.Offset != 0 {
			add("offset %s", Short(n.Offset))
		}
		add("lateness %s", Short(n.Lateness))
		add("emits %s", emits(n.Emit))
	case Sink:
		switch {
		case n.Late:
			add("dead letters of every step and late records")
		case n.DeadLetters:
			add("dead letters of every step")
		}
		if n.Sink != nil && n.Unsure == "" {
			add("%s", n.Sink.Kind)
			add("%s", n.Sink.Target)
			if n.Sink.Participant != "" {
				add("participant %s", n.Sink.Participant)
			}
		}
	}
	return out
}

func emits(mode string) string {
	switch mode {
	case EmitRecord:
		return "at each record"
	case EmitBarrier:
		return "what changed at each barrier"
	case EmitClose:
		return "on close"
	}
	return fmt.Sprintf("%q", mode)
}

// reads is what a source says that it reads.
func (n *Node) reads() []string {
	if n.Reads == "" {
		return nil
	}
	return []string{n.Reads}
}
