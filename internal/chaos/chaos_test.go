package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// TestOracle holds the oracle to tables that another engine has computed.
func TestOracle(t *testing.T) {
	in, err := read("../../testdata/clicks-10k.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		minutes, totals string
		r               trial.Rules
	}{
		{"clicks_ad_minute_dedup", "clicks", trial.Rules{Dedup: 60 * minute, Disorder: 30_000, Lateness: 30 * minute}},
		{"clicks_ad_minute_raw", "lines", trial.Rules{Dedup: 0, Disorder: 30_000, Lateness: 30 * minute}},
		{"clicks_ad_minute_dedup_wm30s", "clicks", trial.Rules{Dedup: 60 * minute, Disorder: 30_000, Lateness: 0}},
		{"clicks_ad_minute_raw_wm30s", "lines", trial.Rules{Dedup: 0, Disorder: 30_000, Lateness: 0}},
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
	r := trial.Rules{Dedup: 5 * minute, Disorder: 30_000, Lateness: 2 * minute}
	dir := t.TempDir()
	in, err := generate(rand.New(rand.NewPCG(seed, 1)), r, fewAds, dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := in.tables(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	lenient, err := in.tables(trial.Rules{Dedup: 0, Disorder: r.Disorder, Lateness: 60 * minute}, nil)
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
	at := func(kind uint32, slot int64, change ...func(*trial.Entry)) trial.Entry {
		e := trial.Entry{Kind: kind, Slot: slot, ID: id(slot)}
		e.Manifest.Incarnation = 1
		for _, c := range change {
			c(&e)
		}
		return e
	}
	begun := []trial.Entry{at(trial.KindStart, 1), at(trial.KindCheckpoint, 2)}
	with := func(e ...trial.Entry) []trial.Entry { return append(begun[:2:2], e...) }
	next := with(at(trial.KindCheckpoint, 3))
	on := func(slots ...int64) (all []contents) {
		for _, slot := range slots {
			all = append(all, contents{named: id(slot), incarnation: 1})
		}
		return all
	}
	change := func(c []contents, change func(*contents)) []contents {
		change(&c[len(c)-1])
		return c
	}
	files := func(names ...string) map[string]bool {
		m := map[string]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	seg := at(trial.KindCheckpoint, 2, func(e *trial.Entry) { e.Manifest.Segments = []struct{ Name string }{{"seg/1-0-merge-1-X"}} })
	torn := func(c *contents) { c.torn = true }
	retired := with(at(trial.KindRetire, 3, func(e *trial.Entry) { e.Manifest.Blobs = []string{"seg/old"} }))
	finished := with(at(trial.KindCheckpoint, 3, func(e *trial.Entry) { e.Manifest.Finished = true }))
	for i, c := range []struct {
		want          phase
		d             disk
		have          []contents
		decided       int64
		before        int64
		reads, failed int
	}{
		{want: starting, have: make([]contents, 1)},
		{want: starting, d: disk{entries: begun}, have: on(2), decided: 2, before: 2},
		{want: restarting, d: disk{entries: begun}, have: on(2), decided: 2, reads: 1, failed: 1},
		{want: fencing, d: disk{entries: with(at(trial.KindStart, 3))}, have: on(2), decided: 2, reads: 1, failed: 1},
		{want: genesis, d: disk{entries: begun[:1]}, have: make([]contents, 2)},
		{want: genesis, d: disk{entries: begun}, have: []contents{{named: id(2), incarnation: 1}, {incarnation: 1}}, decided: 2},
		{want: fencing, d: disk{entries: with(at(trial.KindStart, 3))}, have: on(2), decided: 2, before: 2},
		{want: rolling, d: disk{entries: with(at(trial.KindCheckpoint, 3), at(trial.KindStart, 4))}, decided: 3, before: 3,
			have: []contents{{named: id(3), incarnation: 4}, {named: id(2), incarnation: 4}}},
		{want: restoring, d: disk{entries: begun}, have: on(2), decided: 2},
		{want: reading, d: disk{entries: begun}, have: on(2), decided: 2, reads: 1},
		{want: rows, d: disk{entries: begun}, have: change(on(2), torn), decided: 2, reads: 1},
		{want: merging, d: disk{entries: begun, files: files("seg/1-0-merge-1-X")}, have: on(2), decided: 2, reads: 1},
		{want: reading, d: disk{entries: []trial.Entry{begun[0], seg}, files: files("seg/1-0-merge-1-X")}, have: on(2), decided: 2, reads: 1},
		{want: segments, d: disk{entries: begun, files: files("seg/1-1-seen-0-X")}, have: on(2), decided: 2, reads: 1},
		{want: segments, d: disk{entries: begun, temps: [][]byte{[]byte("WEIR-S")}}, have: on(2), decided: 2, reads: 1},
		{want: sealing, d: disk{entries: begun}, have: change(on(2), func(c *contents) { c.sealed = true }), decided: 2, reads: 1},
		{want: staging, d: disk{entries: begun, files: files("out/1-1-1-X")}, have: on(2, 2), decided: 2, reads: 1},
		{want: staging, d: disk{entries: begun, temps: [][]byte{[]byte("WEIR-OUT")}}, have: on(2, 2), decided: 2, reads: 1},
		{want: entering, d: disk{entries: begun, temps: [][]byte{[]byte("WEIR-LOG")}}, have: on(2), decided: 2, reads: 1},
		{want: undecided, d: disk{entries: next}, have: on(2, 2), decided: 2, reads: 1},
		{want: committing, d: disk{entries: next}, have: change(on(2), torn), decided: 2, reads: 1},
		{want: following, d: disk{entries: next}, have: on(3, 2), decided: 3, reads: 1},
		{want: publishing, d: disk{entries: next}, have: change(on(3, 2), func(c *contents) { c.ahead = []string{id(3)} }), decided: 3, reads: 1},
		{want: retiring, d: disk{entries: retired, files: files("seg/old")}, have: on(2), decided: 2, reads: 1},
		{want: reading, d: disk{entries: retired}, have: on(2), decided: 2, reads: 1},
		{want: ending, d: disk{entries: finished}, have: on(3), decided: 3, reads: 1},
	} {
		s := scene{disk: c.d, have: c.have, before: c.before, reads: c.reads, fails: c.failed}
		s.decided, _ = s.byID(id(c.decided))
		if got := s.phase(); got != c.want {
			t.Errorf("%d: %+v, %+v: %s, want %s", i, c.d, c.have, got.name, c.want.name)
		}
	}
}

func id(slot int64) string { return strconv.FormatInt(slot, 10) + "-ff" }

// TestDecide is who may name which checkpoint, and publish what.
func TestDecide(t *testing.T) {
	var log []trial.Entry
	for slot := int64(2); slot <= 4; slot++ {
		e := trial.Entry{Kind: trial.KindCheckpoint, Slot: slot, ID: id(slot)}
		if slot > 2 {
			e.Manifest.Parent = id(slot - 1)
		}
		log = append(log, e)
	}
	decider, other := party{name: "a", decides: true}, party{name: "b"}
	for i, c := range []struct {
		parties       []party
		named, second string
		ahead         []string
		want          string // the checkpoint; or what is wrong
	}{
		{parties: []party{decider}, named: id(3), want: id(3)},
		{parties: []party{decider}, named: id(9), want: "doesn't have"},
		{parties: []party{other}, named: id(4), want: id(4)},
		{parties: []party{other}, named: id(3), want: id(4)},
		{parties: []party{other}, named: id(2), want: "is decided"},
		{parties: []party{decider, other}, named: id(3), second: id(3), want: id(3)},
		{parties: []party{decider, other}, named: id(3), second: id(2), want: id(3)},
		{parties: []party{decider, other}, named: id(3), second: id(4), want: "is decided"},
		{parties: []party{decider, other}, named: id(4), second: id(2), want: "is decided"},
		{parties: []party{decider, other}, named: id(2), second: "", want: id(2)},
		{parties: []party{decider, other}, named: "", second: id(2), want: "is decided"},
		{parties: []party{decider, other}, named: id(3), second: id(2), ahead: []string{id(3)}, want: id(3)},
		{parties: []party{decider, other}, named: id(3), second: id(2), ahead: []string{id(4)}, want: "shows a file"},
	} {
		s := scene{disk: disk{entries: log}, parties: c.parties, have: []contents{{named: c.named}}}
		if len(c.parties) > 1 {
			s.have = append(s.have, contents{named: c.second, ahead: c.ahead})
		}
		err := s.decide()
		got := s.decided.ID
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

// TestFolder shows files to the harness that a sink must never publish.
func TestFolder(t *testing.T) {
	const (
		one   = `{"ad_id":"ad-1","clicks":1}` + "\n"
		two   = `{"ad_id":"ad-1","clicks":2}` + "\n"
		three = `{"ad_id":"ad-1","clicks":3}` + "\n"
	)
	name := func(epoch, task int, slot int64) string {
		return fmt.Sprintf("total-files-%012d-%03d-%d-%064d.jsonl", epoch, task, slot, 0)
	}
	for i, c := range []struct {
		each  bool
		files map[string]string
		then  map[string]string // what is changed before it is looked at again
		want  string
	}{
		{files: map[string]string{name(1, 0, 3): one, name(2, 1, 4): three}},
		{files: map[string]string{name(1, 0, 3): one, ".weir": ""}},
		{each: true, files: map[string]string{name(1, 0, 3): one + two, name(2, 1, 4): three}},
		{each: true, files: map[string]string{name(1, 0, 3): one, name(2, 1, 4): three}, want: "a line was lost"},
		{files: map[string]string{name(1, 0, 3): two, name(2, 1, 4): two}, want: "repeated"},
		{files: map[string]string{name(1, 0, 3): three, name(2, 1, 4): two}, want: "out of turn"},
		{files: map[string]string{name(1, 0, 3): one, name(1, 1, 3): two}, want: "two lines"},
		{files: map[string]string{name(1, 0, 3): one, name(1, 1, 4): three}, want: "published twice"},
		{files: map[string]string{name(1, 0, 3): ""}, want: "isn't whole"},
		{files: map[string]string{name(1, 0, 3): one[:9]}, want: "isn't whole"},
		{files: map[string]string{name(1, 0, 3): "{}\n"}, want: "has the line"},
		{files: map[string]string{name(1, 0, 3) + ".part": one}, want: "a reader finds"},
		{files: map[string]string{name(1, 0, 3): one}, then: map[string]string{name(1, 0, 3): two}, want: "has changed"},
		{files: map[string]string{name(1, 0, 3): one}, then: map[string]string{name(1, 0, 3): "gone"}, want: "is gone"},
	} {
		f := &folder{dir: t.TempDir(), each: c.each, seen: map[string]seenFile{}}
		put(t, f.dir, c.files)
		_, err := f.look(disk{})
		if err == nil && c.then != nil {
			put(t, f.dir, c.then)
			_, err = f.look(disk{})
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(text), 0o600)
		if text == "gone" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestVariants: whatever the seed is, twenty kills reach every variant.
func TestVariants(t *testing.T) {
	for seed := range uint64(100) {
		had, kills := map[string]bool{}, 0
		for job := 1; kills < 20; job++ {
			had[variantOf(seed, job).name] = true
			kills += lasting(rand.New(rand.NewPCG(seed, uint64(job))), 20)
		}
		if len(had) != len(variants) {
			t.Errorf("seed %d: only %v", seed, had)
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
