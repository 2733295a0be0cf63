package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// with returns the ad-click graph after edit.
func with(edit func(*Graph)) *Graph {
	g := adClicks(TransactionalSink, EmitBarrier)
	edit(g)
	return g
}

// add appends a node and returns its number.
func add(g *Graph, n Node) int {
	g.Nodes = append(g.Nodes, n)
	return len(g.Nodes) - 1
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Graph)
		want []string // a part of each error, in order
	}{
		{"the example", func(*Graph) {}, nil},
		{"ids of all allowed characters", func(g *Graph) { g.Nodes[2].ID = "aZ09-_." }, nil},
		{"longest id", func(g *Graph) { g.Nodes[2].ID = strings.Repeat("x", 100) }, nil},
		{"most key groups", func(g *Graph) { g.KeyGroups = 32768 }, nil},
		{"a side output that dangles", func(g *Graph) { add(g, Node{Op: Split, Inputs: []int{4}, Side: "late"}) }, nil},
		{"late records declared before their window", func(g *Graph) {
			late := add(g, Node{Op: Split, Inputs: []int{3}, Side: "late"})
			add(g, Node{Op: Sink, ID: "late", Inputs: []int{late}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}, nil},
		{"late records of no window", func(g *Graph) {
			key := add(g, Node{Op: KeyBy, Inputs: []int{2}})
			late := add(g, Node{Op: Split, Inputs: []int{key}, Side: "late"})
			add(g, Node{Op: Sink, ID: "late", Inputs: []int{late}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}, []string{`output of key-by (step 11, behind distinct "seen") goes nowhere`}},
		{"a step behind a key", func(g *Graph) { g.Nodes[10].Inputs = []int{7} }, []string{
			`sink "ad-total" (step 10) can't follow KeyBy`, `output of map (step 9`}},
		{"running counts at barriers", func(g *Graph) { g.Nodes[8].Emit = EmitBarrier }, nil},
		{"running counts on close", func(g *Graph) { g.Nodes[8].Emit = EmitClose }, []string{`count "per-ad": emission is "close"`}},
		{"no disorder", func(g *Graph) { g.Nodes[0].Disorder = 0 }, nil},
		{"no lateness", func(g *Graph) { g.Nodes[4].Lateness = 0 }, nil},

		{"empty job name", func(g *Graph) { g.Job = "" }, []string{`job name "" is empty`}},
		{"bad job name", func(g *Graph) { g.Job = "a/b" }, []string{`job name "a/b" contains '/'`}},
		{"no key groups", func(g *Graph) { g.KeyGroups = 0 }, []string{"0 key groups: give 1 to 32768"}},
		{"too many key groups", func(g *Graph) { g.KeyGroups = 32769 }, []string{"32769 key groups"}},
		{"nothing declared", func(g *Graph) { g.Nodes = nil }, []string{"no source", "no sink"}},
		{"no sink", func(g *Graph) { g.Nodes = g.Nodes[:1] }, []string{"no sink", `output of source "clicks" goes nowhere`}},

		{"no source id", func(g *Graph) { g.Nodes[0].ID = "" }, []string{"source (step 0) has no id"}},
		{"no id of a stateful step", func(g *Graph) { g.Nodes[8].ID = "" }, []string{`count (step 8, behind distinct "seen") has no id`}},
		{"no sink id", func(g *Graph) { g.Nodes[10].ID = "" }, []string{`sink (step 10, behind count "per-ad") has no id`}},
		{"two of one id", func(g *Graph) { g.Nodes[10].ID = "seen" }, []string{`id "seen" is used by two steps, distinct (step 2) and sink (step 10)`}},
		{"three of one id", func(g *Graph) { g.Nodes[10].ID, g.Nodes[6].ID = "seen", "seen" }, []string{"(step 2) and sink (step 6)", "(step 2) and sink (step 10)"}},
		{"space in an id", func(g *Graph) { g.Nodes[2].ID = "se en" }, []string{`distinct "se en" (step 2): the id contains ' '`}},
		{"letter beyond ASCII", func(g *Graph) { g.Nodes[2].ID = "gesehen-ü" }, []string{`contains 'ü'`}},
		{"id too long", func(g *Graph) { g.Nodes[2].ID = strings.Repeat("x", 101) }, []string{"has 101 bytes: give at most 100"}},

		{"a stream that ends nowhere", func(g *Graph) { add(g, Node{Op: Map, Inputs: []int{9}}) }, []string{`output of map (step 11, behind count "per-ad") goes nowhere`}},
		{"a key that ends nowhere", func(g *Graph) { add(g, Node{Op: KeyBy, Inputs: []int{5}}) }, []string{`output of key-by (step 11, behind window "per-minute") goes nowhere`}},
		{"only the side output used", func(g *Graph) {
			m := add(g, Node{Op: Map, Inputs: []int{0}})
			s := add(g, Node{Op: Split, Inputs: []int{m}, Side: "rest"})
			add(g, Node{Op: Sink, ID: "rest", Inputs: []int{s}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}, []string{`output of map (step 11, behind source "clicks") goes nowhere`}},

		{"unknown operation", func(g *Graph) { g.Nodes[5].Op = "mop" }, []string{`step 5: unknown operation "mop"`}},
		{"no input", func(g *Graph) { g.Nodes[5].Inputs = nil }, []string{`map "" (step 5) has 0 inputs, want 1 input`}},
		{"a later input", func(g *Graph) { g.Nodes[5].Inputs = []int{6} }, []string{"step 5): input 6 isn't an earlier step"}},
		{"a negative input", func(g *Graph) { g.Nodes[5].Inputs = []int{-1} }, []string{"step 5): input -1 isn't an earlier step"}},
		{"source with input", func(g *Graph) { add(g, Node{Op: Source, ID: "more", Inputs: []int{0}}) }, []string{`source "more" (step 11) has 1 inputs, want no input`}},
		{"union of one", func(g *Graph) { add(g, Node{Op: Union, Inputs: []int{0}}) }, []string{"has 1 inputs, want 2 inputs or more"}},
		{"state without a key", func(g *Graph) { g.Nodes[8].Inputs = []int{2} }, []string{`count "per-ad" (step 8) keeps state by key, but its input has no key`, `output of key-by (step 7`}},
		{"behind a sink", func(g *Graph) {
			m := add(g, Node{Op: Map, Inputs: []int{6}})
			add(g, Node{Op: Sink, ID: "x", Inputs: []int{m}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}, []string{`its input is sink "ad-minute", which has no output`}},

		{"no event time", func(g *Graph) { g.Nodes[0].EventTime, g.Nodes[0].Disorder = false, 0 }, []string{
			`distinct "seen" needs event times, but the records of source "clicks" have none`,
			`window "per-minute" needs event times, but the records of source "clicks" have none`}},
		{"disorder without event time", func(g *Graph) {
			add(g, Node{Op: Source, ID: "other", Disorder: 1})
			add(g, Node{Op: Sink, ID: "x", Inputs: []int{11}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
		}, []string{`source "other": disorder is 1ns, but its records have no event time`}},
		{"negative disorder", func(g *Graph) { g.Nodes[0].Disorder = -1 }, []string{`source "clicks": disorder is -1ns`}},
		{"no time-to-live", func(g *Graph) { g.Nodes[2].TTL = 0 }, []string{`distinct "seen": time-to-live is 0s`}},
		{"negative time-to-live", func(g *Graph) { g.Nodes[2].TTL = -time.Hour }, []string{"time-to-live is -1h0m0s"}},
		{"negative admission", func(g *Graph) { g.Nodes[2].Admit = -1 }, []string{"Admit is -1ns"}},
		{"time-to-live beyond time", func(g *Graph) { g.Nodes[2].TTL = math.MaxInt64 }, []string{"are together more than"}},
		{"no size", func(g *Graph) { g.Nodes[4].Size = 0 }, []string{`window "per-minute": window size is 0s`}},
		{"negative size", func(g *Graph) { g.Nodes[4].Size = -1 }, []string{"window size is -1ns"}},
		{"negative offset", func(g *Graph) { g.Nodes[4].Offset = -1 }, []string{"window offset is -1ns"}},
		{"offset of a whole window", func(g *Graph) { g.Nodes[4].Offset = time.Minute }, []string{"window offset is 1m0s"}},
		{"negative lateness", func(g *Graph) { g.Nodes[4].Lateness = -1 }, []string{"window lateness is -1ns"}},
		{"unknown emission", func(g *Graph) { g.Nodes[4].Emit = "often" }, []string{`emission is "often"`}},
		{"sink without a spec", func(g *Graph) { g.Nodes[6].Sink = nil }, []string{`sink "ad-minute" doesn't say what it is`}},
		{"unknown kind", func(g *Graph) { g.Nodes[6].Sink.Kind, g.Nodes[6].Sink.Participant = "perfect", "" }, []string{`sink "ad-minute": kind is "perfect"`}},
		{"one participant, two kinds", func(g *Graph) { g.Nodes[6].Sink.Kind = IdempotentSink }, []string{
			`sink "ad-minute" is idempotent and sink "ad-total" is transactional, but both belong to sqlite clicks.db`}},
		{"a branch without a window", func(g *Graph) { g.Nodes[2].Admit = 0 }, []string{
			`distinct "seen": its output reaches count "per-ad" without a window in between`}},
		{"several problems", func(g *Graph) { g.KeyGroups, g.Nodes[2].TTL, g.Nodes[4].Size = -1, 0, 0 }, []string{
			"-1 key groups", "time-to-live is 0s", "window size is 0s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := with(c.edit).Validate()
			for i, err := range errs {
				if i >= len(c.want) {
					t.Errorf("unexpected: %v", err)
				} else if !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("error %d is %q, want it to contain %q", i, err, c.want[i])
				}
			}
			for _, want := range c.want[min(len(errs), len(c.want)):] {
				t.Errorf("missing: %s", want)
			}
		})
	}
}

func TestAdmitOf(t *testing.T) {
	// seen's output goes to the steps that follow has appended behind it.
	graph := func(follow func(g *Graph)) *Graph {
		g := &Graph{Job: "j", KeyGroups: 1, Nodes: []Node{
			{Op: Source, ID: "s", EventTime: true},
			{Op: KeyBy, Inputs: []int{0}},
			{Op: Distinct, ID: "seen", Inputs: []int{1}, TTL: time.Hour},
		}}
		follow(g)
		return g
	}
	sink := func(g *Graph, id string, in int) {
		add(g, Node{Op: Sink, ID: id, Inputs: []int{in}, Sink: &SinkNode{Kind: AtLeastOnceSink}})
	}
	keyed := func(g *Graph, in int, n Node) int {
		n.Inputs = []int{add(g, Node{Op: KeyBy, Inputs: []int{in}})}
		return add(g, n)
	}
	window := func(g *Graph, id string, in int, size, late time.Duration) int {
		w := keyed(g, in, Node{Op: Window, ID: id, Size: size, Lateness: late, Emit: EmitClose})
		sink(g, id+"-out", w)
		return w
	}
	for _, c := range []struct {
		name   string
		follow func(g *Graph)
		want   time.Duration
		err    string
	}{
		{"one window", func(g *Graph) { window(g, "w", 2, time.Minute, 30*time.Minute) }, 31 * time.Minute, ""},
		{"the largest of two", func(g *Graph) {
			window(g, "a", 2, time.Minute, 30*time.Minute)
			window(g, "b", 2, time.Hour, 0)
		}, time.Hour, ""},
		{"the option wins", func(g *Graph) {
			g.Nodes[2].Admit = time.Second
			window(g, "w", 2, time.Hour, 0)
		}, time.Second, ""},
		{"through stateless steps and a union", func(g *Graph) {
			m := add(g, Node{Op: Map, Inputs: []int{2}})
			f := add(g, Node{Op: Filter, Inputs: []int{2}})
			window(g, "w", add(g, Node{Op: Union, Inputs: []int{m, f}}), time.Minute, 0)
		}, time.Minute, ""},
		{"windows behind a window don't count", func(g *Graph) {
			window(g, "day", window(g, "minute", 2, time.Minute, 0), 24*time.Hour, 0)
		}, time.Minute, ""},
		{"repeats and late records don't count", func(g *Graph) {
			window(g, "w", 2, time.Minute, 0)
			sink(g, "repeats", add(g, Node{Op: Split, Inputs: []int{2}, Side: "repeats"}))
		}, time.Minute, ""},
		{"late records of the window don't count", func(g *Graph) {
			w := window(g, "w", 2, time.Minute, 0)
			sink(g, "late", add(g, Node{Op: Split, Inputs: []int{w}, Side: "late"}))
		}, time.Minute, ""},
		{"nor if they are declared before the window", func(g *Graph) {
			w := window(g, "w", 2, time.Minute, 0)
			sink(g, "late", add(g, Node{Op: Split, Inputs: g.Nodes[w].Inputs, Side: "late"}))
		}, time.Minute, ""},
		{"a distinct step behind it", func(g *Graph) {
			d := keyed(g, 2, Node{Op: Distinct, ID: "d", TTL: time.Hour, Admit: 7 * time.Minute})
			sink(g, "out", d)
			window(g, "w", 2, time.Minute, 0)
		}, 7 * time.Minute, ""},
		{"the window of a distinct step behind it", func(g *Graph) {
			window(g, "w", keyed(g, 2, Node{Op: Distinct, ID: "d", TTL: time.Hour}), time.Minute, time.Minute)
		}, 2 * time.Minute, ""},
		{"straight to a sink", func(g *Graph) { sink(g, "out", 2) }, 0, `distinct "seen": its output reaches sink "out" without a window`},
		{"one of two branches to a sink", func(g *Graph) {
			window(g, "w", 2, time.Minute, 0)
			sink(g, "out", add(g, Node{Op: Map, Inputs: []int{2}}))
		}, 0, `reaches sink "out" without a window`},
		{"the other half of a split to a sink", func(g *Graph) {
			s := add(g, Node{Op: Split, Inputs: []int{2}})
			window(g, "w", s, time.Minute, 0)
			sink(g, "rest", add(g, Node{Op: Split, Inputs: []int{s}, Side: "rest"}))
		}, 0, `reaches sink "rest" without a window`},
		{"a running count before a window", func(g *Graph) {
			window(g, "w", keyed(g, 2, Node{Op: Count, ID: "n"}), time.Minute, 0)
		}, 0, `reaches count "n" without a window`},
		{"two open branches", func(g *Graph) {
			sink(g, "a", 2)
			sink(g, "b", 2)
		}, 0, `reaches sink "a" and sink "b" without`},
		{"only the step behind it is at fault", func(g *Graph) {
			sink(g, "out", keyed(g, 2, Node{Op: Distinct, ID: "d", TTL: time.Hour}))
		}, 0, `distinct "d": its output reaches sink "out"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graph(c.follow)
			got, err := g.AdmitOf(2)
			var all []string
			for _, e := range g.Validate() {
				all = append(all, e.Error())
			}
			if c.err == "" {
				if err != nil || got != c.want {
					t.Errorf("AdmitOf = %v, %v, want %v", got, err, c.want)
				}
				if all != nil {
					t.Errorf("Validate: %q", all)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("AdmitOf = %v, %v, want an error with %q", got, err, c.err)
			}
			if len(all) != 1 || !strings.Contains(all[0], c.err) {
				t.Errorf("Validate = %q, want one error with %q", all, c.err)
			}
		})
	}
	if _, err := graph(func(*Graph) {}).AdmitOf(0); err == nil {
		t.Error("a source has no admission, got one")
	}
}
