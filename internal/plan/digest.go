package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// Digest is the SHA-256 of a graph's Identity.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Digest tells two graphs apart whose checkpoints don't fit together without
// a decision. Graphs of equal digest share checkpoints; where the digests
// differ, Compatible says whether, and why not.
func (g *Graph) Digest() Digest { return sha256.Sum256(g.Identity()) }

// Identity is what a job's checkpoints and ledgers hold on to, as JSON without
// spaces, with sources, stateful steps and sinks each sorted by id: the names
// and kinds of things and the schemas of keys and values. Steps without an id,
// the order of declaration, and settings that may change from one start to the
// next (time-to-live, lateness, emission, disorder, a sink's wording) aren't
// part of it.
func (g *Graph) Identity() []byte {
	id := identity{Job: g.Job, KeyGroups: g.KeyGroups, Sources: []string{}, Steps: []stepIdentity{}, Sinks: []sinkIdentity{}}
	for i, n := range g.Nodes {
		switch {
		case n.Op == Source:
			id.Sources = append(id.Sources, n.ID)
		case n.Op == Sink:
			s := sinkIdentity{ID: n.ID, Participant: g.ParticipantOf(i)}
			if n.Sink != nil {
				s.Kind = n.Sink.Kind
			}
			id.Sinks = append(id.Sinks, s)
		case n.Op.Stateful():
			id.Steps = append(id.Steps, stepIdentity{n.ID, n.Op, n.Aggregate, n.Key, n.Value, n.Size, n.Offset})
		}
	}
	slices.Sort(id.Sources)
	slices.SortFunc(id.Steps, func(a, b stepIdentity) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(id.Sinks, func(a, b sinkIdentity) int { return cmp.Compare(a.ID, b.ID) })
	b, err := json.Marshal(id)
	if err != nil { // strings and numbers always marshal
		panic("plan: marshal identity: " + err.Error())
	}
	return b
}

type identity struct {
	Job       string         `json:"job"`
	KeyGroups int            `json:"keyGroups"`
	Sources   []string       `json:"sources"`
	Steps     []stepIdentity `json:"steps"`
	Sinks     []sinkIdentity `json:"sinks"`
}

type stepIdentity struct {
	ID        string        `json:"id"`
	Op        Op            `json:"op"`
	Aggregate string        `json:"aggregate,omitempty"`
	Key       string        `json:"key"`
	Value     string        `json:"value"`
	Size      time.Duration `json:"size,omitempty"`
	Offset    time.Duration `json:"offset,omitempty"`
}

type sinkIdentity struct {
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Participant string `json:"participant"`
}
