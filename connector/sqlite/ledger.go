package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// ledgerTable holds one row a sink. Rows of a job carry the uuid of its state
// directory, so that another run of the same job is told apart. While one
// process runs a job its worker is 0.
const ledgerTable = "weir_ledger"

const createLedger = `CREATE TABLE IF NOT EXISTS weir_ledger (
	job_uuid    TEXT    NOT NULL,
	sink        TEXT    NOT NULL,
	worker      INTEGER NOT NULL,
	job         TEXT    NOT NULL,
	tbl         TEXT    NOT NULL,
	incarnation INTEGER NOT NULL,
	nonce       TEXT    NOT NULL,
	checkpoint  TEXT    NOT NULL,
	updated_at  TEXT    NOT NULL,
	PRIMARY KEY (job_uuid, sink, worker)
) WITHOUT ROWID`

const (
	fenceLedger = `UPDATE weir_ledger SET incarnation = ?1, nonce = ?2, job = ?3, updated_at = ?4
WHERE job_uuid = ?5 AND sink = ?6 AND worker = 0 AND incarnation < ?1`
	makeLedger = `INSERT INTO weir_ledger (job_uuid, sink, worker, job, tbl, incarnation, nonce, checkpoint, updated_at)
VALUES (?, ?, 0, ?, '', ?, ?, ?, ?)`
	readLedger = `SELECT incarnation, nonce, checkpoint FROM weir_ledger WHERE job_uuid = ? AND sink = ? AND worker = 0`
	// Results that were given up stand in nobody's way.
	foreignLedger = `SELECT job_uuid FROM weir_ledger WHERE job = ? AND sink = ? AND job_uuid <> ? AND incarnation < 4611686018427387904 LIMIT 1`
	// No start of a run that was given up can be newer than this.
	giveUpLedger = `UPDATE weir_ledger SET incarnation = 4611686018427387904, nonce = ?1, updated_at = ?2 WHERE job = ?3 AND sink = ?4 AND job_uuid <> ?5`
	moveLedger   = `UPDATE weir_ledger SET checkpoint = ?1, updated_at = ?2
WHERE job_uuid = ?3 AND sink = ?4 AND worker = 0 AND incarnation = ?5 AND nonce = ?6 AND checkpoint = ?7`
	tableLedger = `SELECT job, sink, job_uuid FROM weir_ledger WHERE tbl = ?1 COLLATE NOCASE AND job <> ?2 AND job_uuid <> ?3 AND incarnation < 4611686018427387904
ORDER BY job, sink LIMIT 1`
	claimLedger = `UPDATE weir_ledger SET tbl = ?1 WHERE job_uuid = ?2 AND sink = ?3 AND worker = 0 AND tbl <> ?1`
)

// ledgerRow is what a ledger says.
type ledgerRow struct {
	found      bool
	by         weir.Incarnation
	checkpoint string
}

func (p *participant) readLedger(ctx context.Context, sink string) (row ledgerRow, err error) {
	err = p.c.query(ctx, "read ledger", readLedger, []any{p.job.UUID, sink}, func(v []driver.Value) error {
		var ok [3]bool
		row.found = true
		row.by.Number, ok[0] = v[0].(int64)
		row.by.Nonce, ok[1] = v[1].(string)
		row.checkpoint, ok[2] = v[2].(string)
		if ok != [3]bool{true, true, true} {
			return fmt.Errorf("%w: the ledger of sink %q in %s holds values of other types than weir writes: "+
				"restore the database from a backup", weir.ErrRefused, sink, p.path)
		}
		return nil
	})
	return row, err
}

// fenceSink claims one ledger for p.by. It runs in a transaction.
func (p *participant) fenceSink(ctx context.Context, sink string, create bool) (weir.Ledger, error) {
	now := stamp(ctx)
	changed, err := p.c.exec(ctx, "fence ledger", fenceLedger, p.by.Number, p.by.Nonce, p.job.Name, now, p.job.UUID, sink)
	if err != nil {
		return weir.Ledger{}, err
	}
	row, err := p.readLedger(ctx, sink)
	switch {
	case err != nil:
		return weir.Ledger{}, err
	case row.found && changed == 0:
		return weir.Ledger{}, p.late(sink, row)
	case row.found:
		id, err := weir.ParseCheckpointID(row.checkpoint)
		if err != nil {
			return weir.Ledger{}, fmt.Errorf("%w: the ledger of sink %q in %s: %w: restore the database from a backup",
				weir.ErrRefused, sink, p.path, err)
		}
		return weir.Ledger{Found: true, ID: id}, nil
	case !create:
		return weir.Ledger{}, nil
	}
	if p.startOver {
		_, err = p.c.exec(ctx, "fence other runs", giveUpLedger, p.by.Nonce, now, p.job.Name, sink, p.job.UUID)
	} else {
		err = p.refuseForeign(ctx, sink)
	}
	if err != nil {
		return weir.Ledger{}, err
	}
	_, err = p.c.exec(ctx, "make ledger", makeLedger, p.job.UUID, sink, p.job.Name, p.by.Number, p.by.Nonce, "", now)
	return weir.Ledger{Found: true}, err
}

// refuseForeign keeps a job that starts from nothing away from the results of
// a run whose state it doesn't have: it would write over them from the start.
func (p *participant) refuseForeign(ctx context.Context, sink string) error {
	other := ""
	err := p.c.query(ctx, "look for other runs", foreignLedger, []any{p.job.Name, sink, p.job.UUID}, func(v []driver.Value) error {
		other = fmt.Sprint(v[0])
		return nil
	})
	if err != nil || other == "" {
		return err
	}
	if !p.genesis {
		return fmt.Errorf("%w: sink %q is new, and %s has results of another run of the job %q under that id (run %s): "+
			"choose another id, or name another database", weir.ErrRefused, sink, p.path, p.job.Name, other)
	}
	return fmt.Errorf("%w: %s already belongs to another run of the job %q (sink %q, run %s), and this run starts "+
		"from nothing: start with that run's state directory, or name another database, or give those results up with "+
		"--start-over (StartOver): rows that this run doesn't write stay as they are",
		weir.ErrRefused, p.path, p.job.Name, sink, other)
}

// move makes every ledger name c.ID if it names c.Parent. It runs in a
// transaction and says errNothing if they name c.ID already.
func (p *participant) move(ctx context.Context, c weir.Commit) error {
	now := stamp(ctx)
	done := 0
	for _, sink := range p.sinks {
		changed, err := p.c.exec(ctx, "move ledger", moveLedger, c.ID.String(), now,
			p.job.UUID, sink, p.by.Number, p.by.Nonce, c.Parent.String())
		if err != nil {
			return err
		}
		if changed == 1 {
			continue
		}
		row, err := p.readLedger(ctx, sink)
		switch {
		case err != nil:
			return err
		case !row.found:
			return fmt.Errorf("%w: the ledger of sink %q is gone from %s: restore the database from a backup",
				weir.ErrRefused, sink, p.path)
		case row.by != p.by:
			return p.fenced(sink, row)
		case row.checkpoint != c.ID.String():
			return fmt.Errorf("%w: the ledger of sink %q in %s names checkpoint %q, where %q was to follow %q: "+
				"the database or the state directory was replaced", weir.ErrRefused, sink, p.path,
				row.checkpoint, c.ID, c.Parent)
		}
		done++
	}
	switch done {
	case 0:
		return nil
	case len(p.sinks):
		return errNothing
	}
	return fmt.Errorf("%w: some ledgers in %s name checkpoint %q and some don't: restore the database from a backup",
		weir.ErrRefused, p.path, c.ID)
}

// own makes sure that a sink's ledger still names this incarnation. It runs
// in a transaction, so it stays true until that ends.
func (p *participant) own(ctx context.Context, sink string) error {
	row, err := p.readLedger(ctx, sink)
	if err == nil && row.by != p.by {
		return p.fenced(sink, row)
	}
	return err
}

func (p *participant) fenced(sink string, row ledgerRow) error {
	return fmt.Errorf("%w: incarnation %d (%s) can't write to %s: the ledger of sink %q names incarnation %d (%s)",
		weir.ErrFenced, p.by.Number, p.by.Nonce, p.path, sink, row.by.Number, row.by.Nonce)
}

// late says why a ledger can't be claimed.
func (p *participant) late(sink string, row ledgerRow) error {
	if row.by.Number == p.by.Number && row.by.Nonce != p.by.Nonce {
		return fmt.Errorf("%w: this state directory is a copy or comes from a backup: the ledger of sink %q in %s names incarnation %d (%s), "+
			"which this directory's log doesn't have: start with the directory that has it, or start over with --start-over (StartOver) in an empty one",
			weir.ErrRefused, sink, p.path, row.by.Number, row.by.Nonce)
	}
	return fmt.Errorf("%w; or, if no newer process runs, this state directory is a copy or comes from a backup, or its results were given up",
		p.fenced(sink, row))
}

// claimTable notes in a sink's ledger which table it writes, unless another
// job does: each would write over the other's rows. It runs in a transaction.
func (p *participant) claimTable(ctx context.Context, t *table) error {
	var other [3]string
	err := p.c.query(ctx, "look for other jobs", tableLedger, []any{t.layout.table, p.job.Name, p.job.UUID}, func(v []driver.Value) error {
		for i := range other {
			other[i] = fmt.Sprint(v[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	if other != [3]string{} {
		return fmt.Errorf("%w: the table %q in %s is written by the job %q (sink %q, run %s): "+
			"name another table or another database for sink %q; or, if that job is gone for good, delete its rows from %s "+
			"(DELETE FROM %[8]s WHERE job_uuid = '%[6]s')",
			weir.ErrRefused, t.layout.table, p.path, other[0], other[1], other[2], t.sink, ledgerTable)
	}
	_, err = p.c.exec(ctx, "claim table", claimLedger, t.layout.table, p.job.UUID, t.sink)
	return err
}

// stamp is the time for updated_at, which is for people only.
func stamp(ctx context.Context) string {
	return sys.From(ctx).Clock.Now().UTC().Format(time.RFC3339)
}
