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
// belongs to every stage that feeds the union. A stateful step that exactly
// one task feeds may run inside that task, so this is the most there can be.
func (g *Graph) Stages() []Stage {
	outs := g.outputs()
	var stages []Stage
	for head, n := range g.Nodes {
		if n.Op != Source && !n.Op.Stateful() {
			continue
		}
		nodes := []int{head}
		for at := 0; at < len(nodes); at++ {
			for _, to := range outs[nodes[at]] {
				if !g.Nodes[to].Op.Stateful() && !slices.Contains(nodes, to) {
					nodes = append(nodes, to)
				}
			}
		}
		slices.Sort(nodes) // the head stays first: it has the smallest number
		stages = append(stages, Stage{n.ID, head, nodes})
	}
	return stages
}
