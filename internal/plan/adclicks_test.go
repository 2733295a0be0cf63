package plan

import "time"

// adClicks is the shape of the example that the docs tell: clicks, each id
// once, per ad and minute and per ad. kind is that of both sinks.
func adClicks(kind, emit string) *Graph {
	sink := func(table string) *SinkNode {
		return &SinkNode{
			Kind:        kind,
			Target:      `table "` + table + `" in clicks.db`,
			Participant: "sqlite clicks.db",
		}
	}
	return &Graph{Job: "ad-clicks", KeyGroups: 128, Nodes: []Node{
		{Op: Source, ID: "clicks", EventTime: true, Disorder: 30 * time.Second},
		{Op: KeyBy, Inputs: []int{0}},
		{Op: Distinct, ID: "seen", Inputs: []int{1}, Key: "string", Value: "int64", TTL: time.Hour, Admit: 31 * time.Minute},
		{Op: KeyBy, Inputs: []int{2}},
		{Op: Window, ID: "per-minute", Inputs: []int{3}, Key: "string", Value: "int64", Size: time.Minute, Lateness: 30 * time.Minute, Emit: emit, Aggregate: "count"},
		{Op: Map, Inputs: []int{4}},
		{Op: Sink, ID: "ad-minute", Inputs: []int{5}, Sink: sink("ad_minute")},
		{Op: KeyBy, Inputs: []int{2}},
		{Op: Count, ID: "per-ad", Inputs: []int{7}, Key: "string", Value: "int64", Emit: EmitRecord},
		{Op: Map, Inputs: []int{8}},
		{Op: Sink, ID: "ad-total", Inputs: []int{9}, Sink: sink("ad_total")},
	}}
}
