package control

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

func testGraph() plan.Graph {
	return plan.Graph{Job: "clicks", KeyGroups: 128, Nodes: []plan.Node{
		{Op: plan.Source, ID: "clicks"},
		{Op: plan.KeyBy, Inputs: []int{0}, Key: "string"},
		{Op: plan.Window, ID: "minute", Inputs: []int{1}, Key: "string", Value: "int64", Size: time.Minute},
		{Op: plan.Map, ID: "minute", Side: "late", Inputs: []int{2}},
		{Op: plan.Count, ID: "total", Inputs: []int{1}, Key: "string", Value: "int64"},
		{Op: plan.Sink, ID: "rows", Inputs: []int{2}, Sink: &plan.SinkNode{Kind: transactional, Target: "a", Participant: "clicks.db"}},
	}}
}

func accept(_, _, _, _ string) error { return nil }

func reject(_, _, _, _ string) error { return errors.New("field N was int64 and is string") }

func TestCompare(t *testing.T) {
	tests := []struct {
		name     string
		change   func(*plan.Graph)
		migrate  func(fromKey, toKey, fromValue, toValue string) error
		says     []string
		added    []string
		migrated []string
	}{
		{name: "nothing", change: func(*plan.Graph) {}},
		{name: "what doesn't matter", change: func(g *plan.Graph) {
			g.Nodes[0].Disorder = time.Hour
			g.Nodes[2].Emit = "close"
			g.Nodes[5].Sink = &plan.SinkNode{Kind: transactional, Target: "b", Participant: "clicks.db"}
		}},
		{name: "lateness", change: func(g *plan.Graph) { g.Nodes[2].Lateness = time.Hour }, says: []string{"late", "1h0m0s"}},
		{name: "key groups", change: func(g *plan.Graph) { g.KeyGroups = 64 }, says: []string{"64", "128"}},
		{name: "step renamed", change: func(g *plan.Graph) { g.Nodes[4].ID = "sum" }, says: []string{"step total", "declare it again"}, added: []string{"sum"}},
		{name: "step removed", change: func(g *plan.Graph) { g.Nodes = slices.Delete(g.Nodes, 4, 5) }, says: []string{"step total (count)"}},
		{name: "source removed", change: func(g *plan.Graph) { g.Nodes[0].ID = "" }, says: []string{"source clicks"}},
		{name: "new step", change: func(g *plan.Graph) {
			g.Nodes = append(g.Nodes, plan.Node{Op: plan.Distinct, ID: "seen", Inputs: []int{1}})
		}, added: []string{"seen"}},
		{name: "new sink", change: func(g *plan.Graph) { g.Nodes = append(g.Nodes, plan.Node{Op: plan.Sink, ID: "more"}) }, says: []string{"sink more"}},
		{name: "sink removed", change: func(g *plan.Graph) { g.Nodes = g.Nodes[:5] }, says: []string{"sink rows"}},
		{name: "sink's kind", change: func(g *plan.Graph) {
			g.Nodes[5].Sink = &plan.SinkNode{Kind: "idempotent", Participant: "clicks.db"}
		}, says: []string{"sink rows", "transactional in clicks.db", "idempotent in clicks.db"}},
		{name: "sink's participant", change: func(g *plan.Graph) {
			g.Nodes[5].Sink = &plan.SinkNode{Kind: transactional, Participant: "other.db"}
		}, says: []string{"sink rows", "clicks.db", "other.db"}},
		{name: "window size", change: func(g *plan.Graph) { g.Nodes[2].Size = time.Hour }, says: []string{"step minute", "1m0s", "1h0m0s"}},
		{name: "window offset", change: func(g *plan.Graph) { g.Nodes[2].Offset = time.Second }, says: []string{"step minute", "offset 1s"}},
		{name: "another operation", change: func(g *plan.Graph) { g.Nodes[4].Op = plan.Fold }, says: []string{"step total", "count", "fold"}},
		{name: "value that loads", change: func(g *plan.Graph) { g.Nodes[4].Value = "pair" }, migrate: accept, migrated: []string{"total"}},
		{name: "value that doesn't", change: func(g *plan.Graph) { g.Nodes[4].Value = "pair" }, migrate: reject, says: []string{"step total", "int64", "pair", "field N"}},
		{name: "key", change: func(g *plan.Graph) { g.Nodes[2].Key = "int64" }, migrate: table.Migration, says: []string{"step minute", "string", "int64"}},
		{name: "two at once", change: func(g *plan.Graph) { g.KeyGroups, g.Nodes[2].Size = 1, 1 }, says: []string{"key groups", "step minute"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := testGraph()
			tt.change(&now)
			c := compare(testGraph(), now, tt.migrate)
			err := c.err()
			if len(tt.says) > 0 {
				wants(t, err, ErrRefused, tt.says...)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
			if !slices.Equal(c.added, tt.added) || !slices.Equal(c.migrated, tt.migrated) {
				t.Errorf("added %q, migrated %q; want %q and %q", c.added, c.migrated, tt.added, tt.migrated)
			}
		})
	}
}
