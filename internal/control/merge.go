package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// mergeRun is about how much a merge holds in memory, in bytes, unless one key
// group is larger.
const mergeRun = 4 << 20

// merged is a chain of sections that has been merged into one, or none.
type merged struct {
	step string
	from []log.PartRef // the first sections of the chain
	into []log.PartRef
	file log.Segment // zero if nothing was left
}

// unmerged says that a merge came to nothing; err is why, if that matters.
type unmerged struct {
	step string
	err  error
}

// spoiled says that a merge came to nothing because a section that it read isn't
// what was saved.
type spoiled struct {
	step string
	from []log.PartRef
	err  error
}

// merge merges what the last checkpoint has of a step, in the background. Its
// sources are named by every later checkpoint until one takes the result over,
// or begins a new base: then they may be retired while they are read. A crash
// leaves a file that nothing names.
func (j *job) merge(d epoch.Merge) {
	m := j.last.m
	i := slices.IndexFunc(m.Steps, func(s log.Step) bool { return s.ID == d.Step })
	if i < 0 || len(m.Steps[i].Parts) == 0 {
		j.step(epoch.Unmerged{Step: d.Step})
		return
	}
	j.merges++
	task := fmt.Sprintf("merge/%d", j.merges)
	name := log.SegmentName(j.me.Incarnation, m.Epoch, task, j.me.Nonce)
	w := merging{ctx: j.ctx, c: j.committer, m: m, step: m.Steps[i], name: name, where: j.where,
		expired: data.Expired(j.Graph, d.Step, m.Steps[i].Clocks, m.KeyGroups)}
	j.workers.Go(func() { j.inbox.post(w.run()) })
}

// merging is one merge on its way.
type merging struct {
	ctx     context.Context
	c       *committer
	m       *log.Manifest
	step    log.Step
	name    string
	where   string
	expired func(tag int64, group int, value []byte) bool
}

// run returns merged, unmerged or spoiled.
func (w merging) run() any {
	into, file, err := w.write()
	err = errors.Join(err, w.verify()) // what couldn't be merged may be what is damaged
	if err != nil {
		// No manifest names the file, and no other incarnation can have made it.
		err = errors.Join(err, w.c.blobs.Delete(w.name))
		if errors.Is(err, log.ErrCorrupt) {
			return spoiled{w.step.ID, w.step.Parts, fmt.Errorf("merge the state of step %s: %w", w.step.ID, err)}
		}
		return unmerged{w.step.ID, err}
	}
	return merged{step: w.step.ID, from: w.step.Parts, into: into, file: file}
}

func (w merging) write() ([]log.PartRef, log.Segment, error) {
	files := map[string]log.Segment{}
	for _, f := range w.m.Segments {
		files[f.Name] = f
	}
	c := data.Chain{Step: w.step.ID, Key: w.step.Key, Value: w.step.Value, Groups: w.m.KeyGroups, Expired: w.expired, Run: mergeRun,
		Stop: func() error { return context.Cause(w.ctx) }}
	var entries int64
	for _, p := range w.step.Parts {
		c.Sections = append(c.Sections, data.StoredSection{At: log.Stored{Blobs: w.c.blobs, Segment: files[p.Segment]}, Off: p.Off, Len: p.Len})
		entries += p.Entries
	}
	file, refs, err := log.WriteSegment(w.c.blobs, w.name, []data.Part{data.NewChain(c, entries)})
	if err != nil {
		return nil, log.Segment{}, err
	}
	if refs[0].Entries == 0 { // all of it had expired
		return nil, log.Segment{}, w.c.blobs.Delete(w.name)
	}
	return refs, file, nil
}

// verify compares every file that was read with its checksum, afterwards: what
// differs now may have differed then.
func (w merging) verify() error {
	read := map[string]bool{}
	for _, p := range w.step.Parts {
		read[p.Segment] = true
	}
	for _, f := range w.m.Segments {
		if !read[f.Name] {
			continue
		}
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if err := log.VerifySegment(w.c.blobs, w.where, f); err != nil {
			return err
		}
	}
	return nil
}

// merged takes the result of a merge in: the next manifest names it.
func (j *job) merged(m merged) {
	j.splices[m.step] = m
	e := epoch.Merged{Step: m.step, Parts: len(m.from), Into: len(m.into)}
	for _, p := range m.from {
		e.Entries += p.Entries
	}
	for _, p := range m.into {
		e.Holds += p.Entries
	}
	j.Log.Debug("merged", "step", m.step, "parts", e.Parts, "entries", e.Entries, "into", e.Holds)
	j.step(e)
}

func (j *job) unmerged(u unmerged) {
	if u.err != nil && j.ctx.Err() == nil {
		j.Log.Warn("state couldn't be merged in the background; it will be tried again, or saved anew at a barrier",
			"step", u.step, "error", u.err.Error())
	}
	j.step(epoch.Unmerged{Step: u.step})
}

// spoiled ends the run, unless the sections are gone because a new base has made
// them needless since: then the last checkpoint doesn't name them any more.
func (j *job) spoiled(s spoiled) {
	var corrupt *log.CorruptError
	named := slices.ContainsFunc(j.last.m.Steps, func(st log.Step) bool {
		return st.ID == s.step && len(st.Parts) >= len(s.from) && slices.Equal(st.Parts[:len(s.from)], s.from)
	})
	if errors.As(s.err, &corrupt) && corrupt.Gone && !named {
		j.step(epoch.Unmerged{Step: s.step})
		return
	}
	j.fail(s.err)
}

// spliced returns the last checkpoint with what merges made in the place of the
// sections that they read, to be extended by the epoch whose steps in full save
// everything. What comes too late, behind a new base, is deleted.
func (j *job) spliced(full []string) committed {
	if len(j.splices) == 0 {
		return j.last
	}
	m := *j.last.m
	m.Steps, m.Segments = slices.Clone(m.Steps), slices.Clone(m.Segments)
	for i, st := range m.Steps {
		s, ok := j.splices[st.ID]
		if !ok {
			continue
		}
		n := len(s.from)
		switch {
		case !slices.Contains(full, st.ID) && len(st.Parts) >= n && slices.Equal(st.Parts[:n], s.from):
			m.Steps[i].Parts = slices.Concat(s.into, st.Parts[n:])
			j.open.merged++
			if len(s.into) > 0 {
				m.Segments = append(m.Segments, s.file)
			}
		case len(s.into) > 0:
			blobs, name := j.committer.blobs, s.file.Name
			j.workers.Go(func() {
				if err := blobs.Delete(name); err != nil {
					j.inbox.Failed(fmt.Errorf("delete a merge that came too late: %w", err))
				}
			})
		}
	}
	clear(j.splices)
	return committed{j.last.id, &m}
}
