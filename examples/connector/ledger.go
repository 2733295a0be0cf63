package connector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirstream/weir"
)

const (
	createLedger = `CREATE TABLE IF NOT EXISTS example_ledger (
	job_uuid TEXT NOT NULL, sink TEXT NOT NULL, job TEXT NOT NULL,
	incarnation INTEGER NOT NULL, nonce TEXT NOT NULL, checkpoint TEXT NOT NULL,
	PRIMARY KEY (job_uuid, sink))`
	claimLedger = `UPDATE example_ledger SET incarnation = ?, nonce = ? WHERE job_uuid = ? AND sink = ? AND incarnation < ?`
	moveLedger  = `UPDATE example_ledger SET checkpoint = ?
	WHERE job_uuid = ? AND sink = ? AND incarnation = ? AND nonce = ? AND checkpoint = ?`
	renameLedger = `UPDATE example_ledger SET sink = ?
	WHERE job_uuid = ? AND sink = ? AND incarnation = ? AND nonce = ? AND checkpoint = ?`
	// No start of a run that was given up can be newer than this.
	giveUpLedgers = `UPDATE example_ledger SET incarnation = 9223372036854775807 WHERE job = ? AND sink = ? AND job_uuid <> ?`
)

// ledgerRow is a weir.Ledger and who has claimed it.
type ledgerRow struct {
	weir.Ledger
	by weir.Incarnation
}

func (p *participant[T]) Fence(ctx context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	p.job, p.by = f.Job, f.By
	if _, err := p.db.ExecContext(ctx, createLedger); err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	ledgers := map[string]weir.Ledger{}
	err := p.txn(ctx, func(tx *sql.Tx) error {
		for _, sink := range append([]string{p.sink}, f.Former...) {
			claimed, err := changed(tx.ExecContext(ctx, claimLedger, p.by.Number, p.by.Nonce, p.job.UUID, sink, p.by.Number))
			if err != nil {
				return err
			}
			row, err := p.readLedger(ctx, tx, sink)
			if err != nil {
				return err
			}
			if row.Found && !claimed {
				return p.fenced(row)
			}
			if !row.Found && f.Create && sink == p.sink {
				if err := p.makeLedger(ctx, tx, weir.CheckpointID{}, f.StartOver); err != nil {
					return err
				}
				row.Found = true
			}
			ledgers[sink] = row.Ledger
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fence earlier incarnations: %w", err)
	}
	return ledgers, nil
}

// makeLedger refuses to write to a table that has results of another run of the job.
func (p *participant[T]) makeLedger(ctx context.Context, tx *sql.Tx, at weir.CheckpointID, startOver bool) error {
	if startOver {
		if _, err := tx.ExecContext(ctx, giveUpLedgers, p.job.Name, p.sink, p.job.UUID); err != nil {
			return err
		}
	} else {
		var others int
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM example_ledger WHERE job = ? AND sink = ?", p.job.Name, p.sink).Scan(&others)
		if err != nil {
			return err
		}
		if others > 0 {
			return fmt.Errorf("%w: the database has results of another run of the job %s: start with that run's state directory, or start over",
				weir.ErrRefused, p.job.Name)
		}
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO example_ledger (job_uuid, sink, job, incarnation, nonce, checkpoint) VALUES (?, ?, ?, ?, ?, ?)",
		p.job.UUID, p.sink, p.job.Name, p.by.Number, p.by.Nonce, at.String())
	return err
}

func (p *participant[T]) Adopt(ctx context.Context, at weir.CheckpointID, sinks []weir.Adopted) error {
	err := p.txn(ctx, func(tx *sql.Tx) error {
		was := sinks[0].Was // there is one sink
		row, err := p.readLedger(ctx, tx, p.sink)
		switch {
		case err != nil:
			return err
		case row.Found && row.by != p.by:
			return p.fenced(row)
		case row.Found && row.ID == at:
			return nil // adopted before
		case !row.Found && was == "":
			return p.makeLedger(ctx, tx, at, false)
		case !row.Found:
			moved, err := changed(tx.ExecContext(ctx, renameLedger, p.sink, p.job.UUID, was, p.by.Number, p.by.Nonce, at.String()))
			if err != nil || moved {
				return err
			}
		}
		return fmt.Errorf("%w: the ledger of sink %s, or of %q, which it was called, doesn't name checkpoint %s", weir.ErrRefused, p.sink, was, at)
	})
	if err != nil {
		return fmt.Errorf("adopt sink %s: %w", p.sink, err)
	}
	return nil
}

func (p *participant[T]) readLedger(ctx context.Context, tx *sql.Tx, sink string) (row ledgerRow, err error) {
	var id string
	err = tx.QueryRowContext(ctx, "SELECT incarnation, nonce, checkpoint FROM example_ledger WHERE job_uuid = ? AND sink = ?", p.job.UUID, sink).
		Scan(&row.by.Number, &row.by.Nonce, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return row, nil
	}
	if err != nil {
		return row, err
	}
	row.Found = true
	row.ID, err = weir.ParseCheckpointID(id)
	return row, err
}

func (p *participant[T]) fenced(row ledgerRow) error {
	return fmt.Errorf("%w: the ledger of sink %s names incarnation %d (%s), and this one is %d (%s)",
		weir.ErrFenced, p.sink, row.by.Number, row.by.Nonce, p.by.Number, p.by.Nonce)
}

// changed reports whether a statement has changed a row.
func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}
