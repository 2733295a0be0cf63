package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Level is what becomes of an output when the job crashes and goes on.
type Level string

// The levels, strongest first.
const (
	// Once: readers see each output once, together with its epoch.
	Once Level = "each output once"
	// Again: the same rows are written again, and nothing else.
	Again Level = "the same rows again after a crash"
	// AtLeastOnce: outputs repeat, and may differ when they do.
	AtLeastOnce Level = "at least once"
	// Refused: the job doesn't start like this.
	Refused Level = "refused"
)

// Guarantee is what holds for one sink, and for no other. It follows from what
// the sink says it is, the steps that feed it, and the settings of the run.
type Guarantee struct {
	Sink   string // its id
	Target string
	Kind   string
	Level  Level
	// Readers says what a reader of the target sees.
	Readers string
	// Why says why it is no better; set where Level is AtLeastOnce or Refused.
	Why string
	// Needs are the conditions: what nobody but the user can see to.
	Needs []string
	// Also says how the sink stands to the job's other sinks.
	Also []string
}

// Guarantees returns the guarantee of each sink, in their order.
func (g *Graph) Guarantees(run Settings) []Guarantee {
	notes := g.Notes(run)
	var out []Guarantee
	for i, n := range g.Nodes {
		if n.Op != Sink || n.Sink == nil {
			continue
		}
		q := Guarantee{Sink: n.ID, Target: n.Sink.Target, Kind: n.Sink.Kind, Readers: n.Sink.Readers, Needs: slices.Clone(n.Sink.Needs)}
		switch {
		case n.Sink.commits():
			q.committed(run)
		case n.Sink.Kind == IdempotentSink:
			up := g.upstream(i)
			q.idempotent(run, slices.DeleteFunc(slices.Clone(notes), func(t Note) bool { return !t.Timing || !up[t.Node] }))
		default:
			q.atLeastOnce(run)
		}
		if q.Level == Once {
			q.Also = g.partners(i)
		}
		if n.Unsure != "" {
			q.Target = "somewhere"
			q.need("that it is what was guessed here: " + n.Unsure)
		}
		if n.DeadLetters {
			q.Also = append(q.Also, "it gets every record that a step rejects, in the epoch in which the record was read; without it the first of them would stop the job")
		}
		out = append(out, q)
	}
	return out
}

const restarts = "no state directory: when the process ends its checkpoints are gone, and the next run reads the input from its start with empty state"

// committed is a sink that commits an epoch together with the checkpoint's id.
func (q *Guarantee) committed(run Settings) {
	q.say("an epoch's output appears together with its checkpoint's id, in one transaction")
	q.Level = Once
	if !run.Checkpointed {
		q.Level = Refused
		q.Why = "its ledger names a checkpoint, and without a state directory no checkpoint outlives the process"
		q.need("a state directory")
	}
}

// idempotent is a sink that writes early and repeats the rows after a crash.
// That is right only where the replay computes the same rows; timing names the
// steps upstream that may compute others.
func (q *Guarantee) idempotent(run Settings, timing []Note) {
	q.say("rows as soon as they are computed; after a crash they are written again, and are right once the replay has passed the position of the crash; an older incarnation can't write")
	q.need("a unique key per row")
	q.Level = Again
	var why []string
	for _, t := range timing {
		if t.Unless == "" {
			why = append(why, fmt.Sprintf("%s: %s", t.Step, t.Says))
		} else {
			q.need(fmt.Sprintf("%s: %s", t.Step, t.Unless))
		}
	}
	if why != nil {
		q.Level = AtLeastOnce
		q.Why = "a replay may compute other rows than before the crash, and rows that only the first try wrote stay; " + strings.Join(why, "; ")
	}
	if !run.Checkpointed {
		q.Level = AtLeastOnce
		q.Why = strings.TrimPrefix(q.Why+"; ", "; ") + restarts
	}
}

func (q *Guarantee) atLeastOnce(run Settings) {
	q.say("after a crash, what was written since the last checkpoint is written again")
	q.Level = AtLeastOnce
	q.Why = "the sink can't commit its output together with a checkpoint, and can't tell a repeat"
	if !run.Checkpointed {
		q.Why += "; " + restarts
	}
	if len(q.Needs) == 0 {
		q.need("a receiver that drops repeats, or one that they can't harm (what adds to a number isn't one)")
	}
}

// say sets what readers see, where the sink doesn't say it itself.
func (q *Guarantee) say(readers string) {
	if q.Readers == "" {
		q.Readers = readers
	}
}

// need adds a condition, once.
func (q *Guarantee) need(condition string) {
	if !slices.Contains(q.Needs, condition) {
		q.Needs = append(q.Needs, condition)
	}
}

// partners says what commits together with a sink, what doesn't, and who
// decides.
func (g *Graph) partners(sink int) []string {
	var together, apart []string
	mine := g.ParticipantOf(sink)
	for i, n := range g.Nodes {
		switch {
		case i == sink || n.Op != Sink || n.Sink == nil || !n.Sink.commits():
		case g.ParticipantOf(i) == mine:
			together = append(together, n.ID)
		default:
			apart = append(apart, n.ID)
		}
	}
	var out []string
	if together != nil && g.Nodes[sink].Sink.Kind == FollowingSink {
		out = append(out, "commits together with "+list(together)+", though a reader may see one before the other")
	} else if together != nil {
		out = append(out, "in one transaction with "+list(together))
	}
	if apart != nil {
		out = append(out, fmt.Sprintf("not at one instant with %s, which %s a transaction of another participant: who reads both may find one an epoch behind", list(apart), one(apart, "is in", "are in")))
	}
	switch decider := g.Decider(); decider {
	case mine:
		out = append(out, "its transaction decides the epoch")
	case Store:
		out = append(out, "the checkpoint's entry in the store decides the epoch; the sink follows, after a crash too")
	default:
		out = append(out, fmt.Sprintf("the transaction of %s decides the epoch; the sink follows, after a crash too", list(g.sinksOf(decider))))
	}
	return out
}

func (g *Graph) sinksOf(participant string) []string {
	var ids []string
	for i, n := range g.Nodes {
		if n.Op == Sink && g.ParticipantOf(i) == participant {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// list joins ids as a sentence does.
func list(ids []string) string {
	last := len(ids) - 1
	if last < 1 {
		return "sink " + strings.Join(ids, "")
	}
	return "sinks " + strings.Join(ids[:last], ", ") + " and " + ids[last]
}

func one(ids []string, singular, plural string) string {
	if len(ids) == 1 {
		return singular
	}
	return plural
}

// Explain is the guarantees and notes as text: a paragraph a sink, and one for
// the steps that have a note.
func (g *Graph) Explain(run Settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s: what holds when the process is killed and started again\n\n", g.Job)
	if run.Checkpointed {
		b.WriteString("state: as if each record up to the restored positions had been applied once\n")
	} else {
		b.WriteString("state: lost, " + restarts + "\n")
	}
	for _, q := range g.Guarantees(run) {
		fmt.Fprintf(&b, "\nsink %s, %s (%s): %s\n", q.Sink, q.Target, q.Kind, q.Level)
		if q.Level != Refused {
			field(&b, "readers see", q.Readers)
		}
		field(&b, "why", q.Why)
		for _, s := range q.Needs {
			field(&b, "needs", s)
		}
		for _, s := range q.Also {
			field(&b, "and", s)
		}
	}
	b.WriteString("\nsteps\n")
	notes := g.Notes(run)
	for _, t := range notes {
		fmt.Fprintf(&b, "  %s: %s", t.Step, t.Says)
		if t.Unless != "" {
			fmt.Fprintf(&b, "; not if %s", t.Unless)
		}
		b.WriteString("\n")
	}
	other := ""
	if len(notes) > 0 {
		other = "other "
	}
	fmt.Fprintf(&b, "  no %sresult depends on parallelism, batch size, or when the process was killed\n", other)
	return b.String()
}

func field(b *strings.Builder, name, text string) {
	if text != "" {
		fmt.Fprintf(b, "  %-12s %s\n", name+":", text)
	}
}
