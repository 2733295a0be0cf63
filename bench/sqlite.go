package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
)

type total struct {
	Ad     string
	Minute int64
	Clicks int64
}

func totals(n int) []total {
	rng := rand.New(rand.NewPCG(5, 6))
	out := make([]total, n)
	for i := range out {
		out[i] = total{fmt.Sprintf("ad-%09d", rng.IntN(4*n)), int64(i), 1}
	}
	return out
}

func sqliteRows() []row {
	return []row{upserts(10_000, 200_000, 95), upserts(1_000, 60_000, 85)}
}

// upserts compares the transactional sink, with its job's checkpoints, with a
// loop that does the same number of rows a transaction.
func upserts(commit, n int, bound float64) row {
	return row{name: fmt.Sprintf("sqlite-upsert-%d", commit), unit: "%", bound: bound, least: true,
		what: fmt.Sprintf("a raw batched-upsert loop's CPU to the job's, %d rows a commit", commit),
		run: func(ctx context.Context, pairs int) (result, error) {
			recs := totals(n)
			as, bs, err := pairsOf(ctx, pairs,
				func() error { return inTemp(func(dir string) error { return rawUpserts(ctx, dir, recs, commit) }) },
				func() error { return inTemp(func(dir string) error { return engineUpserts(ctx, dir, recs, commit) }) })
			if err != nil {
				return result{}, err
			}
			ratio := func(of func(lap) time.Duration) float64 {
				return median(each(as, bs, func(a, b lap) float64 { return 100 * float64(of(a)) / float64(of(b)) }))
			}
			micros := func(laps []lap) float64 {
				return median(each(laps, laps, func(l, _ lap) float64 { return float64(l.cpu) / float64(n) / 1000 }))
			}
			return result{value: ratio(func(l lap) time.Duration { return l.cpu }),
				note: fmt.Sprintf("loop %.2f, job %.2f us a row; by wall time %.0f %%; load %s",
					micros(as), micros(bs), ratio(func(l lap) time.Duration { return l.wall }), load())}, nil
		}}
}

// inTemp calls f with a folder of its own.
func inTemp(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	return errors.Join(f(dir), os.RemoveAll(dir))
}

// rawUpserts is the loop by hand: database/sql, one prepared statement a
// transaction.
func rawUpserts(ctx context.Context, dir string, recs []total, commit int) (err error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "raw.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE t (ad TEXT, minute INTEGER, clicks INTEGER, PRIMARY KEY (ad, minute)) WITHOUT ROWID`); err != nil {
		return err
	}
	for i := 0; i < len(recs); i += commit {
		if err := rawCommit(db, recs[i:min(i+commit, len(recs))]); err != nil {
			return err
		}
	}
	return nil
}

// rawCommit writes one transaction. It can't be cancelled: a context that can
// costs the driver a goroutine a row.
func rawCommit(db *sql.DB, recs []total) error {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // done already, or the error at hand counts
	st, err := tx.PrepareContext(ctx, `INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (ad, minute) DO UPDATE SET clicks = excluded.clicks`)
	if err != nil {
		return err
	}
	defer st.Close() //nolint:errcheck // Commit says what matters
	for i := range recs {
		if _, err := st.ExecContext(ctx, recs[i].Ad, recs[i].Minute, recs[i].Clicks); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func engineUpserts(ctx context.Context, dir string, recs []total, commit int) error {
	job := weir.NewJob("bench")
	job.From("totals", cycle[total]{recs, len(recs)}).
		To("out", sqlite.Upsert[total](filepath.Join(dir, "engine.db"), "t", "ad", "minute"))
	return job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(int64(commit)))
}
