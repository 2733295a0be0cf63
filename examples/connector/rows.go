// Package connector is a source and a sink of one's own, over any database of
// package database/sql whose parameters are question marks. It is the example of
// docs/writing-connectors.md, and passes the conformance suite.
package connector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirstream/weir"
)

// Records says where records lie and what they look like there.
type Records[T any] struct {
	Driver, DSN string // as for sql.Open
	Table       string
	Columns     []string
	Fields      func(*T) []any // pointers to a record's fields, in the order of Columns
}

// open connects, and finds a table or a column that isn't there before the first record.
func (r Records[T]) open(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open(r.Driver, r.DSN)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "SELECT "+strings.Join(r.Columns, ", ")+" FROM "+r.Table+" WHERE 1 = 0"); err != nil {
		return nil, errors.Join(fmt.Errorf("look at table %s: %w", r.Table, err), db.Close())
	}
	return db, nil
}

// Rows is a source of a table's rows, in order of the column id, up to the one that
// is the last when the job starts. The ids are at least 1, below 1<<48, and a new row
// gets one that is larger than all before it. The position is the last id that was
// read, as decimal text.
func Rows[T any](r Records[T]) weir.Source[T] { return source[T]{r} }

type source[T any] struct{ Records[T] }

func (s source[T]) Splits(context.Context) ([]string, error) { return []string{s.Table}, nil }

func (s source[T]) Open(ctx context.Context, split string, at []byte) (weir.Reader[T], error) {
	if split != s.Table {
		return nil, fmt.Errorf("%w: there is no split %q, the only one is %q", weir.ErrRefused, split, s.Table)
	}
	r := &reader[T]{Records: s.Records, ctx: ctx}
	if at != nil {
		var err error
		if r.at, err = strconv.ParseInt(string(at), 10, 64); err != nil || r.at < 0 || string(r.Position()) != string(at) {
			return nil, fmt.Errorf("%w: position %.40q isn't an id: the checkpoint is of another source", weir.ErrRefused, at)
		}
	}
	var err error
	if r.db, err = s.open(ctx); err != nil {
		return nil, err
	}
	var first int64
	err = r.db.QueryRowContext(ctx, "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM "+s.Table).Scan(&first, &r.end)
	switch {
	case err != nil:
		err = fmt.Errorf("read the ids of %s: %w", s.Table, err)
	case first < 1 || r.end >= 1<<48:
		err = fmt.Errorf("%w: the ids of %s are from %d to %d: they must be at least 1 and below 1<<48", weir.ErrRefused, s.Table, first, r.end)
	case r.at > r.end:
		err = fmt.Errorf("%w: %s was read up to id %d, and its last one is %d: bring the rows back, or start over", weir.ErrRefused, s.Table, r.at, r.end)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Locate implements weir.Locator.
func (s source[T]) Locate(split string, mark int64) string {
	return fmt.Sprintf("%s, id %d", split, mark)
}

type reader[T any] struct {
	Records[T]
	ctx   context.Context // of the run
	db    *sql.DB
	at    int64 // the last id that was read; 0: none
	end   int64 // the last id there was
	marks []int64
}

func (r *reader[T]) Read(dst []T, limit int) (recs []T, end bool, err error) {
	r.marks = r.marks[:0]
	if r.at == r.end {
		return dst, true, nil
	}
	rows, err := r.db.QueryContext(r.ctx, "SELECT id, "+strings.Join(r.Columns, ", ")+" FROM "+r.Table+
		" WHERE id > ? AND id <= ? ORDER BY id LIMIT ?", r.at, r.end, limit)
	if err != nil {
		return dst, false, fmt.Errorf("read %s behind id %d: %w", r.Table, r.at, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var rec T
		if err := rows.Scan(append([]any{&id}, r.Fields(&rec)...)...); err != nil {
			return dst, false, fmt.Errorf("%w: the row of %s behind id %d: %w", weir.ErrInput, r.Table, r.at, err)
		}
		dst, r.marks, r.at = append(dst, rec), append(r.marks, id), id
	}
	if err := rows.Err(); err != nil {
		return dst, false, fmt.Errorf("read %s behind id %d: %w", r.Table, r.at, err)
	}
	if len(r.marks) < limit {
		r.at = r.end // the last ones were deleted meanwhile
	}
	return dst, r.at == r.end, nil
}

func (r *reader[T]) Ready() <-chan struct{} { return nil }
func (r *reader[T]) Position() []byte       { return strconv.AppendInt(nil, r.at, 10) }
func (r *reader[T]) Marks() []int64         { return r.marks }
func (r *reader[T]) Status() weir.Status    { return weir.Status{Done: r.at, Total: r.end, Lag: -1} }
func (r *reader[T]) Close() error           { return r.db.Close() }
