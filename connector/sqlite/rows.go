package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

const (
	together = 16   // rows of one statement: half the cost of one each
	chunk    = 1024 // rows between two looks at the context
)

// rowSet is rows in key order, each key once.
type rowSet interface {
	len() int
	value(row, col int) driver.Value
}

type batchRows struct {
	batches []*batch
	refs    []ref
}

func (r batchRows) len() int { return len(r.refs) }

func (r batchRows) value(row, col int) driver.Value {
	ref := r.refs[row]
	return r.batches[ref.batch].value(int(ref.row), col)
}

// upsert writes rows. It runs in a transaction.
func (c *conn) upsert(ctx context.Context, l *layout, rows rowSet) error {
	n := rows.len()
	if n == 0 {
		return nil
	}
	args := make([]driver.NamedValue, together*len(l.cols))
	for i := range args {
		args[i].Ordinal = i + 1
	}
	for at := 0; at < n; at += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := call(ctx, "rows", func() error { return c.upsertChunk(l, rows, at, min(at+chunk, n), args) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) upsertChunk(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
	for _, step := range []int{together, 1} {
		if end-at < step {
			continue
		}
		query := l.one
		if step > 1 {
			query = l.many
		}
		st, err := c.prepare(query)
		if err != nil {
			return err
		}
		exec := st.(driver.StmtExecContext)
		cols := len(l.cols)
		for ; end-at >= step; at += step {
			args := args[:step*cols]
			for i := range step {
				for col := range cols {
					args[i*cols+col].Value = rows.value(at+i, col)
				}
			}
			if _, err := exec.ExecContext(context.Background(), args); err != nil {
				if step > 1 && !busy(err) {
					// The statement has changed nothing: find the row.
					if one := c.upsertOnes(l, rows, at, at+step, args); one != nil {
						return one
					}
				}
				return refused(l, rows, at, err)
			}
		}
	}
	return nil
}

func (c *conn) upsertOnes(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
	for ; at < end; at++ {
		if err := c.upsertChunk(l, rows, at, at+1, args); err != nil {
			return err
		}
	}
	return nil
}

// refused names the row that the database didn't take, where it is the row's
// fault: a constraint or a trigger of the user's, or a value that is too big.
func refused(l *layout, rows rowSet, row int, err error) error {
	const (
		codeTooBig     = 18
		codeConstraint = 19
		codeMismatch   = 20
	)
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case codeTooBig, codeConstraint, codeMismatch:
		var key []string
		for _, k := range l.keys {
			key = append(key, keyPart(&l.cols[k], rows.value(row, k)))
		}
		return rowError(l, key, fmt.Errorf("the database refuses it: %w", err))
	}
	return err
}
