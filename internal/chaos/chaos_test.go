package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOracle holds the oracle to tables that another engine has computed.
func TestOracle(t *testing.T) {
	in, err := read("../../testdata/clicks-10k.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		minutes, totals string
		r               rules
	}{
		{"clicks_ad_minute_dedup", "clicks", rules{60 * minute, 30_000, 30 * minute}},
		{"clicks_ad_minute_raw", "lines", rules{0, 30_000, 30 * minute}},
		{"clicks_ad_minute_dedup_wm30s", "clicks", rules{60 * minute, 30_000, 0}},
		{"clicks_ad_minute_raw_wm30s", "lines", rules{0, 30_000, 0}},
	} {
		want := table{}
		for _, row := range expected(t, c.minutes) {
			want[cell{row["ad_id"], row["window_start"]}] = number(t, row["clicks"])
		}
		for _, row := range expected(t, "clicks_ad_total") {
			want[cell{ad: row["ad_id"]}] = number(t, row[c.totals])
		}
		got, err := in.tables(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, first := compare(got, want, want); n > 0 {
			t.Errorf("%s: %d wrong rows:%s", c.minutes, n, first)
		}
	}
}

func expected(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/expected/" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s: %d lines, %v", name, len(lines), err)
	}
	for _, l := range lines[1:] {
		row := map[string]string{}
		for i, v := range l {
			row[lines[0][i]] = v
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGenerated sees that the generated clicks have what the rules are about:
// without it a job could pass for want of a late click.
func TestGenerated(t *testing.T) {
	const seed = 7
	r := rules{5 * minute, 30_000, 2 * minute}
	dir := t.TempDir()
	in, err := generate(rand.New(rand.NewPCG(seed, 1)), r, dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := in.tables(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	lenient, err := in.tables(rules{0, r.disorder, 60 * minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := compare(all, lenient, lenient); n < 100 {
		t.Errorf("seed %d: late and repeated clicks touch only %d rows", seed, n)
	}
	for path, want := range in.files {
		back, err := read(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range back.files[path] {
			if c != want[i] {
				t.Fatalf("line %d of %s is %v, want %v", i, path, c, want[i])
			}
		}
		if got := len(back.files[path]); got != len(want) {
			t.Errorf("%s has %d lines, want %d", path, got, len(want))
		}
	}
}

func TestCompare(t *testing.T) {
	a, b, c := cell{"ad-1", ""}, cell{"ad-1", "m"}, cell{"ad-2", ""}
	low, high := table{a: 2, b: 1}, table{a: 5, b: 1, c: 3}
	for _, x := range []struct {
		name  string
		got   table
		wrong int
	}{
		{"as low", low, 0}, {"as high", high, 0}, {"between", table{a: 3, b: 1}, 0},
		{"too few", table{a: 1, b: 1}, 1}, {"too many", table{a: 6, b: 1}, 1}, {"missing", table{a: 2}, 1},
		{"nobody's", table{a: 2, b: 1, {"x", ""}: 1}, 1}, {"nothing", nil, 2},
	} {
		if n, first := compare(x.got, low, high); n != x.wrong || (n > 0) != strings.Contains(first, "should be") {
			t.Errorf("%s: %d wrong rows, want %d:%s", x.name, n, x.wrong, first)
		}
	}
}

// TestTornWAL looks at the log of a database before, in and after a transaction
// that is too large for the cache.
func TestTornWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	do := func(q string) {
		t.Helper()
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	torn := func(want bool, when string) {
		t.Helper()
		if got := tornWAL(path + "-wal"); got != want {
			t.Errorf("%s: torn %t, want %t", when, got, want)
		}
	}
	const fill = "INSERT INTO t WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 300) SELECT randomblob(1000) FROM n"
	torn(false, "no log")
	do("PRAGMA journal_mode = WAL")
	do("PRAGMA cache_size = 5")
	do("CREATE TABLE t (b BLOB)")
	torn(false, "committed")
	do("BEGIN")
	do(fill)
	torn(true, "in a transaction")
	do("COMMIT")
	torn(false, "committed again")
	do("BEGIN")
	do(fill)
	do("ROLLBACK")
	do("INSERT INTO t VALUES (1)")
	torn(false, "behind the commit stand frames of a transaction that was given up")
}

func TestPhase(t *testing.T) {
	at := func(kind uint32, slot int64, change ...func(*entry)) entry {
		e := entry{kind: kind, slot: slot, id: strconv.FormatInt(slot, 10) + "-ff"}
		e.manifest.Incarnation = 1
		for _, c := range change {
			c(&e)
		}
		return e
	}
	begun := []entry{at(kindStart, 1), at(kindCheckpoint, 2)}
	with := func(e ...entry) []entry { return append(begun[:2:2], e...) }
	on2 := database{named: "2-ff", incarnation: 1}
	files := func(names ...string) map[string]bool {
		m := map[string]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	for _, c := range []struct {
		want       phase
		d          disk
		db         database
		before     int64
		read, torn bool
	}{
		{want: starting},
		{want: starting, d: disk{entries: begun}, db: on2, before: 2},
		{want: genesis, d: disk{entries: begun[:1]}},
		{want: genesis, d: disk{entries: begun}, db: database{incarnation: 1}},
		{want: fencing, d: disk{entries: with(at(kindStart, 3))}, db: on2, before: 2},
		{want: restoring, d: disk{entries: begun}, db: on2},
		{want: reading, d: disk{entries: begun}, db: on2, read: true},
		{want: rows, d: disk{entries: begun}, db: on2, read: true, torn: true},
		{want: segments, d: disk{entries: begun, segments: files("seg/1-1-seen-0-X")}, db: on2, read: true},
		{want: segments, d: disk{entries: begun, temps: [][]byte{[]byte("WEIR-S")}}, db: on2, read: true},
		{want: entering, d: disk{entries: begun, temps: [][]byte{[]byte("WEIR-LOG")}}, db: on2, read: true},
		{want: undecided, d: disk{entries: with(at(kindCheckpoint, 3))}, db: on2, read: true},
		{want: committing, d: disk{entries: with(at(kindCheckpoint, 3))}, db: on2, read: true, torn: true},
		{want: retiring, read: true, db: on2, d: disk{segments: files("seg/old"),
			entries: with(at(kindRetire, 3, func(e *entry) { e.manifest.Blobs = []string{"seg/old"} }))}},
		{want: reading, read: true, db: on2, d: disk{
			entries: with(at(kindRetire, 3, func(e *entry) { e.manifest.Blobs = []string{"seg/old"} }))}},
		{want: ending, read: true, db: database{named: "3-ff", incarnation: 1}, d: disk{
			entries: with(at(kindCheckpoint, 3, func(e *entry) { e.manifest.Finished = true }))}},
	} {
		if got := c.d.phase(c.db, c.before, c.read, c.torn); got != c.want {
			t.Errorf("%+v, %+v: %s, want %s", c.d, c.db, got.name, c.want.name)
		}
	}
}

// TestRun is the command itself with two kills.
func TestRun(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"-rounds", "2"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, &out, &errs)
	}
	if !strings.Contains(out.String(), " kills, 0 wrong rows, seed ") {
		t.Errorf("no last line in:\n%s", &out)
	}
	for _, args := range [][]string{{"-rounds", "0"}, {"more"}, {"-no"}, {"-input", "missing"}} {
		if code := run(context.Background(), args, &out, &errs); code != 2 {
			t.Errorf("%v: exit code %d, want 2", args, code)
		}
	}
}
