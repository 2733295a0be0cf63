package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompatible(t *testing.T) {
	const (
		seen  = `distinct "seen"`
		wins  = `window "per-minute"`
		count = `count "per-ad"`
		total = `sink "ad-total"`
	)
	for _, c := range []struct {
		name    string
		edit    func(*Graph)
		what    string
		verdict Verdict
		why     string // a part of it; empty: nothing changed
	}{
		{"nothing", func(*Graph) {}, seen, Kept, ""},
		{"job name", func(g *Graph) { g.Job = "x" }, "job", Refuse, `its name was "ad-clicks" and is "x"`},
		{"key groups", func(g *Graph) { g.KeyGroups = 64 }, "key groups", Refuse, "there were 128 and are 64"},

		{"time-to-live", func(g *Graph) { g.Nodes[2].TTL = 2 * time.Hour }, seen, Kept, "time-to-live was 1h and is 2h"},
		{"admission", func(g *Graph) { g.Nodes[2].Admit = time.Hour }, seen, Kept, "Admit was 31m and is 1h"},
		{"lateness", func(g *Graph) { g.Nodes[4].Lateness = 0 }, wins, Kept, "lateness was 30m and is 0s"},
		{"emission", func(g *Graph) { g.Nodes[4].Emit = EmitClose }, wins, Kept, "it emitted what changed at each barrier and emits on close"},
		{"disorder", func(g *Graph) { g.Nodes[0].Disorder = 0 }, `source "clicks"`, Kept, "disorder was 30s and is 0s"},
		{"two settings", func(g *Graph) { g.Nodes[4].Lateness, g.Nodes[4].Emit = 0, EmitRecord }, wins, Kept, "is 0s; it emitted"},

		{"key", func(g *Graph) { g.Nodes[8].Key = "int64" }, count, Refuse, "its key was string and is int64"},
		{"value that can be migrated", func(g *Graph) { g.Nodes[8].Value = "{n int64}" }, count, Migrated, "its state was int64 and is {n int64}"},
		{"value that can't", func(g *Graph) { g.Nodes[8].Value = "float64" }, count, Refuse, "can't be migrated: no float64"},
		{"window size", func(g *Graph) { g.Nodes[4].Size = time.Hour }, wins, Refuse, "were 1m long and are 1h"},
		{"window offset", func(g *Graph) { g.Nodes[4].Offset = time.Second }, wins, Refuse, "was 0s and is 1s"},
		{"aggregate", func(g *Graph) { g.Nodes[4].Aggregate = "reduce" }, wins, Refuse, "that of count, and is now to be that of reduce"},
		{"aggregate not known", func(g *Graph) { g.Nodes[4].Aggregate = "" }, wins, Kept, ""},
		{"operation", func(g *Graph) { g.Nodes[8].Op = Fold }, `fold "per-ad"`, Refuse, "it was a count"},
		{"renamed: the old one", func(g *Graph) { g.Nodes[8].ID = "ads" }, count, Refuse, "its state would be lost"},
		{"renamed: the new one", func(g *Graph) { g.Nodes[8].ID = "ads" }, `count "ads"`, New, "starts empty"},
		{"a sink under a step's id", func(g *Graph) { g.Nodes[8].ID, g.Nodes[10].ID = "ads", "per-ad" }, `sink "per-ad"`, Refuse, "it was a count"},

		{"source renamed: the old one", func(g *Graph) { g.Nodes[0].ID = "x" }, `source "clicks"`, Refuse, "its positions would be lost"},
		{"source renamed: the new one", func(g *Graph) { g.Nodes[0].ID = "x" }, `source "x"`, New, "start position"},
		{"sink removed", func(g *Graph) { g.Nodes = g.Nodes[:10] }, total, Refuse, "its ledger would stay behind"},
		{"sink added", func(g *Graph) { add(g, Node{Op: Sink, ID: "x", Inputs: []int{9}, Sink: &SinkNode{}}) }, `sink "x"`, Refuse, "it is new"},
		{"kind", func(g *Graph) { g.Nodes[10].Sink.Kind = IdempotentSink }, total, Refuse, "it was transactional and is idempotent"},
		{"participant", func(g *Graph) { g.Nodes[10].Sink.Participant = "x" }, total, Refuse, "belonged to sqlite clicks.db and belongs to x"},
		{"target", func(g *Graph) { g.Nodes[10].Sink.Target = "x" }, total, Kept, "stays where it is"},
		{"steps without an id", func(g *Graph) { g.Nodes[9].Op = FlatMap }, total, Kept, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The old graph has been through a start entry.
			var old Graph
			b, err := json.Marshal(adClicks(TransactionalSink, EmitBarrier))
			if err == nil {
				err = json.Unmarshal(b, &old)
			}
			if err != nil {
				t.Fatal(err)
			}
			changes := Compatible(&old, with(c.edit), func(_, _, _, value string) error {
				if value == "float64" {
					return errors.New("no float64")
				}
				return nil
			})
			at := slices.IndexFunc(changes, func(ch Change) bool { return ch.What == c.what })
			if at < 0 {
				t.Fatalf("nothing about %s in %v", c.what, changes)
			}
			got := changes[at]
			if got.Verdict != c.verdict || (got.Why == "") != (c.why == "") || !strings.Contains(got.Why, c.why) {
				t.Errorf("got %+v, want %s with %q", got, c.verdict, c.why)
			}
			for _, ch := range changes {
				if (ch.Do != "") != (ch.Verdict == Refuse) {
					t.Errorf("%+v: what to do goes with a refusal, and only with it", ch)
				}
				if ch.Verdict == Refuse && c.verdict != Refuse && !strings.HasPrefix(c.name, "renamed") && !strings.HasPrefix(c.name, "source renamed") {
					t.Errorf("unexpected: %+v", ch)
				}
			}
		})
	}
}

// What stays the same is kept, all of it, in the order of the steps.
func TestCompatibleWithItself(t *testing.T) {
	g := branchy()
	var got []string
	for _, c := range Compatible(g, branchy(), func(_, _, _, _ string) error { return errors.New("nothing to migrate") }) {
		got = append(got, c.String())
	}
	want := []string{"key groups: kept", `source "web": kept`, `source "app": kept`, `distinct "once": kept`, `window "daily": kept`,
		`sink "out": kept`, `sink "late": kept`, `sink "rest": kept`, `source "raw": kept`, `sink "copy": kept`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
