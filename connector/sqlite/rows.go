package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirstream/weir"
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

// What a follower keeps with a checkpoint, all numbers little endian:
//
//	byte     version, 1
//	for each sink, in the order of their ids:
//	  text     id of the sink
//	  uvarint  number of columns; for each its name as a text and its kind as a byte
//	  uvarint  number of rows; for each its values in the order of the columns:
//	             numbers as 8 bytes (floats as their bits), texts and blobs as texts
//
// A text is a uvarint length and as many bytes.
const stagedVersion = 1

// stage encodes the rows of an epoch. It is never empty.
func (p *participant) stage(epoch int64) []byte {
	out := []byte{stagedVersion}
	for _, t := range p.tables {
		batches, _ := t.epoch(epoch)
		p.refs = sorted(batches, p.refs)
		out = appendText(out, t.sink)
		out = binary.AppendUvarint(out, uint64(len(t.layout.cols)))
		for _, c := range t.layout.cols {
			out = append(appendText(out, c.name), byte(c.kind))
		}
		out = binary.AppendUvarint(out, uint64(len(p.refs)))
		rows := batchRows{batches, p.refs}
		for row := range p.refs {
			for col := range t.layout.cols {
				switch v := rows.value(row, col).(type) {
				case int64:
					out = binary.LittleEndian.AppendUint64(out, uint64(v))
				case float64:
					out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
				case string:
					out = appendText(out, v)
				case []byte:
					out = appendText(out, v)
				}
			}
		}
	}
	return out
}

func appendText[T string | []byte](out []byte, v T) []byte {
	return append(binary.AppendUvarint(out, uint64(len(v))), v...)
}

// stagedRows are rows as values, one after the other.
type stagedRows struct {
	values []driver.Value
	cols   int
}

func (r stagedRows) len() int                        { return len(r.values) / r.cols }
func (r stagedRows) value(row, col int) driver.Value { return r.values[row*r.cols+col] }

// writeStaged writes what an earlier incarnation staged.
func (p *participant) writeStaged(ctx context.Context, staged []byte) error {
	d := decoder{b: staged}
	if v := d.byte(); v != stagedVersion {
		return fmt.Errorf("%w: rows kept with the checkpoint have format %d, and this version of weir reads %d",
			weir.ErrRefused, v, stagedVersion)
	}
	for len(d.b) > 0 && !d.bad {
		sink := string(d.text())
		var t *table
		for _, have := range p.tables {
			if have.sink == sink {
				t = have
			}
		}
		if t == nil {
			return fmt.Errorf("%w: the checkpoint holds rows of sink %q, which isn't in the job: "+
				"start the job as it was once, so that they are committed", weir.ErrRefused, sink)
		}
		rows, err := d.rows(t)
		if err != nil {
			return err
		}
		if err := p.c.upsert(ctx, t.layout, rows); err != nil {
			return err
		}
	}
	if d.bad {
		return fmt.Errorf("%w: the rows kept with the checkpoint end too early", weir.ErrCorrupt)
	}
	return nil
}

// decoder reads staged rows; bad says that they ended too early.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() []byte { return d.take(d.uvarint()) }

func (d *decoder) rows(t *table) (stagedRows, error) {
	l := t.layout
	same := d.uvarint() == uint64(len(l.cols))
	for i := 0; same && i < len(l.cols); i++ {
		same = string(d.text()) == l.cols[i].name
		same = kind(d.byte()) == l.cols[i].kind && same
	}
	if !same && !d.bad {
		return stagedRows{}, fmt.Errorf("%w: the checkpoint holds rows of sink %q with other columns than now: "+
			"start the job as it was once, so that they are committed", weir.ErrRefused, t.sink)
	}
	r := stagedRows{cols: len(l.cols)}
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		for i := range l.cols {
			r.values = append(r.values, d.value(l.cols[i].kind))
		}
	}
	if d.bad {
		r.values = nil
	}
	return r, nil
}

func (d *decoder) value(k kind) driver.Value {
	switch k {
	case kindText, kindTime:
		return string(d.text())
	case kindBlob:
		return append([]byte{}, d.text()...)
	}
	b := d.take(8)
	if b == nil {
		return nil
	}
	v := binary.LittleEndian.Uint64(b)
	if k == kindFloat {
		return math.Float64frombits(v)
	}
	return int64(v)
}
