package connector

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/gob"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/weirstream/weir"
)

// Table is a transactional sink that adds a row for each record. The rows of an
// epoch and the ledger row that names its checkpoint are one transaction. The sink
// is alone: two of them, also in one database, commit one after the other. The
// records must be ones that package encoding/gob can encode, since a later
// incarnation may have to commit what this one has kept.
func Table[T any](r Records[T]) weir.Sink[T] { return table[T]{r} }

type table[T any] struct{ Records[T] }

func (t table[T]) Spec() weir.SinkSpec {
	return weir.SinkSpec{
		Kind:    weir.Transactional,
		Target:  fmt.Sprintf("table %s (%s)", t.Table, t.Driver),
		Place:   t.Table,
		Readers: "an epoch's rows appear together, in one transaction with the ledger row that names the checkpoint",
		Needs:   []string{"the table example_ledger in the same database", "a database whose commits are durable"},
		Appends: true,
	}
}

func (t table[T]) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	db, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	return &participant[T]{Records: t.Records, db: db, sink: sinks[0], sealed: map[int64][]T{}}, nil
}

func (t table[T]) Open(_ context.Context, p weir.Participant, _ string) (weir.Outlet[T], error) {
	return p.(*participant[T]), nil // what Connect has returned
}

// participant is the sink in one incarnation.
type participant[T any] struct {
	Records[T]
	db      *sql.DB
	sink    string // its step id
	job     weir.JobID
	by      weir.Incarnation
	follows bool

	mu     sync.Mutex // tasks seal an epoch while control commits the one before
	sealed map[int64][]T
}

// maxRows is how many rows a task may hold before it asks for a checkpoint.
const maxRows = 50_000

// writer is the sink in one task.
type writer[T any] struct {
	p    *participant[T]
	rows []T
}

func (p *participant[T]) Writer(int) weir.Writer[T] { return &writer[T]{p: p} }

func (w *writer[T]) Write(recs []T, _ []int64) error {
	w.rows = append(w.rows, recs...)
	return nil
}

func (w *writer[T]) Seal(epoch int64) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.sealed[epoch] = append(w.p.sealed[epoch], w.rows...)
	w.rows = nil
	return nil
}

func (w *writer[T]) Full() bool { return len(w.rows) >= maxRows }

func (p *participant[T]) Follow() { p.follows = true }

func (p *participant[T]) Prepare(_ context.Context, epoch int64) ([]byte, error) {
	if !p.follows {
		return nil, nil // Commit has the rows in memory, or the epoch is read again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var staged bytes.Buffer
	err := gob.NewEncoder(&staged).Encode(p.sealed[epoch])
	return staged.Bytes(), err
}

func (p *participant[T]) Commit(ctx context.Context, c weir.Commit) error {
	err := p.txn(ctx, func(tx *sql.Tx) error {
		moved, err := changed(tx.ExecContext(ctx, moveLedger, c.ID.String(),
			p.job.UUID, p.sink, p.by.Number, p.by.Nonce, c.Parent.String()))
		if err != nil {
			return err
		}
		if !moved {
			return p.unmoved(ctx, tx, c)
		}
		rows, err := p.rows(c)
		if err != nil {
			return err
		}
		insert := "INSERT INTO " + p.Table + " (" + strings.Join(p.Columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(p.Columns)-1) + ")"
		for i := range rows {
			if _, err := tx.ExecContext(ctx, insert, p.Fields(&rows[i])...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("commit epoch %d to %s: %w", c.Epoch, p.Table, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sealed, c.Epoch)
	return nil
}

// rows are those of an epoch: of this incarnation, or what an earlier one kept.
func (p *participant[T]) rows(c weir.Commit) (rows []T, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows, ok := p.sealed[c.Epoch]
	switch {
	case ok || c.Empty:
		return rows, nil
	case len(c.Staged) == 0:
		return nil, fmt.Errorf("%w: the rows of checkpoint %s are neither in memory nor kept with it", weir.ErrRefused, c.ID)
	}
	err = gob.NewDecoder(bytes.NewReader(c.Staged)).Decode(&rows)
	return rows, err
}

// unmoved says why a ledger wasn't moved, or that nothing is left to do.
func (p *participant[T]) unmoved(ctx context.Context, tx *sql.Tx, c weir.Commit) error {
	row, err := p.readLedger(ctx, tx, p.sink)
	switch {
	case err != nil:
		return err
	case row.by != p.by:
		return p.fenced(row)
	case row.ID == c.ID:
		return nil // committed before, and the answer was lost
	}
	return fmt.Errorf("%w: the ledger of sink %s names checkpoint %q, where %q was expected: the database or the state directory was replaced",
		weir.ErrRefused, p.sink, row.ID, c.Parent)
}

func (p *participant[T]) Flush(context.Context) error { return nil } // every row waits for a Commit

func (p *participant[T]) Close() error { return p.db.Close() }

// txn runs do in a transaction.
func (p *participant[T]) txn(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
