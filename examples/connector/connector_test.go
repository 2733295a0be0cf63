package connector

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
	"go.uber.org/goleak"
	"modernc.org/sqlite"
)

// crashing is the driver on which the suite can crash.
const crashing = "sqlite-crashing"

func TestMain(m *testing.M) {
	sql.Register(crashing, connectortest.Driver(&sqlite.Driver{}))
	goleak.VerifyTestMain(m)
}

// rowsIn are the suite's rows in a table, which is made if it isn't there.
func rowsIn(t *testing.T, dir, table string) Records[connectortest.Row] {
	t.Helper()
	r := Records[connectortest.Row]{
		Driver:  crashing,
		DSN:     "file:" + filepath.Join(dir, table+".db") + "?_pragma=busy_timeout(5000)",
		Table:   table,
		Columns: []string{"key", "part", "value", "note"},
		Fields:  func(r *connectortest.Row) []any { return []any{&r.Key, &r.Part, &r.Value, &r.Note} },
	}
	execute(t, r.DSN, "CREATE TABLE IF NOT EXISTS "+table+" (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, part INTEGER, value INTEGER, note TEXT)")
	return r
}

func execute(t *testing.T, dsn, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// readAll reads a table by the source.
func readAll[T any](ctx context.Context, r Records[T]) (all []T, err error) {
	reader, err := Rows(r).Open(ctx, r.Table, nil)
	if err != nil {
		return nil, err
	}
	for end := false; !end && err == nil; {
		all, end, err = reader.Read(all, 100)
	}
	if closing := reader.Close(); err == nil {
		err = closing
	}
	return all, err
}

func TestTable(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] { return Table(rowsIn(t, dir, target)) },
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			return readAll(ctx, rowsIn(t, dir, target))
		},
	})
}

func TestRows(t *testing.T) {
	in := rowsIn(t, t.TempDir(), "input")
	var want []connectortest.Row
	for i := range int64(20) {
		row := connectortest.Row{Key: "k", Part: i, Value: -i, Note: "ünï"}
		execute(t, in.DSN, "INSERT INTO input (id, key, part, value, note) VALUES (?, ?, ?, ?, ?)", 1+3*i, row.Key, row.Part, row.Value, row.Note)
		want = append(want, row)
	}
	connectortest.Source(t, connectortest.SourceUnderTest[connectortest.Row]{
		New:     func(*testing.T) weir.Source[connectortest.Row] { return Rows(in) },
		Want:    map[string][]connectortest.Row{"input": want},
		Refused: [][]byte{{}, []byte("-1"), []byte("007"), []byte("59"), []byte("1e3"), []byte("99999999999999999999")},
	})
}
