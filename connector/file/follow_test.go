package file_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/file"
)

// add appends to a file, which is made when it is missing.
func add(t testing.TB, path, data string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(data)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// followed opens a split of a source that is followed.
func followed(t testing.TB, src weir.Source[string], path string, at []byte) weir.Reader[string] {
	t.Helper()
	r, err := src.Open(t.Context(), path, at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// all reads what there is. It ends at the first Read that returns nothing.
func all(t testing.TB, r weir.Reader[string], limit int) (recs []string) {
	t.Helper()
	for {
		more, end, err := r.Read(nil, limit)
		if err != nil || end {
			t.Fatalf("Read = %q, %v, %v", more, end, err)
		}
		if recs = append(recs, more...); len(more) == 0 {
			return recs
		}
	}
}

// news waits until there is something to read, and reads it. In a bubble the
// clock then stands where that was noticed.
func news(t testing.TB, r weir.Reader[string]) []string {
	t.Helper()
	<-r.Ready()
	return all(t, r, 100)
}

func shut(t testing.TB, r interface{ Close() error }) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Error("Close:", err)
	}
}

func TestALineWaitsForItsEnd(t *testing.T) {
	tests := []struct {
		name   string
		writes []string
		want   [][]string // after each
	}{
		{"a line at a time", []string{"one\n", "two\n"}, [][]string{{"one"}, {"two"}}},
		{"in pieces", []string{"o", "n", "e", "\n"}, [][]string{nil, nil, nil, {"one"}}},
		{"several, and a piece", []string{"one\ntwo\nthr", "ee\nfour\n"}, [][]string{{"one", "two"}, {"three", "four"}}},
		{"CRLF in two writes", []string{"one\r", "\ntwo\r\n"}, [][]string{nil, {"one", "two"}}},
		{"a rune in two writes", []string{"na\xc3", "\xafve\n\xe2\x82", "\xac\n"}, [][]string{nil, {"na\u00efve"}, {"\u20ac"}}},
		{"a byte order mark in two writes", []string{"\xef\xbb", "\xbfone\n"}, [][]string{nil, {"one"}}},
		{"blank lines", []string{"\n", "  \n\r\n", " ", "\t\nx\n\n"}, [][]string{nil, nil, nil, {"x"}}},
		{"nothing yet", []string{"", "one\n"}, [][]string{nil, {"one"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := write(t, "a.jsonl", "")
				src := text(path, file.Follow())
				r := followed(t, src, path, nil)
				defer shut(t, r)
				data := ""
				for i, w := range tt.writes {
					if got := all(t, r, 100); len(got) > 0 {
						t.Fatalf("before write %d there is %q", i, got)
					}
					add(t, path, w)
					data += w
					if w == "" {
						continue
					}
					if got := news(t, r); !slices.Equal(got, tt.want[i]) {
						t.Fatalf("write %d, %q: read %q, want %q", i, w, got, tt.want[i])
					}
					// A stop here: the position is behind a line's end, and the next
					// run finds the same.
					num, _, _ := strings.Cut(string(r.Position()), " ")
					if want := fmt.Sprint(strings.LastIndexByte(data, '\n') + 1); num != want {
						t.Fatalf("write %d, %q: it stands at %s, want %s", i, w, num, want)
					}
					again := followed(t, src, path, r.Position())
					if got := all(t, again, 100); len(got) > 0 {
						t.Errorf("write %d, %q: after a restart there is %q", i, w, got)
					}
					shut(t, again)
				}
			})
		})
	}
}

// However lines are cut into writes, whenever the reader crashes and wherever
// its last checkpoint stands: each line is read once, as it was written.
func TestFollowedLinesAgainstAnOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for round := range 30 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		var lines []string
		var data strings.Builder
		for i := range 200 {
			line := fmt.Sprintf("%d:%s\u00e9", i, strings.Repeat(string(rune('a'+i%26)), rng.IntN(1<<rng.IntN(11))))
			lines = append(lines, line)
			data.WriteString(line + []string{"\n", "\r\n"}[rng.IntN(2)])
			if rng.IntN(5) == 0 {
				data.WriteString("\n")
			}
		}
		synctest.Test(t, func(t *testing.T) {
			path := write(t, "a.jsonl", "")
			src := text(path, file.Follow(), file.MaxLine(1<<12))
			r := followed(t, src, path, nil)
			var got, kept []string
			var at []byte
			for rest := data.String(); len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(1<<rng.IntN(12)))
				add(t, path, rest[:n])
				rest = rest[n:]
				for range rng.IntN(4) {
					more, end, err := r.Read(nil, 1+rng.IntN(5))
					if err != nil || end {
						t.Fatal(more, end, err)
					}
					got = append(got, more...)
				}
				switch rng.IntN(4) {
				case 0: // a checkpoint
					at, kept = r.Position(), slices.Clone(got)
				case 1: // a crash
					shut(t, r)
					r, got = followed(t, src, path, at), slices.Clone(kept)
				case 2:
					time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond) // virtual
				}
			}
			time.Sleep(time.Second) // virtual
			got = append(got, all(t, r, 7)...)
			shut(t, r)
			if !slices.Equal(got, lines) {
				t.Fatalf("round %d: read %d lines, want %d; the first that differs is %d", round, len(got), len(lines), differs(got, lines))
			}
		})
	}
}

func differs(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// A line is noticed within the poll interval, and soon after another.
func TestNewsIsNoticedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, "a.jsonl", "one\n")
		r := followed(t, text(path, file.Follow(file.Poll(100*time.Millisecond))), path, nil)
		defer shut(t, r)
		all(t, r, 10)
		time.Sleep(10 * time.Second) // virtual
		<-r.Ready()                  // it has become idle
		began := time.Now()
		add(t, path, "two\n")
		news(t, r)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("to a quiet file: after %v", took)
		}
		began = time.Now()
		add(t, path, "three\n")
		news(t, r)
		if took := time.Since(began); took > 2*time.Millisecond {
			t.Errorf("to a busy one: after %v", took)
		}
	})
}

func TestIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, "a.jsonl", "one\n")
		r := followed(t, text(path, file.Follow(file.IdleAfter(3*time.Second))), path, nil)
		defer shut(t, r)
		status := r.(weir.StatusReader).Status
		if st := status(); st.Idle || st.Lag != -1 || st.Done != 0 || st.Total != 4 || !st.Bytes {
			t.Errorf("before the first read: %+v", st)
		}
		all(t, r, 10)
		if st := status(); st.Idle || st.Lag != 0 || st.Done != 4 || st.Total != 4 {
			t.Errorf("behind the only line: %+v", st)
		}
		began := time.Now()
		<-r.Ready() // it says so by itself
		if got := all(t, r, 10); len(got) > 0 || !status().Idle {
			t.Errorf("read %q; %+v", got, status())
		}
		if took := time.Since(began); took < 3*time.Second || took > 3*time.Second+100*time.Millisecond {
			t.Errorf("idle after %v", took)
		}
		add(t, path, "tw") // a record is on its way
		if got := news(t, r); len(got) > 0 || status().Idle || status().Lag != 0 {
			t.Errorf("read %q; %+v", got, status())
		}
		began = time.Now()
		<-r.Ready() // but not for ever
		all(t, r, 10)
		if took := time.Since(began); !status().Idle || took > 3*time.Second+100*time.Millisecond {
			t.Errorf("an unfinished line, after %v: %+v", took, status())
		}
		add(t, path, "o\n")
		if got := news(t, r); !slices.Equal(got, []string{"two"}) || status().Idle {
			t.Errorf("read %q; %+v", got, status())
		}
	})
}

func TestPositionsOfFollowedFiles(t *testing.T) {
	path := write(t, "a.jsonl", "one\ntwo\nthree")
	plain, follow := text(path), text(path, file.Follow())
	r := followed(t, follow, path, nil)
	if at := string(r.Position()); at != "0" {
		t.Errorf("at the start: %q", at)
	}
	all(t, r, 1)
	at := r.Position()
	shut(t, r)
	// SHA-256 of "one\ntwo\none\ntwo\n": the first bytes, and those before the position.
	if string(at) != "8 sha256:c7a377384f8c8fdf" {
		t.Errorf("behind two lines: %q", at)
	}
	// Positions of a run that didn't follow are taken, and kept until there is more.
	r = followed(t, follow, path, []byte("4"))
	if at := string(r.Position()); at != "4" {
		t.Errorf("opened at 4: %q", at)
	}
	if got := all(t, r, 10); !slices.Equal(got, []string{"two"}) || string(r.Position()) != string(at) {
		t.Errorf("from 4: %q, then at %q", got, r.Position())
	}
	shut(t, r)
	// And the other way round: the file then has an end, and its last line one, too.
	got, r, err := readAll(t, plain, path, at)
	if err != nil || !slices.Equal(got, []string{"three"}) || string(r.Position()) != "13" {
		t.Errorf("to the end: %q, %v, at %q", got, err, r.Position())
	}
	// Which can't be followed: nobody knows whether that was all of the line.
	_, err = follow.Open(t.Context(), path, []byte("13"))
	wantError(t, err, "position 13 is not the start of a line", "its last line had no end when a run that didn't follow", "go on without file.Follow")
	for _, bad := range []string{"8 sha256:", "8 sha256:C7a377384f8c8fdf", "8 sha256:c7a377384f8c8fd", "8 crc32:0", "8  sha256:c7a377384f8c8fdf", "8 sha256:0000000000000000", "4 sha256:c7a377384f8c8fdf", "0 sha256:c7a377384f8c8fdf"} {
		for _, src := range []weir.Source[string]{plain, follow} {
			if _, err := src.Open(t.Context(), path, []byte(bad)); !errors.Is(err, weir.ErrRefused) {
				t.Errorf("position %q: %v", bad, err)
			}
		}
	}
	gz := write(t, "a.gz", gzipped(t, "one\ntwo\n"))
	_, err = text(gz).Open(t.Context(), gz, at)
	wantError(t, err, "is of a file that was followed, and this one is gzip data")
}

func TestPatternsThatAreFollowed(t *testing.T) {
	dir := t.TempDir()
	src := text(filepath.Join(dir, "in", "*.jsonl*"), file.Follow())
	poll := src.(weir.Growing).Poll
	if poll() <= 0 || text(filepath.Join(dir, "in", "a.jsonl"), file.Follow()).(weir.Growing).Poll() != 0 ||
		text(filepath.Join(dir, "in", "*.jsonl")).(weir.Growing).Poll() != 0 {
		t.Error("only a pattern that is followed gets more splits")
	}
	_, err := src.Splits(t.Context())
	wantError(t, err, filepath.Join(dir, "in"), "no such file") // the folder must be there: a mistake, as a rule
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if names, err := src.Splits(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("no file yet: %q, %v", names, err)
	}
	a, b, c := filepath.Join(dir, "in", "a.jsonl"), filepath.Join(dir, "in", "b.jsonl.gz"), filepath.Join(dir, "in", "c.jsonl")
	add(t, a, "one\n")
	add(t, b, gzipped(t, "two\n"))
	if names, err := src.Splits(t.Context()); err != nil || !slices.Equal(names, []string{a, b}) {
		t.Errorf("Splits = %q, %v", names, err)
	}
	ra := followed(t, src, a, nil)
	defer shut(t, ra)
	// What is compressed has an end.
	recs, rb, err := readAll(t, src, b, nil)
	if err != nil || !slices.Equal(recs, []string{"two"}) || rb.Ready() != nil {
		t.Errorf("compressed: %q, %v", recs, err)
	}
	// One file, two names: it would be read twice.
	for name, twice := range map[string]func(old, new string) error{"renamed": os.Rename, "linked": os.Symlink} {
		if err := twice(a, c); err != nil {
			t.Fatal(err)
		}
		_, err := src.Open(t.Context(), c, nil)
		wantError(t, err, a, c, "are one file", "would be read twice", "let no pattern match a link")
		if !errors.Is(err, weir.ErrRefused) {
			t.Errorf("%s: %v is not weir.ErrRefused", name, err)
		}
		if name == "renamed" {
			rename(t, c, a)
		} else {
			remove(t, c)
		}
	}
	add(t, c, "three\n")
	rc := followed(t, src, c, nil)
	defer shut(t, rc)
	if got := all(t, rc, 10); !slices.Equal(got, []string{"three"}) {
		t.Errorf("a new file: %q", got)
	}
}

func TestFollowDeclarations(t *testing.T) {
	tests := []struct {
		src  weir.Source[string]
		says string
	}{
		{text("a.jsonl.gz", file.Follow()), "is compressed"},
		{text("a.zst", file.Follow()), "is compressed"},
		{text("a.jsonl", file.Follow(file.Poll(0))), "file.Poll(0s): give a time from 1ms"},
		{text("a.jsonl", file.Follow(file.Poll(time.Hour))), "file.Poll(1h0m0s)"},
		{text("a.jsonl", file.Follow(file.IdleAfter(-1))), "file.IdleAfter(-1ns)"},
	}
	for _, tt := range tests {
		wantError(t, tt.src.(interface{ Check() error }).Check(), tt.says)
	}
}

func TestFollowedReadDoesNotAllocate(t *testing.T) {
	path := write(t, "a.jsonl", strings.Repeat(clickLine, 100_000))
	r, err := file.Lines(path, length{}, file.Follow()).Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, r)
	batch := make([]int, 0, 256)
	n := testing.AllocsPerRun(300, func() { batch, _, err = r.Read(batch[:0], 256) })
	if n > 0 || err != nil || len(batch) != 256 {
		t.Errorf("%v allocations a batch; %d records, %v", n, len(batch), err)
	}
	for err == nil && len(batch) > 0 {
		batch, _, err = r.Read(batch[:0], 256)
	}
	// At the end it is asked again and again while other files are busy.
	if n := testing.AllocsPerRun(100, func() { batch, _, err = r.Read(batch[:0], 256) }); n > 0 || err != nil || len(batch) > 0 {
		t.Errorf("%v allocations at the end; %d records, %v", n, len(batch), err)
	}
}
