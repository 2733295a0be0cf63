package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// View is what a drawing shows besides the graph itself.
type View struct {
	Parallelism int               // tasks a keyed stage; 0: not known
	Splits      map[string]int    // by source id; 0: not known
	Fates       map[string]string // by id: what becomes of it, such as "kept"
}

// card is what is drawn as one box: the steps that run in the same stages.
type card struct {
	title, tasks string
	nodes        []int
	rows         []row
	level        int // column, from the left
	x, y, h      int
	lane         bool // no box: an edge passes here between two columns
}

// row is one step in its card.
type row struct {
	node, depth int
	parent      int // node that it hangs below, in the same card; -1: none
	text        []string
	y, h        int // from the top of the card
}

// join is an edge between two cards.
type join struct {
	from, to int // nodes
	label    string
	fused    bool  // both ends run in one task
	way      []int // cards from one end to the other
}

// picture is a graph laid out from left to right, stages in columns.
type picture struct {
	g     *Graph
	v     View
	cards []card
	home  []int // card of a node
	joins []join
	w, h  int
}

// cards groups the steps: a step belongs to the stages that it runs in, and a
// union with what follows it to several.
func (g *Graph) cards(v View) (cards []card, home []int) {
	stages := g.Stages()
	in := make([][]string, len(g.Nodes))
	heads := map[string]int{}
	for _, s := range stages {
		heads[s.Name] = s.Head
		for _, n := range s.Nodes {
			in[n] = append(in[n], s.Name)
		}
	}
	home = make([]int, len(g.Nodes))
	at := map[string]int{}
	for i := range g.Nodes {
		name := strings.Join(in[i], " and ")
		k, ok := at[name]
		if !ok {
			k = len(cards)
			at[name] = k
			c := card{title: "stage " + name}
			switch len(in[i]) {
			case 0:
				c.title, c.tasks = "from every step", ""
			case 1:
				c.tasks = g.tasks(heads[name], v)
			default:
				c.title, c.tasks = "in the tasks of "+name, ""
			}
			cards = append(cards, c)
		}
		cards[k].nodes = append(cards[k].nodes, i)
		home[i] = k
	}
	return cards, home
}

// tasks says how many tasks the stage of a head has.
func (g *Graph) tasks(head int, v View) string {
	n := g.Nodes[head]
	switch {
	case g.Fused(head, v.Parallelism):
		return "in the task before it"
	case v.Parallelism == 0:
		return ""
	case n.Op != Source:
		return plural(v.Parallelism, "task")
	case v.Splits[n.ID] > 0:
		return plural(min(v.Parallelism, v.Splits[n.ID]), "task") + ", " + plural(v.Splits[n.ID], "split")
	}
	return fmt.Sprintf("a task a split, at most %d", v.Parallelism)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Fused reports whether a stateful step runs in the task that feeds it: there is
// one only, on one way only, or the step would count each way for itself.
func (g *Graph) Fused(node, parallelism int) bool {
	return parallelism == 1 && g.Nodes[node].Op.Stateful() && len(g.feeds(g.Nodes[node].Inputs)) == 1
}

// feeds lists the heads of the tasks, of one each, that a step with these inputs
// gets records from, once for each way.
func (g *Graph) feeds(inputs []int) []int {
	var out []int
	for _, i := range inputs {
		n := g.Nodes[i]
		switch {
		case n.Op == Source:
			out = append(out, i)
		case n.Op.Stateful() && len(g.feeds(n.Inputs)) > 1:
			out = append(out, i)
		default:
			out = append(out, g.feeds(n.Inputs)...)
		}
	}
	return out
}

// source is the node that a step's input comes from in a drawing. The late
// records of a window may be declared on its key, and come from the window.
func (g *Graph) source(node, in int) int {
	if !g.rejects(node) || g.Nodes[in].Op != KeyBy {
		return in
	}
	for i, n := range g.Nodes {
		if n.Op == Window && n.Inputs[0] == in {
			return i
		}
	}
	return in
}

// layout puts cards, rows and edges where they are drawn.
func (g *Graph) layout(v View) *picture {
	p := &picture{g: g, v: v}
	p.cards, p.home = g.cards(v)
	for i := range p.cards {
		p.fill(&p.cards[i])
	}
	p.connect()
	p.columns()
	p.place()
	return p
}

// fill makes the rows of a card: each step with all that hangs below it, before
// the next.
func (p *picture) fill(c *card) {
	below := map[int][]int{}
	for _, i := range c.nodes {
		up := p.above(c, i)
		below[up] = append(below[up], i)
	}
	y := headHeight
	var add func(up, depth int)
	add = func(up, depth int) {
		for _, i := range below[up] {
			r := row{node: i, depth: depth, parent: up, y: y}
			r.text = wrap(strings.Join(p.g.settings(i), ", "), (cardWidth-2*pad-depth*indent)/smallChar)
			r.h = titleHeight + len(r.text)*lineHeight + rowGap
			y += r.h
			c.rows = append(c.rows, r)
			next := depth
			if len(below[i]) > 1 {
				next = min(depth+1, maxDepth)
			}
			add(i, next)
		}
	}
	add(-1, 0)
	c.h = y + pad/2
}

// above is the step of the same card that another one hangs below; -1: none.
func (p *picture) above(c *card, i int) int {
	for _, in := range p.g.Nodes[i].Inputs {
		if from := p.g.source(i, in); slices.Contains(c.nodes, from) {
			return from
		}
	}
	return -1
}

// connect finds the edges between cards.
func (p *picture) connect() {
	for i, n := range p.g.Nodes {
		for k, in := range n.Inputs {
			from := p.g.source(i, in)
			if p.home[from] == p.home[i] || slices.Contains(n.Inputs[:k], in) {
				continue
			}
			j := join{from: from, to: i}
			switch {
			case p.g.Fused(i, p.v.Parallelism):
				j.label, j.fused = "same task", true
			case n.Op.Stateful():
				j.label = "exchange by key"
			default:
				j.fused = true
			}
			p.joins = append(p.joins, j)
		}
	}
}

// columns gives each card its level, and edges that pass others a lane.
func (p *picture) columns() {
	for changed := true; changed; {
		changed = false
		for _, j := range p.joins {
			if a, b := &p.cards[p.home[j.from]], &p.cards[p.home[j.to]]; b.level <= a.level {
				b.level, changed = a.level+1, true
			}
		}
	}
	for i := range p.joins {
		j := &p.joins[i]
		j.way = []int{p.home[j.from]}
		for level := p.cards[p.home[j.from]].level + 1; level < p.cards[p.home[j.to]].level; level++ {
			j.way = append(j.way, len(p.cards))
			p.cards = append(p.cards, card{level: level, lane: true, h: lineHeight})
		}
		j.way = append(j.way, p.home[j.to])
	}
}

// place stacks the cards of each column, each as near as can be to the height
// of what feeds it.
func (p *picture) place() {
	levels := 0
	for _, c := range p.cards {
		levels = max(levels, c.level+1)
	}
	for level := range levels {
		var column []int
		wish := map[int]int{}
		for i, c := range p.cards {
			if c.level == level {
				column = append(column, i)
				wish[i] = p.wish(i)
			}
		}
		slices.SortStableFunc(column, func(a, b int) int { return cmp.Compare(wish[a], wish[b]) })
		y := margin
		for _, i := range column {
			c := &p.cards[i]
			c.x, c.y = margin+level*(cardWidth+columnGap), max(y, wish[i])
			y = c.y + c.h + cardGap
			p.w, p.h = max(p.w, c.x+cardWidth+margin), max(p.h, c.y+c.h+margin)
		}
	}
}

// wish is where the top of a card would be for its first edge to be straight.
func (p *picture) wish(i int) int {
	for _, j := range p.joins {
		at := slices.Index(j.way, i)
		if at < 1 {
			continue
		}
		if from := p.cards[j.way[at-1]]; from.lane {
			return from.y
		}
		return p.port(j.from) - headHeight - titleHeight/2
	}
	return margin
}

// port is the height at which edges leave and reach a step.
func (p *picture) port(node int) int {
	c := p.cards[p.home[node]]
	for _, r := range c.rows {
		if r.node == node {
			return c.y + r.y + titleHeight/2
		}
	}
	return c.y
}

// wrap breaks a text into lines of at most width characters, at spaces where
// there are some.
func wrap(text string, width int) []string {
	var lines []string
	rest := []rune(text)
	for len(rest) > width {
		at := width
		for i := width; i > width/3; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		lines = append(lines, string(rest[:at]))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
	}
	if len(rest) > 0 {
		lines = append(lines, string(rest))
	}
	return lines
}
