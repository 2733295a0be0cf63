package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// rows is what both tables hold.
type rows struct {
	minutes map[[2]string]int64
	totals  map[string]int64
}

// story is the count of the ad that the demo tells of.
func (r rows) story() int64 { return r.totals[storyAd] }

// differ counts the rows that only one of the two has, or with another count.
func (r rows) differ(o rows) int {
	return differing(r.minutes, o.minutes) + differing(r.totals, o.totals)
}

func differing[K comparable](a, b map[K]int64) int {
	n := 0
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			n++
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			n++
		}
	}
	return n
}

func open(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
}

func readRows(path string) (r rows, err error) {
	db, err := open(path)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r = rows{minutes: map[[2]string]int64{}, totals: map[string]int64{}}
	var key [2]string
	var clicks int64
	err = each(db, `SELECT ad_id, minute, clicks FROM ad_minute`, func(s scanner) error {
		err := s.Scan(&key[0], &key[1], &clicks)
		r.minutes[key] = clicks
		return err
	})
	if err != nil {
		return r, err
	}
	return r, each(db, `SELECT ad_id, clicks FROM ad_total`, func(s scanner) error {
		err := s.Scan(&key[0], &clicks)
		r.totals[key[0]] = clicks
		return err
	})
}

type scanner interface{ Scan(dst ...any) error }

func each(db *sql.DB, query string, row func(scanner) error) (err error) {
	rs, err := db.QueryContext(context.Background(), query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	for rs.Next() {
		if err := row(rs); err != nil {
			return err
		}
	}
	return rs.Err()
}

// watchWrites makes the database itself note each row that is written.
func watchWrites(path string) error {
	db, err := open(path)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), `CREATE TABLE written (ad_id TEXT, minute TEXT)`)
	for _, table := range []string{"ad_minute", "ad_total"} {
		for _, event := range []string{"INSERT", "UPDATE"} {
			minute := map[string]string{"ad_minute": "new.minute", "ad_total": "''"}[table]
			_, e := db.ExecContext(context.Background(), fmt.Sprintf(`CREATE TRIGGER note_%s_%s AFTER %s ON %s BEGIN INSERT INTO written VALUES (new.ad_id, %s); END`,
				table, event, event, table, minute))
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, db.Close())
}

// rewritten counts the rows noted by watchWrites that were there before.
func rewritten(path string, before rows) (n int, err error) {
	db, err := open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return n, each(db, `SELECT DISTINCT ad_id, minute FROM written`, func(s scanner) error {
		var key [2]string
		err := s.Scan(&key[0], &key[1])
		_, minute := before.minutes[key]
		_, total := before.totals[key[0]]
		if minute || key[1] == "" && total {
			n++
		}
		return err
	})
}
