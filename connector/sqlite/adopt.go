package sqlite

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

const renameLedger = `UPDATE weir_ledger SET sink = ?1, checkpoint = ?2, updated_at = ?3
WHERE job_uuid = ?4 AND sink = ?5 AND worker = 0 AND incarnation = ?6 AND nonce = ?7 AND checkpoint = ?2`

// Adopt makes the ledgers of sinks that are new to a job with checkpoints, and
// moves those of renamed ones, in one transaction. Where all sinks of the
// database are new it is created.
func (p *participant) Adopt(ctx context.Context, at weir.CheckpointID, sinks []weir.Adopted) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.create = true
	dialed := p.c == nil
	if dialed {
		var err error
		if p.c, err = dial(ctx, p.path, true); err != nil {
			return p.fail(err)
		}
	}
	if p.ledgers == nil {
		p.ledgers = map[string]weir.Ledger{}
	}
	err := p.c.txn(ctx, func() error {
		if _, err := p.ledgerTable(ctx); err != nil {
			return err
		}
		for _, s := range sinks {
			if err := p.adopt(ctx, at, s); err != nil {
				return err
			}
			p.ledgers[s.Sink] = weir.Ledger{Found: true, ID: at}
			p.fresh[s.Sink] = s.Was == ""
		}
		for _, t := range p.tables {
			if err := p.ensure(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return p.fail(fmt.Errorf("sqlite: make ledgers of new sinks: %w", err))
	}
	if dialed && p.courier != nil { // there was nothing to fence
		p.courier.start()
	}
	return nil
}

// adopt makes or moves one ledger. It runs in a transaction.
func (p *participant) adopt(ctx context.Context, at weir.CheckpointID, s weir.Adopted) error {
	row, err := p.readLedger(ctx, s.Sink)
	switch {
	case err != nil:
		return err
	case row.found && row.by != p.by:
		return p.fenced(s.Sink, row)
	case row.found && row.checkpoint == at.String():
		return nil
	case row.found:
		return fmt.Errorf("%w: the ledger of sink %q in %s names checkpoint %q, not %q: give the new sink another id",
			weir.ErrRefused, s.Sink, p.path, row.checkpoint, at)
	case s.Was == "":
		if err := p.refuseForeign(ctx, s.Sink); err != nil {
			return err
		}
		_, err := p.c.exec(ctx, "make ledger", makeLedger, p.job.UUID, s.Sink, p.job.Name, p.by.Number, p.by.Nonce, at.String(), stamp(ctx))
		return err
	}
	changed, err := p.c.exec(ctx, "rename ledger", renameLedger, s.Sink, at.String(), stamp(ctx), p.job.UUID, s.Was, p.by.Number, p.by.Nonce)
	if err != nil || changed == 1 {
		return err
	}
	row, err = p.readLedger(ctx, s.Was)
	switch {
	case err != nil:
		return err
	case row.found && row.by != p.by:
		return p.fenced(s.Was, row)
	}
	return fmt.Errorf("%w: sink %q was called %q, whose ledger in %s names checkpoint %q, where %q was expected: "+
		"the database or the state directory was replaced", weir.ErrRefused, s.Sink, s.Was, p.path, row.checkpoint, at)
}
