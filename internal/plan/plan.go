// Package plan is a job as declared: its steps, how they are connected, and
// what follows from that alone: errors of declaration, the stages, a printable
// form, and the guarantee of each sink.
package plan

import "time"

// Op is what a step does.
type Op string

// The operations.
const (
	Source     Op = "source"
	Map        Op = "map"
	TryMap     Op = "try-map"
	FlatMap    Op = "flat-map"
	TryFlatMap Op = "try-flat-map"
	Filter     Op = "filter"
	Split      Op = "split" // a side output
	Union      Op = "union"
	KeyBy      Op = "key-by"
	Fold       Op = "fold"
	Reduce     Op = "reduce"
	Count      Op = "count"
	Distinct   Op = "distinct"
	Window     Op = "window" // an aggregate in windows
	Sink       Op = "sink"
)

// Node is one declared step. Its index in Graph.Nodes is its number; inputs
// have smaller numbers.
type Node struct {
	Op     Op     `json:"op"`
	ID     string `json:"id,omitempty"` // of sources, stateful steps and sinks
	Inputs []int  `json:"inputs,omitempty"`
	// Side is set on a node that is the side output (late records, repeats,
	// the other half of a Split) of its only input.
	Side string `json:"side,omitempty"`

	Key   string `json:"key,omitempty"`   // schema of the key of a keyed step
	Value string `json:"value,omitempty"` // schema of its state

	Reads     string        `json:"-"`                   // source: what it reads, for people; may be empty
	EventTime bool          `json:"eventTime,omitempty"` // source: has event times
	Disorder  time.Duration `json:"disorder,omitempty"`
	TTL       time.Duration `json:"ttl,omitempty"`   // distinct
	Admit     time.Duration `json:"admit,omitempty"` // distinct: lateness; 0: from the windows downstream
	Size      time.Duration `json:"size,omitempty"`  // window
	Offset    time.Duration `json:"offset,omitempty"`
	Lateness  time.Duration `json:"lateness,omitempty"`
	Emit      string        `json:"emit,omitempty"`      // window: "record", "barrier", "close"
	Aggregate string        `json:"aggregate,omitempty"` // window: "count", "reduce", "aggregate"; empty: not known
	// Aggregator tells an aggregate of package agg from others whose state looks
	// the same: "sum", "mean", "min", "max"; empty: not known.
	Aggregator string `json:"aggregator,omitempty"`

	Sink *SinkNode `json:"sink,omitempty"`
	// DeadLetters is set on the sink for rejected records, of which there is one
	// at most. It has no input: they come from every step.
	DeadLetters bool `json:"deadLetters,omitempty"`
	Late        bool `json:"late,omitempty"` // dead letters: late records come here, too

	// Unsure says why the step's settings aren't to be believed: the job was
	// declared without something that they depend on.
	Unsure string `json:"-"`
}

// SinkNode is what a sink says of itself.
type SinkNode struct {
	Kind        string   `json:"kind"` // "at least once", "idempotent", "following", "transactional"
	Target      string   `json:"target"`
	Participant string   `json:"participant,omitempty"`
	Place       string   `json:"place,omitempty"` // within the participant, such as a table
	Rank        int      `json:"rank,omitempty"`  // of several that are transactional, the highest decides
	Readers     string   `json:"-"`
	Needs       []string `json:"-"`
}

// Graph is a whole job.
type Graph struct {
	Job       string `json:"job"`
	KeyGroups int    `json:"keyGroups"`
	Nodes     []Node `json:"nodes"`
}
