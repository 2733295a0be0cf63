package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

const (
	nSource = iota
	nKey
	nWindow
	nLate
	nTotal
	nRows
	nEach
	nKey2
	nSeen
	nWindow2
	nRows2
)

func testGraph() plan.Graph {
	return plan.Graph{Job: "clicks", KeyGroups: 128, Nodes: []plan.Node{
		nSource:  {Op: plan.Source, ID: "clicks", EventTime: true, Disorder: time.Second},
		nKey:     {Op: plan.KeyBy, Inputs: []int{nSource}, Key: "string"},
		nWindow:  {Op: plan.Window, ID: "minute", Inputs: []int{nKey}, Key: "string", Value: "int64", Size: time.Minute, Lateness: time.Minute, Emit: plan.EmitClose, Aggregate: "count"},
		nLate:    {Op: plan.Map, ID: "minute", Side: "late", Inputs: []int{nWindow}},
		nTotal:   {Op: plan.Count, ID: "total", Inputs: []int{nKey}, Key: "string", Value: "int64", Emit: plan.EmitRecord},
		nRows:    {Op: plan.Sink, ID: "rows", Inputs: []int{nWindow}, Sink: &plan.SinkNode{Kind: transactional, Target: "a in clicks.db", Participant: "sql:clicks.db", Place: "a"}},
		nEach:    {Op: plan.Sink, ID: "each", Inputs: []int{nTotal}, Sink: &plan.SinkNode{Kind: atLeastOnce, Target: "a function"}},
		nKey2:    {Op: plan.KeyBy, Inputs: []int{nSource}},
		nSeen:    {Op: plan.Distinct, ID: "seen", Inputs: []int{nKey2}, Key: "string", Value: "int64", TTL: time.Hour, Admit: time.Minute},
		nWindow2: {Op: plan.Sink, ID: "seen-rows", Inputs: []int{nSeen}, Sink: &plan.SinkNode{Kind: idempotent, Target: "b in clicks.db", Participant: "sql:clicks.db#eager", Place: "b"}},
	}}
}

func accept(_, _, _, _ string) error { return nil }

func reject(_, _, _, _ string) error { return errors.New("field N was int64 and is string") }

// comparing is one row: a change, and what becomes of the ids that it concerns.
type comparing struct {
	name    string
	old     func(*plan.Graph) // what was different before
	change  func(*plan.Graph)
	migrate migration
	ask     asked
	fates   map[string]Fate // of those that aren't simply kept, by id; "": the job's
	says    []string        // in the refusal
	notes   []string
	check   func(t *testing.T, c changes)
}

func rename(i int, id string) func(*plan.Graph) {
	return func(g *plan.Graph) { g.Nodes[i].ID = id }
}

func sinkIs(i int, s plan.SinkNode) func(*plan.Graph) {
	return func(g *plan.Graph) { g.Nodes[i].Sink = &s }
}

// remove leaves the number of the others as they are.
func remove(i int) func(*plan.Graph) {
	return func(g *plan.Graph) { g.Nodes[i] = plan.Node{Op: plan.Filter, Inputs: []int{0}} }
}

func comparings() []comparing {
	return slices.Concat([]comparing{
		{name: "nothing", change: func(*plan.Graph) {}},
		{name: "key groups", change: func(g *plan.Graph) { g.KeyGroups = 64 }, fates: map[string]Fate{"": Refused}, says: []string{"64", "128", "set it back"}},
		{name: "two at once", change: func(g *plan.Graph) { g.KeyGroups, g.Nodes[nWindow].Size = 1, 1 },
			fates: map[string]Fate{"": Refused, "minute": Refused}, says: []string{"key groups", "step minute"}},
		{name: "drop of what isn't there", change: func(*plan.Graph) {}, ask: asked{drop: []string{"nobody"}}, notes: []string{"--drop nobody isn't needed"}},
	}, sourceRows(), stepRows(), windowRows(), sinkRows())
}

func sourceRows() []comparing {
	return []comparing{
		{name: "disorder", change: func(g *plan.Graph) { g.Nodes[nSource].Disorder = time.Hour }},
		{name: "no event time any more", change: func(g *plan.Graph) { g.Nodes[nSource].EventTime = false }},
		{name: "source gone", change: rename(nSource, "others"), fates: map[string]Fate{"clicks": Refused, "others": New}, says: []string{"source clicks", "how far it was read"}},
		{name: "source dropped", change: rename(nSource, "others"), ask: asked{drop: []string{"clicks"}}, fates: map[string]Fate{"clicks": Dropped, "others": New},
			check: func(t *testing.T, c changes) {
				sameList(t, "dropped", c.dropped, "clicks")
				sameList(t, "added", c.added, "others")
			}},
		{name: "source renamed", change: rename(nSource, "others"), ask: asked{renamed: map[string]string{"others": "clicks"}}, fates: map[string]Fate{"others": Renamed},
			check: func(t *testing.T, c changes) {
				if d := cmp.Diff(map[string]string{"others": "clicks"}, c.renamed); d != "" {
					t.Error(d)
				}
			}},
	}
}

func stepRows() []comparing {
	return []comparing{
		{name: "step gone", change: rename(nTotal, "sum"), fates: map[string]Fate{"total": Refused, "sum": New}, says: []string{"step total is gone", "--drop total", "Renamed"}},
		{name: "step dropped", change: remove(nTotal), ask: asked{drop: []string{"total"}}, fates: map[string]Fate{"total": Dropped},
			check: func(t *testing.T, c changes) { sameList(t, "dropped", c.dropped, "total") }},
		{name: "step renamed", change: rename(nTotal, "sum"), ask: asked{renamed: map[string]string{"sum": "total"}}, fates: map[string]Fate{"sum": Renamed}},
		{name: "renamed and migrated", change: func(g *plan.Graph) { g.Nodes[nTotal].ID, g.Nodes[nTotal].Value = "sum", "pair" }, migrate: accept,
			ask: asked{renamed: map[string]string{"sum": "total"}}, fates: map[string]Fate{"sum": Migrated},
			check: func(t *testing.T, c changes) { sameList(t, "migrated", c.migrated, "sum") }},
		{name: "alias of long ago", change: func(*plan.Graph) {}, ask: asked{renamed: map[string]string{"total": "sum"}}, notes: []string{`Renamed("sum", "total") isn't needed`}},
		{name: "alias of what has state of its own", change: remove(nSeen), ask: asked{renamed: map[string]string{"total": "seen"}}, fates: map[string]Fate{"seen": Refused},
			says: []string{"step seen is gone"}, notes: []string{`Renamed("seen", "total") does nothing`}},
		{name: "new step", change: func(g *plan.Graph) {
			g.Nodes = append(g.Nodes, plan.Node{Op: plan.Reduce, ID: "more", Inputs: []int{nKey}})
		}, fates: map[string]Fate{"more": New},
			check: func(t *testing.T, c changes) { sameList(t, "added", c.added, "more") }},
		{name: "another operation", change: func(g *plan.Graph) { g.Nodes[nTotal].Op = plan.Fold }, fates: map[string]Fate{"total": Refused}, says: []string{"step total", "count", "fold"}},
		{name: "emission of a count", change: func(g *plan.Graph) { g.Nodes[nTotal].Emit = plan.EmitBarrier }},
		{name: "value that loads", change: func(g *plan.Graph) { g.Nodes[nTotal].Value = "pair" }, migrate: accept, fates: map[string]Fate{"total": Migrated},
			check: func(t *testing.T, c changes) { sameList(t, "migrated", c.migrated, "total") }},
		{name: "value that doesn't", change: func(g *plan.Graph) { g.Nodes[nTotal].Value = "pair" }, migrate: reject, fates: map[string]Fate{"total": Refused}, says: []string{"step total", "int64", "pair", "field N"}},
		{name: "key", change: func(g *plan.Graph) { g.Nodes[nWindow].Key = "int64" }, fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "string", "int64"}},
		{name: "settings that depend on what isn't known", change: func(g *plan.Graph) { g.Nodes[nTotal].Unsure, g.Nodes[nTotal].Op = "--n isn't given", plan.Count },
			fates: map[string]Fate{"total": Unknown}},
		{name: "time-to-live", change: func(g *plan.Graph) { g.Nodes[nSeen].TTL = 3 * time.Hour },
			check: func(t *testing.T, c changes) { moves(t, c, "seen", 2*time.Hour) }},
		{name: "admission lowered", change: func(g *plan.Graph) { g.Nodes[nSeen].Admit = time.Second },
			check: func(t *testing.T, c changes) { moves(t, c, "seen", -59*time.Second) }},
		{name: "admission raised", change: func(g *plan.Graph) { g.Nodes[nSeen].Admit = time.Hour }, fates: map[string]Fate{"seen": Refused}, says: []string{"step seen", "Admit(1m)"}},
		{name: "admission raised by the windows behind", old: windowBehindSeen(time.Minute), change: windowBehindSeen(time.Hour),
			check: func(t *testing.T, c changes) {
				moves(t, c, "seen", 59*time.Minute)
				moves(t, c, "behind", 59*time.Minute)
			}},
	}
}

// windowBehindSeen puts a window of a minute behind the distinct step, which
// takes its admission from it.
func windowBehindSeen(lateness time.Duration) func(*plan.Graph) {
	return func(g *plan.Graph) {
		g.Nodes[nSeen].Admit = 0
		g.Nodes[nWindow2] = plan.Node{Op: plan.KeyBy, Inputs: []int{nSeen}}
		g.Nodes = append(g.Nodes, plan.Node{Op: plan.Window, ID: "behind", Inputs: []int{nWindow2}, Size: time.Minute, Lateness: lateness, Emit: plan.EmitClose})
	}
}

func windowRows() []comparing {
	emits := func(word string) func(*plan.Graph) {
		return func(g *plan.Graph) { g.Nodes[nWindow].Emit = word }
	}
	aggregator := func(word string) func(*plan.Graph) {
		return func(g *plan.Graph) { g.Nodes[nWindow].Aggregate, g.Nodes[nWindow].Aggregator = "aggregate", word }
	}
	return []comparing{
		{name: "window size", change: func(g *plan.Graph) { g.Nodes[nWindow].Size = time.Hour }, fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "1m", "1h", "--drop minute"}},
		{name: "window offset", change: func(g *plan.Graph) { g.Nodes[nWindow].Offset = time.Second }, fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "offset 1s"}},
		{name: "lateness raised", change: func(g *plan.Graph) { g.Nodes[nWindow].Lateness = time.Hour },
			check: func(t *testing.T, c changes) { moves(t, c, "minute", 59*time.Minute) }},
		{name: "lateness lowered", change: func(g *plan.Graph) { g.Nodes[nWindow].Lateness = 0 },
			check: func(t *testing.T, c changes) { moves(t, c, "minute", -time.Minute) }},
		{name: "emission from close", change: emits(plan.EmitBarrier), fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "emission", "on close", "each barrier"}},
		{name: "emission to close", old: emits(plan.EmitRecord), change: emits(plan.EmitClose)},
		{name: "emission at barriers", old: emits(plan.EmitRecord), change: emits(plan.EmitBarrier)},
		{name: "aggregate", change: func(g *plan.Graph) { g.Nodes[nWindow].Aggregate = "reduce" }, fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "count", "reduce"}},
		{name: "aggregate that wasn't known", old: func(g *plan.Graph) { g.Nodes[nWindow].Aggregate = "" }, change: func(*plan.Graph) {}},
		{name: "the smallest for the largest", old: aggregator("min"), change: aggregator("max"), fates: map[string]Fate{"minute": Refused}, says: []string{"step minute", "min", "max"}},
		{name: "the mean for the sum", old: aggregator("sum"), change: aggregator("mean")},
		{name: "an aggregate of the user's", old: aggregator(""), change: aggregator("max")},
	}
}

func sinkRows() []comparing {
	sql := func(kind, path, place string) plan.SinkNode {
		return plan.SinkNode{Kind: kind, Target: place + " in " + path, Participant: "sql:" + path, Place: place}
	}
	resited := func(ids ...string) func(*testing.T, changes) {
		return func(t *testing.T, c changes) { t.Helper(); sameList(t, "resited", c.resited, ids...) }
	}
	return []comparing{
		{name: "new sink", change: func(g *plan.Graph) {
			g.Nodes = append(g.Nodes, plan.Node{Op: plan.Sink, ID: "more", Sink: &plan.SinkNode{Kind: following}})
		}, fates: map[string]Fate{"more": New}, check: func(t *testing.T, c changes) { sameList(t, "newSinks", c.newSinks, "more") }},
		{name: "new sink without a ledger", change: func(g *plan.Graph) {
			g.Nodes = append(g.Nodes, plan.Node{Op: plan.Sink, ID: "more", Sink: &plan.SinkNode{Kind: atLeastOnce}})
		}, fates: map[string]Fate{"more": New}, check: func(t *testing.T, c changes) { sameList(t, "newSinks", c.newSinks) }},
		{name: "sink gone", change: remove(nRows), fates: map[string]Fate{"rows": Refused, "": Kept}, says: []string{"sink rows", "its ledger", "--drop rows"}},
		{name: "sink dropped", change: remove(nRows), ask: asked{drop: []string{"rows"}}, fates: map[string]Fate{"rows": Dropped},
			check: func(t *testing.T, c changes) { sameList(t, "oldSinks", c.oldSinks, "rows") }},
		{name: "sink without a ledger gone", change: remove(nEach), fates: map[string]Fate{"each": Dropped},
			check: func(t *testing.T, c changes) { sameList(t, "oldSinks", c.oldSinks) }},
		{name: "sink renamed", change: rename(nRows, "lines"), ask: asked{renamed: map[string]string{"lines": "rows"}}, fates: map[string]Fate{"lines": Renamed}},
		{name: "sink's table", change: sinkIs(nRows, sql(transactional, "clicks.db", "c")), fates: map[string]Fate{"rows": Refused}, says: []string{"sink rows", "a", "c", "--drop rows"}},
		{name: "sink's table by other words", change: sinkIs(nRows, plan.SinkNode{Kind: transactional, Target: "table A", Participant: "sql:clicks.db", Place: "a"})},
		{name: "sink's kind", change: sinkIs(nRows, sql(idempotent, "clicks.db#eager", "a")), check: resited("rows")},
		{name: "sink's database moved", change: sinkIs(nRows, sql(transactional, "/elsewhere/clicks.db", "a")), check: resited("rows")},
		{name: "sink in a database and in files", change: sinkIs(nRows, plan.SinkNode{Kind: following, Participant: "files:/out"}), fates: map[string]Fate{"rows": Refused}, says: []string{"sink rows", "files:/out", "sql:clicks.db"}},
		{name: "sink without a ledger any more", change: sinkIs(nRows, plan.SinkNode{Kind: atLeastOnce}), fates: map[string]Fate{"rows": Refused}, says: []string{"sink rows", "no ledger"}},
		{name: "sink with a ledger now", change: sinkIs(nEach, sql(transactional, "clicks.db", "e")), check: func(t *testing.T, c changes) { sameList(t, "newSinks", c.newSinks, "each") }},
		{name: "function's target", change: sinkIs(nEach, plan.SinkNode{Kind: atLeastOnce, Target: "standard output"})},
		{name: "sink that isn't known", change: func(g *plan.Graph) {
			g.Nodes[nRows].Sink, g.Nodes[nRows].Unsure = &plan.SinkNode{Kind: transactional}, "--db isn't given"
		}, fates: map[string]Fate{"rows": Unknown}},
	}
}

func TestCompare(t *testing.T) {
	for _, tt := range comparings() {
		t.Run(tt.name, func(t *testing.T) {
			old, now := testGraph(), testGraph()
			if tt.old != nil {
				tt.old(&old)
				tt.old(&now)
			}
			tt.change(&now)
			if tt.migrate == nil {
				tt.migrate = table.Migration
			}
			c := compare(old, now, tt.ask, tt.migrate)
			if err := c.err(); len(tt.says) > 0 {
				wants(t, err, ErrRefused, tt.says...)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
			fates := map[string]Fate{}
			for _, ch := range c.all {
				if _, asked := tt.fates[ch.ID]; asked || ch.Fate != Kept {
					fates[ch.ID] = ch.Fate
				}
			}
			if d := cmp.Diff(tt.fates, fates, cmp.Transformer("some", func(m map[string]Fate) string { return fmt.Sprint(m) })); d != "" {
				t.Errorf("fates (-want +got):\n%s", d)
			}
			if len(c.notes) != len(tt.notes) {
				t.Fatalf("notes %q, want %q", c.notes, tt.notes)
			}
			for i, n := range tt.notes {
				if !strings.Contains(c.notes[i], n) {
					t.Errorf("note %q lacks %q", c.notes[i], n)
				}
			}
			if tt.check != nil {
				tt.check(t, c)
			}
		})
	}
}

// TestCompareIsDecided: each id has one fate, in whatever way a declaration and
// the store stand to each other, and what is refused says what to do.
func TestCompareIsDecided(t *testing.T) {
	for _, a := range comparings() {
		for _, b := range comparings() {
			old, now := testGraph(), testGraph()
			a.change(&old)
			b.change(&now)
			c := compare(old, now, asked{renamed: a.ask.renamed, drop: b.ask.drop}, table.Migration)
			seen := map[string]bool{}
			for _, ch := range c.all {
				if key := ch.Op + " " + ch.ID; seen[key] {
					t.Errorf("%s, then %s: %s is there twice", a.name, b.name, key)
				} else {
					seen[key] = true
				}
				if ch.Fate == Refused && len(ch.refusals()) == 0 {
					t.Errorf("%s, then %s: %s is refused without a word", a.name, b.name, ch.name())
				}
				for _, d := range ch.Diffs {
					if d.Old == d.New || d.Why == "" || d.Fate == Refused && d.Do == "" {
						t.Errorf("%s, then %s: %s: %+v", a.name, b.name, ch.name(), d)
					}
				}
			}
			for id := range byID(now) {
				if !slices.ContainsFunc(c.all, func(ch Change) bool { return ch.ID == id }) {
					t.Errorf("%s, then %s: nothing is said of %s", a.name, b.name, id)
				}
			}
			for id := range byID(old) {
				if !slices.ContainsFunc(c.all, func(ch Change) bool { return ch.ID == id || ch.Was == id }) {
					t.Errorf("%s, then %s: nothing is said of %s, which the store has", a.name, b.name, id)
				}
			}
		}
	}
}

func sameList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func moves(t *testing.T, c changes, step string, by time.Duration) {
	t.Helper()
	if got := time.Duration(c.moved[step]); got != by {
		t.Errorf("the clocks of %s are moved by %v, want %v", step, got, by)
	}
}
