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

// rowSet is rows in the order in which they are written: in key order, each key
// once, where they have keys.
type rowSet interface {
	len() int
	value(row, col int) driver.Value
	gone(row int) bool // the row of this key is to be deleted
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

func (r batchRows) gone(row int) bool {
	ref := r.refs[row]
	b := r.batches[ref.batch]
	return b.lay.deletes != nil && b.gone[ref.row]
}

// write writes rows. It runs in a transaction.
func (c *conn) write(ctx context.Context, l *layout, rows rowSet) error {
	n := rows.len()
	if n == 0 {
		return nil
	}
	args := l.arguments()
	for at := 0; at < n; at += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := call(ctx, "rows", func() error { return c.writeChunk(l, rows, at, min(at+chunk, n), args) })
		if err != nil {
			return err
		}
	}
	return nil
}

// arguments are room for those of the longest statement.
func (l *layout) arguments() []driver.NamedValue {
	args := make([]driver.NamedValue, together*len(l.cols))
	for i := range args {
		args[i].Ordinal = i + 1
	}
	return args
}

// writeChunk writes runs of rows that need the same statement.
func (c *conn) writeChunk(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
	if l.statement != nil {
		return c.execChunk(l, rows, at, end, args)
	}
	for at < end {
		to, gone := at+1, rows.gone(at)
		for to < end && rows.gone(to) == gone {
			to++
		}
		write := c.putChunk
		if gone {
			write = c.deleteChunk
		}
		if err := write(l, rows, at, to, args); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// putChunk inserts or replaces rows, many at once where there are as many.
func (c *conn) putChunk(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
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
					if one := c.putOnes(l, rows, at, at+step, args); one != nil {
						return one
					}
				}
				return refused(l, rows, at, err)
			}
		}
	}
	return nil
}

func (c *conn) putOnes(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
	for ; at < end; at++ {
		if err := c.putChunk(l, rows, at, at+1, args); err != nil {
			return err
		}
	}
	return nil
}

// deleteChunk deletes rows by their keys; that one isn't there is no error.
func (c *conn) deleteChunk(l *layout, rows rowSet, at, end int, args []driver.NamedValue) error {
	st, err := c.prepare(l.remove)
	if err != nil {
		return err
	}
	args = args[:len(l.keys)]
	for ; at < end; at++ {
		for i, k := range l.keys {
			args[i].Value = rows.value(at, k)
		}
		if _, err := st.(driver.StmtExecContext).ExecContext(context.Background(), args); err != nil {
			return refused(l, rows, at, err)
		}
	}
	return nil
}

// execChunk runs the user's own statement, once a row.
func (c *conn) execChunk(l *layout, rows rowSet, at, end int, _ []driver.NamedValue) error {
	st, err := c.prepare(l.statement.text)
	if err != nil {
		return err
	}
	args := make([]driver.NamedValue, len(l.statement.params))
	for ; at < end; at++ {
		for i, p := range l.statement.params {
			args[i] = driver.NamedValue{Ordinal: i + 1, Name: p.name, Value: rows.value(at, p.col)}
		}
		if _, err := st.(driver.StmtExecContext).ExecContext(context.Background(), args); err != nil {
			return refused(l, rows, at, err)
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
		for _, k := range l.telling() {
			key = append(key, keyPart(&l.cols[k], rows.value(row, k)))
		}
		return rowError(l, key, fmt.Errorf("the database refuses it: %w", err))
	}
	return err
}
