package plan

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file below testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// branchy has what the ad-click graph hasn't: two sources, a union, side
// outputs, an admission from windows, an offset.
func branchy() *Graph {
	return &Graph{Job: "branchy", KeyGroups: 4, Nodes: []Node{
		{Op: Source, ID: "web", EventTime: true, Disorder: 1500 * time.Millisecond},
		{Op: Source, ID: "app", EventTime: true},
		{Op: Split, Inputs: []int{0}},
		{Op: Split, Inputs: []int{2}, Side: "rest"},
		{Op: Union, Inputs: []int{1, 2}},
		{Op: KeyBy, Inputs: []int{4}},
		{Op: Distinct, ID: "once", Inputs: []int{5}, Key: "string", TTL: 90 * time.Minute},
		{Op: KeyBy, Inputs: []int{6}},
		{Op: Window, ID: "daily", Inputs: []int{7}, Key: "string", Size: 24 * time.Hour, Offset: 6 * time.Hour, Emit: EmitClose, Aggregate: "reduce"},
		{Op: Split, Inputs: []int{8}, Side: "late"},
		{Op: Sink, ID: "out", Inputs: []int{8}, Sink: &SinkNode{Kind: IdempotentSink, Target: "somewhere"}},
		{Op: Sink, ID: "late", Inputs: []int{9}, Sink: &SinkNode{Kind: AtLeastOnceSink, Target: "standard output"}},
		{Op: Sink, ID: "rest", Inputs: []int{3}, Sink: &SinkNode{Kind: AtLeastOnceSink, Target: "standard output"}},
		{Op: Source, ID: "raw"},
		{Op: Sink, ID: "copy", Inputs: []int{13}, Sink: &SinkNode{Kind: FollowingSink, Target: "a log"}},
	}}
}

func TestPrintedPlan(t *testing.T) {
	for name, g := range map[string]*Graph{
		"adclicks.plan": adClicks(TransactionalSink, EmitBarrier),
		"branchy.plan":  branchy(),
	} {
		if errs := g.Validate(); errs != nil {
			t.Fatalf("%s: %v", name, errs)
		}
		golden(t, name, g.String())
		if a, b := g.String(), g.String(); a != b {
			t.Errorf("%s: two prints differ", name)
		}
	}
}

func TestStages(t *testing.T) {
	type stage struct {
		name  string
		nodes []int
	}
	for _, c := range []struct {
		name string
		g    *Graph
		want []stage
	}{
		{"ad clicks", adClicks(TransactionalSink, EmitBarrier), []stage{
			{"clicks", []int{0, 1}}, {"seen", []int{2, 3, 7}}, {"per-minute", []int{4, 5, 6}}, {"per-ad", []int{8, 9, 10}}}},
		{"behind a union twice", branchy(), []stage{
			{"web", []int{0, 2, 3, 4, 5, 12}}, {"app", []int{1, 4, 5}}, {"once", []int{6, 7}},
			{"daily", []int{8, 9, 10, 11}}, {"raw", []int{13, 14}}}},
		{"late records declared on the key", with(func(g *Graph) {
			late := add(g, Node{Op: Split, Inputs: []int{3}, Side: "late"})
			add(g, Node{Op: Sink, ID: "late", Inputs: []int{late}, Sink: &SinkNode{}})
		}), []stage{{"clicks", []int{0, 1}}, {"seen", []int{2, 3, 7}}, {"per-minute", []int{4, 5, 6, 11, 12}}, {"per-ad", []int{8, 9, 10}}}},
		{"a union of a stream with itself", &Graph{Nodes: []Node{{Op: Source, ID: "s"}, {Op: Union, Inputs: []int{0, 0}}, {Op: Sink, ID: "o", Inputs: []int{1}}}},
			[]stage{{"s", []int{0, 1, 2}}}},
		{"nothing", &Graph{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []stage
			for _, s := range c.g.Stages() {
				got = append(got, stage{s.Name, s.Nodes})
				if s.Head != s.Nodes[0] {
					t.Errorf("stage %s: head %d isn't its first node, %d", s.Name, s.Head, s.Nodes[0])
				}
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(stage{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 24 * time.Hour: "24h",
		90 * time.Second: "1m30s", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s", -time.Minute: "-1m",
	} {
		if got := Short(d); got != want {
			t.Errorf("Short(%d) = %q, want %q", d, got, want)
		}
	}
}
