package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/weirstream/weir"
)

// statement is one of the user's own, run once a row.
type statement struct {
	text   string
	params []param
	setup  string
}

// param is a named parameter and the column of the row that it gets.
type param struct {
	name string // without its colon
	col  int
}

// newStatement checks what can be told without a database, and gives the layout
// of the rows that are its parameters.
func newStatement(t reflect.Type, text string) (*layout, error) {
	l, err := newLayout(t, "statement", nil)
	if err != nil {
		return nil, err
	}
	l.table, l.one, l.many = "", "", ""
	names, err := parameters(text)
	if err != nil {
		return nil, fmt.Errorf("sqlite: statement %q: %w", clip(text), err)
	}
	l.statement = &statement{text: text}
	byName := map[string]int{}
	for i, c := range l.cols {
		byName[c.name] = i
	}
	for _, name := range names {
		col, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("sqlite: statement %q: its parameter :%s isn't a column of the row, which has %s",
				clip(text), name, strings.Join(l.names(), ", "))
		}
		l.statement.params = append(l.statement.params, param{name, col})
	}
	return l, nil
}

// parameters lists the named parameters of one SQL statement, each once. It
// passes over texts, quoted names and comments.
func parameters(text string) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	ended := false
	for i := 0; i < len(text); {
		rest := text[i:]
		n, err := skip(rest)
		switch {
		case err != nil:
			return nil, err
		case n > 0:
			i += n
			continue
		case unicode.IsSpace(rune(rest[0])):
			i++
			continue
		case ended:
			return nil, errors.New("more follows behind its semicolon: give one statement")
		case rest[0] == ';':
			ended = true
		case rest[0] == '?':
			return nil, errors.New("it has a parameter without a name (?): name the row's columns, as in :ad_id")
		case rest[0] == ':' || rest[0] == '@' || rest[0] == '$':
			n := 1
			for n < len(rest) && (rest[n] == '_' || rest[n] < 0x80 && (unicode.IsLetter(rune(rest[n])) || unicode.IsDigit(rune(rest[n])))) {
				n++
			}
			name := rest[1:n]
			if name == "" {
				return nil, fmt.Errorf("%q at byte %d isn't followed by the name of a column", rest[:1], i)
			}
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
			i += n
			continue
		}
		i++
	}
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is empty")
	}
	return names, nil
}

// skip returns how long the text, quoted name or comment at the start of sql is;
// 0: there is none.
func skip(sql string) (int, error) {
	var end, what string
	switch {
	case strings.HasPrefix(sql, "--"):
		if n := strings.IndexByte(sql, '\n'); n >= 0 {
			return n + 1, nil
		}
		return len(sql), nil
	case strings.HasPrefix(sql, "/*"):
		end, what = "*/", "comment"
	case sql[0] == '\'', sql[0] == '"', sql[0] == '`':
		end, what = sql[:1], "text" // one that is doubled begins another one at once
	case sql[0] == '[':
		end, what = "]", "name"
	default:
		return 0, nil
	}
	from := len(end)
	n := strings.Index(sql[from:], end)
	if n < 0 {
		return 0, fmt.Errorf("a %s that begins with %s doesn't end", what, sql[:from])
	}
	return from + n + len(end), nil
}

// checkStatement lets SQLite say whether the statement fits the database, without
// running it.
func (c *conn) checkStatement(ctx context.Context, s *statement) error {
	var none []driver.NamedValue
	for i, p := range s.params {
		none = append(none, driver.NamedValue{Ordinal: i + 1, Name: p.name})
	}
	err := call(ctx, "check statement", func() (err error) {
		rows, err := c.dc.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), "EXPLAIN "+s.text, none)
		if err != nil {
			return err
		}
		return rows.Close()
	})
	if err == nil || busy(err) {
		return err
	}
	return fmt.Errorf("%w: the statement %q doesn't fit %s: %w: create what it needs, or let Setup do so", weir.ErrRefused, clip(s.text), c.path, err)
}
