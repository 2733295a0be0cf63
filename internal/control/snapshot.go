package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// snapshot is one epoch's checkpoint as it comes together. It belongs to the
// loop; the committer and the segment writers get values and return values.
type snapshot struct {
	epoch   int64
	began   time.Time
	full    []string
	merged  int
	acks    map[string]data.Ack // by task
	parts   []stored
	sizes   []log.Segment
	staged  staged
	final   bool          // nothing is to follow
	m       *log.Manifest // from its entry on
	id      log.ID
	took    Phases
	waiting []*request
}

// stored is one part and where it is; ref is zero for a part without entries.
type stored struct {
	data.PartInfo
	ref log.PartRef
}

// segment is what a segment writer says when it is done.
type segment struct {
	epoch int64
	task  string
	file  log.Segment // zero if nothing had to be written
	parts []stored
}

// infos returns what a task saved, in the machine's terms.
func infos(parts []data.Part) []epoch.Saved {
	var saved []epoch.Saved
	for _, p := range parts {
		i := p.Info()
		saved = append(saved, epoch.Saved{Step: i.Step, Full: i.Full, Entries: int64(i.Entries), Live: int64(i.Live)})
	}
	return saved
}

// write makes the parts of one task durable in the background. Its goroutine
// ends with the write, and close waits for it.
func (j *job) write(n int64, task string, parts []data.Part) {
	blobs, name := j.committer.blobs, log.SegmentName(j.me.Incarnation, n, task, j.me.Nonce)
	s := segment{epoch: n, task: task}
	for _, p := range parts {
		s.parts = append(s.parts, stored{PartInfo: p.Info()})
	}
	j.workers.Go(func() {
		file, refs, err := log.WriteSegment(blobs, name, parts)
		if err != nil {
			j.inbox.Failed(blame(StoreFailed, fmt.Errorf("save the state of task %s at barrier %d: %w", task, n, err)))
			return
		}
		s.file = file
		for i := range s.parts {
			s.parts[i].ref = refs[i]
		}
		j.inbox.post(s)
	})
}

// manifest names everything that a restore of the checkpoint needs: what was
// saved now, behind what prev, its parent, has of the same steps.
func (s *snapshot) manifest(prev committed, me Fence, groups int, finished bool, at time.Time) (*log.Manifest, error) {
	m := &log.Manifest{Job: me.Job, UUID: me.UUID, Incarnation: me.Incarnation, Epoch: s.epoch, Parent: prev.id,
		Finished: finished, KeyGroups: groups, Staged: s.staged.inline(), Outputs: s.staged.files, At: at.UTC()}
	for _, a := range s.acks {
		m.Splits = append(m.Splits, a.Splits...)
	}
	sortSplits(m.Splits)
	steps := map[string]log.Step{}
	for _, st := range prev.m.Steps {
		steps[st.ID] = st
	}
	saved := map[string][]stored{}
	for _, p := range s.parts {
		saved[p.Step] = append(saved[p.Step], p)
	}
	for id := range steps {
		if len(saved[id]) == 0 {
			return nil, fmt.Errorf("checkpoint of epoch %d: no task saved step %s", s.epoch, id)
		}
	}
	files := map[string]log.Segment{}
	for _, f := range append(slices.Clone(prev.m.Segments), s.sizes...) {
		files[f.Name] = f
	}
	used := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(saved)) {
		st, err := extend(steps[id], saved[id])
		if err != nil {
			return nil, fmt.Errorf("checkpoint of epoch %d: %w", s.epoch, err)
		}
		for _, p := range st.Parts {
			used[p.Segment] = true
		}
		m.Steps = append(m.Steps, st)
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		m.Segments = append(m.Segments, files[name])
	}
	return m, nil
}

// extend adds what the tasks saved of a step to what its parent has of it.
func extend(prev log.Step, parts []stored) (log.Step, error) {
	first := parts[0]
	st := log.Step{ID: first.Step, Key: first.Key, Value: first.Value}
	if !first.Full {
		st.Parts = slices.Clone(prev.Parts)
		if len(st.Parts) > 0 && (prev.Key != first.Key || prev.Value != first.Value) {
			// The manifest has one schema for the whole chain.
			return st, fmt.Errorf("step %s saved changes with schema %s of %s behind a base with %s of %s",
				st.ID, first.Value, first.Key, prev.Value, prev.Key)
		}
	}
	// Tasks answer in any order; the manifest is the same for the same state.
	slices.SortFunc(parts, func(a, b stored) int { return cmp.Compare(a.ref.Segment, b.ref.Segment) })
	for _, p := range parts {
		st.Live += int64(p.Live)
		st.Clocks = append(st.Clocks, p.Clocks...)
		if p.ref != (log.PartRef{}) {
			st.Parts = append(st.Parts, p.ref)
		}
	}
	slices.SortFunc(st.Clocks, func(a, b data.Clock) int { return cmp.Compare(a.From, b.From) })
	return st, nil
}

// event describes the committed checkpoint to observers.
func (s *snapshot) event() Checkpoint {
	c := Checkpoint{Epoch: s.epoch, ID: s.id, Finished: s.m.Finished, Full: s.full, Merged: s.merged, Splits: s.m.Splits,
		Took: s.took}
	for _, f := range s.sizes {
		c.Bytes += f.Size
	}
	for _, f := range s.staged.files {
		c.Bytes += f.Size
	}
	return c
}

// chains returns what the machine must know of the restored steps.
func chains(m *log.Manifest, rewrites func(log.Step) bool) []epoch.Chain {
	var cs []epoch.Chain
	for _, st := range m.Steps {
		c := epoch.Chain{Step: st.ID, Live: st.Live, Parts: len(st.Parts), Rewrite: rewrites(st)}
		for _, p := range st.Parts {
			c.Entries += p.Entries
		}
		cs = append(cs, c)
	}
	return cs
}

func sortSplits(splits []data.SplitState) []data.SplitState {
	slices.SortFunc(splits, func(a, b data.SplitState) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Split, b.Split))
	})
	return splits
}
