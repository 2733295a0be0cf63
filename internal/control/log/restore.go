package log

import (
	"fmt"
	"sync"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

var _ data.Restorer = (*Restored)(nil)

// Restored is one checkpoint as data restores it. It reads a segment when a
// section of it is first asked for, once, and verifies it whole before it
// gives a byte of it away. It may be used by many goroutines. What it has read
// stays in memory as long as it, or a section, is referred to.
type Restored struct {
	steps  map[string]Step
	splits []data.SplitState
	began  map[string]bool                   // by source
	load   map[string]func() ([]byte, error) // by segment
	where  string
}

// Restore returns m in the form that a run restores from. where is what errors
// call the store. A nil Manifest gives one that holds nothing, for a job's
// very first start.
func (m *Manifest) Restore(b sys.Blobs, where string) *Restored {
	r := &Restored{steps: map[string]Step{}, began: map[string]bool{}, load: map[string]func() ([]byte, error){}, where: where}
	if m == nil {
		return r
	}
	r.splits = m.Splits
	for _, s := range m.Splits {
		r.began[s.Source] = true
	}
	for _, s := range m.Steps {
		r.steps[s.ID] = s
	}
	for _, s := range m.Segments {
		r.load[s.Name] = sync.OnceValues(func() ([]byte, error) { return ReadSegment(b, where, s) })
	}
	return r
}

// Knows adds sources that the job had which made the checkpoint: one may have had
// no split yet.
func (r *Restored) Knows(sources ...string) {
	for _, s := range sources {
		r.began[s] = true
	}
}

// Began reports whether the job that made the checkpoint had a source.
func (r *Restored) Began(source string) bool { return r.began[source] }

// Split returns the state of one split of a source.
func (r *Restored) Split(source, split string) (data.SplitState, bool) {
	for _, s := range r.splits {
		if s.Source == source && s.Split == split {
			return s, true
		}
	}
	return data.SplitState{}, false
}

// Splits returns the states of a source's splits in the manifest's order.
func (r *Restored) Splits(source string) []data.SplitState {
	var of []data.SplitState
	for _, s := range r.splits {
		if s.Source == source {
			of = append(of, s)
		}
	}
	return of
}

// Sections returns a step's base and deltas, oldest first. The bytes are
// shared between all callers, who must not change them.
func (r *Restored) Sections(step string) ([]data.Section, error) {
	s := r.steps[step]
	var sections []data.Section
	for _, p := range s.Parts {
		load, ok := r.load[p.Segment]
		if !ok {
			return nil, fmt.Errorf("restore step %q: its checkpoint doesn't list segment %q", step, p.Segment)
		}
		b, err := load()
		if err != nil {
			return nil, fmt.Errorf("restore step %q: %w", step, err)
		}
		if n := int64(len(b)); p.Off < segmentHead || p.Off > n || p.Len < 0 || p.Len > n-p.Off {
			return nil, fmt.Errorf("restore step %q: no %d bytes at %d in %s of %d bytes",
				step, p.Len, p.Off, fileName(r.where, p.Segment), n)
		}
		end := p.Off + p.Len
		sections = append(sections, data.Section{Bytes: b[p.Off:end:end], Key: s.Key, Value: s.Value})
	}
	return sections, nil
}

// Clocks returns how far event time had come in a step, by key groups.
func (r *Restored) Clocks(step string) []data.Clock { return r.steps[step].Clocks }
