package plan

import "slices"

// Stage is what is fused between two exchanges: a source or a stateful step,
// and every step behind it up to the next exchanges.
type Stage struct {
	Name  string // the id of its head
	Head  int
	Nodes []int // in order; the head is first
}

// Stages cuts the graph before each stateful step. A step behind a union
// belongs to every stage that feeds the union; the late records of a window
// belong to the window's. A stateful step that exactly one task feeds may run
// inside that task, so this is the most there can be.
func (g *Graph) Stages() []Stage {
	outs := g.outputs()
	var stages []Stage
	for head, n := range g.Nodes {
		if n.Op != Source && !n.Op.Stateful() {
			continue
		}
		nodes := []int{head}
		for at := 0; at < len(nodes); at++ {
			if g.Nodes[nodes[at]].Op == KeyBy { // an exchange, and late records of a window behind it
				continue
			}
			next := outs[nodes[at]]
			if at == 0 && n.Op == Window {
				next = append(slices.Clone(next), g.lateOn(n.Inputs[0], outs)...)
			}
			for _, to := range next {
				if !g.Nodes[to].Op.Stateful() && !slices.Contains(nodes, to) {
					nodes = append(nodes, to)
				}
			}
		}
		slices.Sort(nodes[1:])
		stages = append(stages, Stage{n.ID, head, nodes})
	}
	return stages
}

// lateOn returns the late records of the windows on a key.
func (g *Graph) lateOn(key int, outs [][]int) []int {
	var late []int
	for _, to := range outs[key] {
		if g.rejects(to) {
			late = append(late, to)
		}
	}
	return late
}
