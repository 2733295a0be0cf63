package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
)

// hit is a record of the jobs that are crashed. At is in milliseconds since
// 1970.
type hit struct {
	ID, Ad string
	At     int64
}

// What those jobs are declared with, in milliseconds.
const (
	hitDisorder = 5_000
	hitTTL      = 600_000
	hitAdmit    = 180_000
	hitMinute   = 60_000
	hitLateness = 60_000
)

// hits makes splits of n records each, 15 seconds apart and a little out of
// order: repeats, repeats that come long after their id was forgotten, records
// that are late for their minute only, and ones that nobody admits. Every tenth
// record is the same in all splits, so that one of them is the repeat,
// whichever comes first. No time is a whole second, so nothing stands exactly
// on a boundary.
func hits(seed uint64, splits, n int) [][]hit {
	rng := rand.New(rand.NewPCG(seed, 1))
	all := make([][]hit, splits)
	for s := range all {
		for i := range n {
			base := noon + int64(i)*15_000 + 137
			h := hit{fmt.Sprintf("%d-%d", s, i), fmt.Sprintf("ad-%d", rng.IntN(6)), base + rng.Int64N(8_000) - 4_000}
			switch kind := rng.IntN(100); {
			case i%10 == 5:
				h = hit{fmt.Sprintf("all-%d", i), fmt.Sprintf("ad-%d", i%6), base}
			case kind < 15 && i > 6:
				h = all[s][i-1-rng.IntN(5)]
			case kind < 25 && i > 45:
				h.ID = all[s][i-45].ID
			case kind < 35:
				h.At -= 150_000
			case kind < 39:
				h.At -= 400_000
			}
			if h.At%1000 == 0 {
				h.At++
			}
			all[s] = append(all[s], h)
		}
	}
	return all
}

// oracle computes what the tables hold once the first upTo[s] records of each
// split s are counted. It knows nothing of the engine: it is what the
// documentation says, in maps.
func oracle(splits [][]hit, upTo []int) map[string]int64 {
	rows := map[string]int64{}
	passed := map[string][]int64{}
	for s, split := range splits {
		watermark := int64(-1 << 62)
		for _, h := range split[:upTo[s]] {
			behind := watermark
			watermark = max(watermark, h.At-hitDisorder)
			if behind-h.At >= hitAdmit || repeats(passed[h.ID], h.At) {
				continue
			}
			passed[h.ID] = append(passed[h.ID], h.At)
			rows["total "+h.Ad]++
			start := h.At - h.At%hitMinute
			if behind < start+hitMinute+hitLateness {
				rows["minute "+h.Ad+" "+time.UnixMilli(start).UTC().Format(time.RFC3339)]++
			}
		}
	}
	return rows
}

func repeats(passed []int64, at int64) bool {
	for _, p := range passed {
		if d := p - at; -hitTTL < d && d < hitTTL {
			return true
		}
	}
	return false
}

// whole is all of the input.
func whole(splits [][]hit) []int {
	upTo := make([]int, len(splits))
	for s := range splits {
		upTo[s] = len(splits[s])
	}
	return upTo
}

// reached is how far the positions say that the input was read.
func reached(splits [][]hit, positions []weir.Position) ([]int, error) {
	upTo := make([]int, len(splits))
	for _, p := range positions {
		s, err := strconv.Atoi(p.Split)
		if err == nil {
			upTo[s], err = strconv.Atoi(string(p.At))
		}
		if err != nil {
			return nil, fmt.Errorf("split %q at position %q: %w", p.Split, p.At, err)
		}
	}
	return upTo, nil
}

// readTables reads both tables, of one database or of two; what isn't there yet
// is empty.
func readTables(path string) (map[string]int64, error) {
	rows := map[string]int64{}
	return rows, errors.Join(readDatabase(path, rows), readDatabase(other(path), rows))
}

func readDatabase(path string, rows map[string]int64) error {
	return readDatabaseWith(path, map[string]string{
		"ad_minute": `SELECT 'minute ' || ad_id || ' ' || minute, clicks FROM ad_minute`,
		"ad_total":  `SELECT 'total ' || ad_id, clicks FROM ad_total`,
	}, rows)
}

// readDatabaseWith makes a query of each table that is there.
func readDatabaseWith(path string, queries map[string]string, rows map[string]int64) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for table, query := range queries {
		var n int
		if err := db.QueryRowContext(context.Background(), `SELECT count(*) FROM sqlite_schema WHERE name = ?`, table).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if err := readTable(db, query, rows); err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
	}
	return nil
}

func readTable(db *sql.DB, query string, to map[string]int64) (err error) {
	rs, err := db.QueryContext(context.Background(), query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rs.Close()) }()
	for rs.Next() {
		var key string
		var clicks int64
		if err := rs.Scan(&key, &clicks); err != nil {
			return err
		}
		to[key] = clicks
	}
	return rs.Err()
}

// equalTables compares a database with rows.
func equalTables(path string, want map[string]int64) error {
	got, err := readTables(path)
	if err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("tables (-want +got):\n%s", cmp.Diff(want, got))
	}
	return nil
}

// between says whether rows hold at least from, and nothing beyond to: what
// eager sinks may have written when from is committed.
func between(rows, from, to map[string]int64) error {
	for key, n := range from {
		if rows[key] < n {
			return fmt.Errorf("row %q is %d, although %d is committed", key, rows[key], n)
		}
	}
	for key, n := range rows {
		if n > to[key] {
			return fmt.Errorf("row %q is %d, more than the input gives, %d", key, n, to[key])
		}
	}
	return nil
}

// saved is a database that nobody had open, with what SQLite keeps beside it.
type saved map[string][]byte

func saveDatabase(path string) (saved, error) {
	s := saved{}
	for _, suffix := range databaseFiles {
		b, err := os.ReadFile(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s[suffix] = b
	}
	return s, nil
}

// restore puts a database back in its old place, which is part of its name.
func (s saved) restore(path string) error {
	for _, suffix := range databaseFiles {
		err := os.Remove(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if b, ok := s[suffix]; ok && err == nil {
			err = os.WriteFile(path+suffix, b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
