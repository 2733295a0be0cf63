package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir"
)

// found is a column of a table in the database.
type found struct {
	name, declared string
	notNull        bool
	byDefault      bool
	pk             int64 // place in the primary key, from 1
	hidden         int64 // 2 and 3: generated
}

// columns lists a table's columns by their names in lower case; none if there
// is no such table.
func (c *conn) columns(ctx context.Context, table string) (map[string]found, error) {
	columns := map[string]found{}
	err := c.query(ctx, "read schema", `SELECT name, type, "notnull", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?)`,
		[]any{table}, func(v []driver.Value) error {
			var f found
			f.name, _ = v[0].(string)
			f.declared, _ = v[1].(string)
			notNull, _ := v[2].(int64)
			byDefault, _ := v[3].(int64)
			f.notNull, f.byDefault = notNull != 0, byDefault != 0
			f.pk, _ = v[4].(int64)
			f.hidden, _ = v[5].(int64)
			columns[strings.ToLower(f.name)] = f
			return nil
		})
	return columns, err
}

// checkTable reports whether the table exists; an error says how it differs
// from what rows need.
func (c *conn) checkTable(ctx context.Context, l *layout) (bool, error) {
	have, err := c.columns(ctx, l.table)
	if err != nil || len(have) == 0 {
		return false, err
	}
	diffs := compare(l, have)
	kind := ""
	err = c.query(ctx, "read schema", `SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')`, []any{l.table}, func(v []driver.Value) error {
		kind, _ = v[0].(string)
		return nil
	})
	if err != nil {
		return false, err
	}
	if kind != "table" {
		diffs = append(diffs, fmt.Sprintf("it is a %s, and rows can be written into a table only", kind))
	}
	collations, err := c.collations(ctx, l.table)
	if err != nil {
		return false, err
	}
	for _, k := range l.keys {
		name := l.cols[k].name
		if coll := collations[strings.ToLower(name)]; coll != "" && l.cols[k].kind.sqlType() == "TEXT" && coll != "BINARY" {
			diffs = append(diffs, fmt.Sprintf("key column %q: compares by %s, where texts that differ must be different rows (BINARY)", name, coll))
		}
	}
	if len(diffs) == 0 {
		return true, nil
	}
	return true, fmt.Errorf("%w: the table %q in %s doesn't fit the rows:\n  %s\nName another table, or change this one to\n  %s",
		weir.ErrRefused, l.table, c.path, strings.Join(diffs, "\n  "), l.create())
}

// collations are those of the primary key's columns.
func (c *conn) collations(ctx context.Context, table string) (map[string]string, error) {
	out := map[string]string{}
	err := c.query(ctx, "read schema", `SELECT x.name, x.coll FROM pragma_index_list(?) AS l, pragma_index_xinfo(l.name) AS x
WHERE l.origin = 'pk' AND x.key = 1`, []any{table}, func(v []driver.Value) error {
		name, ok := v[0].(string)
		coll, ok2 := v[1].(string)
		if !ok || !ok2 {
			return errors.New("the schema can't be read: an index of the primary key has no column names")
		}
		out[strings.ToLower(name)] = strings.ToUpper(coll)
		return nil
	})
	return out, err
}

// compare lists the differences, in the order of the columns.
func compare(l *layout, have map[string]found) []string {
	var diffs []string
	for _, c := range l.cols {
		f, ok := have[strings.ToLower(c.name)]
		switch {
		case !ok:
			diffs = append(diffs, fmt.Sprintf("column %q: missing, needed as %s", c.name, c.kind.sqlType()))
		case f.hidden != 0:
			diffs = append(diffs, fmt.Sprintf("column %q: generated, and rows can't write it", c.name))
		case !holds(f.declared, c.kind.sqlType()):
			diffs = append(diffs, fmt.Sprintf("column %q: declared as %q, which doesn't keep a value of type %s as it is",
				c.name, f.declared, c.kind.sqlType()))
		}
		delete(have, strings.ToLower(c.name))
		if ok && len(l.keys) > 0 && (f.pk > 0) != c.key {
			what := "is in the table's primary key, but not in the sink's key"
			if c.key {
				what = "is in the sink's key, but not in the table's primary key"
			}
			diffs = append(diffs, fmt.Sprintf("column %q: %s", c.name, what))
		}
	}
	var rest []string
	for _, f := range have {
		switch {
		case f.pk > 0 && len(l.keys) == 0 && strings.EqualFold(f.declared, "INTEGER"):
			// SQLite numbers the rows that are appended.
		case f.pk > 0:
			rest = append(rest, fmt.Sprintf("column %q: is in the table's primary key, but not a column of the rows", f.name))
		case f.notNull && !f.byDefault && f.hidden == 0:
			rest = append(rest, fmt.Sprintf("column %q: NOT NULL without a default, but not a column of the rows", f.name))
		}
	}
	slices.Sort(rest)
	return append(diffs, rest...)
}

// holds reports whether a column of a declared type stores values of a type
// unchanged, by SQLite's rules of affinity.
func holds(declared, want string) bool {
	d := strings.ToUpper(declared)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(d, p) })
	}
	switch {
	case has("INT"):
		return want == "INTEGER"
	case has("CHAR", "CLOB", "TEXT"):
		return want == "TEXT"
	case d == "" || d == "ANY" || has("BLOB"):
		return true // takes everything as it is
	case has("REAL", "FLOA", "DOUB"): //nolint:misspell // SQLite looks for these four letters
		return want == "REAL"
	}
	return want == "INTEGER" // NUMERIC; it would turn texts into numbers
}
