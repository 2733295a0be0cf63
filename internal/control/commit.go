package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// committer makes every call to participants and every entry in the log, one at
// a time: first in Run's goroutine, and while epochs run in one of its own.
type committer struct {
	job         string
	incarnation int64
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
	empty       bool // the epoch that is committed has no records
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
// kept with the checkpoint, by their names.
func (c *committer) prepare(epoch int64) (map[string][]byte, error) {
	staged := map[string][]byte{}
	for _, p := range c.parties {
		b, err := p.Prepare(c.ctx, epoch)
		if err != nil {
			return nil, fmt.Errorf("prepare epoch %d in %s: %w", epoch, p.Name, err)
		}
		if b != nil {
			staged[p.Name] = b
		}
	}
	return staged, nil
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

// decide lets the decider commit the checkpoint.
func (c *committer) decide(id log.ID, m *log.Manifest) error {
	return c.each(func(p *party) bool { return p.Name == c.decider }, id, m)
}

// follow lets all others commit it.
func (c *committer) follow(id log.ID, m *log.Manifest) error {
	return c.each(func(p *party) bool { return p.Name != c.decider }, id, m)
}

func (c *committer) each(which func(*party) bool, id log.ID, m *log.Manifest) error {
	for _, p := range c.parties {
		if !which(p) {
			continue
		}
		if err := c.commit(p, id, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *committer) commit(p *party, id log.ID, m *log.Manifest) error {
	return c.patiently(fmt.Sprintf("commit epoch %d in %s", m.Epoch, p.Name), func(ctx context.Context) error {
		return p.Commit(ctx, Commit{Epoch: m.Epoch, ID: id, Parent: m.Parent, Positions: m.Splits, Staged: m.Staged[p.Name], Empty: c.empty})
	})
}

// commitAll takes a checkpoint that nothing has to be prepared for.
func (c *committer) commitAll(m *log.Manifest) (log.ID, error) {
	c.empty = true
	defer func() { c.empty = false }()
	id, err := c.enter(m)
	if err == nil {
		err = c.decide(id, m)
	}
	if err == nil {
		err = c.follow(id, m)
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

// retire deletes the checkpoints that are too many, and what an earlier
// incarnation left unnamed, once named is what every ledger names. Unless
// always, it lets some gather, because each retirement costs an entry.
func (c *committer) retire(named log.ID, always bool) error {
	entries := c.log.Entries()
	n := 0
	for _, e := range entries {
		if e.Checkpoint != nil {
			n++
		}
	}
	if !always && n <= c.retain+min(c.retain, 10) {
		return nil
	}
	segments, err := c.blobs.List(log.SegmentPrefix)
	if err != nil {
		return fmt.Errorf("list segments: %w", err)
	}
	r := log.Retirement(entries, []log.ID{named}, c.retain, c.incarnation, segments)
	if r.IsZero() {
		return nil
	}
	// Listed first, so that a restart finishes what a crash interrupts, and so
	// that whoever has lost the log can't delete.
	if _, err := c.log.Append(log.Entry{Retire: &r}); err != nil {
		return fmt.Errorf("enter what is to be retired: %w", err)
	}
	return wrap("retire old checkpoints", c.log.Sweep())
}
