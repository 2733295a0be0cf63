package weir_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// lineCount is a row of the tests' results.
type lineCount struct {
	K string `db:"k"`
	N int64  `db:"n"`
}

// deadRow is what the tests look at of a letter.
type deadRow struct {
	Split, Step, Kind, Reason, Raw, Time string
	Mark                                 int64
}

// deadLetters reads a table of dead letters.
func deadLetters(t *testing.T, db string) (out []deadRow) {
	t.Helper()
	query(t, db, `SELECT source, split, mark, step, kind, reason, place, event_time, raw FROM dead WHERE source <> 'again' ORDER BY split, mark, step, kind`, func(rows *sql.Rows) error {
		var r deadRow
		var source, place string
		var raw []byte
		err := rows.Scan(&source, &r.Split, &r.Mark, &r.Step, &r.Kind, &r.Reason, &place, &r.Time, &raw)
		r.Raw = string(raw)
		if source != "" && (source != "lines" || !strings.Contains(place, fmt.Sprint("byte offset ", r.Mark))) {
			t.Errorf("a letter of source %q, place %q, mark %d", source, place, r.Mark)
		}
		r.Split = filepath.Base(r.Split)
		out = append(out, r)
		return err
	})
	return out
}

func counts(t *testing.T, db string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	query(t, db, `SELECT k, n FROM counts`, func(rows *sql.Rows) error {
		var k string
		var n int64
		err := rows.Scan(&k, &n)
		out[k] = n
		return err
	})
	return out
}

func query(t *testing.T, path, q string, row func(*sql.Rows) error) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// badLine is a line that one step or another rejects, and what its letter says.
type badLine struct {
	text, step, kind, reason string
}

var badLines = []badLine{
	{text: "{oops", step: "lines (source)", kind: "decode", reason: "not valid JSON"},
	{text: `{"k":"x","n":"one"}`, step: "lines (source)", kind: "decode", reason: "/n"},
	{text: `null`, step: "lines (source)", kind: "decode", reason: "null"},
	{text: "{\"k\":\"\xff\"}", step: "lines (source)", kind: "decode", reason: "UTF-8"},
	{text: `{"k":"` + strings.Repeat("x", 300) + `"}`, step: "lines (source)", kind: "oversized", reason: "longer than 200 bytes"},
	{text: `{"k":"x","n":1}`, step: "lines (source)", kind: "event-time", reason: "zero time"},
	{text: `{"k":"x","n":1,"t":"9999-12-31T23:59:59Z"}`, step: "lines (source)", kind: "event-time", reason: "absurd"},
	{text: `{"k":"x","n":1,"t":"2099-01-01T00:00:00Z"}`, step: "lines (source)", kind: "event-time", reason: "ahead of the clock"},
	{text: `{"k":"time","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "lines (source)", kind: "panic", reason: "no time"},
	{text: `{"k":"try","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "#2 (try-map)", kind: "error", reason: "refused"},
	{text: `{"k":"map","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "#3 (map)", kind: "panic", reason: "no map"},
	{text: `{"k":"flat","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "#4 (flat-map)", kind: "panic", reason: "no flat"},
	{text: `{"k":"filter","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "#5 (filter)", kind: "panic", reason: "no filter"},
	{text: `{"k":"key","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "#6 (key-by)", kind: "panic", reason: "no key"},
	{text: `{"k":"fold","n":1,"t":"2026-03-01T12:00:00Z"}`, step: "fold (fold)", kind: "panic", reason: "no fold"},
}

// badJob has a step of each kind, each of which panics on lines of its name.
func badJob(path, db string, opts ...weir.DeadLetterOption) *weir.Job {
	boom := func(l line, name string) line {
		if l.K == name {
			panic("no " + name)
		}
		return l
	}
	job := weir.NewJob("bad")
	job.DeadLetters("dead", sqlite.Upsert[weir.DeadLetter](db, "dead", "source", "split", "mark", "step"), opts...)
	job.From("lines", file.Lines(path, codec.JSON[line](), file.MaxLine(200)),
		weir.EventTime(func(l line) time.Time { return boom(l, "time").T }, 0)).
		TryMap(func(l line) (line, error) {
			if l.K == "try" {
				return l, errors.New("refused")
			}
			return l, nil
		}).
		Map(func(l line) line { return boom(l, "map") }).
		FlatMap(func(l line, emit func(line)) { emit(l); boom(l, "flat") }).
		Filter(func(l line) bool { boom(l, "filter"); return true }).
		KeyBy(func(l line) string { return boom(l, "key").K }).
		Fold("fold", int64(0), func(n int64, l line) int64 { boom(l, "fold"); return n + int64(l.N) }, weir.EachBarrier()).
		Map(func(p weir.Pair[string, int64]) lineCount { return lineCount{p.Key, p.Value} }).
		To("counts", sqlite.Upsert[lineCount](db, "counts", "k"))
	return job
}

// badFile writes n good lines with a bad one, each kind in turn, before every
// so many of them. It returns what the good lines add up to, and the letters.
func badFile(t *testing.T, path string, n, every int) (sums map[string]int64, letters []deadRow) {
	t.Helper()
	var b strings.Builder
	sums = map[string]int64{}
	bad := 0
	for i := range n {
		if i%every == 0 {
			l := badLines[bad%len(badLines)]
			bad++
			at := "2026-03-01T12:00:00Z"
			if l.step == "lines (source)" {
				at = "0001-01-01T00:00:00Z"
			}
			letters = append(letters, deadRow{Split: filepath.Base(path), Mark: int64(b.Len()), Step: l.step, Kind: l.kind, Reason: l.reason, Raw: l.text, Time: at})
			b.WriteString(l.text + "\n")
		}
		b.WriteString(goodLine(i))
		sums[fmt.Sprintf("k%02d", i%7)] += int64(1000 + i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return sums, letters
}

// wantLetters compares letters; a wanted reason is a part of the one found.
func wantLetters(t *testing.T, got, want []deadRow) {
	t.Helper()
	if len(got) == len(want) {
		for i := range got {
			if strings.Contains(got[i].Reason, want[i].Reason) {
				got[i].Reason = want[i].Reason
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// Every kind of bad record goes to the dead letters with its raw bytes, reason,
// step and position, in the transaction of its epoch, and the results are those of
// the good lines, at any parallelism.
func TestDeadLettersOfEveryKind(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		dir := t.TempDir()
		path, db := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.db")
		sums, letters := badFile(t, path, 150, 10)
		run := badJob(path, db).Start(t.Context(), append(opts, weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(20))...)
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := counts(t, db); !maps.Equal(got, sums) {
			t.Errorf("counts %v, want %v", got, sums)
		}
		wantLetters(t, deadLetters(t, db), letters)
		p := run.Progress()
		if got := p.DeadLetters["lines (source)"]; got["decode"] != 4 || got["oversized"] != 1 || got["event-time"] != 3 || got["panic"] != 1 {
			t.Errorf("counted %v", p.DeadLetters)
		}
		if got := p.DeadLetters["fold (fold)"]["panic"]; got != 1 {
			t.Errorf("counted %v", p.DeadLetters)
		}
	})
}

// A job that breaks off in the middle of epochs, again and again, and goes on from
// its last checkpoint ends with the same letters as one that was never interrupted:
// none is lost or there twice.
func TestDeadLettersAfterCrashes(t *testing.T) {
	for _, p := range []int{1, 7} {
		dir := t.TempDir()
		path, db := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.db")
		sums, letters := badFile(t, path, 600, 7)
		for life := 0; ; life++ {
			job := badJob(path, db)
			var seen atomic.Int64
			job.From("again", file.Lines(path, codec.JSON[line](), file.MaxLine(200))).To("crash", weir.Each(func(line) error {
				if seen.Add(1) == 90 {
					return errCrash
				}
				return nil
			}))
			err := job.Run(t.Context(), weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(40), weir.Parallelism(p), weir.BatchSize(16), weir.Restarts(0))
			if err == nil {
				if life < 5 {
					t.Errorf("parallelism %d: it crashed only %d times", p, life)
				}
				break
			}
			if !errors.Is(err, errCrash) || life > 60 {
				t.Fatalf("life %d: %v", life, err)
			}
		}
		if got := counts(t, db); !maps.Equal(got, sums) {
			t.Errorf("parallelism %d: counts %v, want %v", p, got, sums)
		}
		wantLetters(t, deadLetters(t, db), letters)
	}
}

// A split of nothing but bad records: 1,000 that can't be decoded and 1,000 with
// an impossible event time. They are counted, the position moves behind them, and
// a restart doesn't read them again.
func TestASplitOfBadRecordsOnly(t *testing.T) {
	dir := t.TempDir()
	path, db := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.db")
	var b strings.Builder
	for range 1000 {
		b.WriteString("{oops\n")
	}
	for range 1000 {
		b.WriteString(`{"k":"x","n":1,"t":"1969-12-31T23:59:59.999Z","never":1}` + "\n")
	}
	text := strings.ReplaceAll(b.String(), "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := weir.StateDir(filepath.Join(dir, "state"))
	// The default limit stops it: 1,000 in a row are allowed, and no more.
	err := badJob(path, db).Run(t.Context(), state, weir.EveryRecords(100))
	if !errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), "1001 of the last") || !strings.Contains(err.Error(), "MaxDeadLetters") {
		t.Fatalf("%v: want the limit", err)
	}
	before := int64(len(deadLetters(t, db))) // the last epoch may have been under way
	if before != 900 && before != 1000 {
		t.Fatalf("%d letters are committed, want those before the limit", before)
	}
	var started weir.Started
	run := badJob(path, db, weir.MaxDeadLetters(-1, 0)).Start(t.Context(), state, weir.EveryRecords(100), weir.OnStart(func(s weir.Started) { started = s }))
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if started.Records != before || string(started.Positions[0].At) != fmt.Sprint(6*before) {
		t.Errorf("it goes on at record %d, position %s: want %d, %d", started.Records, started.Positions[0].At, before, 6*before)
	}
	p := run.Progress()
	if got := p.DeadLetters["lines (source)"]; got["event-time"] != 1000 || got["decode"] != 1000-before || p.Records != 2000 {
		t.Errorf("counted %v of %d records, want %d and 1000 event times, of 2000", p.DeadLetters, p.Records, 1000-before)
	}
	if got := len(deadLetters(t, db)); got != 2000 {
		t.Errorf("%d letters, want 2000", got)
	}
	if len(p.Splits) != 1 || p.Checkpoint == nil || !p.Checkpoint.Finished || string(p.Checkpoint.Positions[0].At) != fmt.Sprint(len(text)) {
		t.Errorf("the last checkpoint is %+v, want the end of the file at %d", p.Checkpoint, len(text))
	}
	mustRun(t, badJob(path, db, weir.MaxDeadLetters(-1, 0)), state) // there is nothing to do
	if got := len(deadLetters(t, db)); got != 2000 {
		t.Errorf("%d letters after another start, want 2000", got)
	}
}

// Late records and repeats: the first go to the dead letters when asked, and don't
// count for the limit; the second to a sink of their own, as before.
func TestDeadLateRecords(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var dead, repeats gathered[string]
		deadSink := weir.Each(func(l weir.DeadLetter) error {
			dead.mu.Lock()
			defer dead.mu.Unlock()
			dead.recs = append(dead.recs, fmt.Sprint(l.Step, " ", l.Kind, " ", l.Mark, " ", l.EventTime.Unix()-noon/1000, " ", len(l.Raw)))
			return nil
		})
		job := weir.NewJob("late")
		job.DeadLetters("dead", deadSink, weir.DeadLate(), weir.MaxDeadLetters(0, 0))
		d := job.From("in", weir.Slice(sec("a", 0), sec("a", 0), sec("b", 300), sec("c", 1), sec("d", 200), sec("b", 300)), weir.EventTime(eventTime, 0)).
			KeyBy(keyOf).Distinct("seen", time.Hour, weir.Admit(4*time.Minute))
		d.Repeats().Map(func(e event) string { return e.Key }).To("repeats", repeats.sink())
		d.KeyBy(keyOf).Window(window.Tumbling(time.Minute)).Count("count").To("out", new(gathered[weir.Result[string, int64]]).sink())
		run := job.Start(t.Context(), opts...)
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		// c is 299 s behind: late for Distinct; d 100 s: late for its window alone.
		got := dead.all()
		slices.Sort(got)
		wantSame(t, got, []string{"count (window) late 4 200 0", "seen (distinct) late 3 1 0"})
		got = repeats.all()
		slices.Sort(got)
		wantSame(t, got, []string{"a", "b"})
		if p := run.Progress(); p.Late["seen"] != 1 || p.Late["count"] != 1 || p.DeadLetters["count (window)"]["late"] != 1 {
			t.Errorf("counted %v late, %v dead", p.Late, p.DeadLetters)
		}
	})
}

// Sums at the ends of an int64: each window's result at once, so that the record
// which makes it overflow is rejected, and the sum stays what it was.
func TestSumsDontWrap(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var out gathered[int64]
		var dead gathered[weir.DeadLetter]
		job := weir.NewJob("sums")
		job.DeadLetters("dead", dead.sink())
		in := []event{sec("a", 1), sec("a", 2), sec("a", 3), sec("b", 4), sec("b", 5), sec("b", 6)}
		for i, n := range []int64{math.MaxInt64, 1, -1, math.MinInt64, -1, 1} {
			in[i].N = n
		}
		job.From("in", weir.Slice(in...), weir.EventTime(eventTime, 0)).KeyBy(keyOf).
			Window(window.Tumbling(time.Minute, window.EachRecord)).
			Aggregate("sum", agg.Sum(func(e event) int64 { return e.N })).
			Map(func(r weir.Result[string, int64]) int64 { return r.Value }).To("out", out.sink())
		mustRun(t, job, opts...)
		got := out.all()
		slices.Sort(got)
		if want := []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64 - 1, math.MaxInt64}; !slices.Equal(got, want) {
			t.Errorf("sums %v, want %v", got, want)
		}
		letters := dead.all()
		if len(letters) != 2 {
			t.Fatalf("letters %+v, want two", letters)
		}
		for _, l := range letters {
			if !strings.Contains(l.Reason, "doesn't fit into an int64") || l.Kind != "panic" || l.Mark != 1 && l.Mark != 4 {
				t.Errorf("letter %+v", l)
			}
		}
	})
}

// torn is a writer that fails once it has got so many bytes.
type torn struct {
	strings.Builder
	room int
}

func (w *torn) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		return 0, errCrash
	}
	return w.Builder.Write(b)
}

// A format function that panics: the lines before its record are written, once,
// also where nothing follows it; if they can't be, the job stops.
func TestPrintThatPanics(t *testing.T) {
	declare := func(w io.Writer, dead weir.Sink[weir.DeadLetter]) *weir.Job {
		job := weir.NewJob("print")
		job.DeadLetters("dead", dead)
		job.From("in", weir.Generate(10, func(i int64) int64 { return i })).To("out", weir.Print(w, func(i int64) string {
			if i == 4 || i == 9 {
				panic(fmt.Sprint("no ", i))
			}
			return fmt.Sprint(i)
		}))
		return job
	}
	for _, batch := range []int{1, 3, 1024} {
		var w torn
		w.room = 1000
		var dead gathered[weir.DeadLetter]
		mustRun(t, declare(&w, dead.sink()), weir.BatchSize(batch))
		if got, want := w.String(), "0\n1\n2\n3\n5\n6\n7\n8\n"; got != want {
			t.Errorf("batch %d: printed %q, want %q", batch, got, want)
		}
		letters := dead.all()
		if len(letters) != 2 || letters[0].Mark != 4 || letters[1].Mark != 9 || letters[0].Kind != "panic" || letters[0].Step != "out (sink)" {
			t.Errorf("batch %d: letters %+v", batch, letters)
		}
		// The second panic is the last thing that happens before the end.
		w = torn{room: 10}
		if err := declare(&w, dead.sink()).Run(t.Context(), weir.BatchSize(batch), weir.Restarts(0)); !errors.Is(err, errCrash) {
			t.Errorf("batch %d: lines that can't be written end in %v", batch, err)
		}
	}
}

// Where a watermark fires the result there is no record to set aside: the job
// stops, with or without dead letters.
func TestAResultOnCloseThatPanicsStopsTheJob(t *testing.T) {
	job := weir.NewJob("closing")
	var dead gathered[weir.DeadLetter]
	job.DeadLetters("dead", dead.sink())
	job.From("in", weir.Slice(event{"a", math.MaxInt64, noon}, event{"a", 1, noon}), weir.EventTime(eventTime, 0)).KeyBy(keyOf).
		Window(window.Tumbling(time.Minute)).Aggregate("sum", agg.Sum(func(e event) int64 { return e.N })).
		To("out", new(gathered[weir.Result[string, int64]]).sink())
	err := job.Run(t.Context())
	if !errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), "sum (window)") || !strings.Contains(err.Error(), "no input record") {
		t.Errorf("%v", err)
	}
	if n := len(dead.all()); n > 0 {
		t.Errorf("%d letters", n)
	}
}

// TestDeadLetterDeclarations: mistakes are named before anything runs.
func TestDeadLetterDeclarations(t *testing.T) {
	declare := func(f func(j *weir.Job)) error {
		job := weir.NewJob("dead")
		job.From("in", weir.Slice(1)).To("out", new(gathered[int]).sink())
		f(job)
		return job.Run(t.Context())
	}
	sink := func() weir.Sink[weir.DeadLetter] { return new(gathered[weir.DeadLetter]).sink() }
	for _, c := range []struct {
		name string
		f    func(j *weir.Job)
		says string
	}{
		{"two of them", func(j *weir.Job) { j.DeadLetters("dead", sink()); j.DeadLetters("more", sink()) }, "there is a sink for dead letters already, dead"},
		{"no sink", func(j *weir.Job) { j.DeadLetters("dead", nil) }, "its sink is nil"},
		{"an id that is taken", func(j *weir.Job) { j.DeadLetters("out", sink()) }, `id "out" is used by two steps`},
		{"a limit that can't be reached", func(j *weir.Job) { j.DeadLetters("dead", sink(), weir.MaxDeadLetters(10, 10)) }, "never stop the job"},
		{"a limit of a negative number", func(j *weir.Job) { j.DeadLetters("dead", sink(), weir.MaxDeadLetters(1, -10)) }, "MaxDeadLetters(1, -10)"},
	} {
		t.Run(c.name, func(t *testing.T) { wantDeclaration(t, declare(c.f), c.says) })
	}
	job := weir.NewJob("dead")
	job.DeadLetters("dead", sink())
	job.From("in", weir.Slice(1)).Map(func(i int) int { return i })
	wantDeclaration(t, job.Run(t.Context()), "the job has no sink")
}

// TestDeadLettersAreExplained: it is a sink among the others, with its guarantee.
func TestDeadLettersAreExplained(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.jsonl")
	badFile(t, path, 1, 1)
	e, err := badJob(path, filepath.Join(dir, "out.db"), weir.DeadLate()).Explain(t.Context(), weir.StateDir(filepath.Join(dir, "state")))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"sink dead: dead letters of every step and late records, transactional, table \"dead\" in out.db",
		"sink dead, table \"dead\" in out.db (transactional): each output once", "in one transaction with sink counts", "every record that a step rejects"} {
		if !strings.Contains(e.String(), part) {
			t.Errorf("explain lacks %q:\n%s", part, e)
		}
	}
}
