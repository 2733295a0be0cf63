package plan

import (
	"strings"
	"testing"
	"time"
)

var oneFile = Settings{Checkpointed: true, Parallelism: 2, Splits: map[string]int{"clicks": 1}}

// files is oneFile with n files.
func files(n int) Settings {
	s := oneFile
	s.Splits = map[string]int{"clicks": n}
	return s
}

func TestExplain(t *testing.T) {
	inMemory := oneFile
	inMemory.Checkpointed = false
	for name, text := range map[string]string{
		"transactional.explain":         adClicks(TransactionalSink, EmitBarrier).Explain(oneFile),
		"transactional-memory.explain":  adClicks(TransactionalSink, EmitBarrier).Explain(inMemory),
		"upsert.explain":                adClicks(IdempotentSink, EmitRecord).Explain(oneFile),
		"upsert-several-splits.explain": adClicks(IdempotentSink, EmitRecord).Explain(files(3)),
		"increment.explain":             adClicks(AtLeastOnceSink, EmitRecord).Explain(oneFile),
		"branchy.explain":               branchy().Explain(Settings{Checkpointed: true, Parallelism: 1}),
	} {
		golden(t, name, text)
		if strings.Contains(strings.ToLower(text), "exactly") {
			t.Errorf("%s promises exactly-once:\n%s", name, text)
		}
	}
}

// TestGuarantee checks what holds for sink ad-total.
func TestGuarantee(t *testing.T) {
	type want struct {
		level     Level
		why       string   // a part of it; empty: there is none
		needs     []string // a part of each
		also      []string // a part of each
		readers   string
		noReaders string // must not be in it
	}
	memory := func(s Settings) Settings { s.Checkpointed = false; return s }
	for _, c := range []struct {
		name string
		g    *Graph
		run  Settings
		want want
	}{
		{"transactional", adClicks(TransactionalSink, EmitBarrier), oneFile,
			want{level: Once, also: []string{"in one transaction with sink ad-minute", "its transaction decides"}, readers: "in one transaction"}},
		{"transactional, splits interleave", adClicks(TransactionalSink, EmitBarrier), files(0),
			want{level: Once, also: []string{"ad-minute", "decides"}}},
		{"transactional without a state directory", adClicks(TransactionalSink, EmitBarrier), memory(oneFile),
			want{level: Refused, why: "without a state directory", needs: []string{"a state directory"}}},
		{"following without a state directory", adClicks(FollowingSink, EmitBarrier), memory(oneFile),
			want{level: Refused, why: "without a state directory", needs: []string{"a state directory"}}},
		{"following, the store decides", adClicks(FollowingSink, EmitBarrier), oneFile,
			want{level: Once, also: []string{"ad-minute", "entry in the store decides"}}},
		{"eager upsert", adClicks(IdempotentSink, EmitRecord), oneFile,
			want{level: Again, needs: []string{"a unique key per row"}, readers: "once the replay has passed the position of the crash"}},
		{"eager upsert, results at barriers", adClicks(IdempotentSink, EmitBarrier), oneFile,
			want{level: Again, needs: []string{"a unique key per row"}}},
		{"eager upsert, several splits", adClicks(IdempotentSink, EmitRecord), files(2),
			want{level: Again, needs: []string{"a unique key per row", `distinct "seen": all records of one key are in one split of source "clicks"`}}},
		{"eager upsert, splits not known", adClicks(IdempotentSink, EmitRecord), files(0),
			want{level: Again, needs: []string{"a unique key per row", `distinct "seen": all`}}},
		{"eager upsert, no checkpoints", adClicks(IdempotentSink, EmitRecord), memory(oneFile),
			want{level: AtLeastOnce, why: "no state directory", needs: []string{"unique key"}}},
		{"eager upsert behind state behind barriers", behindBarriers(IdempotentSink), oneFile,
			want{level: AtLeastOnce, why: `count "per-ad": it works on what window "per-minute" emits at barriers`, needs: []string{"unique key"}}},
		{"transaction behind state behind barriers", behindBarriers(TransactionalSink), oneFile,
			want{level: Once, also: []string{"ad-minute", "decides"}}},
		{"at least once", adClicks(AtLeastOnceSink, EmitRecord), oneFile,
			want{level: AtLeastOnce, why: "can't tell a repeat", needs: []string{"drops repeats"}, readers: "written again"}},
		{"at least once, no checkpoints", adClicks(AtLeastOnceSink, EmitRecord), memory(oneFile),
			want{level: AtLeastOnce, why: "no state directory", needs: []string{"drops repeats"}}},
		{"two transactional participants", with(func(g *Graph) { g.Nodes[10].Sink.Participant = "elsewhere" }), oneFile,
			want{level: Once, also: []string{"not at one instant with sink ad-minute", "transaction of sink ad-minute decides"}}},
		{"two that each stand alone", with(func(g *Graph) { g.Nodes[6].Sink.Participant, g.Nodes[10].Sink.Participant = "", "" }), oneFile,
			want{level: Once, also: []string{"not at one instant with sink ad-minute", "transaction of sink ad-minute decides"}}},
		{"follower of a transaction", with(func(g *Graph) { g.Nodes[10].Sink.Kind, g.Nodes[10].Sink.Participant = FollowingSink, "" }), oneFile,
			want{level: Once, also: []string{"not at one instant", "transaction of sink ad-minute decides"}}},
		{"beside a sink that promises less", with(func(g *Graph) { g.Nodes[6].Sink.Kind, g.Nodes[6].Sink.Participant = AtLeastOnceSink, "" }), oneFile,
			want{level: Once, also: []string{"its transaction decides"}}},
		{"the sink's own words", with(func(g *Graph) {
			g.Nodes[10].Sink.Readers, g.Nodes[10].Sink.Needs = "rows and ledger together", []string{"synchronous=FULL"}
		}), oneFile,
			want{level: Once, also: []string{"ad-minute", "decides"}, needs: []string{"synchronous=FULL"}, readers: "rows and ledger together", noReaders: "checkpoint"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if errs := c.g.Validate(); errs != nil {
				t.Fatal(errs)
			}
			all := c.g.Guarantees(c.run)
			if len(all) != 2 || all[1].Sink != "ad-total" || all[1].Target != `table "ad_total" in clicks.db` {
				t.Fatalf("guarantees %+v", all)
			}
			got := all[1]
			if got.Level != c.want.level {
				t.Errorf("level %q, want %q", got.Level, c.want.level)
			}
			if (got.Why == "") != (c.want.why == "") || !strings.Contains(got.Why, c.want.why) {
				t.Errorf("why is %q, want %q in it", got.Why, c.want.why)
			}
			each(t, "needs", got.Needs, c.want.needs)
			each(t, "also", got.Also, c.want.also)
			if !strings.Contains(got.Readers, c.want.readers) || c.want.noReaders != "" && strings.Contains(got.Readers, c.want.noReaders) {
				t.Errorf("readers see %q, want %q in it", got.Readers, c.want.readers)
			}
		})
	}
}

func each(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %q, want %d", what, got, len(want))
		return
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s %d: %q, want %q in it", what, i, got[i], want[i])
		}
	}
}

// behindBarriers counts per ad how many results its windows have had.
func behindBarriers(kind string) *Graph {
	g := adClicks(kind, EmitBarrier)
	g.Nodes[7].Inputs = []int{5}
	return g
}

func TestNotes(t *testing.T) {
	type want struct {
		step, says, unless string
		timing             bool
	}
	seen := want{`distinct "seen"`, `splits of source "clicks" interleave`, `all records of one key are in one split of source "clicks"`, true}
	idle := want{`source "clicks"`, "was idle", "no split is idle", false}
	many := want{`window "per-minute"`, "how many results", "", false}
	for _, c := range []struct {
		name string
		g    *Graph
		run  Settings
		want []want
	}{
		{"one split, on close", adClicks(TransactionalSink, EmitClose), oneFile, nil},
		{"one split, at barriers", adClicks(TransactionalSink, EmitBarrier), oneFile, []want{many}},
		{"several splits", adClicks(TransactionalSink, EmitClose), files(2), []want{idle, seen}},
		{"splits not known", adClicks(TransactionalSink, EmitClose), Settings{Parallelism: 1}, []want{idle, seen}},
		{"running counts per ad, counted again", with(func(g *Graph) { g.Nodes[4].Emit = EmitRecord; g.Nodes[7].Inputs = []int{5} }), files(2),
			[]want{idle, seen, {`count "per-ad"`, `running results of window "per-minute"`, `in one split of source "clicks"`, true}}},
		{"the same over one split", with(func(g *Graph) { g.Nodes[4].Emit = EmitRecord; g.Nodes[7].Inputs = []int{5} }),
			Settings{Parallelism: 1, Splits: map[string]int{"clicks": 1}}, nil},
		{"closed windows, counted again", with(func(g *Graph) { g.Nodes[4].Emit = EmitClose; g.Nodes[7].Inputs = []int{5} }), files(1), nil},
		{"state behind barriers", behindBarriers(TransactionalSink), oneFile,
			[]want{many, {`count "per-ad"`, `window "per-minute" emits at barriers`, "", true}}},
		{"running counts at barriers", with(func(g *Graph) { g.Nodes[4].Emit, g.Nodes[8].Emit = EmitClose, EmitBarrier }), oneFile,
			[]want{{`count "per-ad"`, "how many results", "", false}}},
		{"state behind running counts at barriers", with(func(g *Graph) {
			g.Nodes[4].Emit, g.Nodes[8].Emit = EmitClose, EmitBarrier
			key := add(g, Node{Op: KeyBy, Inputs: []int{9}})
			n := add(g, Node{Op: Count, ID: "again", Inputs: []int{key}})
			add(g, Node{Op: Sink, ID: "out", Inputs: []int{n}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}), oneFile, []want{{`count "per-ad"`, "how many results", "", false},
			{`count "again"`, `count "per-ad" emits at barriers, and which results those are depends on when barriers come; it wouldn't if each record had its result`, "", true}}},
		{"late records behind barriers are input", with(func(g *Graph) {
			late := add(g, Node{Op: Split, Inputs: []int{4}, Side: "late"})
			key := add(g, Node{Op: KeyBy, Inputs: []int{late}})
			n := add(g, Node{Op: Count, ID: "late", Inputs: []int{key}})
			add(g, Node{Op: Sink, ID: "out", Inputs: []int{n}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}), oneFile, []want{many}},
		{"a fold over the tasks of another step", with(func(g *Graph) { g.Nodes[4].Emit, g.Nodes[8].Op = EmitClose, Fold }), oneFile,
			[]want{{`fold "per-ad"`, `tasks of distinct "seen" interleave`, "same for every order", true}}},
		{"the same in one task", with(func(g *Graph) { g.Nodes[4].Emit, g.Nodes[8].Op = EmitClose, Fold }),
			Settings{Parallelism: 1, Splits: map[string]int{"clicks": 1}}, nil},
		{"a windowed reduce over several splits", with(func(g *Graph) { g.Nodes[4].Emit, g.Nodes[4].Aggregate = EmitClose, "reduce" }), files(2),
			[]want{idle, seen, {`window "per-minute"`, `splits of source "clicks" interleave`, "same for every order", true}}},
		{"admits less than its window", with(func(g *Graph) { g.Nodes[4].Emit, g.Nodes[4].Lateness = EmitClose, 2*time.Hour }), oneFile,
			[]want{{`distinct "seen"`, `31m behind its split is late here, although window "per-minute" would take some that are up to 2h1m`, "", false}}},
		{"a union", branchy(), Settings{Parallelism: 1, Splits: map[string]int{"web": 1, "app": 1, "raw": 5}}, []want{
			{`source "web"`, "was idle", "no split is idle", false},
			{`source "app"`, "was idle", "no split is idle", false},
			{`distinct "once"`, `inputs of union (step 4, behind source "app") interleave`, "one input of union", true},
			{`window "daily"`, "inputs of union", "same for every order", true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if errs := c.g.Validate(); errs != nil {
				t.Fatal(errs)
			}
			got := c.g.Notes(c.run)
			for i, n := range got {
				if i >= len(c.want) {
					t.Errorf("unexpected: %+v", n)
					continue
				}
				w := c.want[i]
				if n.Step != w.step || n.Step != c.g.Name(n.Node) || !strings.Contains(n.Says, w.says) || !strings.Contains(n.Unless, w.unless) ||
					(n.Unless == "") != (w.unless == "") || n.Timing != w.timing {
					t.Errorf("note %d: %+v, want %+v", i, n, w)
				}
			}
			for _, w := range c.want[min(len(got), len(c.want)):] {
				t.Errorf("missing: %+v", w)
			}
		})
	}
}

func TestDecider(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Graph)
		want string
	}{
		{"shared", func(*Graph) {}, "sqlite clicks.db"},
		{"alone", func(g *Graph) { g.Nodes[6].Sink.Participant = "" }, "ad-minute"},
		{"the first that can", func(g *Graph) { g.Nodes[6].Sink.Kind = FollowingSink; g.Nodes[10].Sink.Participant = "" }, "ad-total"},
		{"the one that ranks higher", func(g *Graph) { g.Nodes[10].Sink.Participant, g.Nodes[10].Sink.Rank = "kafka", 1 }, "kafka"},
		{"the first of those that rank the same", func(g *Graph) {
			g.Nodes[6].Sink.Rank, g.Nodes[10].Sink.Participant, g.Nodes[10].Sink.Rank = 1, "kafka", 1
		}, "sqlite clicks.db"},
		{"none", func(g *Graph) { g.Nodes[6].Sink.Kind, g.Nodes[10].Sink.Kind = IdempotentSink, AtLeastOnceSink }, Store},
	} {
		if got := with(c.edit).Decider(); got != c.want {
			t.Errorf("%s: decider is %q, want %q", c.name, got, c.want)
		}
	}
}
