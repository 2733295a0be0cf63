package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "modernc.org/sqlite" // the driver

	"github.com/weirstream/weir/internal/chaos/trial"
)

// look reads a copy of the database at path, so that the next life finds the
// original as the kill left it: to open it would already recover it. ledgers is
// how many the database must have, once it has any.
func look(path, scratch string, ledgers int) (c contents, err error) {
	c.torn = tornWAL(path + "-wal")
	for _, suffix := range []string{"", "-wal"} {
		if err := trial.CopyFile(path+suffix, scratch+suffix); err != nil {
			return c, err
		}
	}
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			err = errors.Join(err, removeIfThere(scratch+suffix))
		}
	}()
	c.rows = table{}
	db, err := sql.Open("sqlite", "file:"+scratch)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	has, err := tableNames(db)
	if err != nil {
		return c, err
	}
	var k cell
	var n int64
	row := func() { c.rows[k] = n }
	if has["ad_minute"] {
		err = trial.Each(db, "SELECT ad_id, minute, clicks FROM ad_minute", row, &k.ad, &k.minute, &n)
	}
	if k.minute = ""; err == nil && has["ad_total"] {
		err = trial.Each(db, "SELECT ad_id, clicks FROM ad_total", row, &k.ad, &n)
	}
	if err == nil && has["weir_ledger"] {
		c.named, c.incarnation, err = ledger(db, ledgers)
	}
	return c, err
}

// ledger reads what all ledgers of a database say: one transaction moves them.
func ledger(db *sql.DB, want int) (named string, incarnation int64, err error) {
	type row struct {
		named       string
		incarnation int64
	}
	var r row
	all := map[row]int{}
	err = trial.Each(db, "SELECT checkpoint, incarnation FROM weir_ledger", func() { all[r]++ }, &r.named, &r.incarnation)
	if err == nil && (len(all) > 1 || len(all) == 1 && all[r] != want) {
		err = trial.Failed("the %d ledgers are one transaction, but they are %v", want, all)
	}
	return r.named, r.incarnation, err
}

func tableNames(c *sql.DB) (map[string]bool, error) {
	has, name := map[string]bool{}, ""
	return has, trial.Each(c, "SELECT name FROM sqlite_schema", func() { has[name] = true }, &name)
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

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
