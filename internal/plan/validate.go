package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/weirstream/weir/window"
)

// Limits of what a job may declare.
const (
	MaxIDLen     = 100
	MaxKeyGroups = 32768
)

// Validate returns everything that is wrong with the graph, in the order of
// the steps, and each error names its step. The other methods want a graph
// that it accepts.
func (g *Graph) Validate() []error {
	v := &validator{g: g}
	v.job()
	for i := range g.Nodes {
		v.shape(i)
	}
	if v.broken { // the checks below follow the inputs
		return v.errs
	}
	v.outs = g.outputs()
	v.ids()
	for i := range g.Nodes {
		v.ends(i)
		v.parameters(i)
		v.time(i)
	}
	v.participants()
	return v.errs
}

type validator struct {
	g      *Graph
	outs   [][]int
	errs   []error
	broken bool
}

func (v *validator) add(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

// job checks what belongs to no step.
func (v *validator) job() {
	if why := badID(v.g.Job); why != "" {
		v.add("job name %q %s", v.g.Job, why)
	}
	if v.g.KeyGroups < 1 || v.g.KeyGroups > MaxKeyGroups {
		v.add("the job has %d key groups: give 1 to %d", v.g.KeyGroups, MaxKeyGroups)
	}
	has := map[Op]bool{}
	for _, n := range v.g.Nodes {
		has[n.Op] = has[n.Op] || !n.DeadLetters
	}
	if !has[Source] {
		v.add("the job has no source: declare one with From")
	}
	if !has[Sink] {
		v.add("the job has no sink: end a stream with To")
	}
}

// shape checks the inputs of a node, which everything else relies on.
func (v *validator) shape(i int) {
	n := v.g.Nodes[i]
	want := "1 input"
	ok := len(n.Inputs) == 1
	switch n.Op {
	case Source:
		want, ok = "no input", len(n.Inputs) == 0
	case Union:
		want, ok = "2 inputs or more", len(n.Inputs) >= 2
	case Sink:
		if n.DeadLetters {
			want, ok = "no input", len(n.Inputs) == 0
		}
	case Map, TryMap, FlatMap, TryFlatMap, Filter, Split, KeyBy, Fold, Reduce, Count, Distinct, Window:
	default:
		v.broken = true
		v.add("step %d: unknown operation %q", i, n.Op)
		return
	}
	if !ok {
		v.broken = true
		v.add("%s %q (step %d) has %d inputs, want %s", n.Op, n.ID, i, len(n.Inputs), want)
	}
	for _, in := range n.Inputs {
		switch {
		case in < 0 || in >= i:
			v.broken = true
			v.add("%s %q (step %d): input %d isn't an earlier step", n.Op, n.ID, i, in)
		case v.g.Nodes[in].Op == Sink:
			v.add("%s %q (step %d): its input is sink %q, which has no output", n.Op, n.ID, i, v.g.Nodes[in].ID)
		case n.Op.Stateful() && v.g.Nodes[in].Op != KeyBy:
			v.add("%s %q (step %d) keeps state by key, but its input has no key: put KeyBy before it", n.Op, n.ID, i)
		case !n.Op.Stateful() && v.g.Nodes[in].Op == KeyBy && n.Side == "": // a window's late records may come from its key
			v.add("%s %q (step %d) can't follow KeyBy: put a stateful step in between", n.Op, n.ID, i)
		}
	}
}

// ids checks that every step that needs an id has one, and no two the same.
func (v *validator) ids() {
	first := map[string]int{}
	for i, n := range v.g.Nodes {
		if n.ID == "" {
			if n.Op.Named() {
				v.add("%s has no id: give it one, its state and its results are found by it after a restart", v.g.Name(i))
			}
			continue
		}
		if why := badID(n.ID); why != "" {
			v.add("%s (step %d): the id %s", v.g.Name(i), i, why)
		}
		if j, taken := first[n.ID]; taken {
			v.add("id %q is used by two steps, %s (step %d) and %s (step %d): rename one", n.ID, v.g.Nodes[j].Op, j, n.Op, i)
			continue
		}
		first[n.ID] = i
	}
}

// badID says what is wrong with a name that is kept in checkpoints and
// ledgers, or "".
func badID(id string) string {
	if id == "" {
		return "is empty: give one of letters, digits, '-', '_' and '.'"
	}
	if len(id) > MaxIDLen {
		return fmt.Sprintf("has %d bytes: give at most %d", len(id), MaxIDLen)
	}
	for _, c := range id {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return fmt.Sprintf("contains %q: use only letters a-z and A-Z, digits, '-', '_' and '.'", c)
		}
	}
	return ""
}

// ends checks that what a step puts out goes somewhere. Side outputs may be
// left alone.
func (v *validator) ends(i int) {
	n := v.g.Nodes[i]
	if n.Op == Sink || n.Side != "" {
		return
	}
	for _, to := range v.outs[i] {
		if v.g.Nodes[to].Side == "" {
			return
		}
	}
	v.add("the output of %s goes nowhere: end it with To, or leave the step out", v.g.Name(i))
}

// parameters checks the settings of one step by themselves.
func (v *validator) parameters(i int) {
	n, name := v.g.Nodes[i], v.g.Name(i)
	switch n.Op {
	case Source:
		if n.Disorder < 0 {
			v.add("%s: disorder is %v: give 0 or more", name, n.Disorder)
		}
		if n.Disorder > 0 && !n.EventTime {
			v.add("%s: disorder is %v, but its records have no event time: give EventTime", name, n.Disorder)
		}
	case Distinct:
		if n.TTL <= 0 {
			v.add("%s: time-to-live is %v: give one above 0, or its state would grow without end", name, n.TTL)
		}
		if n.Admit < 0 {
			v.add("%s: Admit is %v: give more than 0", name, n.Admit)
		}
	case Fold, Reduce, Count:
		if n.Emit != "" && n.Emit != EmitRecord && n.Emit != EmitBarrier {
			v.add("%s: emission is %q: give %q or %q", name, n.Emit, EmitRecord, EmitBarrier)
		}
	case Window:
		w := window.Tumbling(n.Size, window.Offset(n.Offset), window.Lateness(n.Lateness))
		if err := w.Check(); err != nil {
			v.add("%s: %w", name, err)
		}
		if n.Emit != EmitRecord && n.Emit != EmitBarrier && n.Emit != EmitClose {
			v.add("%s: emission is %q: give %q, %q or %q", name, n.Emit, EmitClose, EmitBarrier, EmitRecord)
		}
	case Sink:
		v.sink(i)
	}
}

func (v *validator) sink(i int) {
	s := v.g.Nodes[i].Sink
	if s == nil {
		v.add("%s doesn't say what it is: its Spec is missing", v.g.Name(i))
		return
	}
	switch s.Kind {
	case AtLeastOnceSink, IdempotentSink, FollowingSink, TransactionalSink:
	default:
		v.add("%s: kind is %q: give %q, %q, %q or %q", v.g.Name(i), s.Kind, AtLeastOnceSink, IdempotentSink, FollowingSink, TransactionalSink)
	}
}

// time checks what a step that works on event time finds upstream, and, of a
// distinct step, downstream.
func (v *validator) time(i int) {
	n := v.g.Nodes[i]
	if n.Op != Window && n.Op != Distinct {
		return
	}
	up := v.g.upstream(i)
	for j, s := range v.g.Nodes {
		if up[j] && s.Op == Source && !s.EventTime {
			v.add("%s needs event times, but the records of %s have none: give EventTime there", v.g.Name(i), v.g.Name(j))
		}
	}
	for j, s := range v.g.Nodes {
		if up[j] && (s.Op == Fold || s.Op == Reduce || s.Op == Count) && s.Emit == EmitBarrier {
			v.add("%s needs event times, but the results of %s have none of a record's, as they are emitted at barriers: let it emit each update, or count in windows",
				v.g.Name(i), v.g.Name(j))
		}
	}
	v.lateness(i, up)
	if n.Op != Distinct {
		return
	}
	if n.Admit == 0 {
		if err := v.g.unlimited(i, v.g.branches(i)); err != nil {
			v.errs = append(v.errs, err)
			return
		}
	}
	if admit, err := v.g.AdmitOf(i); err == nil && n.TTL > math.MaxInt64-admit {
		v.add("%s: time-to-live %v and the %v that a record may be late are together more than %v: give less",
			v.g.Name(i), n.TTL, admit, time.Duration(math.MaxInt64))
	}
}

// lateness checks that what a window upstream fires, at its end plus its
// lateness, isn't late here by then.
func (v *validator) lateness(i int, up []bool) {
	n := v.g.Nodes[i]
	for j, s := range v.g.Nodes {
		if !up[j] || s.Op != Window || s.Emit == EmitRecord {
			continue
		}
		switch {
		case n.Op == Window && n.Lateness < s.Lateness:
			v.add("%s takes records up to %v late, but the results of %s come up to %v after their time: give it that lateness, or let %s emit each update",
				v.g.Name(i), n.Lateness, v.g.Name(j), s.Lateness, v.g.Name(j))
		case n.Op == Distinct && n.Admit != 0 && n.Admit < s.Lateness:
			v.add("%s admits records up to %v late, but the results of %s come up to %v after their time: admit those",
				v.g.Name(i), n.Admit, v.g.Name(j), s.Lateness)
		}
	}
}

// participants checks that what shares a transaction is of one kind.
func (v *validator) participants() {
	first := map[string]int{}
	for i, n := range v.g.Nodes {
		if n.Op != Sink || n.Sink == nil || n.Sink.Participant == "" {
			continue
		}
		j, ok := first[n.Sink.Participant]
		if !ok {
			first[n.Sink.Participant] = i
			continue
		}
		if k := v.g.Nodes[j].Sink.Kind; k != n.Sink.Kind {
			v.add("%s is %s and %s is %s, but both belong to %s: make them the same", v.g.Name(j), k, v.g.Name(i), n.Sink.Kind, n.Sink.Participant)
		}
	}
}
