package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// counts are where a job's counts go, besides clicks.db or without it.
type counts struct {
	name      string
	sink      string
	db        bool
	total     bool
	files     bool
	decidedBy string // as explain says it
}

var everyPlace = []counts{
	{name: "two databases", sink: transactional, db: true, total: true, decidedBy: "the transaction of sink ad-minute decides the epoch; the sink follows"},
	{name: "two databases eagerly", sink: upsert, db: true, total: true},
	{name: "a database and files", sink: transactional, db: true, files: true, decidedBy: "the transaction of sinks ad-minute and ad-total decides the epoch; the sink follows"},
	{name: "a database eagerly and files", sink: upsert, db: true, files: true, decidedBy: "the checkpoint's entry in the store decides the epoch; the sink follows"},
	{name: "files alone", sink: transactional, files: true, decidedBy: "the checkpoint's entry in the store decides the epoch; the sink follows"},
	{name: "two databases and files", sink: transactional, db: true, total: true, files: true, decidedBy: "the transaction of sink ad-minute decides the epoch; the sink follows"},
}

func (c counts) dir(at place) string     { return filepath.Join(filepath.Dir(at.db), "files") }
func (c counts) totalDB(at place) string { return filepath.Join(filepath.Dir(at.db), "totals.db") }

func (c counts) args(at place, verb string, more ...string) []string {
	args := []string{verb, "--input", at.input, "--state", at.state, "--sink", c.sink}
	if c.db {
		args = append(args, "--db", at.db)
	}
	if c.total {
		args = append(args, "--total-db", c.totalDB(at))
	}
	if c.files {
		args = append(args, "--files", c.dir(at))
	}
	return append(args, more...)
}

// want compares all that there is with the counts.
func (c counts) want(t *testing.T, at place, want rows) {
	t.Helper()
	if c.db {
		got := rows{minuteRows(t, at.db), nil}
		totals := at.db
		if c.total {
			totals = c.totalDB(at)
		}
		got.totals = totalRows(t, totals)
		if n := got.differ(want); n > 0 {
			t.Fatalf("%d of %d and %d rows are wrong", n, len(got.minutes), len(got.totals))
		}
	}
	if c.files {
		if n := fileRows(t, c.dir(at)).differ(want); n > 0 {
			t.Fatalf("%d counts in the files are wrong", n)
		}
	}
}

func minuteRows(t *testing.T, path string) map[[2]string]int64 {
	t.Helper()
	got := map[[2]string]int64{}
	var key [2]string
	var n int64
	query(t, path, `SELECT ad_id, minute, clicks FROM ad_minute`, func() { got[key] = n }, &key[0], &key[1], &n)
	return got
}

func totalRows(t *testing.T, path string) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	var ad string
	var n int64
	query(t, path, `SELECT ad_id, clicks FROM ad_total`, func() { got[ad] = n }, &ad, &n)
	return got
}

func query(t *testing.T, path, q string, row func(), dst ...any) {
	t.Helper()
	db, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = each(db, q, func(s scanner) error {
		err := s.Scan(dst...)
		row()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fileRows reads the files as their user does, sorted by name: the last line of
// a count is the count, and none before it was as high.
func fileRows(t *testing.T, dir string) rows {
	t.Helper()
	got := rows{map[[2]string]int64{}, map[string]int64{}}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name.Name(), ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil || !bytes.HasSuffix(b, []byte("\n")) {
			t.Fatalf("%s: %d bytes, %v", name.Name(), len(b), err)
		}
		for text := range bytes.Lines(b) {
			var l struct {
				Ad     string `json:"ad_id"`
				Minute string `json:"minute"`
				Clicks int64  `json:"clicks"`
			}
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatalf("%s: %q: %v", name.Name(), text, err)
			}
			old := got.totals[l.Ad]
			if l.Minute != "" {
				old = got.minutes[[2]string{l.Ad, l.Minute}]
				got.minutes[[2]string{l.Ad, l.Minute}] = l.Clicks
			} else {
				got.totals[l.Ad] = l.Clicks
			}
			if l.Clicks <= old {
				t.Fatalf("%s: %q comes after %d", name.Name(), text, old)
			}
		}
	}
	return got
}

// TestEveryPlace runs the job to its end with its counts in each place and pair
// of places, and looks at it with the other verbs.
func TestEveryPlace(t *testing.T) {
	want := expected(t, "clicks_ad_minute_dedup", "clicks")
	for _, c := range everyPlace {
		t.Run(c.name, func(t *testing.T) {
			at := newPlace(t)
			at.input = clicks10k
			launch(t, c.args(at, "run", "--checkpoint-records", "2500")...).Ends(0, "finished: 10,000 records")
			c.want(t, at, want)
			launch(t, c.args(at, "run")...).Ends(0, "nothing to do")
			c.want(t, at, want)
			launch(t, c.args(at, "explain")...).Ends(0, c.decidedBy)
			launch(t, c.args(at, "plan")...).Ends(0, "nothing is different")
			launch(t, "checkpoints", "ls", "--state", at.state).Ends(0, "committed, finished")
		})
	}
}

// TestEveryPlaceStopped stops the job politely when it has come some way, then
// kills it, and lets it come to its end: each place has what was read, and at the
// end everything, once.
func TestEveryPlaceStopped(t *testing.T) {
	for _, c := range everyPlace {
		t.Run(c.name, func(t *testing.T) {
			at := newPlace(t)
			at.long(t)
			p := launch(t, c.args(at, "run", append(often, "--progress", "0")...)...)
			p.Entries(at.state, 6)
			p.Signal(syscall.SIGTERM)
			p.Ends(0, "stopped: ")
			read := 0
			_, rest, _ := strings.Cut(p.Said(), "stopped: ")
			if _, err := fmt.Sscan(strings.ReplaceAll(rest, ",", ""), &read); err != nil || read <= 0 || read >= length {
				t.Fatalf("%d records were read, %v, in:\n%s", read, err, p.Said())
			}
			c.want(t, at, longRows(read))
			p = launch(t, c.args(at, "run", append(often, "--progress", "0", "--parallelism", "3")...)...)
			p.Entries(at.state, 14)
			p.Signal(syscall.SIGKILL)
			p.End()
			launch(t, c.args(at, "run")...).Ends(0, "restored checkpoint", "finished")
			c.want(t, at, longRows(length))
		})
	}
}

// TestDeadLettersInFiles: without a database the letters are lines of the folder.
func TestDeadLettersInFiles(t *testing.T) {
	at := newPlace(t)
	c := counts{sink: transactional, files: true}
	appendText(t, at.input, clickLine(0)+"{oops\n"+clickLine(1))
	launch(t, c.args(at, "run", "--dead-letters")...).Ends(0, "finished")
	names, err := filepath.Glob(filepath.Join(c.dir(at), "dead-letters-*.jsonl"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the letters are in %q, %v", names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		Step, Kind, Place string
		Raw               []byte
	}
	if err := json.Unmarshal(b, &l); err != nil || string(l.Raw) != "{oops" || l.Kind != "decode" || !strings.Contains(l.Place, "line 2") {
		t.Errorf("the letter is %s, %v", b, err)
	}
}
