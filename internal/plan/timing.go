package plan

import (
	"fmt"
	"math"
	"slices"
)

// Settings is how a graph is going to run, as far as promises depend on it.
type Settings struct {
	Checkpointed bool           // has a state directory
	Parallelism  int            // tasks a keyed stage; 0: not known
	Splits       map[string]int // by source id; 0: not known
}

// Note says what a step's results depend on besides its input.
type Note struct {
	Node int
	Step string // as Name has it
	Says string
	// Unless is a condition under which what Says warns of doesn't happen; ""
	// where nothing helps.
	Unless string
	// Timing is set where the results of the step depend on how its inputs
	// interleave, or on when barriers come: after a crash, or in another run
	// over the same input, they may be others.
	Timing bool
}

// Notes returns what must be known about single steps, in their order. A step
// without a note gives the same results from the same input at any
// parallelism, batch size and crash schedule.
func (g *Graph) Notes(run Settings) []Note {
	order := g.orders(run)
	running := g.running()
	var notes []Note
	add := func(i int, says, unless string, timing bool) {
		notes = append(notes, Note{i, g.Name(i), says, unless, timing})
	}
	for i, n := range g.Nodes {
		if n.Op == Source && g.idles(i, run) {
			add(i, "a split that was idle and goes on may find its records late, because the watermark didn't wait for it; they are counted", "no split is idle before its end", false)
		}
		if !n.Op.Stateful() {
			continue
		}
		if from := running[i]; from >= 0 && g.Nodes[from].Emit == EmitBarrier {
			instead := "each record had its result"
			if g.Nodes[from].Op == Window {
				instead = "results came on close"
			}
			add(i, fmt.Sprintf("it works on what %s emits at barriers, and which results those are depends on when barriers come; it wouldn't if %s", g.Name(from), instead), "", true)
		} else if from >= 0 && order[from].mixed {
			add(i, fmt.Sprintf("it works on the running results of %s, and which record causes which of them depends on how %s interleave", g.Name(from), order[from].what),
				order[from].unless(), true)
		}
		if order[i].mixed {
			g.ordered(i, order[i], add)
		}
		if n.Emit == EmitBarrier {
			add(i, "how many results it has for one key depends on when barriers come; the last one doesn't", "", false)
		}
		if n.Op == Distinct {
			g.admitsLess(i, add)
		}
	}
	return notes
}

// ordered notes a step whose own results depend on the order of its input.
func (g *Graph) ordered(i int, o order, add func(int, string, string, bool)) {
	n := g.Nodes[i]
	const function = "its function gives the same for every order of the records"
	switch {
	case n.Op == Distinct:
		add(i, fmt.Sprintf("which of the records with one key passes depends on how %s interleave", o.what), o.unless(), true)
	case n.Op == Fold, n.Op == Reduce, n.Op == Window && (n.Aggregate == "reduce" || n.Aggregate == ""):
		add(i, fmt.Sprintf("it gets the records of a key in an order that depends on how %s interleave", o.what), function, true)
	}
}

// admitsLess notes a distinct step that takes records out of windows which
// would still count them.
func (g *Graph) admitsLess(i int, add func(int, string, string, bool)) {
	admit, err := g.AdmitOf(i)
	if err != nil {
		return
	}
	for _, end := range g.branches(i) {
		if op := g.Nodes[end].Op; op != Window && op != Distinct {
			continue
		}
		if a, err := g.accepts(end); err == nil && a > admit {
			add(i, fmt.Sprintf("a record %s behind its split is late here, although %s would take some that are up to %s behind", Short(admit), g.Name(end), Short(a)), "", false)
		}
	}
}

// idles reports whether a source may go on behind the watermark: it has other
// splits than the one that was idle, and something downstream works on time.
func (g *Graph) idles(source int, run Settings) bool {
	if !g.Nodes[source].EventTime {
		return false
	}
	for i, n := range g.Nodes {
		if n.Op != Window && n.Op != Distinct {
			continue
		}
		if up := g.upstream(i); up[source] && g.streams(up, run) != 1 {
			return true
		}
	}
	return false
}

// streams adds up the splits of the sources marked; 0 where one isn't known.
func (g *Graph) streams(marked []bool, run Settings) int {
	n := 0
	for i, s := range g.Nodes {
		if marked[i] && s.Op == Source {
			k := run.Splits[s.ID]
			if k <= 0 {
				return 0
			}
			n += k
		}
	}
	return n
}

// running returns, for each node, the nearest step upstream that emits results
// which later ones replace, so that what emits when is part of what its
// readers see; -1: none. Windows that emit on close put out final results.
func (g *Graph) running() []int {
	from := make([]int, len(g.Nodes)) // what a node's input is
	out := make([]int, len(g.Nodes))  // what its output is
	for i, n := range g.Nodes {
		from[i] = -1
		for _, in := range n.Inputs {
			// Barriers weigh more than interleaving, which can be excluded.
			if o := out[in]; o >= 0 && (from[i] < 0 || g.Nodes[o].Emit == EmitBarrier) {
				from[i] = o
			}
		}
		out[i] = from[i]
		switch {
		case n.Op == Window && n.Emit == EmitClose:
			out[i] = -1
		case n.Op == Window, n.Op == Fold, n.Op == Reduce, n.Op == Count:
			out[i] = i
		}
		if g.rejects(i) {
			out[i] = from[n.Inputs[0]] // late records and repeats are inputs, not results
		}
	}
	return from
}

// order is whether the order of a stream's records is decided by its input
// alone.
type order struct {
	mixed bool   // no: several streams are interleaved in it
	what  string // what interleaves, for people
	where string // where a key must stay for its order to be kept
}

// unless is the condition under which a key's records keep their order.
func (o order) unless() string {
	return "all records of one key are in one " + o.where
}

// orders returns the order of each node's output, and of the input of a
// stateful step, whose output may be mixed by its tasks besides.
func (g *Graph) orders(run Settings) []order {
	in := make([]order, len(g.Nodes))
	out := make([]order, len(g.Nodes))
	for i, n := range g.Nodes {
		switch {
		case n.Op == Source:
			out[i] = g.sourceOrder(i, run)
		case n.Op == Union:
			out[i] = order{true, fmt.Sprintf("the inputs of %s", g.Name(i)), fmt.Sprintf("input of %s", g.Name(i))}
			if slices.ContainsFunc(n.Inputs, func(j int) bool { return out[j].mixed }) {
				out[i].what += " and their own splits and tasks"
				out[i].where += ", and there in one split or task"
			}
		case n.DeadLetters:
			out[i] = order{mixed: true, what: "all steps", where: "step"}
		default:
			in[i] = out[n.Inputs[0]]
			out[i] = in[i]
			if n.Op.Stateful() && !in[i].mixed && run.Parallelism != 1 {
				out[i] = order{true, fmt.Sprintf("the tasks of %s", g.Name(i)), fmt.Sprintf("task of %s", g.Name(i))}
			}
		}
	}
	for i, n := range g.Nodes {
		if !n.Op.Stateful() {
			in[i] = out[i]
		}
	}
	return in
}

func (g *Graph) sourceOrder(i int, run Settings) order {
	id := g.Nodes[i].ID
	splits := run.Splits[id]
	if splits <= 0 {
		splits = math.MaxInt
	}
	return order{splits > 1, fmt.Sprintf("the splits of source %q", id), fmt.Sprintf("split of source %q", id)}
}
