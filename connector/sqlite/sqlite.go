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
// A value that would come back as another one rejects its row, which stops the
// job and names the row and the column, or goes to the dead letters: an unsigned integer above 9223372036854775807, a float that
// is not a number (SQLite would store NULL), a text that holds a NUL byte or
// isn't valid UTF-8, a time outside the years 0 to 9999. So does a row above
// SQLite's limit of 1 GB. What the table itself refuses (a constraint, a trigger) is
// found out when the epoch commits, and always stops the job.
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
// # Operations
//
// An Upsert writes rows and, with Deletes, deletes them; an Append adds every row
// as one of its own; a Statement runs the user's own SQL for each row. All of them
// belong to the transaction that commits the checkpoint, and so may even be
// increments. Only an Upsert can be eager.
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
	"unsafe"

	"github.com/weirstream/weir"
)

// The defaults of Buffer.
const (
	defaultRows  = 100_000
	defaultBytes = 16 << 20
)

// Sink writes rows into a database, as Upsert, Append or Statement says; its
// methods return changed copies.
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
	l, err := newLayout(reflect.TypeFor[R](), table, key)
	if err == nil && len(key) == 0 {
		err = fmt.Errorf("sqlite: table %q: an upsert needs a key: name the columns that tell rows apart, or use Append", table)
	}
	return newSink[R](path, l, err)
}

// Append writes every row as one of its own, into a table without a key of
// Weir's, in the order of each task. The table is created when missing; one that
// exists may number its rows (INTEGER PRIMARY KEY). Rows are right because they
// are committed with their checkpoint: an eager Append is refused.
func Append[R any](path, table string) Sink[R] {
	l, err := newLayout(reflect.TypeFor[R](), table, nil)
	return newSink[R](path, l, err)
}

// Statement runs one SQL statement of the user's own for every row, in the order
// of each task, in the transaction that commits the checkpoint. Its parameters
// are columns of the row, as in
//
//	UPDATE account SET clicks = clicks + :n WHERE id = :account
//
// Here an increment is safe: it counts if and only if its checkpoint does.
// Whatever the statement needs must exist, or be made by Setup. Weir doesn't know
// which tables it writes, so it doesn't notice that another job writes them, too.
func Statement[R any](path, sql string) Sink[R] {
	l, err := newStatement(reflect.TypeFor[R](), sql)
	return newSink[R](path, l, err)
}

func newSink[R any](path string, l *layout, err error) Sink[R] {
	s := Sink[R]{limit: limit{defaultRows, defaultBytes}, layout: l}
	var pathErr error
	s.path, pathErr = resolve(path)
	s.err = errors.Join(pathErr, err)
	return s
}

// Deletes makes the rows for which gone is true delete the row with their key
// instead of writing it: only their key columns matter. Of several rows with one
// key in an epoch the last counts, whether it writes or deletes. Only an Upsert
// can have it.
func (s Sink[R]) Deletes(gone func(R) bool) Sink[R] {
	switch {
	case s.layout == nil:
		return s
	case gone == nil:
		s.err = errors.Join(s.err, errors.New("sqlite: Deletes was given no function"))
		return s
	case len(s.layout.keys) == 0:
		s.err = errors.Join(s.err, errors.New("sqlite: only the rows of an Upsert have a key to be deleted by"))
		return s
	}
	l := *s.layout
	l.deletes = func(row unsafe.Pointer) bool { return gone(*(*R)(row)) }
	s.layout = &l
	return s
}

// Setup names SQL that makes what a Statement needs, such as CREATE TABLE IF NOT
// EXISTS. It is run when the job first starts, in the transaction that makes its
// ledger; it may be run again.
func (s Sink[R]) Setup(sql string) Sink[R] {
	if s.layout == nil || s.layout.statement == nil {
		s.err = errors.Join(s.err, errors.New("sqlite: Setup is for a Statement; other tables are created as they are needed"))
		return s
	}
	l, own := *s.layout, *s.layout.statement
	own.setup, l.statement = sql, &own
	s.layout = &l
	return s
}

// Eager makes the sink write rows as soon as they are computed, within 100 ms,
// and not with their epoch: readers see results early, and after a crash the
// same rows are written again. An incarnation that was superseded can't write.
func (s Sink[R]) Eager() Sink[R] {
	if s.layout != nil && len(s.layout.keys) == 0 {
		s.err = errors.Join(s.err, errors.New("sqlite: only an Upsert can be eager: after a crash rows are written again, and without a key they would be there twice"))
	}
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
	spec := weir.SinkSpec{
		Kind:        weir.Transactional,
		Target:      s.layout.target() + " in " + filepath.Base(s.path),
		Participant: s.name(),
		Place:       strings.ToLower(s.layout.table), // names have no case in SQLite
		Readers:     "an epoch's rows and its ledger row appear in one database transaction",
		Needs: []string{
			"the table " + ledgerTable + " stays in the same database as the rows",
			"synchronous=FULL, which this sink sets for itself",
		},
	}
	spec.Appends = len(s.layout.keys) == 0
	if s.eager {
		spec.Kind = weir.Idempotent
		spec.Readers = "rows as soon as they are computed; after a crash the same rows are written again, " +
			"and are right once the replay has passed the crash"
		// Which steps upstream could compute other rows follows from the job.
		spec.Needs = []string{"a unique key per row", "the key is (" + strings.Join(s.layout.keyNames(), ", ") + "), in the rows and in the table"}
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
	if s.layout.statement != nil {
		return nil, nil, errors.New("sqlite: what a Statement writes can't be read back: which table it is isn't known")
	}
	return s, func(ctx context.Context) ([]R, error) { return readRows[R](ctx, path, s.layout) }, nil
}
