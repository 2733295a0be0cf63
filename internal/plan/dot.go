package plan

import (
	"fmt"
	"strings"
)

// DOT is the graph in the language of Graphviz: a cluster for each stage, and
// the exchanges between them. The same graph always gives the same text.
func (g *Graph) DOT(v View) string {
	cards, home := g.cards(v)
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", quoted(g.Job))
	b.WriteString("  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"monospace\", fontsize=11];\n")
	b.WriteString("  edge [fontname=\"monospace\", fontsize=10];\n")
	for i, c := range cards {
		title := c.title
		if c.tasks != "" {
			title += " (" + c.tasks + ")"
		}
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s; fontname=\"monospace\"; fontsize=11; style=rounded; color=gray;\n", i, quoted(title))
		for _, n := range c.nodes {
			fmt.Fprintf(&b, "    n%d [label=%s%s];\n", n, quoted(g.box(n, v)), fill(g.Nodes[n].Op))
		}
		b.WriteString("  }\n")
	}
	for i, n := range g.Nodes {
		for _, in := range n.Inputs {
			from := g.source(i, in)
			attr := ""
			if n.Op.Stateful() {
				attr = ` [label="exchange by key"]`
				if g.Fused(i, v.Parallelism) {
					attr = ` [label="same task", style=dashed]`
				}
			} else if home[from] != home[i] {
				attr = " [style=dashed]"
			}
			fmt.Fprintf(&b, "  n%d -> n%d%s;\n", from, i, attr)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// box is the text of a step in a drawing.
func (g *Graph) box(i int, v View) string {
	n := g.Nodes[i]
	title := string(n.Op)
	if n.Side != "" {
		title = "side output " + n.Side
	}
	if n.ID != "" && n.Side == "" {
		title = n.ID + " (" + title + ")"
		if f := v.Fates[n.ID]; f != "" {
			title += ": " + f
		}
	}
	return strings.Join(append([]string{title}, wrap(printable(strings.Join(g.settings(i), ", ")), 40)...), "\n")
}

func fill(op Op) string {
	switch {
	case op == Source:
		return ", fillcolor=\"#d9f2e3\""
	case op == Sink:
		return ", fillcolor=\"#fbe5d6\""
	case op.Stateful():
		return ", fillcolor=\"#dbe9f8\""
	}
	return ""
}

// quoted makes a text a string of DOT, lines left-aligned.
func quoted(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\l`).Replace(s)
	if strings.Contains(s, `\l`) {
		s += `\l`
	}
	return `"` + s + `"`
}
