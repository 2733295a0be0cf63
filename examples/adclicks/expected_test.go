package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/process"
)

const clicks10k = "../../testdata/clicks-10k.jsonl"

// TestExpectedTables holds the real binary to tables that another engine has
// computed from the same clicks, whatever the parallelism and the batch size.
func TestExpectedTables(t *testing.T) {
	for _, c := range []struct {
		flags          []string
		minutes, total string
	}{
		{nil, "clicks_ad_minute_dedup", "clicks"},
		{[]string{"--dedup", "0"}, "clicks_ad_minute_raw", "lines"},
		{[]string{"--lateness", "0"}, "clicks_ad_minute_dedup_wm30s", "clicks"},
		{[]string{"--dedup", "0", "--lateness", "0"}, "clicks_ad_minute_raw_wm30s", "lines"},
	} {
		want := expected(t, c.minutes, c.total)
		for _, sink := range bothSinks {
			for _, parallelism := range []string{"1", "2", "7"} {
				for _, batch := range []string{"1", "7", "1024"} {
					t.Run(strings.Join([]string{c.minutes, sink, parallelism, batch}, "/"), func(t *testing.T) {
						at := newPlace(t)
						at.input = clicks10k
						args := append(at.args(sink, c.flags...), "--parallelism", parallelism, "--batch-size", batch, "--checkpoint-interval", "50ms")
						launch(t, args...).Ends(0, "finished: 10,000 records")
						wantRows(t, at.db, want)
					})
				}
			}
		}
	}
}

// expected reads the tables beside the clicks.
func expected(t *testing.T, minutes, total string) rows {
	t.Helper()
	r := rows{map[[2]string]int64{}, map[string]int64{}}
	for _, row := range table(t, minutes) {
		r.minutes[[2]string{row["ad_id"], row["window_start"]}] = number(t, row["clicks"])
	}
	for _, row := range table(t, "clicks_ad_total") {
		r.totals[row["ad_id"]] = number(t, row[total])
	}
	if len(r.minutes) < 3000 || len(r.totals) != 100 {
		t.Fatalf("only %d and %d rows are expected", len(r.minutes), len(r.totals))
	}
	return r
}

func table(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open("../../testdata/expected/" + name + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = l[i]
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

// TestRefusals is what a user who has made a mistake reads, and the exit code
// that a script sees.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	file := func(name, text string) string {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return in(name)
	}
	launch(t, "run", "--input", clicks10k, "--db", in("done.db"), "--state", in("done")).Ends(0, "finished")
	done := mustRows(t, in("done.db"))
	otherJob(t, in("other"))
	for i, c := range []struct {
		name, input, db, state string
		more                   []string
		code                   int
		says                   []string
	}{
		{name: "unknown flag", more: []string{"--fly"}, code: 2, says: []string{"--fly", "--help"}},
		{name: "unknown sink", more: []string{"--sink", "blue"}, code: 2, says: []string{"--sink", "blue", "transactional, upsert, increment"}},
		{name: "no duration", more: []string{"--dedup", "long"}, code: 2, says: []string{"--dedup", "long"}},
		{name: "negative duration", more: []string{"--dedup", "-1h"}, code: 2, says: []string{"-1h"}},
		{name: "negative lateness", more: []string{"--lateness", "-1m"}, code: 2, says: []string{"-1m"}},
		{name: "an argument", more: []string{"now"}, code: 2, says: []string{"now"}},
		{name: "both ways to checkpoint", more: []string{"--checkpoint-records", "9", "--checkpoint-interval", "1s"}, code: 2, says: []string{"exclude"}},
		{name: "no state directory", state: "none", code: 2, says: []string{"--state", "ad-minute"}},
		{name: "missing input", input: in("nowhere.jsonl"), code: 10, says: []string{"nowhere.jsonl", "doesn't exist"}},
		{name: "a pattern without files", input: in("no-*.jsonl"), code: 10, says: []string{"no-*.jsonl", "nothing matches"}},
		{name: "a folder as input", input: dir, code: 10, says: []string{dir}},
		{name: "a broken line", input: file("bad.jsonl", "{\"click_id\":\"a\"\n"), code: 10, says: []string{"bad.jsonl: line 1, byte offset 0", "correct or remove"}},
		{name: "a line without a time", input: file("time.jsonl", `{"click_id":"a","ad_id":"b"}`+"\n"), code: 10, says: []string{"time.jsonl", "line 1"}},
		{name: "a folder as database", db: dir, code: 15, says: []string{dir, "is a folder"}},
		{name: "not a database", db: file("notes.db", strings.Repeat("just some notes\n", 99)), code: 15, says: []string{"notes.db", "the file isn't a SQLite database"}},
		{name: "a database nowhere", db: in("no/x.db"), code: 15, says: []string{in("no"), "doesn't exist"}},
		{name: "a file as state", state: file("state", ""), code: 15, says: []string{in("state"), "not a directory"}},
		{name: "another job's state", state: in("other"), code: 11, says: []string{in("other"), `belongs to job "sums"`, `"ad-clicks"`}},
		{name: "another sink", db: in("done.db"), state: in("done"), more: []string{"--sink", increment}, code: 11, says: []string{"sink ad-minute: kind was transactional", "set it back"}},
		{name: "another database", state: in("done"), code: 11, says: []string{"done.db", "set it back"}},
		{name: "another state, same database", db: in("done.db"), code: 11, says: []string{"done.db", "another run", "--start-over"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := in(strconv.Itoa(i))
			args := []string{"run", "--input", cmp.Or(c.input, clicks10k), "--db", cmp.Or(c.db, own+".db"), "--progress", "0"}
			if c.state != "none" {
				args = append(args, "--state", cmp.Or(c.state, own))
			}
			launch(t, append(args, c.more...)...).Ends(c.code, append(c.says, "error: ")...)
		})
	}
	if n := mustRows(t, in("done.db")).differ(done); n > 0 {
		t.Errorf("the refused runs changed %d rows", n)
	}
	launch(t, "run", "--input", clicks10k, "--db", in("done.db"), "--state", in("done")).Ends(0, "nothing to do")
}

// otherJob leaves the state of a job with another name.
func otherJob(t *testing.T, state string) {
	t.Helper()
	job := weir.NewJob("sums")
	job.From("numbers", weir.Generate(3, func(i int64) int64 { return i })).
		To("nowhere", weir.Each(func(int64) error { return nil }))
	if err := job.Run(t.Context(), weir.StateDir(state)); err != nil {
		t.Fatal(err)
	}
}

func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), process.Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "demo", "--input", clicks10k).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{
		"at offset 5,000 1,200 killed with SIGKILL at offset 5,400 1,600",
		"offset 5,000, 6,670 state entries 1,200 replayed 400 records, to offset 5,400 1,600",
		"rows that then differ from before the kill: 0",
		"offset 10,000: 3,065 rows in ad_minute, 100 in ad_total, equal to those of an uninterrupted run",
		"eager upsert 1,600 2,653 2,653 0",
		"transaction with the checkpoint 1,200 2,653 2,653 0",
		"clicks = clicks + 1, on its own 1,600 3,053 2,653 5",
		"docs/exactly-once.md",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
}
