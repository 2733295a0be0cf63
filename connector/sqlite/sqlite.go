// Package sqlite writes rows into SQLite tables, through a driver that needs
// no C compiler. By default an epoch's rows and the id of its checkpoint are
// committed in one database transaction, so a reader sees each epoch once and
// whole. Eager sinks write rows as soon as they are computed instead.
//
// # Columns
//
// A row is a struct. Its exported fields are the columns, in their order,
// named by the tag `db:"ad_id"` or else by the field's name in snake case
// (AdID is ad_id); `db:"-"` leaves a field out. Integers and bools are stored
// as INTEGER, floats as REAL, strings as TEXT, []byte as BLOB (a nil one as an
// empty one) and time.Time as TEXT: RFC 3339 in UTC, whole seconds as
// 2026-01-01T00:00:00Z, a fraction only where there is one.
//
// A value that would come back as another one stops the job and names the row
// and the column: an unsigned integer above 9223372036854775807, a float that
// is not a number (SQLite would store NULL), a text that holds a NUL byte or
// isn't valid UTF-8, a time outside the years 0 to 9999.
//
// # Keys
//
// Rows with the same key columns are one row, and the last one written wins.
// Text is compared byte by byte (SQLite's BINARY collation): neither case nor
// Unicode forms are folded. The rows of one key must come from one task, as
// they do behind a keyed step; where two tasks write the same key in one
// epoch, or two sinks write it into the same table, it is undefined which of
// them wins.
//
// # Tables
//
// A missing table is created when the job first starts, with the key as its
// primary key and WITHOUT ROWID. A table that exists must fit: it may have
// more columns, indexes and triggers of the user's own. The table weir_ledger
// beside it says which checkpoint the rows belong to; it must stay in the same
// database. Two jobs can't write one table: the second is refused.
//
// While another process holds the write lock, writes wait and are tried again
// as whole transactions for as long as the job runs. After a second of it the
// job is told, through [weir.OnWait] and as a message to [weir.Logger]; a run
// with neither option waits without a word.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/weirstream/weir"
)

// The defaults of Buffer.
const (
	defaultRows  = 100_000
	defaultBytes = 16 << 20
)

// Sink is an upsert into one table; its methods return changed copies.
type Sink[R any] struct {
	path   string // absolute, links resolved
	layout *layout
	eager  bool
	limit  limit
	err    error
}

// limit is how much a writer keeps in memory.
type limit struct {
	rows  int
	bytes int64
}

// Upsert writes rows into a table of the SQLite database at path: a row
// replaces the one with the same key. key names the columns of the primary
// key, at least one. The folder of the path must exist; the database and the
// table are created when missing. Mistakes in the arguments or in R's fields
// are reported by Check, before anything runs.
//
// All sinks of one database commit in one transaction, however its path is
// spelled.
func Upsert[R any](path, table string, key ...string) Sink[R] {
	s := Sink[R]{limit: limit{defaultRows, defaultBytes}}
	var pathErr error
	s.path, pathErr = resolve(path)
	var layoutErr error
	s.layout, layoutErr = newLayout(reflect.TypeFor[R](), table, key)
	s.err = errors.Join(pathErr, layoutErr)
	return s
}

// Eager makes the sink write rows as soon as they are computed, within 100 ms,
// and not with their epoch: readers see results early, and after a crash the
// same rows are written again. An incarnation that was superseded can't write.
func (s Sink[R]) Eager() Sink[R] {
	s.eager = true
	return s
}

// Buffer limits what each task keeps in memory: distinct rows, and bytes. The
// default is 100,000 rows and 16 MiB. A full buffer makes the job take an early
// checkpoint; an eager sink lets the task wait for the database.
func (s Sink[R]) Buffer(rows int, bytes int64) Sink[R] {
	if rows < 1 || bytes < 1 {
		s.err = errors.Join(s.err, fmt.Errorf("sqlite: Buffer(%d, %d): both limits must be at least 1", rows, bytes))
	}
	s.limit = limit{rows, bytes}
	return s
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (s Sink[R]) Check() error { return s.err }

// Spec describes the sink.
func (s Sink[R]) Spec() weir.SinkSpec {
	if s.err != nil {
		return weir.SinkSpec{Kind: weir.Transactional, Target: "sqlite: " + s.err.Error()}
	}
	key := strings.Join(s.layout.keyNames(), ", ")
	spec := weir.SinkSpec{
		Kind:        weir.Transactional,
		Target:      fmt.Sprintf("table %q in %s", s.layout.table, filepath.Base(s.path)),
		Participant: s.name(),
		Readers:     "an epoch's rows and its ledger row appear in one database transaction",
		Needs: []string{
			"the table " + ledgerTable + " stays in the same database as the rows",
			"synchronous=FULL, which this sink sets for itself",
		},
	}
	if s.eager {
		spec.Kind = weir.Idempotent
		spec.Readers = "rows as soon as they are computed; after a crash the same rows are written again, " +
			"and are right once the replay has passed the crash"
		// Which steps upstream could compute other rows follows from the job.
		spec.Needs = []string{"a unique key per row", "the key is (" + key + "), in the rows and in the table"}
	}
	return spec
}

// name is the participant: the database, once for each way of writing to it.
func (s Sink[R]) name() string {
	if s.eager {
		return "sqlite:" + s.path + "#eager"
	}
	return "sqlite:" + s.path
}

// Connect opens the database if it exists. Nothing is created or written
// before Fence, except that the database is put into WAL mode.
func (s Sink[R]) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	if s.err != nil {
		return nil, s.err
	}
	return connect(ctx, s.path, s.name(), s.eager, sinks)
}

// Open attaches the sink to its participant: the table is looked at, and
// created where the job has committed nothing yet.
func (s Sink[R]) Open(ctx context.Context, p weir.Participant, sink string) (weir.Outlet[R], error) {
	if s.err != nil {
		return nil, s.err
	}
	part, ok := p.(*participant)
	if !ok || part.name != s.name() {
		return nil, fmt.Errorf("sqlite: sink %q: opened on a participant that isn't %s", sink, s.name())
	}
	t, err := part.attach(ctx, sink, s.layout, s.limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite: sink %q: %w", sink, err)
	}
	return outlet[R]{t}, nil
}

// Scratch returns the sink on a database of the same name in dir. Sinks that
// share a database still do so there when they are given the same dir.
func (s Sink[R]) Scratch(dir string) (weir.Sink[R], func(context.Context) ([]R, error), error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	path, err := resolve(filepath.Join(dir, filepath.Base(s.path)))
	if err != nil {
		return nil, nil, err
	}
	if path == s.path {
		return nil, nil, fmt.Errorf("sqlite: the scratch database would be %s itself: name another folder", path)
	}
	s.path = path
	return s, func(ctx context.Context) ([]R, error) { return readRows[R](ctx, path, s.layout) }, nil
}
