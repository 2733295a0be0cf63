package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
)

func TestPaths(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	check(t, err)
	check(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	check(t, os.Symlink("real", filepath.Join(dir, "link")))
	check(t, os.Symlink(filepath.Join("..", "real", "a.db"), filepath.Join(dir, "real", "b.db")))
	t.Chdir(dir)
	want := "sqlite:" + filepath.Join(dir, "real", "a.db")
	for _, there := range []bool{false, true} {
		for _, path := range []string{"real/a.db", "link/a.db", "./real/../link/a.db", filepath.Join(dir, "link", "a.db"), "link/b.db"} {
			if got := counts(path).Spec().Participant; got != want {
				t.Errorf("file there %v: participant of %s is %s, want %s", there, path, got, want)
			}
		}
		check(t, os.WriteFile(filepath.Join(dir, "real", "a.db"), nil, 0o600))
	}
	if got := counts("link/a.db").Eager().Spec().Participant; got != want+"#eager" {
		t.Errorf("participant of the eager sink is %s", got)
	}
	check(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	if err := counts("loop").Check(); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("a link to itself: %v", err)
	}
	odd := counts(filepath.Join(dir, "a?b#c%41 d.db"))
	check(t, begin(t.Context(), t, odd, 1).commit(t.Context(), count{"a", 1}))
	if _, err := os.Stat(filepath.Join(dir, "a?b#c%41 d.db")); err != nil {
		t.Errorf("the database has another name: %v", err)
	}
}

func TestConnectRefuses(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "text.db"), []byte(strings.Repeat("this is a text, not a database\n", 100)), 0o600))
	for name, c := range map[string]struct{ path, want string }{
		"not a database": {"text.db", "isn't a SQLite database: name another one"},
		"a folder":       {".", "is a folder: name a file in it"},
		"missing folder": {"nope/x.db", "doesn't exist: make it"},
	} {
		_, err := tryBegin(t.Context(), counts(filepath.Join(dir, c.path)), 1, "out")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nope")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the missing folder was made: %v", err)
	}
}

// A start that isn't the first doesn't make a database where one is missing.
func TestMissingDatabase(t *testing.T) {
	path := database(t)
	s := counts(path)
	p, err := s.Connect(t.Context(), []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	ledgers, err := p.Fence(t.Context(), weir.Fence{Job: job, By: weir.Incarnation{Number: 2}})
	check(t, err)
	if ledgers["out"].Found {
		t.Error("a ledger was found in a missing database")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database was made: %v", err)
	}
}

type wide struct {
	Ad     string
	Minute string
	Clicks int64
	Rate   float64
	Raw    []byte
}

func TestTables(t *testing.T) {
	for name, c := range map[string]struct {
		ddl  []string
		want []string // of the error; none: it fits
	}{
		"as created":   {ddl: []string{Upsert[wide]("x", "t", "ad", "minute").layout.create()}},
		"other order":  {ddl: []string{`CREATE TABLE t (raw, rate DOUBLE, CLICKS bigint, minute VARCHAR(20), ad CHAR, PRIMARY KEY (minute, ad))`}},
		"more columns": {ddl: []string{`CREATE TABLE t (ad TEXT, minute TEXT, clicks INT, rate REAL, raw BLOB, note TEXT, n INT NOT NULL DEFAULT 3, twice AS (clicks * 2), PRIMARY KEY (ad, minute))`}},
		"trigger of the same name": {ddl: []string{Upsert[wide]("x", "t", "ad", "minute").layout.create(),
			`CREATE TRIGGER t AFTER INSERT ON t BEGIN SELECT 1; END`}},
		"missing": {[]string{`CREATE TABLE t (ad TEXT, minute TEXT, rate REAL, raw BLOB, PRIMARY KEY (ad, minute))`},
			[]string{`column "clicks": missing, needed as INTEGER`, `CREATE TABLE "t" ("ad" TEXT,`}},
		"types": {[]string{`CREATE TABLE t (ad INTEGER, minute NUMERIC, clicks REAL, rate TEXT, raw TEXT, PRIMARY KEY (ad, minute))`},
			[]string{`column "ad": declared as "INTEGER"`, `column "minute": declared as "NUMERIC"`, `column "clicks": declared as "REAL"`,
				`column "rate": declared as "TEXT"`, `column "raw": declared as "TEXT"`}},
		"smaller key": {[]string{`CREATE TABLE t (ad TEXT PRIMARY KEY, minute TEXT, clicks INT, rate REAL, raw BLOB)`},
			[]string{`column "minute": is in the sink's key, but not in the table's primary key`}},
		"larger key": {[]string{`CREATE TABLE t (ad TEXT, minute TEXT, clicks INT, rate REAL, raw BLOB, more INT, PRIMARY KEY (ad, minute, clicks, more))`},
			[]string{`column "clicks": is in the table's primary key, but not in the sink's key`, `column "more": is in the table's primary key`}},
		"no key": {[]string{`CREATE TABLE t (ad TEXT, minute TEXT, clicks INT, rate REAL, raw BLOB)`}, []string{`column "ad"`, `column "minute"`}},
		"strict column": {[]string{`CREATE TABLE t (ad TEXT, minute TEXT, clicks INT, rate REAL, raw BLOB, note TEXT NOT NULL, PRIMARY KEY (ad, minute))`},
			[]string{`column "note": NOT NULL without a default`}},
		"collation": {[]string{`CREATE TABLE t (ad TEXT COLLATE NOCASE, minute TEXT, clicks INT, rate REAL, raw BLOB, PRIMARY KEY (ad, minute))`},
			[]string{`key column "ad": compares by NOCASE`}},
		"generated": {[]string{`CREATE TABLE t (ad TEXT, minute TEXT, clicks INT AS (1), rate REAL, raw BLOB, PRIMARY KEY (ad, minute))`},
			[]string{`column "clicks": generated`}},
		"view": {[]string{`CREATE VIEW t AS SELECT 'a' AS ad, 'b' AS minute, 1 AS clicks, 1.5 AS rate, x'00' AS raw`}, []string{"it is a view"}},
	} {
		for _, openFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, open first %v", name, openFirst), func(t *testing.T) {
				path := database(t)
				exec(t, other(t, path), c.ddl...)
				s := Upsert[wide](path, "t", "ad", "minute")
				err := genesis(t.Context(), t, s, openFirst)
				if len(c.want) == 0 {
					check(t, err)
					return
				}
				if !errors.Is(err, weir.ErrRefused) {
					t.Fatalf("got %v, want weir.ErrRefused", err)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error doesn't say %q:\n%v", want, err)
					}
				}
			})
		}
	}
}

// genesis opens a sink and commits a row with it.
func genesis(ctx context.Context, t *testing.T, s Sink[wide], openFirst bool) error {
	p, err := s.Connect(ctx, []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	var o weir.Outlet[wide]
	if openFirst {
		o, err = s.Open(ctx, p, "out")
		check(t, err)
	}
	if _, err := p.Fence(ctx, weir.Fence{Job: job, By: weir.Incarnation{Number: 1}, Create: true}); err != nil {
		return err
	}
	if !openFirst {
		if o, err = s.Open(ctx, p, "out"); err != nil {
			return err
		}
	}
	w := o.Writer(0)
	check(t, w.Write([]wide{{Ad: "007", Minute: "1", Clicks: 1, Rate: 2, Raw: []byte("x")}}, []int64{0}))
	check(t, w.Seal(1))
	return p.Commit(ctx, weir.Commit{Epoch: 1, ID: weir.CheckpointID{Slot: 1}})
}

// What doesn't fit the ledger is refused, and nothing is guessed.
func TestLedgerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil string
		want  error
		says  string
	}{
		"table gone":     {"DROP TABLE counts", weir.ErrRefused, `the table "counts" is gone`},
		"not an id":      {"UPDATE weir_ledger SET checkpoint = '1-abc'", weir.ErrRefused, `"1-abc" is no checkpoint id`},
		"capitals":       {"UPDATE weir_ledger SET checkpoint = upper(replace(checkpoint, '00', 'ab'))", weir.ErrRefused, "is no checkpoint id"},
		"no text":        {"UPDATE weir_ledger SET checkpoint = x'00'", weir.ErrRefused, "values of other types"},
		"another ledger": {"ALTER TABLE weir_ledger RENAME COLUMN checkpoint TO position", weir.ErrRefused, `has no column "checkpoint"`},
		"newer":          {"UPDATE weir_ledger SET incarnation = 7, nonce = 'n7'", weir.ErrFenced, "names incarnation 7 (n7)"},
	} {
		s := counts(database(t))
		r := begin(t.Context(), t, s, 1)
		check(t, r.commit(t.Context(), count{"a", 1}))
		check(t, r.p.Close())
		exec(t, other(t, s.path), c.spoil)
		_, err := tryBegin(t.Context(), s, 2, "out")
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.want, c.says)
		}
	}
}

// A trigger of the user's sees each write, and one that refuses a row stops
// the job with that row's key.
func TestTriggers(t *testing.T) {
	for _, eager := range []bool{false, true} {
		s := counts(database(t))
		if eager {
			s = s.Eager()
		}
		db := other(t, s.path)
		exec(t, db, s.layout.create(), "CREATE TABLE audit (ad TEXT, what TEXT)",
			"CREATE TRIGGER ins AFTER INSERT ON counts BEGIN INSERT INTO audit VALUES (new.ad, 'new'); END",
			"CREATE TRIGGER upd AFTER UPDATE ON counts WHEN old.clicks = new.clicks BEGIN INSERT INTO audit VALUES (new.ad, 'again'); END",
			"CREATE TRIGGER bad BEFORE INSERT ON counts WHEN new.clicks < 0 BEGIN SELECT RAISE(ABORT, 'negative'); END")
		r := begin(t.Context(), t, s, 1)
		check(t, r.commit(t.Context(), count{"a", 1}, count{"b", 1}))
		check(t, r.commit(t.Context(), count{"a", 1}, count{"b", 2}))
		want := []string{"a new", "b new", "a again"}
		if diff := cmp.Diff(want, list(t, db, "SELECT * FROM audit ORDER BY rowid")); diff != "" {
			t.Errorf("eager %v (-want +got):\n%s", eager, diff)
		}
		var rows []count
		for i := range 40 {
			rows = append(rows, count{fmt.Sprintf("c%02d", i), 1})
		}
		rows[21].Clicks = -1
		err := r.commit(t.Context(), rows...)
		if !errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), `ad="c21"`) || !strings.Contains(err.Error(), "negative") {
			t.Errorf("eager %v: got %v, want an error about the row c21", eager, err)
		}
		if got := list(t, db, "SELECT count(*) FROM counts"); got[0] != "2" {
			t.Errorf("eager %v: %s rows, want the 2 that were committed", eager, got)
		}
	}
}

// A scratch copy is another database that can be read back, and sinks of one
// database have one scratch database.
func TestScratch(t *testing.T) {
	path := database(t)
	var s weir.Scratcher[count] = counts(path)
	dir := t.TempDir()
	scratch, rows, err := s.Scratch(dir)
	check(t, err)
	got, err := rows(t.Context())
	if err != nil || len(got) != 0 {
		t.Errorf("before the first commit: %v, %v", got, err)
	}
	second, _, err := Upsert[count](path, "more", "ad").Scratch(dir)
	check(t, err)
	if scratch.Spec().Participant != second.Spec().Participant {
		t.Error("the scratch copies of one database are two participants")
	}
	check(t, begin(t.Context(), t, scratch.(Sink[count]), 1).commit(t.Context(), count{"a", 1}, count{"b", 2}))
	got, err = rows(t.Context())
	check(t, err)
	if diff := cmp.Diff([]count{{"a", 1}, {"b", 2}}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database itself was touched: %v", err)
	}
	if _, _, err := s.Scratch(filepath.Dir(path)); err == nil {
		t.Error("a scratch copy on the database itself was allowed")
	}
}

// A transactional sink without the rows of an epoch doesn't pretend to commit
// it.
func TestRowsNotKept(t *testing.T) {
	s := counts(database(t))
	r := begin(t.Context(), t, s, 1)
	check(t, r.commit(t.Context(), count{"a", 1}))
	check(t, r.p.Close())
	later := begin(t.Context(), t, s, 2)
	c := weir.Commit{Epoch: 2, ID: weir.CheckpointID{Slot: 2}, Parent: r.parent}
	if err := later.p.Commit(t.Context(), c); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("got %v, want weir.ErrRefused", err)
	}
	if got := list(t, other(t, s.path), "SELECT checkpoint LIKE '1-%' FROM weir_ledger"); got[0] != "1" {
		t.Errorf("the ledger was moved: %s", got)
	}
}

// A ledger is this incarnation's if number and nonce are: two starts that
// believe in one number are two.
func TestIncarnationCompared(t *testing.T) {
	for _, claim := range []string{"nonce = 'another'", "incarnation = 2", "incarnation = 0"} {
		for _, s := range []Sink[count]{counts(database(t)), counts(database(t)).Eager()} {
			r := begin(t.Context(), t, s, 1)
			check(t, r.commit(t.Context(), count{"a", 1}))
			db := other(t, s.path)
			exec(t, db, "UPDATE weir_ledger SET "+claim)
			if err := r.commit(t.Context(), count{"a", 2}); !errors.Is(err, weir.ErrFenced) {
				t.Errorf("%s, %s: got %v, want weir.ErrFenced", s.name(), claim, err)
			}
			if got := list(t, db, "SELECT * FROM counts"); got[0] != "a 1" {
				t.Errorf("%s, %s: rows are %q", s.name(), claim, got)
			}
		}
	}
}

// After an error a participant calls the database no more, whatever it is
// asked: recovery is another incarnation's.
func TestNothingAfterAnError(t *testing.T) {
	for _, s := range []Sink[count]{counts(database(t)), counts(database(t)).Eager()} {
		broken := errors.New("the cable is out")
		var after []string
		cut := false
		m := &machine{}
		m.perform = func(name string, do func() error) error {
			switch {
			case cut:
				after = append(after, name)
			case name == "sqlite rows":
				cut = true
				return broken
			}
			return do()
		}
		r := begin(m.context(t), t, s, 1)
		check(t, r.w.Write([]count{{"a", 1}}, []int64{0}))
		check(t, r.w.Seal(1))
		c := weir.Commit{Epoch: 1, ID: weir.CheckpointID{Slot: 1}}
		_, prepared := r.p.Prepare(m.context(t), 1)
		for range 2 {
			if err := errors.Join(prepared, r.p.Commit(m.context(t), c)); !errors.Is(err, broken) {
				t.Errorf("%s: got %v, want the first error", s.name(), err)
			}
		}
		if _, err := r.p.Fence(m.context(t), weir.Fence{Job: job, By: weir.Incarnation{Number: 2}}); !errors.Is(err, broken) {
			t.Errorf("%s: Fence got %v, want the first error", s.name(), err)
		}
		if len(after) > 0 {
			t.Errorf("%s: calls after the error: %q", s.name(), after)
		}
		if got := list(t, other(t, s.path), "SELECT count(*), max(checkpoint) FROM counts, weir_ledger"); got[0] != "0 <nil>" {
			t.Errorf("%s: rows and ledger are %q", s.name(), got)
		}
	}
}

type kept struct {
	ID string
	N  int64
}

// Results that were given up stay, and no start of their run can write again.
func TestStartOver(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "t.db")
	connect := func() weir.Participant {
		p, err := Upsert[kept](path, "t", "id").Connect(ctx, []string{"out"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Upsert[kept](path, "t", "id").Open(ctx, p, "out"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	id := func(slot int64) weir.CheckpointID { return weir.CheckpointID{Slot: slot, Sum: [32]byte{1}} }
	old, next := weir.JobID{Name: "j", UUID: "old"}, weir.JobID{Name: "j", UUID: "next"}
	running := connect()
	if _, err := running.Fence(ctx, weir.Fence{Job: old, By: weir.Incarnation{Number: 1, Nonce: "a"}, Create: true}); err != nil {
		t.Fatal(err)
	}
	if err := running.Commit(ctx, weir.Commit{ID: id(2)}); err != nil {
		t.Fatal(err)
	}
	p := connect()
	if _, err := p.Fence(ctx, weir.Fence{Job: next, By: weir.Incarnation{Number: 1, Nonce: "b"}, Create: true}); !errors.Is(err, weir.ErrRefused) {
		t.Fatalf("another run's results were taken over silently: %v", err)
	}
	p = connect()
	ledgers, err := p.Fence(ctx, weir.Fence{Job: next, By: weir.Incarnation{Number: 1, Nonce: "b"}, Create: true, StartOver: true})
	if err != nil || !ledgers["out"].Found || !ledgers["out"].ID.IsZero() {
		t.Fatalf("start over: %v, %v", ledgers, err)
	}
	if err := running.Commit(ctx, weir.Commit{ID: id(3), Parent: id(2)}); !errors.Is(err, weir.ErrFenced) {
		t.Fatalf("a run that was given up committed: %v", err)
	}
	if _, err := connect().Fence(ctx, weir.Fence{Job: old, By: weir.Incarnation{Number: 9, Nonce: "c"}}); !errors.Is(err, weir.ErrFenced) {
		t.Fatalf("a run that was given up started again: %v", err)
	}
	if err := p.Commit(ctx, weir.Commit{ID: id(2)}); err != nil {
		t.Fatal(err)
	}
}
