package plan

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// lettered is a job with a sink for dead letters, declared before its steps, as a
// user may do.
func lettered(kind string) *Graph {
	sink := func(kind, participant string) *SinkNode {
		return &SinkNode{Kind: kind, Target: "a table", Participant: participant}
	}
	return &Graph{Job: "job", KeyGroups: 128, Nodes: []Node{
		{Op: Sink, ID: "dead", Sink: sink(kind, "db"), DeadLetters: true},
		{Op: Source, ID: "in", EventTime: true},
		{Op: TryFlatMap, Inputs: []int{1}},
		{Op: KeyBy, Inputs: []int{2}, Key: "string"},
		{Op: Distinct, ID: "seen", Inputs: []int{3}, TTL: time.Hour, Admit: time.Hour},
		{Op: Sink, ID: "out", Inputs: []int{4}, Sink: sink(kind, "db")},
	}}
}

func TestDeadLettersInAPlan(t *testing.T) {
	g := lettered(TransactionalSink)
	if errs := g.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	if text := g.String(); !strings.HasPrefix(text, "job job, 128 key groups\n\n  0  sink dead: dead letters of every step, transactional, a table, participant db\n  1  source in") {
		t.Errorf("printed:\n%s", text)
	}
	run := Settings{Checkpointed: true, Parallelism: 4, Splits: map[string]int{"in": 3}}
	q := g.Guarantees(run)
	if len(q) != 2 || q[0].Sink != "dead" || q[0].Level != Once || !slices.Contains(q[0].Also, "in one transaction with sink out") {
		t.Errorf("guarantees %+v", q)
	}
	// Letters come from every step, so what depends on timing anywhere may show in
	// those that are written early.
	q = lettered(IdempotentSink).Guarantees(run)
	if !slices.ContainsFunc(q[0].Needs, func(s string) bool {
		return strings.HasPrefix(s, `distinct "seen": all records of one key are in one split`)
	}) {
		t.Errorf("an eager sink for dead letters needs %q", q[0].Needs)
	}
	for _, c := range []struct {
		name   string
		change func(g *Graph)
		says   string
	}{
		{"as the only sink", func(g *Graph) { g.Nodes = g.Nodes[:5] }, "the job has no sink"},
		{"with an input", func(g *Graph) {
			g.Nodes = append(g.Nodes, Node{Op: Sink, ID: "more", Inputs: []int{2}, Sink: g.Nodes[0].Sink, DeadLetters: true})
		}, "want no input"},
		{"any other sink without one", func(g *Graph) { g.Nodes[0].DeadLetters = false }, "want 1 input"},
	} {
		g := lettered(TransactionalSink)
		c.change(g)
		if errs := g.Validate(); !slices.ContainsFunc(errs, func(err error) bool { return strings.Contains(err.Error(), c.says) }) {
			t.Errorf("%s: %v, want %q", c.name, errs, c.says)
		}
	}
}
