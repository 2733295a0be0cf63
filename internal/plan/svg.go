package plan

import (
	"fmt"
	"strings"
)

// Sizes of a drawing, in pixels. The font's characters are of one width, so
// that texts can be measured without it.
const (
	margin      = 24
	cardWidth   = 320
	columnGap   = 130
	cardGap     = 28
	headHeight  = 32
	titleHeight = 20
	lineHeight  = 15
	rowGap      = 10
	pad         = 14
	indent      = 16
	maxDepth    = 8 // of steps below each other that are indented
	smallChar   = 7 // a character of a settings line, a little more than it is
	titleChar   = 8
)

const svgStyle = `  <style>
    text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2933; }
    .title { font-size: 13px; font-weight: 600; }
    .op, .set, .tasks, .label { font-size: 11px; fill: #52606d; }
    .head { font-size: 12px; font-weight: 600; fill: #323f4b; }
    .card { fill: #f7f9fb; stroke: #cbd2d9; }
    .bar-source { fill: #2f9e63; } .bar-state { fill: #2b6cb0; } .bar-sink { fill: #c05621; } .bar-step { fill: #9aa5b1; }
    .tree { stroke: #cbd2d9; fill: none; }
    .edge { stroke: #52606d; stroke-width: 1.5; fill: none; } .fused { stroke-dasharray: 5 4; }
    .fate { font-size: 10px; font-weight: 600; fill: #ffffff; }
    .f-kept { fill: #7b8794; } .f-new { fill: #2f9e63; } .f-migrated, .f-renamed, .f-changed { fill: #6b46c1; }
    .f-refused { fill: #c53030; } .f-dropped, .f-not-compared { fill: #b7791f; }
  </style>
`

// SVG is the graph as a picture: stages from left to right, the steps of each
// below each other, and the exchanges between them. It needs nothing from
// elsewhere, and the same graph always gives the same bytes.
func (g *Graph) SVG(v View) string {
	p := g.layout(v)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n", p.w, p.h+titleHeight, p.w, p.h+titleHeight)
	fmt.Fprintf(&b, "  <title>%s</title>\n", escape("job "+g.Job))
	b.WriteString(svgStyle)
	b.WriteString(`  <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `  <rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	fmt.Fprintf(&b, `  <text class="head" x="%d" y="%d">%s</text>`+"\n", margin, 20, escape(fmt.Sprintf("job %s, %s", g.Job, plural(g.KeyGroups, "key group"))))
	fmt.Fprintf(&b, `  <g transform="translate(0 %d)">`+"\n", titleHeight)
	for _, j := range p.joins {
		p.edge(&b, j)
	}
	for _, c := range p.cards {
		if !c.lane {
			p.card(&b, c)
		}
	}
	for _, j := range p.joins {
		p.label(&b, j)
	}
	b.WriteString("  </g>\n</svg>\n")
	return b.String()
}

func (p *picture) card(b *strings.Builder, c card) {
	fmt.Fprintf(b, `  <rect class="card" x="%d" y="%d" width="%d" height="%d" rx="8"/>`+"\n", c.x, c.y, cardWidth, c.h)
	fmt.Fprintf(b, `  <text class="head" x="%d" y="%d">%s</text>`+"\n", c.x+pad, c.y+20, escape(clip(c.title, (cardWidth-2*pad)/titleChar-len(c.tasks)*smallChar/titleChar-1)))
	if c.tasks != "" {
		fmt.Fprintf(b, `  <text class="tasks" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", c.x+cardWidth-pad, c.y+20, escape(c.tasks))
	}
	at := map[int]row{}
	for _, r := range c.rows {
		at[r.node] = r
		if up, ok := at[r.parent]; ok {
			x, y := c.x+pad+up.depth*indent+2, c.y+r.y+titleHeight/2
			fmt.Fprintf(b, `  <path class="tree" d="M%d %dV%dH%d"/>`+"\n", x, c.y+up.y+titleHeight, y, c.x+pad+r.depth*indent)
		}
	}
	for _, r := range c.rows {
		p.row(b, c, r)
	}
}

func (p *picture) row(b *strings.Builder, c card, r row) {
	n := p.g.Nodes[r.node]
	x, y := c.x+pad+r.depth*indent, c.y+r.y
	fmt.Fprintf(b, `  <rect class="bar-%s" x="%d" y="%d" width="4" height="%d" rx="2"/>`+"\n", colour(n.Op), x, y+3, r.h-rowGap-2)
	title, op := n.ID, string(n.Op)
	if n.Side != "" {
		title, op = n.Side, "side output"
	}
	fate := p.v.Fates[n.ID]
	if n.Side != "" {
		fate = ""
	}
	room := (cardWidth-2*pad-r.depth*indent-12-smallChar*(len(op)+len(fate)+2))/titleChar - 1
	if title == "" {
		title, op = op, ""
	}
	title = clip(title, room)
	fmt.Fprintf(b, `  <text x="%d" y="%d"><tspan class="title">%s</tspan>`, x+12, y+14, escape(title))
	if op != "" {
		fmt.Fprintf(b, `<tspan class="op" dx="8">%s</tspan>`, escape(op))
	}
	b.WriteString("</text>\n")
	if fate != "" {
		w := 12 + 6*len(fate)
		left := c.x + cardWidth - pad - w
		fmt.Fprintf(b, `  <rect class="f-%s" x="%d" y="%d" width="%d" height="16" rx="8"/>`+"\n", strings.ReplaceAll(fate, " ", "-"), left, y+2, w)
		fmt.Fprintf(b, `  <text class="fate" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+w/2, y+13, escape(fate))
	}
	for i, line := range r.text {
		fmt.Fprintf(b, `  <text class="set" x="%d" y="%d">%s</text>`+"\n", x+12, y+titleHeight+11+i*lineHeight, escape(line))
	}
}

// edge draws the way of an edge: from the right side of one card, through the
// lanes, to the left side of the other.
func (p *picture) edge(b *strings.Builder, j join) {
	class := "edge"
	if j.fused {
		class += " fused"
	}
	var d strings.Builder
	x, y := 0, 0
	for i, at := range j.way {
		c := p.cards[at]
		if i > 0 {
			toX, toY := c.x, c.y+c.h/2
			if !c.lane {
				toX, toY = c.x-2, p.port(j.to)
			}
			mid := (x + toX) / 2
			fmt.Fprintf(&d, "C%d %d %d %d %d %d", mid, y, mid, toY, toX, toY)
			x, y = toX, toY
		}
		switch {
		case i == 0:
			x, y = c.x+cardWidth, p.port(j.from)
			fmt.Fprintf(&d, "M%d %d", x, y)
		case c.lane:
			x = c.x + cardWidth
			fmt.Fprintf(&d, "H%d", x)
		}
	}
	fmt.Fprintf(b, `  <path class="%s" d="%s" marker-end="url(#arrow)"/>`+"\n", class, d.String())
}

// label writes what an edge is in front of where it ends, on the side of it that
// the edge doesn't come from.
func (p *picture) label(b *strings.Builder, j join) {
	if j.label == "" {
		return
	}
	x, y, w := p.cards[p.home[j.to]].x-columnGap/2-4, p.port(j.to)-7, len(j.label)*smallChar
	if p.port(j.from) < p.port(j.to) {
		y += titleHeight + 4
	}
	fmt.Fprintf(b, `  <rect fill="#ffffff" x="%d" y="%d" width="%d" height="13"/>`+"\n", x-w/2, y-10, w)
	fmt.Fprintf(b, `  <text class="label" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x, y, escape(j.label))
}

func colour(op Op) string {
	switch {
	case op == Source, op == Sink:
		return string(op)
	case op.Stateful():
		return "state"
	}
	return "step"
}

func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width || width < 2 {
		return s
	}
	return string(r[:width-1]) + "…"
}

// escape makes a text one of XML.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(printable(s))
}

// printable replaces what XML has no way to write, and what would end a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, s)
}
