package control

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// committer makes every call to participants and every entry in the log, one at
// a time: first in Run's goroutine, and while epochs run in one of its own.
type committer struct {
	job         string
	where       string // what errors call the store
	incarnation int64
	nonce       string
	ctx         context.Context
	clock       sys.Clock
	log         *log.Log
	blobs       sys.Blobs
	retain      int
	decider     string // a party's name, or storeDecides
	parties     []*party
	tell        func(Event) // from whichever goroutine it works in
	notify      func(context.Context, []data.SplitState) error
	warn        *slog.Logger
	outputs     int64 // bytes in output logs since the last retirement
}

// party is a connected participant and what its ledgers named when it was
// fenced.
type party struct {
	Sinks
	Participant
	ledgers map[string]Ledger
}

// What a participant's own delays are waited for with.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = 5 * time.Second
)

// patiently repeats a call that says it may be, until the run is over. It says
// what it waits for.
func (c *committer) patiently(what string, call func(context.Context) error) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := call(c.ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", what, err)
		if !temporary(err) {
			return err
		}
		c.warn.Warn("waiting", "for", what, "because", err.Error(), "again_in", wait)
		c.tell(Event{Waiting: &Waiting{For: err.Error()}})
		select {
		case <-c.clock.After(wait):
		case <-c.ctx.Done():
			return fmt.Errorf("%w while waiting to %w", context.Cause(c.ctx), err)
		}
	}
}

// prepare lets every participant get ready, and returns what they want to have
// kept with the checkpoint.
func (c *committer) prepare(epoch int64) (s staged, err error) {
	for i, p := range c.parties {
		began := c.clock.Now()
		b, err := p.Prepare(c.ctx, epoch)
		c.called(Prepare, p, epoch, began, err)
		if err != nil {
			return staged{}, fmt.Errorf("prepare epoch %d in %s: %w", epoch, p.Name, err)
		}
		if err := c.stage(&s, epoch, i, p, b); err != nil {
			return staged{}, err
		}
	}
	return s, nil
}

// enter puts the manifest into the log's next slot. From then on it can be
// restored; it is committed by that only where the store decides.
func (c *committer) enter(m *log.Manifest) (log.ID, error) {
	id, err := c.log.Append(log.Entry{Checkpoint: m})
	if err != nil {
		return log.ID{}, fmt.Errorf("enter checkpoint of epoch %d: %w", m.Epoch, err)
	}
	return id, nil
}

// decide lets the decider commit the checkpoint. It returns when a reader sees
// that: followers must not run ahead of what can still be lost.
func (c *committer) decide(id log.ID, m *log.Manifest, s staged) error {
	for _, p := range c.parties {
		if p.Name != c.decider {
			continue
		}
		if err := c.commit(p, id, m, s); err != nil {
			return err
		}
		return c.patiently(fmt.Sprintf("see epoch %d in %s", m.Epoch, p.Name), func(ctx context.Context) error {
			return p.Visible(ctx, id)
		})
	}
	return nil
}

// follow lets all others commit it.
func (c *committer) follow(id log.ID, m *log.Manifest, s staged) error {
	for _, p := range c.parties {
		if p.Name == c.decider {
			continue
		}
		if err := c.commit(p, id, m, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *committer) commit(p *party, id log.ID, m *log.Manifest, s staged) error {
	b, err := c.kept(p, m, s)
	if err != nil {
		return err
	}
	what, began := Follow, c.clock.Now()
	if p.Name == c.decider {
		what = Decide
	}
	err = c.patiently(fmt.Sprintf("commit epoch %d in %s", m.Epoch, p.Name), func(ctx context.Context) error {
		return p.Commit(ctx, Commit{Epoch: m.Epoch, ID: id, Parent: m.Parent, Positions: m.Splits, Staged: b, Empty: m.Empty})
	})
	c.called(what, p, m.Epoch, began, err)
	return err
}

// called tells of a call to a participant that is over.
func (c *committer) called(what string, p *party, epoch int64, began time.Time, err error) {
	c.tell(Event{Call: &Call{What: what, Participant: p.Name, Sinks: p.IDs, Epoch: epoch, Took: c.clock.Now().Sub(began), Err: err}})
}

// commitAll takes a checkpoint that nothing has to be prepared for.
func (c *committer) commitAll(m *log.Manifest) (log.ID, error) {
	m.Empty = true
	id, err := c.enter(m)
	if err == nil {
		err = c.decide(id, m, staged{})
	}
	if err == nil {
		err = c.follow(id, m, staged{})
	}
	return id, err
}

// flush waits until every participant has confirmed what needs no Commit.
func (c *committer) flush() error {
	for _, p := range c.parties {
		if err := p.Flush(c.ctx); err != nil {
			return fmt.Errorf("flush %s: %w", p.Name, err)
		}
	}
	return nil
}

// published tells the sources where they are committed. They may miss it: the
// checkpoint is the truth.
func (c *committer) published(m *log.Manifest) {
	if err := c.notify(c.ctx, m.Splits); err != nil {
		c.warn.Warn("a source couldn't be told what was committed", "epoch", m.Epoch, "error", err.Error())
	}
}

// files lists the segments and output logs of the store.
func (c *committer) files() ([]string, error) {
	segments, err := c.blobs.List(log.SegmentPrefix)
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	outputs, err := c.blobs.List(log.OutputPrefix)
	if err != nil {
		return nil, fmt.Errorf("list output logs: %w", err)
	}
	return append(segments, outputs...), nil
}

// maxOutputs is how many bytes of output logs may gather before they are
// retired: an entry costs nothing beside them.
const maxOutputs = 64 << 20

// retire deletes the checkpoints that are too many, the output logs that aren't
// needed any more, and what an earlier incarnation left unnamed, once named is
// what every ledger names. Unless always, it lets some gather, because each
// retirement costs an entry. At the end of a run the log says that all is
// settled, so that a sink can be removed later without asking it.
func (c *committer) retire(named log.ID, always, ends bool) error {
	entries := c.log.Entries()
	n := 0
	for _, e := range entries {
		if e.Checkpoint != nil {
			n++
		}
	}
	var r log.Retire
	if always || n > c.retain+min(c.retain, 10) || c.outputs > maxOutputs || ends && c.outputs > 0 {
		files, err := c.files()
		if err != nil {
			return err
		}
		r = log.Retirement(entries, []log.ID{named}, c.retain, c.incarnation, files)
		c.outputs = 0
	}
	if r.IsZero() {
		ledgers := slices.ContainsFunc(c.parties, func(p *party) bool { return p.Kind != atLeastOnce })
		if !ends || !ledgers || log.Settled(entries, named) {
			return nil
		}
		r = log.Retire{Incarnation: c.incarnation}
	}
	r.Settled = named
	// Listed first, so that a restart finishes what a crash interrupts, and so
	// that whoever has lost the log can't delete.
	if _, err := c.log.Append(log.Entry{Retire: &r}); err != nil {
		return fmt.Errorf("enter what is to be retired: %w", err)
	}
	if err := c.log.Sweep(); err != nil {
		return fmt.Errorf("retire old checkpoints: %w", err)
	}
	n = 0
	for _, e := range entries {
		if e.Checkpoint != nil && slices.Contains(r.Slots, e.Slot) {
			n++
		}
	}
	c.tell(Event{Retired: &Retired{Checkpoints: n, Files: len(r.Slots) + len(r.Blobs)}})
	return nil
}
