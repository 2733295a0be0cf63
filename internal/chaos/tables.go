package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"

	_ "modernc.org/sqlite" // the driver
)

// database is what a copy of the job's database holds.
type database struct {
	rows        table
	named       string // the checkpoint that every ledger names, or ""
	incarnation int64  // that every ledger was claimed by
}

// look reads a copy of the database at path, so that the next life finds the
// original as the kill left it: to open it would already recover it.
func look(path, scratch string) (db database, err error) {
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(path+suffix, scratch+suffix); err != nil {
			return db, err
		}
	}
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			err = errors.Join(err, removeIfThere(scratch+suffix))
		}
	}()
	db.rows = table{}
	c, err := sql.Open("sqlite", "file:"+scratch)
	if err != nil {
		return db, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var has map[string]bool
	if has, err = tableNames(c); err != nil {
		return db, err
	}
	var k cell
	var n int64
	row := func() { db.rows[k] = n }
	if has["ad_minute"] {
		err = each(c, "SELECT ad_id, minute, clicks FROM ad_minute", row, &k.ad, &k.minute, &n)
	}
	if k.minute = ""; err == nil && has["ad_total"] {
		err = each(c, "SELECT ad_id, clicks FROM ad_total", row, &k.ad, &n)
	}
	if err == nil && has["weir_ledger"] {
		err = db.ledgers(c)
	}
	return db, err
}

func (db *database) ledgers(c *sql.DB) error {
	type ledger struct {
		named       string
		incarnation int64
	}
	var l ledger
	all := map[ledger]int{}
	err := each(c, "SELECT checkpoint, incarnation FROM weir_ledger", func() { all[l]++ }, &l.named, &l.incarnation)
	if err != nil {
		return err
	}
	if len(all) > 1 || len(all) == 1 && all[l] != 2 {
		return failed("the two ledgers are one transaction, but they are %v", all)
	}
	db.named, db.incarnation = l.named, l.incarnation
	return nil
}

func tableNames(c *sql.DB) (map[string]bool, error) {
	has, name := map[string]bool{}, ""
	return has, each(c, "SELECT name FROM sqlite_schema", func() { has[name] = true }, &name)
}

func each(c *sql.DB, query string, row func(), dst ...any) (err error) {
	rs, err := c.QueryContext(context.Background(), query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	for rs.Next() {
		if err := rs.Scan(dst...); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		row()
	}
	return rs.Err()
}

// describe says what is wrong with a row.
func describe(k cell, got, low, high int64) string {
	want := fmt.Sprint(low)
	if low != high {
		want = fmt.Sprintf("%d to %d", low, high)
	}
	if k.minute == "" {
		return fmt.Sprintf("\n  ad_total %s: %d, should be %s", k.ad, got, want)
	}
	return fmt.Sprintf("\n  ad_minute %s %s: %d, should be %s", k.ad, k.minute, got, want)
}

// copyFile copies a file if it is there.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
