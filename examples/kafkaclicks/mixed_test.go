package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // as the job's own
)

// TestKafkaAndTablesAndFiles: one job with sinks of three kinds. The process is
// killed again and again; all three hold the same at the end, each count once.
func TestKafkaAndTablesAndFiles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	want := expected(t, "clicks_ad_minute_dedup")
	at := newPlace(t, 4)
	at.produce(at.file()...)
	dir := t.TempDir()
	db, files := filepath.Join(dir, "clicks.db"), filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	args := func() []string {
		return at.args("--db", db, "--files", files, "--dedup", "1h", "--stop-at-end", "--checkpoint-records", "200",
			"--parallelism", strconv.Itoa(1+rnd.IntN(3)))
	}
	for slot := 2; slot < 20; slot += 3 + rnd.IntN(4) {
		p := launch(t, args()...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
		at.committed(true)
		wantGrowing(t, files)
	}
	launch(t, args()...).Ends(0)
	at.want(want)
	at.wantLag(0)
	same(t, "table", tableCounts(t, db), want)
	same(t, "files", wantGrowing(t, files), want)
}

// TestKafkaToSQLite: no topic is written; the table decides.
func TestKafkaToSQLite(t *testing.T) {
	at := newPlace(t, 4)
	at.produce(at.file()...)
	db := filepath.Join(t.TempDir(), "clicks.db")
	args := []string{"run", "--brokers", at.list(), "--input", at.input, "--db", db, "--output", "", "--state", at.state,
		"--progress", "0", "--stop-at-end", "--dedup", "1h", "--checkpoint-records", "200"}
	for slot := 3; slot < 12; slot += 4 {
		p := launch(t, args...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
	}
	launch(t, args...).Ends(0)
	same(t, "table", tableCounts(t, db), expected(t, "clicks_ad_minute_dedup"))
}

// TestFilesToKafka: nothing is read from the cluster, and each count is there once.
func TestFilesToKafka(t *testing.T) {
	at := newPlace(t, 4)
	args := []string{"run", "--brokers", at.list(), "--input-file", clicks10k, "--output", at.output, "--state", at.state,
		"--progress", "0", "--dedup", "1h", "--checkpoint-records", "500"}
	for slot := 3; slot < 16; slot += 4 {
		p := launch(t, args...)
		p.Entries(at.state, slot)
		p.Try(syscall.SIGKILL)
		p.End()
		at.committed(true)
	}
	launch(t, args...).Ends(0)
	at.want(expected(t, "clicks_ad_minute_dedup"))
	launch(t, args...).Ends(0, "nothing to do")
}

func same(t *testing.T, what string, got, want counts) {
	t.Helper()
	if n, first := got.differ(want); n > 0 {
		t.Errorf("%s: %d of %d counts are wrong, %d expected; %s", what, n, len(got), len(want), first)
	}
}

func tableCounts(t *testing.T, path string) counts {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT ad_id, minute, clicks FROM ad_minute`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	c := counts{}
	for rows.Next() {
		var ad, minute string
		var n int64
		if err := rows.Scan(&ad, &minute, &n); err != nil {
			t.Fatal(err)
		}
		c[ad+"|"+minute] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantGrowing reads all published files: the largest count of each key is the last,
// and none may be there twice, because each count of a key is larger than the one
// before.
func wantGrowing(t *testing.T, dir string) counts {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	type emitted struct {
		key string
		n   int64
	}
	seen, c := map[emitted]string{}, counts{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			var v struct {
				Ad     string `json:"ad_id"`
				Minute string `json:"minute"`
				Clicks int64  `json:"clicks"`
			}
			if err := json.Unmarshal(s.Bytes(), &v); err != nil {
				t.Fatal(errors.Join(err, errors.New(path)))
			}
			e := emitted{v.Ad + "|" + v.Minute, v.Clicks}
			if other, ok := seen[e]; ok {
				t.Fatalf("%s says that %s is %d, and so does %s", path, e.key, e.n, other)
			}
			seen[e] = path
			c[e.key] = max(c[e.key], v.Clicks)
		}
	}
	return c
}
