package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFollow has the real binary follow files that grow: it shows rows while it
// runs, stops on SIGTERM and dies of SIGKILL, and the next run goes on there. At
// the end the tables are those of a run that reads everything at once.
func TestFollow(t *testing.T) {
	const part = 2000
	eachSink(t, func(t *testing.T, sink string) {
		at := newPlace(t)
		dir := filepath.Dir(at.input)
		at.input = filepath.Join(dir, "clicks-*.jsonl")
		follow := func() *running {
			return launch(t, at.args(sink, "--follow", "--checkpoint-interval", "50ms", "--lateness", "1h")...)
		}
		first, second := filepath.Join(dir, "clicks-1.jsonl"), filepath.Join(dir, "clicks-2.jsonl")
		p := follow()
		p.Until("waiting: source clicks: it has no splits yet")
		appendClicks(t, first, 0, part, "")
		p.shows(at.db, longRows(part))
		appendClicks(t, first, part, 2*part, "")
		p.shows(at.db, longRows(2*part))
		p.Signal(syscall.SIGTERM)
		p.Ends(0, "stopped: 4,000 records")

		// While nobody reads, it ends in the middle of a line.
		appendClicks(t, first, 2*part, 3*part, `{"click_id":"c6000",`)
		p = follow()
		p.Until("restored checkpoint")
		p.shows(at.db, longRows(3*part))
		p.Signal(syscall.SIGKILL)
		if code := p.End(); code != -1 {
			t.Fatalf("exit code %d after SIGKILL", code)
		}

		// The rest of the line, and a new file.
		appendText(t, first, clickLine(3 * part)[len(`{"click_id":"c6000",`):])
		p = follow()
		p.Until("restored checkpoint") // until then the database is recovered, too
		appendClicks(t, second, 3*part+1, 4*part, "")
		p.shows(at.db, longRows(4*part))
		p.Signal(syscall.SIGTERM)
		p.Ends(0, "stopped: 8,000 records")
		wantRows(t, at.db, longRows(4*part))

		// Rotated by renaming, which it refuses to take for a new file.
		if err := os.Rename(first, filepath.Join(dir, "clicks-1.old.jsonl")); err != nil {
			t.Fatal(err)
		}
		follow().Ends(11, "clicks-1.jsonl, at position", "is missing now", "bring it back")
	})
}

// shows waits until the tables are what they should be.
func (p *running) shows(db string, want rows) {
	p.t.Helper()
	p.Poll("the rows", func() bool {
		got, err := readRows(db)
		return err == nil && got.differ(want) == 0
	})
}

func clickLine(i int) string {
	return fmt.Sprintf(`{"click_id":"c%d","ad_id":"ad-%d","user_id":"u","ts":%q}`+"\n", i, i%5, clickTime(i).Format("2006-01-02T15:04:05.000Z"))
}

// appendClicks writes clicks from to to-1, and then more.
func appendClicks(t *testing.T, path string, from, to int, more string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1000) // it ends anywhere in a line
	for i := from; i < to; i++ {
		fmt.Fprint(w, clickLine(i))
	}
	fmt.Fprint(w, more)
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	appendClicks(t, path, 0, 0, text)
}
