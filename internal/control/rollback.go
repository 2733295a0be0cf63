package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// Rollback says to which checkpoint a job is to go back.
type Rollback struct {
	Slot int64
	// Duplicates allows it although there are sinks that only append: what they
	// hold of the records that are read again will be in them twice.
	Duplicates bool
}

// RolledBack is what a rollback came to: the checkpoint from which the job goes
// on, with the content of an older one.
type RolledBack struct {
	ID, From, Content log.ID
	Epoch             int64
}

// RollBack makes an older checkpoint the one that a job goes on from. It is a
// start that reads no record: it claims and fences as any start does, rolls
// followers forward, and then appends one more checkpoint whose splits and steps
// are those of the old one, and commits it with no output through all participants.
// So ledgers only move forward, and a crash anywhere leaves the job at one
// checkpoint or at the other. Sinks keep what they hold. Nothing is retired.
//
// It refuses (ErrRefused) a checkpoint off the chain of the current one: what was
// to be output for it never was; and one ahead of what the sinks hold: what they
// lack would never be output.
func RollBack(ctx context.Context, c Config, to Rollback) (RolledBack, error) {
	p := newProcess(ctx, c, NewHandle())
	p.Retain = 1 << 30 // nothing is retired
	j := newJob(ctx, p)
	j.keeps = true
	done, err := j.rollBack(ctx, to)
	failed, closing := j.close(err)
	return done, advised(p.close(errors.Join(failed, closing)))
}

func (j *job) rollBack(stop context.Context, to Rollback) (RolledBack, error) {
	waits := context.AfterFunc(stop, func() { j.cancel(errNothingDone) })
	target := func() error { _, err := j.target(to, log.ID{}); return err }
	for _, step := range []func() error{
		j.openStore,
		target, // what can be refused is refused before anything is changed
		j.connect,
		j.claim,
		j.recover,
		j.buildSinks, // those that are behind may need them
		j.settle,
	} {
		if stop.Err() != nil {
			return RolledBack{}, errNothingDone
		}
		if err := step(); err != nil {
			return RolledBack{}, err
		}
	}
	if j.last.m == nil {
		return RolledBack{}, refused("no checkpoint of job %s in %s was ever committed: there is nothing to go back to", j.Graph.Job, j.where)
	}
	m, err := j.target(to, j.last.id)
	if err != nil {
		return RolledBack{}, err
	}
	if !waits() {
		return RolledBack{}, errNothingDone
	}
	from := j.last.id
	id, err := j.committer.commitAll(m)
	if err != nil {
		return RolledBack{}, fmt.Errorf("roll back to checkpoint %d: %w", to.Slot, err)
	}
	j.last = committed{id, m}
	if err := j.committer.retire(id, false, true); err != nil { // notes that every ledger names it
		return RolledBack{}, fmt.Errorf("rolled back to checkpoint %d, as checkpoint %d, but: %w", to.Slot, id.Slot, err)
	}
	j.Log.Info("rolled back", "job", j.Graph.Job, "content", m.Content.String(), "checkpoint", id.String(), "epoch", m.Epoch)
	return RolledBack{ID: id, From: from, Content: m.Content, Epoch: m.Epoch}, nil
}

// errNothingDone is why a rollback ends that was asked to stop.
var errNothingDone = errors.New("stopped, and nothing was rolled back")

// buildSinks opens the sinks, and reads nothing.
func (j *job) buildSinks() error {
	connected := make([]Participant, len(j.committer.parties))
	for i, p := range j.committer.parties {
		connected[i] = p.Participant
	}
	var err error
	if j.flow, err = j.Build(j.ctx, connected); err != nil {
		return fmt.Errorf("build the job: %w", err)
	}
	return nil
}

// target returns the checkpoint to be entered behind current. A zero current is
// whatever the log's newest is: a first look, before anybody was asked.
func (j *job) target(to Rollback, current log.ID) (*log.Manifest, error) {
	if appends := appending(j.Sinks); len(appends) > 0 && !to.Duplicates {
		return nil, refused("what %s holds of the records that are read again would be there twice, because it only appends; allow it (--allow-duplicates, AllowDuplicates), or empty its target, and start over",
			strings.Join(appends, ", "))
	}
	entries := j.life.entries
	first := current.IsZero()
	if first {
		e := j.life.newest()
		if e == nil {
			return nil, refused("job %s has no checkpoint in %s yet: there is nothing to go back to", j.Graph.Job, j.where)
		}
		current = e.ID
	}
	e, err := Behind(entries, current, to.Slot)
	if first && err != nil { // the newest one may be one that was never committed
		if older, again := Behind(entries, j.life.newest().Checkpoint.Parent, to.Slot); again == nil {
			e, err = older, nil
		}
	}
	if err != nil {
		return nil, refused("roll back job %s to checkpoint %d: %v", j.Graph.Job, to.Slot, err)
	}
	if first {
		return nil, j.vouch(e.Checkpoint)
	}
	change, err := j.restorable(&e)
	if err != nil {
		return nil, err
	}
	old := e.Checkpoint.As(change.renamed, change.dropped).Moved(change.moved)
	return &log.Manifest{Job: j.Graph.Job, UUID: j.me.UUID, Incarnation: j.me.Incarnation, Epoch: j.last.m.Epoch + 1, Parent: current,
		Finished: old.Finished, KeyGroups: old.KeyGroups, Content: e.ID, Splits: old.Splits, Steps: old.Steps, Segments: old.Segments,
		At: j.env.Clock.Now().UTC()}, nil
}

// vouch compares everything that a checkpoint holds with its checksums: to go on
// from it is nothing that can be tried.
func (j *job) vouch(m *log.Manifest) error {
	for _, f := range m.Segments {
		if err := log.VerifySegment(j.committer.blobs, j.where, f); err != nil {
			return fmt.Errorf("look at checkpoint of epoch %d: %w", m.Epoch, err)
		}
	}
	return nil
}

// restorable compares the job as declared with the start under which an old
// checkpoint was made, but for the sinks: their ledgers stand at the current one.
func (j *job) restorable(e *log.Entry) (changes, error) {
	start := j.life.start(e.Checkpoint.Incarnation)
	if start == nil {
		return changes{}, refused("checkpoint %s was made under start %d, which the log in %s doesn't have", e.ID, e.Checkpoint.Incarnation, j.where)
	}
	c := compare(withoutSinks(start.Graph), withoutSinks(j.Graph), asked{j.Renamed, j.Drop}, table.Migration)
	return c, c.err()
}

// withoutSinks is a graph whose sinks have become steps that nothing is kept of.
func withoutSinks(g plan.Graph) plan.Graph {
	g.Nodes = slices.Clone(g.Nodes)
	for i, n := range g.Nodes {
		if n.Op == plan.Sink {
			g.Nodes[i] = plan.Node{Op: plan.Filter, Inputs: n.Inputs}
		}
	}
	return g
}

// appending names the sinks that only append.
func appending(sinks []Sinks) []string {
	var ids []string
	for _, s := range sinks {
		for _, id := range s.Appends {
			ids = append(ids, "sink "+id)
		}
	}
	return ids
}

// Behind returns the checkpoint in a slot if a job that stands at current can go
// back to it, and otherwise says why it can't. It is pure.
//
// The sinks hold the output up to the newest checkpoint that isn't a rollback
// itself. A checkpoint that has read further than that one is of a time before a
// rollback, whose output has since been overwritten by what was computed again.
func Behind(entries []log.Entry, current log.ID, slot int64) (log.Entry, error) {
	at := map[log.ID]log.Entry{}
	var found log.Entry
	for _, e := range log.Standing(entries) {
		if e.Checkpoint != nil {
			at[e.ID] = e
			if e.Slot == slot {
				found = e
			}
		}
	}
	switch {
	case found.Checkpoint == nil:
		return found, errors.New("there is no such checkpoint")
	case found.ID == current:
		return found, errors.New("the job stands there already")
	}
	chain := log.Chain(entries, current)
	if !slices.Contains(chain, found.ID) {
		return found, errors.New("it isn't one of those that led to the current one: it was never committed, and what was to be output for it never was")
	}
	reached := found
	for _, id := range chain {
		if reached = at[id]; reached.Checkpoint.Content.IsZero() {
			break
		}
	}
	if split := ahead(found.Checkpoint, reached.Checkpoint); split != "" {
		return found, fmt.Errorf("it has read further in %s than checkpoint %d, up to which the sinks hold the output: what is missing between the two would never be output",
			split, reached.Slot)
	}
	return found, nil
}

// ahead names a split of which a has read more than b.
func ahead(a, b *log.Manifest) string {
	for _, s := range a.Splits {
		i := slices.IndexFunc(b.Splits, func(o data.SplitState) bool { return o.Source == s.Source && o.Split == s.Split })
		if i < 0 && s.Records > 0 || i >= 0 && s.Records > b.Splits[i].Records {
			return fmt.Sprintf("split %s of source %s", s.Split, s.Source)
		}
	}
	return ""
}
