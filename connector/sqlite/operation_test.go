package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
)

func TestAppend(t *testing.T) {
	sink := func(dir, target string) Sink[connectortest.Row] {
		return Append[connectortest.Row](filepath.Join(dir, "rows.db"), target)
	}
	connectortest.Sink(t, connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] { return sink(dir, target) },
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			s := sink(dir, target)
			return readRows[connectortest.Row](ctx, s.path, s.layout)
		},
		Rejected: []connectortest.Row{{Key: "a\x00b"}, {Key: "k", Note: "\xff"}},
	})
}

func TestStatement(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] {
			l := Append[connectortest.Row](filepath.Join(dir, "rows.db"), target).layout
			params := ":" + strings.Join(l.names(), ", :")
			return Statement[connectortest.Row](filepath.Join(dir, "rows.db"),
				fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", quote(target), quote(l.names()...), params)).
				Setup(strings.Replace(l.create(), "CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
		},
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			s := Append[connectortest.Row](filepath.Join(dir, "rows.db"), target)
			return readRows[connectortest.Row](ctx, s.path, s.layout)
		},
	})
}

func TestParameters(t *testing.T) {
	for _, c := range []struct {
		sql   string
		names []string
		says  string
	}{
		{sql: "UPDATE t SET n = n + :n WHERE id = :id AND n <> :n", names: []string{"n", "id"}},
		{sql: "INSERT INTO t VALUES ($a_1, @B)", names: []string{"a_1", "B"}},
		{sql: "SELECT ':no', \"a:b\", `:x`, [:y] -- :z\n, :yes /* :w */ ;  ", names: []string{"yes"}},
		{sql: "SELECT 'it''s :one', :two", names: []string{"two"}},
		{sql: "SELECT :één", says: "isn't followed by the name"},
		{sql: "SELECT ?", says: "without a name"},
		{sql: "SELECT ?1", says: "without a name"},
		{sql: "SELECT 1; SELECT 2", says: "more follows"},
		{sql: "SELECT 1; -- no more"},
		{sql: "SELECT 'open", says: "doesn't end"},
		{sql: "SELECT /* open", says: "doesn't end"},
		{sql: " \n", says: "empty"},
	} {
		names, err := parameters(c.sql)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want an error that says %q", c.sql, err, c.says)
			}
			continue
		}
		if err != nil || gocmp.Diff(c.names, names) != "" {
			t.Errorf("%s: got %q and %v, want %q", c.sql, names, err, c.names)
		}
	}
}

type account struct {
	ID string
	N  int64
}

// operate runs epochs through a sink: one slice of rows each.
func operate(t *testing.T, s Sink[account], epochs ...[]account) error {
	t.Helper()
	check(t, s.Check())
	ctx := t.Context()
	p, err := s.Connect(ctx, []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	if _, err := p.Fence(ctx, weir.Fence{Job: weir.JobID{Name: "j", UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true}); err != nil {
		return err
	}
	out, err := s.Open(ctx, p, "out")
	if err != nil {
		return err
	}
	w := out.Writer(0)
	parent := weir.CheckpointID{}
	check(t, p.Commit(ctx, weir.Commit{ID: weir.CheckpointID{Slot: 1}, Empty: true}))
	parent.Slot = 1
	for i, rows := range epochs {
		n := int64(i + 1)
		check(t, w.Write(rows, make([]int64, len(rows))))
		check(t, w.Seal(n))
		_, err := p.Prepare(ctx, n)
		check(t, err)
		id := weir.CheckpointID{Slot: n + 1}
		if err := p.Commit(ctx, weir.Commit{Epoch: n, ID: id, Parent: parent}); err != nil {
			return err
		}
		parent = id
	}
	return nil
}

// contents reads a table of accounts.
func contents(t *testing.T, path, table string) []account {
	t.Helper()
	s := Append[account](path, table)
	rows, err := readRows[account](t.Context(), s.path, s.layout)
	check(t, err)
	return rows
}

// Upserts and deletes come to what the last operation of each key says, within
// an epoch and from one to the next.
func TestDeletes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, eager := range []bool{false, true} {
		path := database(t)
		s := Upsert[account](path, "account", "id").Deletes(func(a account) bool { return a.N < 0 })
		if eager {
			s = s.Eager()
		}
		want := map[string]int64{}
		var epochs [][]account
		for range 8 {
			var rows []account
			for range rnd.IntN(60) {
				a := account{fmt.Sprint("id-", rnd.IntN(25)), int64(rnd.IntN(30) - 10)}
				if rows = append(rows, a); a.N < 0 {
					delete(want, a.ID)
				} else {
					want[a.ID] = a.N
				}
			}
			epochs = append(epochs, rows)
		}
		check(t, operate(t, s, epochs...))
		got := map[string]int64{}
		for _, a := range contents(t, path, "account") {
			got[a.ID] = a.N
		}
		if !maps.Equal(got, want) {
			t.Errorf("eager %v: (-want +got):\n%s", eager, gocmp.Diff(want, got))
		}
	}
}

// A follower keeps deletes and appended rows with the checkpoint.
func TestDeletesAreStaged(t *testing.T) {
	path := database(t)
	s := Upsert[account](path, "account", "id").Deletes(func(a account) bool { return a.N < 0 })
	p, err := connect(t.Context(), s.path, s.name(), false, []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	tab, err := p.attach(t.Context(), "out", s.layout, s.limit)
	check(t, err)
	p.Follow()
	w := &writer[account]{t: tab, b: tab.fresh()}
	check(t, w.Write([]account{{"a", 1}, {"b", 2}, {"a", -1}, {"c", -1}, {"c", 3}}, nil))
	check(t, w.Seal(1))
	kept, err := p.Prepare(t.Context(), 1)
	check(t, err)
	all, err := p.unstage(kept)
	check(t, err)
	var got []string
	for i := range all[0].rows.len() {
		got = append(got, fmt.Sprintf("%v %v %v", all[0].rows.value(i, 0), all[0].rows.value(i, 1), all[0].rows.gone(i)))
	}
	if diff := gocmp.Diff([]string{"a <nil> true", "b 2 false", "c 3 false"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIncrement(t *testing.T) {
	path := database(t)
	s := Statement[account](path, "INSERT INTO account VALUES (:id, :n) ON CONFLICT (id) DO UPDATE SET n = n + :n").
		Setup("CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, n INTEGER NOT NULL)")
	check(t, operate(t, s, []account{{"a", 1}, {"a", 2}, {"b", 5}}, nil, []account{{"a", 10}}))
	if diff := gocmp.Diff([]account{{"a", 13}, {"b", 5}}, contents(t, path, "account")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAppends(t *testing.T) {
	path := database(t)
	check(t, operate(t, Append[account](path, "log"), []account{{"a", 1}, {"a", 1}}, []account{{"b", 2}, {"a", 1}}))
	if diff := gocmp.Diff([]account{{"a", 1}, {"a", 1}, {"b", 2}, {"a", 1}}, contents(t, path, "log")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What can be said before anything runs is.
func TestOperationsRefused(t *testing.T) {
	path := database(t)
	for what, s := range map[string]Sink[account]{
		"can be eager": Append[account](path, "t").Eager(),
		"have a key":   Append[account](path, "t").Deletes(func(account) bool { return true }),
		"no function":  Upsert[account](path, "t", "id").Deletes(nil),
		"needs a key":  Upsert[account](path, "t"),
		":clicks":      Statement[account](path, "UPDATE t SET n = :clicks"),
		"Statement":    Append[account](path, "t").Setup("CREATE TABLE t (id TEXT)"),
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error that says %q", err, what)
		}
	}
	err := operate(t, Statement[account](path, "UPDATE nowhere SET n = :n"), nil)
	if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("a statement on a table that isn't there: %v", err)
	}
}

// The database refuses a row of a statement, and the error names it.
func TestStatementRefused(t *testing.T) {
	s := Statement[account](database(t), "INSERT INTO account VALUES (:id, :n)").
		Setup("CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, n INTEGER NOT NULL CHECK (n < 100))")
	err := operate(t, s, []account{{"a", 1}, {"b", 200}})
	if !errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), `id="b"`) {
		t.Errorf("got %v, want an input error that names the row b", err)
	}
}

type tenColumns struct {
	A, B, C, D, E, F, G, H, I, J int64
}

// An epoch with far more values than one statement can have parameters is
// written by several, in one transaction: all of it or nothing.
func TestManyParameters(t *testing.T) {
	rows := make([]tenColumns, 10_000)
	for i := range rows {
		rows[i] = tenColumns{A: int64(i), J: int64(i)}
	}
	for _, bad := range []bool{false, true} {
		path := database(t)
		s := Upsert[tenColumns](path, "t", "a")
		p, err := connect(t.Context(), s.path, s.name(), false, []string{"out"})
		check(t, err)
		_, err = p.Fence(t.Context(), weir.Fence{Job: weir.JobID{Name: "j", UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true})
		check(t, err)
		tab, err := p.attach(t.Context(), "out", s.layout, s.limit)
		check(t, err)
		want := len(rows)
		if bad {
			check(t, p.c.run(t.Context(), "trigger", "CREATE TRIGGER last BEFORE INSERT ON t WHEN new.a = 9999 BEGIN SELECT RAISE(ABORT, 'no'); END"))
			want = 0
		}
		w := &writer[tenColumns]{t: tab, b: tab.fresh()}
		check(t, w.Write(rows, nil))
		check(t, w.Seal(1))
		if err := p.Commit(t.Context(), weir.Commit{Epoch: 1, ID: weir.CheckpointID{Slot: 1}}); (err != nil) != bad {
			t.Errorf("bad row %v: commit gave %v", bad, err)
		}
		check(t, p.Close())
		got, err := readRows[tenColumns](t.Context(), s.path, s.layout)
		if err != nil || len(got) != want {
			t.Errorf("bad row %v: %d rows, want %d: %v", bad, len(got), want, err)
		}
	}
}

// A database that is removed or replaced while the job runs is noticed before
// anything more is committed into a file that nobody can open.
func TestDatabaseTakenAway(t *testing.T) {
	for what, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"another file": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		for _, eager := range []bool{false, true} {
			s := Upsert[account](database(t), "account", "id")
			if eager {
				s = s.Eager()
			}
			ctx := t.Context()
			p, err := s.Connect(ctx, []string{"out"})
			check(t, err)
			_, err = p.Fence(ctx, weir.Fence{Job: weir.JobID{Name: "j", UUID: "u"}, By: weir.Incarnation{Number: 1, Nonce: "n"}, Create: true})
			check(t, err)
			out, err := s.Open(ctx, p, "out")
			check(t, err)
			check(t, take(s.path))
			check(t, out.Writer(0).Write([]account{{"a", 1}}, []int64{0}))
			_, err = p.Prepare(ctx, 1)
			if err == nil {
				err = p.Commit(ctx, weir.Commit{Epoch: 1, ID: weir.CheckpointID{Slot: 1}})
			}
			if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), what) {
				t.Errorf("eager %v, %s: %v", eager, what, err)
			}
			check(t, p.Close())
		}
	}
}
