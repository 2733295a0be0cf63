package main

import (
	"context"
	"database/sql"
	"sync"

	_ "modernc.org/sqlite" // the driver
)

// adder is the common mistake: it adds 1 a click, in transactions of its own.
// After a crash the clicks since the last checkpoint are read again, and added
// again. It is here to be compared with.
type adder struct {
	path string
	once sync.Once
	db   *sql.DB
	err  error
}

func (a *adder) open() error {
	a.once.Do(func() {
		a.db, a.err = sql.Open("sqlite", "file:"+a.path+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(60000)")
		if a.err != nil {
			return
		}
		a.db.SetMaxOpenConns(1)
		_, a.err = a.db.ExecContext(context.Background(), `
			CREATE TABLE IF NOT EXISTS ad_minute (ad_id TEXT, minute TEXT, clicks INTEGER, PRIMARY KEY (ad_id, minute));
			CREATE TABLE IF NOT EXISTS ad_total (ad_id TEXT PRIMARY KEY, clicks INTEGER)`)
	})
	return a.err
}

func (a *adder) minute(r AdMinute) error {
	if err := a.open(); err != nil {
		return err
	}
	_, err := a.db.ExecContext(context.Background(), `INSERT INTO ad_minute VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET clicks = clicks + 1`, r.Ad, r.Minute)
	return err
}

func (a *adder) total(r AdTotal) error {
	if err := a.open(); err != nil {
		return err
	}
	_, err := a.db.ExecContext(context.Background(), `INSERT INTO ad_total VALUES (?, 1) ON CONFLICT DO UPDATE SET clicks = clicks + 1`, r.Ad)
	return err
}
