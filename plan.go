package weir

import (
	"context"
	jsonv1 "encoding/json"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// What becomes of steps, sources and sinks when a job goes on.
type (
	// Fate is one of the words kept, new, dropped, renamed, migrated, not compared
	// and refused.
	Fate = control.Fate
	// Change is what becomes of one step, source or sink.
	Change = control.Change
	// Diff is one thing that is declared in another way than before.
	Diff = control.Diff
)

// The fates of steps, sources and sinks.
const (
	FateKept     = control.Kept
	FateNew      = control.New      // it starts with nothing
	FateDropped  = control.Dropped  // what there is of it is given up
	FateRenamed  = control.Renamed  // kept under another id
	FateMigrated = control.Migrated // its state is converted as it is loaded
	FateUnknown  = control.Unknown  // not compared: it depends on what wasn't given
	FateRefused  = control.Refused
)

// Plan is a job as declared, and how it stands to the newest checkpoint in its
// state directory: what a run would keep, convert, give up and refuse.
type Plan struct {
	Job      string
	StateDir string // "": none was given, and nothing is compared
	// Checkpoint is the newest one; zero: the job has none yet. Undecided says
	// that only the ledgers of the sinks can tell whether it was committed, or the
	// one before it counts.
	Checkpoint CheckpointID
	Epoch      int64
	At         time.Time // when it was made
	Finished   bool      // it stands at the end of the input
	Undecided  bool
	// Changes has an entry for the job (without an id) and one for each step with
	// state, source and sink: as declared, and those last that are gone.
	Changes []Change
	Notes   []string // aliases and drops that aren't needed, and what couldn't be looked at

	graph   plan.Graph
	view    plan.View
	refused error
}

// Plan compares the job with the newest checkpoint in its state directory. It
// decides as Run does, with the same function; what the sinks' ledgers and the
// input have to say comes on top there. It lists the sources' splits and opens
// nothing else, takes no lock, changes and makes nothing, and may be called while
// the job runs. The options are Run's. An error says that there is no plan;
// whether a run would be refused, [Plan.Err] says.
func (j *Job) Plan(ctx context.Context, opts ...RunOption) (*Plan, error) {
	ctx = j.withJob(ctx)
	conf := defaultRun()
	for _, o := range opts {
		o.run(&conf)
	}
	if err := j.undeclarable(j.mistakes(conf)); err != nil {
		return nil, err
	}
	p := &Plan{Job: j.Name(), StateDir: conf.stateDir, graph: j.certain(conf.guessed)}
	p.view = plan.View{Parallelism: min(conf.parallelism, j.graph.KeyGroups), Splits: map[string]int{}, Fates: map[string]string{}}
	splits := j.list(ctx, p, conf.guessed)
	look, err := control.Look(ctx, control.Config{Graph: p.graph, StateDir: conf.stateDir, StartOver: conf.startOver, Renamed: j.renamed(), Drop: conf.drop})
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name(), err)
	}
	p.Checkpoint, p.Undecided, p.Changes, p.refused = CheckpointID(look.ID), look.Undecided, look.Changes, look.Refused
	p.Notes = append(p.Notes, look.Notes...)
	if m := look.Manifest; m != nil {
		p.Epoch, p.At, p.Finished = m.Epoch, m.At, m.Finished
		p.inputs(splits, m.Splits)
		p.finish(j)
	}
	for _, c := range p.Changes {
		switch {
		case c.ID == "": // the job's, and no step's
		case c.Fate == FateKept && !c.Same():
			p.view.Fates[c.ID] = "changed"
		default:
			p.view.Fates[c.ID] = string(c.Fate)
		}
	}
	return p, nil
}

// list lists the splits of each source, as far as that can be done.
func (j *Job) list(ctx context.Context, p *Plan, gs guesses) map[string][]string {
	splits := map[string][]string{}
	for _, s := range j.splits {
		names, err := s.list(ctx)
		if err != nil {
			if len(gs) > 0 {
				err = errors.New(gs.why())
			}
			p.Notes = append(p.Notes, fmt.Sprintf("source %s: its splits aren't compared, because they can't be listed: %v", s.source, err))
			continue
		}
		splits[s.source], p.view.Splits[s.source] = names, len(names)
	}
	return splits
}

// inputs compares the splits that the sources have with those of the checkpoint.
func (p *Plan) inputs(listed map[string][]string, had []data.SplitState) {
	for i := range p.Changes {
		c := &p.Changes[i]
		names, ok := listed[c.ID]
		if c.Op != string(plan.Source) || c.Fate == FateNew || c.Fate == FateDropped || !ok {
			continue
		}
		id := c.ID
		if c.Was != "" {
			id = c.Was
		}
		var old, gone, added []string
		for _, s := range had {
			if s.Source == id {
				old = append(old, s.Split)
			}
		}
		for _, s := range old {
			if !slices.Contains(names, s) {
				gone = append(gone, s)
			}
		}
		for _, s := range names {
			if !slices.Contains(old, s) {
				added = append(added, s)
			}
		}
		p.split(c, old, names, gone, added)
	}
}

// split notes which splits of a source are gone, and which are new.
func (p *Plan) split(c *Change, old, names, gone, added []string) {
	d := Diff{What: "splits", Old: fmt.Sprint(len(old)), New: fmt.Sprint(len(names)), Fate: FateKept}
	switch {
	case len(gone) > 0:
		d.Fate, d.Why = FateRefused, some(gone)+" missing now, and what was read of it can't be told from what wasn't"
		d.Do = "bring it back"
		p.refuse("source %s: %s; %s", c.ID, d.Why, d.Do)
	case len(added) > 0 && p.Finished:
		d.Fate, d.Why = FateRefused, some(added)+" new, and the job has read its input to the end and closed its windows"
		d.Do = "give the job a state directory and a name of its own, or take the new input away"
		p.refuse("source %s: %s; %s", c.ID, d.Why, d.Do)
	case len(added) > 0:
		d.Why = some(added) + " new, and read from the start"
	default:
		return
	}
	c.Diffs = append(c.Diffs, d)
	if d.Fate == FateRefused {
		c.Fate = FateRefused
	}
}

func some(splits []string) string {
	switch n := len(splits); {
	case n == 1:
		return splits[0] + " is"
	case n <= 3:
		return strings.Join(splits, ", ") + " are"
	default:
		return fmt.Sprintf("%s, %s and %d more are", splits[0], splits[1], n-2)
	}
}

// finish refuses to go on behind the end of a bounded input with an unbounded one.
func (p *Plan) finish(j *Job) {
	if p.Finished && slices.ContainsFunc(j.splits, func(s splitLister) bool { return s.grows() }) {
		p.refuse("the job has read its input to the end and closed its windows, and as it is declared now its input has no end; give it a state directory and a name of its own")
	}
}

func (p *Plan) refuse(format string, args ...any) {
	if p.refused == nil {
		p.refused = fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
	}
}

// Changed reports whether anything is different from the job that made the
// checkpoint. A job without a checkpoint is all new, and nothing is different.
func (p *Plan) Changed() bool {
	return slices.ContainsFunc(p.Changes, func(c Change) bool { return !c.Same() })
}

// Err returns what Run would return because of the job's changes, an ErrRefused,
// or nil.
func (p *Plan) Err() error {
	if p.refused == nil {
		return nil
	}
	return fmt.Errorf("job %s: %w", p.Job, p.refused)
}

// Graph returns the steps as text, with their numbers, settings and stages.
func (p *Plan) Graph() string { return p.graph.String() }

// DOT returns the graph in the language of Graphviz.
func (p *Plan) DOT() string { return p.graph.DOT(p.view) }

// SVG returns the graph as a picture that needs nothing else: stages from left to
// right, their steps with what becomes of them, and the exchanges between them.
func (p *Plan) SVG() string { return p.graph.SVG(p.view) }

// JSON returns the plan as one JSON object, for scripts. Durations are in
// nanoseconds.
func (p *Plan) JSON() ([]byte, error) {
	type held struct {
		ID        string    `json:"id"`
		Epoch     int64     `json:"epoch"`
		At        time.Time `json:"at"`
		Finished  bool      `json:"finished"`
		Undecided bool      `json:"undecided"`
	}
	out := struct {
		Job        string         `json:"job"`
		StateDir   string         `json:"stateDir,omitzero"`
		Checkpoint *held          `json:"checkpoint,omitzero"`
		Changed    bool           `json:"changed"`
		Refused    string         `json:"refused,omitzero"`
		Changes    []Change       `json:"changes"`
		Notes      []string       `json:"notes"`
		Graph      jsontext.Value `json:"graph"`
	}{Job: p.Job, StateDir: p.StateDir, Changed: p.Changed(), Changes: p.Changes, Notes: p.Notes}
	var err error
	out.Graph, err = json.Marshal(p.graph, json.OmitZeroStructFields(true), jsonv1.FormatDurationAsNano(true))
	if err != nil {
		return nil, fmt.Errorf("write the graph as JSON: %w", err)
	}
	if !p.Checkpoint.IsZero() {
		out.Checkpoint = &held{p.Checkpoint.String(), p.Epoch, p.At, p.Finished, p.Undecided}
	}
	if p.refused != nil {
		out.Refused = p.refused.Error()
	}
	b, err := json.Marshal(out, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("write the plan as JSON: %w", err)
	}
	return append(b, '\n'), nil
}

// String returns the whole page: the graph, and then what becomes of each step.
func (p *Plan) String() string {
	var b strings.Builder
	b.WriteString(p.graph.String())
	b.WriteByte('\n')
	p.standing(&b)
	for _, c := range p.Changes {
		if c.ID != "" || !c.Same() {
			p.change(&b, c)
		}
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	switch {
	case p.refused != nil && len(p.Changes) == 0:
		fmt.Fprintf(&b, "%v\n", p.refused)
	case p.refused != nil:
		b.WriteString("\na run would be refused\n")
	case len(p.Changes) > 0 && !p.Changed():
		b.WriteString("\nnothing is different\n")
	}
	return b.String()
}

// standing says what the job is compared with.
func (p *Plan) standing(b *strings.Builder) {
	switch {
	case p.StateDir == "":
		b.WriteString("without a state directory there is nothing to compare it with\n")
	case p.refused != nil && len(p.Changes) == 0:
	case p.Checkpoint.IsZero():
		fmt.Fprintf(b, "no checkpoint in %s: a run starts from nothing\n", p.StateDir)
	default:
		fmt.Fprintf(b, "against checkpoint %d (epoch %d, %s) in %s\n", p.Checkpoint.Slot, p.Epoch, p.At.UTC().Format(time.RFC3339), p.StateDir)
		if p.Undecided {
			b.WriteString("  (its sinks may not have committed it yet: then it is the one before it that counts)\n")
		}
		if p.Finished {
			b.WriteString("  (it stands at the end of the input: a run finds nothing to do)\n")
		}
	}
}

// change prints one entry.
func (p *Plan) change(b *strings.Builder, c Change) {
	name := c.Op + " " + c.ID
	if c.ID == "" {
		name = "the job"
	}
	if c.Was != "" {
		name += ", was " + c.Was
	}
	fmt.Fprintf(b, "  %-12s  %s\n", c.Fate, name)
	line := func(text string) { fmt.Fprintf(b, "  %-12s    %s\n", "", text) }
	if c.Why != "" {
		line(c.Why)
	}
	if c.Do != "" {
		line("do: " + c.Do)
	}
	for _, d := range c.Diffs {
		if d.Fate == FateUnknown {
			line(d.Why)
			continue
		}
		line(fmt.Sprintf("%s: %s -> %s: %s", d.What, d.Old, d.New, d.Why))
		if d.Do != "" {
			line("do: " + d.Do)
		}
	}
}
