package sqlite

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unsafe"
)

// kind is how a column's value is kept, bound and compared.
type kind uint8

const (
	kindInt kind = iota + 1
	kindUint
	kindBool
	kindFloat
	kindText
	kindBlob
	kindTime
)

// sqlType is the declared type of a column.
func (k kind) sqlType() string {
	switch k {
	case kindFloat:
		return "REAL"
	case kindText, kindTime:
		return "TEXT"
	case kindBlob:
		return "BLOB"
	}
	return "INTEGER"
}

// column is one exported field of the row.
type column struct {
	name   string
	kind   kind
	size   uintptr // of the field
	offset uintptr
	field  int
	key    bool
}

// layout is what is known of a table from the type of its rows. It never
// changes after newLayout.
type layout struct {
	table string
	cols  []column
	keys  []int // indices of the key columns, in the key's order
	// The statements that write one row and as many as go together, and the one
	// that deletes one.
	one, many, remove string

	deletes   func(row unsafe.Pointer) bool // nil: no row deletes
	statement *statement                    // the user's own; nil: ours
}

// identifier is what a table or a column may be called: names that mean the
// same with and without quotes, in every tool that the user opens the
// database with.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

const identifierRule = "use letters, digits and _, 63 at most, not starting with a digit"

// newLayout is that of an upsert; without a key, of rows that are appended.
func newLayout(t reflect.Type, table string, key []string) (*layout, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sqlite: "+format, args...)) }
	l := &layout{table: table}
	lower := strings.ToLower(table)
	if !identifier.MatchString(table) {
		bad("%q can't be the name of a table: %s", table, identifierRule)
	} else if lower == ledgerTable || strings.HasPrefix(lower, "sqlite_") {
		bad("the table can't be called %q, which is reserved: choose another name", table)
	}
	if t.Kind() != reflect.Struct {
		bad("rows of type %v: a row must be a struct, its exported fields are the columns", t)
		return nil, errors.Join(errs...)
	}
	byName := map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		c, use, err := newColumn(f, i)
		if err != nil {
			bad("%v.%s: %w", t, f.Name, err)
		}
		if !use || err != nil {
			continue
		}
		if other, ok := byName[strings.ToLower(c.name)]; ok {
			bad("%v.%s: the column %q is already that of the field %s (SQLite ignores case): tag it with another name, or with `db:\"-\"`",
				t, f.Name, c.name, t.Field(l.cols[other].field).Name)
			continue
		}
		byName[strings.ToLower(c.name)] = len(l.cols)
		l.cols = append(l.cols, c)
	}
	if len(l.cols) == 0 && len(errs) == 0 {
		bad("%v has no exported field: a row's exported fields are its columns", t)
	}
	if len(l.cols) > 2000 {
		bad("%v has %d columns: SQLite allows 2000", t, len(l.cols))
	}
	for _, k := range key {
		if err := l.addKey(k, byName); err != nil {
			bad("table %q: %w", table, err)
		}
	}
	l.one, l.many, l.remove = l.insert(1), l.insert(together), l.delete()
	return l, errors.Join(errs...)
}

// addKey marks a column as the next one of the key.
func (l *layout) addKey(name string, byName map[string]int) error {
	i, ok := byName[strings.ToLower(name)]
	switch {
	case !ok:
		return fmt.Errorf("the key column %q isn't a column of the row, which has %s", name, strings.Join(l.names(), ", "))
	case l.cols[i].key:
		return fmt.Errorf("the key names the column %q twice", name)
	case l.cols[i].kind == kindFloat:
		return fmt.Errorf("the key column %q is a floating-point number, and those don't compare reliably: "+
			"use an integer or a text", name)
	}
	l.cols[i].key = true
	l.keys = append(l.keys, i)
	return nil
}

func newColumn(f reflect.StructField, i int) (c column, use bool, err error) {
	tag := f.Tag.Get("db")
	if tag == "-" || !f.IsExported() && !f.Anonymous {
		return column{}, false, nil
	}
	c = column{name: tag, offset: f.Offset, size: f.Type.Size(), field: i}
	if tag == "" {
		c.name = snakeCase(f.Name)
	}
	if !identifier.MatchString(c.name) {
		return c, false, fmt.Errorf("%q can't be the name of a column: %s", c.name, identifierRule)
	}
	if f.Anonymous {
		return c, false, errors.New("embedded fields aren't columns: list the fields, or leave it out with `db:\"-\"`")
	}
	switch k := f.Type.Kind(); {
	case f.Type == reflect.TypeFor[time.Time]():
		c.kind = kindTime
	case k >= reflect.Int && k <= reflect.Int64:
		c.kind = kindInt
	case k >= reflect.Uint && k <= reflect.Uint64:
		c.kind = kindUint
	case k == reflect.Bool:
		c.kind = kindBool
	case k == reflect.Float32 || k == reflect.Float64:
		c.kind = kindFloat
	case k == reflect.String:
		c.kind = kindText
	case k == reflect.Slice && f.Type.Elem().Kind() == reflect.Uint8:
		c.kind = kindBlob
	default:
		return c, false, fmt.Errorf("a column can't hold a %v: use an integer, bool, float, string, []byte or time.Time, "+
			"or leave it out with `db:\"-\"`", f.Type)
	}
	return c, true, nil
}

// snakeCase turns AdID into ad_id and HTTPStatus2 into http_status2.
func snakeCase(s string) string {
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			before := runes[i-1]
			next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if before != '_' && (!unicode.IsUpper(before) || next) {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func (l *layout) names() []string {
	names := make([]string, len(l.cols))
	for i, c := range l.cols {
		names[i] = c.name
	}
	return names
}

func (l *layout) keyNames() []string {
	names := make([]string, len(l.keys))
	for i, k := range l.keys {
		names[i] = l.cols[k].name
	}
	return names
}

// quote makes a list of quoted identifiers. identifier lets no quote pass.
func quote(names ...string) string { return `"` + strings.Join(names, `", "`) + `"` }

// target says what is written.
func (l *layout) target() string {
	if l.statement != nil {
		return fmt.Sprintf("statement %q", clip(l.statement.text))
	}
	return fmt.Sprintf("table %q", l.table)
}

// create is the statement that makes the table.
func (l *layout) create() string {
	defs := make([]string, len(l.cols))
	for i, c := range l.cols {
		defs[i] = quote(c.name) + " " + c.kind.sqlType()
	}
	if len(l.keys) == 0 {
		return fmt.Sprintf("CREATE TABLE %s (%s)", quote(l.table), strings.Join(defs, ", "))
	}
	return fmt.Sprintf("CREATE TABLE %s (%s, PRIMARY KEY (%s)) WITHOUT ROWID",
		quote(l.table), strings.Join(defs, ", "), quote(l.keyNames()...))
}

// insert is the statement that writes n rows, of different keys if they have any.
func (l *layout) insert(n int) string {
	one := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(l.cols)), ", ") + ")"
	var sets []string
	for _, c := range l.cols {
		if !c.key {
			sets = append(sets, fmt.Sprintf("%[1]s = excluded.%[1]s", quote(c.name)))
		}
	}
	do := "NOTHING"
	if len(sets) > 0 {
		do = "UPDATE SET " + strings.Join(sets, ", ")
	}
	insert := fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", quote(l.table), quote(l.names()...), strings.TrimSuffix(strings.Repeat(one+", ", n), ", "))
	if len(l.keys) == 0 {
		return insert
	}
	return fmt.Sprintf("%s ON CONFLICT (%s) DO %s", insert, quote(l.keyNames()...), do)
}

// delete is the statement that deletes the row of a key.
func (l *layout) delete() string {
	where := make([]string, len(l.keys))
	for i, name := range l.keyNames() {
		where[i] = quote(name) + " = ?"
	}
	return fmt.Sprintf("DELETE FROM %s WHERE %s", quote(l.table), strings.Join(where, " AND "))
}

// telling are the columns that name a row in an error: its key, or else the
// first few.
func (l *layout) telling() []int {
	if len(l.keys) > 0 {
		return l.keys
	}
	var few []int
	for i := range min(3, len(l.cols)) {
		few = append(few, i)
	}
	return few
}
