package file

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirstream/weir"
)

// Adopt gives sinks that are new to the job, or renamed, a ledger at a
// checkpoint. All of it is in one state.
func (p *participant) Adopt(ctx context.Context, at weir.CheckpointID, sinks []weir.Adopted) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if err := p.adopt(ctx, at.String(), sinks); err != nil {
		return p.fail(fmt.Errorf("file: make ledgers in %s: %w", p.dir, p.explain(err)))
	}
	return nil
}

func (p *participant) adopt(ctx context.Context, at string, sinks []weir.Adopted) error {
	if p.stage.Load() == nil {
		// The job has nothing in this folder yet.
		if err := p.fence(ctx, weir.Fence{Job: p.job, By: p.by, Create: true}, nil); err != nil {
			return err
		}
	}
	rows := slices.Clone(p.rows)
	find := func(sink string) int { return slices.IndexFunc(rows, func(r row) bool { return r.Sink == sink }) }
	for _, s := range sinks {
		i, was := find(s.Sink), find(s.Was)
		switch {
		case i >= 0 && rows[i].Checkpoint != at:
			return fmt.Errorf("%w: the ledger of sink %q names checkpoint %q, and the job stands at %q: choose another id for it",
				weir.ErrRefused, s.Sink, rows[i].Checkpoint, at)
		case i >= 0:
			continue
		case s.Was == "":
			rows = append(rows, row{Sink: s.Sink, Checkpoint: at})
		case was < 0:
			return fmt.Errorf("%w: sink %q was called %q, which has no ledger there: restore the folder from a backup", weir.ErrRefused, s.Sink, s.Was)
		case rows[was].Checkpoint != at:
			return fmt.Errorf("%w: sink %q was called %q, whose ledger names checkpoint %q, and the job stands at %q",
				weir.ErrRefused, s.Sink, s.Was, rows[was].Checkpoint, at)
		default:
			rows[was].Sink = s.Sink
		}
	}
	if slices.Equal(rows, p.rows) {
		return nil
	}
	return p.setRows(ctx, rows)
}
