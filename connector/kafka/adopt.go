package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirstream/weir"
)

// claim writes the control record that says whose the producers are now. At genesis
// it makes the ledgers. Without ledgers there is nothing to claim: Adopt makes them,
// or nobody goes on.
func (p *participant) claim(ctx context.Context, f weir.Fence, last lastRecords) error {
	if err := p.number(ctx, last.newest); err != nil {
		return err
	}
	p.last, p.seen, p.ledgers = last.own, last.own, map[string]weir.Ledger{}
	var at weir.CheckpointID
	epoch := int64(-1)
	if last.own != nil {
		epoch = last.own.Epoch
		var err error
		if at, err = ledgerID(last.own.Checkpoint); err != nil {
			return fmt.Errorf("%w: the control record at offset %d of %s: %w", weir.ErrRefused, last.own.offset, p.control.name, err)
		}
		for sink, id := range last.own.ids {
			p.ledgers[sink] = weir.Ledger{Found: true, ID: id}
		}
	}
	if f.Create {
		for _, sink := range p.sinks {
			if !p.ledgers[sink].Found {
				p.ledgers[sink] = weir.Ledger{Found: true}
			}
		}
	}
	if len(p.ledgers) == 0 {
		return nil
	}
	p.epoch = epoch
	r := p.record(p.ledgers, at, at, epoch)
	if err := p.transact(ctx, r, nil, func(ctx context.Context) error { return p.goesOn(ctx, r, last.newest) }); err != nil {
		return p.claimError(ctx, err)
	}
	if err := p.see(ctx, p.last); err != nil {
		return err
	}
	return p.prepareTargets(ctx)
}

// goesOn compares what stands before a claim, which has its place in the control
// topic, with the record that the claim was made from. That may have come from a
// leader that was deposed without knowing it, whose end is an older one; whoever
// has the claim has everything before it.
func (p *participant) goesOn(ctx context.Context, claim, from *controlRecord) error {
	if claim.offset < 0 {
		return waitable{fmt.Errorf("a broker has the claim on the control topic %s already, and doesn't say where", p.control.name)}
	}
	before, err := p.lastBefore(ctx, p.control, p.run.UUID, claim.offset)
	if err != nil {
		return err
	}
	if n := before.newest; n != from && (n == nil || from == nil || n.offset != from.offset) {
		return waitable{fmt.Errorf("the claim on the control topic %s goes on from %s, and behind %s: its leader has changed, and the old one told what was so before",
			p.control.name, from.place(), n.place())}
	}
	return nil
}

// claimError says what became of a claim. One that was shut out before anybody newer
// has made one is tried again.
func (p *participant) claimError(ctx context.Context, err error) error {
	err = p.c.explain("claim the control topic "+p.control.name, err)
	if !fences(err) {
		return err
	}
	if err = p.later(ctx, err); errors.Is(err, weir.ErrFenced) {
		return err
	}
	return waitable{fmt.Errorf("%w: somebody else has initialized the job's producers at the same moment", err)}
}

// number gives the producers' transactions the numbers behind the newest record's.
func (p *participant) number(ctx context.Context, newest *controlRecord) error {
	p.known = -1
	if newest != nil {
		p.known = newest.Number
	}
	next := p.known + 1
	for n := next; n < next+2; n++ {
		if err := p.lane(n).begin(ctx, n); err != nil {
			return err
		}
	}
	p.next.Store(next)
	return nil
}

// answer is what Fence was asked for: the ledgers of the sinks there are and of
// those that there were.
func (p *participant) answer(former []string) map[string]weir.Ledger {
	out := map[string]weir.Ledger{}
	for _, sink := range slices.Concat(p.sinks, former) {
		if l, ok := p.ledgers[sink]; ok {
			out[sink] = l
		}
	}
	return out
}

// prepareTargets looks at the topics of sinks that were opened before.
func (p *participant) prepareTargets(ctx context.Context) error {
	for _, t := range p.registered() {
		if err := p.prepareTarget(ctx, t); err != nil {
			return fmt.Errorf("sink %q: %w", t.sink, err)
		}
	}
	return nil
}

// Adopt makes ledgers for sinks that are new to a job with checkpoints, and moves
// those of renamed ones, by a control record at the same checkpoint.
func (p *participant) Adopt(ctx context.Context, at weir.CheckpointID, sinks []weir.Adopted) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.failure(); err != nil {
		return err
	}
	if o := p.other; o != nil {
		return fmt.Errorf("%w: sink %q is new, and the control topic %s on the kafka cluster %s has results of another run of the job %q (%s): "+
			"give the job another name or the cluster a Prefix", weir.ErrRefused, sinks[0].Sink, p.control.name, p.c, o.Job, o.UUID)
	}
	if !p.fenced {
		return fmt.Errorf("kafka: %s hasn't been fenced for this job", p.name)
	}
	ledgers := maps.Clone(p.ledgers)
	for _, s := range sinks {
		if err := p.adopt(ledgers, at, s); err != nil {
			return err
		}
	}
	if !maps.Equal(ledgers, p.ledgers) {
		if p.control == nil {
			name, err := p.c.controlName(p.run.Name)
			if err != nil {
				return err
			}
			if p.control, err = p.findControl(ctx, name, true); err != nil {
				return err
			}
		}
		if p.last == nil || p.last.Checkpoint != at.String() {
			p.epoch = -1 // that of another checkpoint, of a time when the job had other sinks here
		}
		if err := p.transact(ctx, p.record(ledgers, at, at, p.epoch), nil, nil); err != nil {
			return p.fail(p.overtaken(ctx, fmt.Errorf("kafka: make ledgers of new sinks: %w", err)))
		}
		p.ledgers = ledgers
		if err := p.see(ctx, p.last); err != nil {
			return err
		}
	}
	for _, s := range sinks {
		p.fresh[s.Sink] = s.Was == ""
	}
	return p.prepareTargets(ctx)
}

// adopt makes or moves one ledger.
func (p *participant) adopt(ledgers map[string]weir.Ledger, at weir.CheckpointID, s weir.Adopted) error {
	if l := ledgers[s.Sink]; l.Found {
		if l.ID != at {
			return fmt.Errorf("%w: the ledger of sink %q in the control topic %s names checkpoint %q, not %q: give the new sink another id",
				weir.ErrRefused, s.Sink, p.control.name, l.ID, at)
		}
		return nil
	}
	if s.Was != "" {
		if l := ledgers[s.Was]; !l.Found || l.ID != at {
			return fmt.Errorf("%w: sink %q was called %q, whose ledger names checkpoint %q, where %q was expected: "+
				"the cluster's topics or the state directory were replaced", weir.ErrRefused, s.Sink, s.Was, l.ID, at)
		}
		delete(ledgers, s.Was)
	}
	ledgers[s.Sink] = weir.Ledger{Found: true, ID: at}
	return nil
}
