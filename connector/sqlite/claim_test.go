package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirstream/weir"
)

// claim starts a job on a table, with Open before or after Fence.
func claim(t *testing.T, s Sink[count], f weir.Fence, openFirst bool) error {
	t.Helper()
	p, err := s.Connect(t.Context(), []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	open := func(context.Context) error { _, err := s.Open(t.Context(), p, "out"); return err }
	fence := func(ctx context.Context) error { _, err := p.Fence(ctx, f); return err }
	steps := []func(context.Context) error{fence, open}
	if openFirst {
		steps = []func(context.Context) error{open, fence}
	}
	for _, step := range steps {
		if err := step(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

func first(name, uuid string) weir.Fence {
	return weir.Fence{Job: weir.JobID{Name: name, UUID: uuid}, By: weir.Incarnation{Number: 1, Nonce: uuid}, Create: true}
}

// Two jobs can't write one table of a database, until the other's ledger is
// deleted by hand or was given up.
func TestTableOfAnotherJob(t *testing.T) {
	for _, openFirst := range []bool{false, true} {
		for _, eager := range []bool{false, true} {
			path := database(t)
			s := counts(path)
			capitals := Upsert[count](path, "COUNTS", "ad")
			if eager {
				capitals = capitals.Eager()
			}
			check(t, claim(t, s, first("a", "u1"), openFirst))
			over := first("b", "u5")
			over.StartOver = true
			for _, f := range []weir.Fence{first("b", "u2"), over} {
				err := claim(t, capitals, f, openFirst)
				if !errors.Is(err, weir.ErrRefused) {
					t.Fatalf("got %v, want weir.ErrRefused", err)
				}
				for _, want := range []string{`table "COUNTS"`, path, `job "a"`, `sink "out"`, "another table or another database",
					"DELETE FROM weir_ledger WHERE job_uuid = 'u1'"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v doesn't say %q", err, want)
					}
				}
				f.By.Number++ // a second try
				f.Create = false
				// Where Fence came last nothing of the first try is left.
				if err := claim(t, capitals, f, false); errors.Is(err, weir.ErrRefused) == openFirst {
					t.Errorf("again: %v", err)
				}
			}
			check(t, claim(t, Upsert[count](path, "others", "ad"), first("c", "u3"), openFirst))
			db := other(t, path)
			if got := list(t, db, "SELECT tbl FROM weir_ledger WHERE job IN ('a', 'c') ORDER BY job"); strings.Join(got, " ") != "counts others" {
				t.Errorf("the ledger names the tables %q", got)
			}
			exec(t, db, "DELETE FROM weir_ledger WHERE job_uuid = 'u1'")
			check(t, claim(t, capitals, first("d", "u4"), openFirst))
		}
	}
}

// A job that starts over in another table gives up its old one.
func TestTableGivenUp(t *testing.T) {
	path := database(t)
	check(t, claim(t, counts(path), first("a", "u1"), false))
	over := first("a", "u2")
	over.StartOver = true
	check(t, claim(t, Upsert[count](path, "others", "ad"), over, false))
	check(t, claim(t, counts(path), first("b", "u3"), false))
}

// Who claims a number that the ledger has from another start has another log.
func TestCopyOfTheStateDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		by   weir.Incarnation
		want error
	}{
		"equal":  {weir.Incarnation{Number: 5, Nonce: "copy"}, weir.ErrRefused},
		"behind": {weir.Incarnation{Number: 4, Nonce: "backup"}, weir.ErrFenced},
	} {
		path := database(t)
		f := first("a", "u1")
		f.By.Number = 5
		check(t, claim(t, counts(path), f, false))
		f.By, f.Create = c.by, false
		err := claim(t, counts(path), f, false)
		if !errors.Is(err, c.want) || errors.Is(err, weir.ErrFenced) != (c.want == weir.ErrFenced) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if err == nil || !strings.Contains(err.Error(), "this state directory is a copy or comes from a backup") || !strings.Contains(err.Error(), "incarnation 5 (u1)") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
