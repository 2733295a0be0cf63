package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir"
)

type benchRow struct {
	AdID   string
	Minute string
	Clicks int64
}

func benchRows(n int) []benchRow {
	rows := make([]benchRow, n)
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		rows[i] = benchRow{fmt.Sprintf("ad-%06d", j/10), fmt.Sprintf("2026-01-01T00:%02d:00Z", j%10), int64(j)}
	}
	return rows
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		rows := benchRows(n)
		b.Run(fmt.Sprintf("rows=%d/sink", n), func(b *testing.B) {
			ctx := context.Background()
			s := Upsert[benchRow](filepath.Join(b.TempDir(), "x.db"), "t", "ad_id", "minute")
			p, err := s.Connect(ctx, []string{"out"})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			o, err := s.Open(ctx, p, "out")
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Fence(ctx, weir.Fence{Job: weir.JobID{Name: "j", UUID: "u"}, By: weir.Incarnation{Number: 1}, Create: true}); err != nil {
				b.Fatal(err)
			}
			w := o.Writer(0)
			var parent weir.CheckpointID
			b.ReportAllocs()
			for epoch := int64(1); b.Loop(); epoch++ {
				for at := 0; at < n; at += 250 {
					if err := w.Write(rows[at:at+250], nil); err != nil {
						b.Fatal(err)
					}
				}
				_ = w.Seal(epoch)
				if _, err := p.Prepare(ctx, epoch); err != nil {
					b.Fatal(err)
				}
				id := weir.CheckpointID{Slot: epoch}
				if err := p.Commit(ctx, weir.Commit{Epoch: epoch, ID: id, Parent: parent}); err != nil {
					b.Fatal(err)
				}
				parent = id
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
		b.Run(fmt.Sprintf("rows=%d/raw", n), func(b *testing.B) {
			db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "x.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			db.SetMaxOpenConns(1)
			if _, err := db.Exec("CREATE TABLE t (ad_id TEXT, minute TEXT, clicks INTEGER, PRIMARY KEY (ad_id, minute)) WITHOUT ROWID"); err != nil {
				b.Fatal(err)
			}
			st, err := db.Prepare("INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (ad_id, minute) DO UPDATE SET clicks = excluded.clicks")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				tx, err := db.Begin()
				if err != nil {
					b.Fatal(err)
				}
				in := tx.Stmt(st) //nolint:sqlclosecheck // ends with its transaction
				for i := range rows {
					if _, err := in.Exec(rows[i].AdID, rows[i].Minute, rows[i].Clicks); err != nil {
						b.Fatal(err)
					}
				}
				if err := tx.Commit(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
	}
}
