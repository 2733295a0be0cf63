package file_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

type click struct {
	ID string `json:"id"`
	N  int    `json:"n"`
}

// Each bad line, in each packing, reached from the start and from a position
// behind the first line.
func TestBadLines(t *testing.T) {
	tests := []struct {
		name, bad string
		says      []string
	}{
		{"not JSON", `oops`, []string{"not valid JSON", "invalid character 'o'", "at byte 0", "correct or remove the line"}},
		{"cut short", `{"id":"c`, []string{"breaks off at byte 8"}},
		{"invalid UTF-8", "{\"id\":\"\xc3(\"}", []string{"invalid UTF-8 at byte 7, in /id"}},
		{"a wrong type", `{"n":"x"}`, []string{"JSON string at byte 5, in /n can't become a Go int"}},
		{"two values", `{"n":1}{"n":2}`, []string{"after top-level value"}},
		{"a name twice", `{"n":1,"n":2}`, []string{"duplicate"}},
		{"null", `null`, []string{"null"}},
		{"NUL bytes", "\x00\x00\x00", []string{`'\x00'`}},
		{"a byte order mark in the middle", "\xef\xbb\xbf{}", []string{"at byte 0"}},
		{"too long", `{"id":"` + strings.Repeat("x", 200) + `"}`, []string{"longer than 100 bytes", "raise file.MaxLine"}},
		{"much too long", `{"id":"` + strings.Repeat("x", 600<<10) + `"}`, []string{"longer than 100 bytes", "raise file.MaxLine"}},
		{"too long and blank", strings.Repeat(" ", 200), []string{"longer than 100 bytes"}},
	}
	const before = "{\"id\":\"c1\"}\r\n\n{\"id\":\"c2\"}\n   \n"
	for _, tt := range tests {
		for _, after := range []string{"", "\n", "\n{\"id\":\"c3\"}\n"} {
			for name, packed := range packings(t, before+tt.bad+after) {
				for at, want := range map[string][]click{"0": {{ID: "c1"}, {ID: "c2"}}, "13": {{ID: "c2"}}, strconv.Itoa(len(before)): nil} {
					t.Run(fmt.Sprintf("%s/%q/%s/%s", tt.name, after, name, at), func(t *testing.T) {
						path := write(t, name, packed)
						src := file.Lines(path, codec.JSON[click](), file.MaxLine(100))
						got, r, err := readAll(t, src, path, []byte(at))
						if !slices.Equal(got, want) {
							t.Errorf("records before the bad line: %+v, want %+v", got, want)
						}
						wantError(t, err, append(tt.says, fmt.Sprintf("%s: line 5, byte offset %d: ", path, len(before)))...)
						e, ok := errors.AsType[*file.LineError](err)
						if !ok || e.Path != path || e.Line != 5 || e.Offset != int64(len(before)) || e.Err == nil {
							t.Errorf("LineError = %+v", e)
						}
						// The error stays, whoever reads on.
						if more, end, again := r.Read(nil, 1); len(more) > 0 || end || again != err {
							t.Errorf("Read after the error = %v, %v, %v", more, end, again)
						}
					})
				}
			}
		}
	}
}

// eofs is a codec that reports a short record as many readers do.
type eofs struct{}

func (eofs) Decode([]byte, *int) error                 { return io.EOF }
func (eofs) Encode(dst []byte, v *int) ([]byte, error) { return dst, nil }

func TestCodecsEOFIsNotTheEnd(t *testing.T) {
	got, err := readData(t, filepath.Join(t.TempDir(), "a.jsonl"), "one\ntwo\n", eofs{})
	if len(got) > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %v, %v", got, err)
	}
	wantError(t, err, "line 1, byte offset 0: EOF")
}

// panics is a codec with a fault.
type panics struct{}

func (panics) Decode(b []byte, v *int) error {
	*v = int(b[2])
	return nil
}
func (panics) Encode(dst []byte, v *int) ([]byte, error) { return dst, nil }

func TestCodecPanicNamesTheLine(t *testing.T) {
	got, err := readData(t, filepath.Join(t.TempDir(), "a.jsonl"), "one\ntwo\nto\nfor\n", panics{})
	if !slices.Equal(got, []int{'e', 'o'}) {
		t.Errorf("records before it: %v", got)
	}
	wantError(t, err, "line 3, byte offset 8: the codec panicked: runtime error: index out of range [2]", "correct the codec")
	if e, ok := errors.AsType[*file.LineError](err); !ok || !strings.Contains(string(e.Stack), "panics.Decode") {
		t.Errorf("LineError = %+v; its stack should name the codec", e)
	}
}

// The line is given up once it is too long, and not held until its end.
func TestGiantLineIsNotRead(t *testing.T) {
	path := write(t, "a.jsonl", "ok\n")
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	got, _, err := readAll(t, text(path), path, nil)
	wantError(t, err, "line 2, byte offset 3: the line is longer than 1048576 bytes")
	if !slices.Equal(got, []string{"ok"}) {
		t.Errorf("records before it: %q", got)
	}
}

func TestPositionsThatAreNoLongerLines(t *testing.T) {
	tests := []struct {
		name, data, at string
		says           []string // none: it can be read from
	}{
		{"in a line", "one\ntwo\n", "2", []string{"position 2 is not the start of a line", `the byte before it is "n"`, "start the job over with --start-over (StartOver)"}},
		{"before a line's end", "one\ntwo\n", "3", []string{"not the start of a line"}},
		{"the last line was continued", "one\ntwo, and more\n", "7", []string{"position 7 is not the start of a line", "its last line was continued"}},
		{"beyond the end", "one\n", "5", []string{"position 5 is out of range", "only 4 bytes", "truncated or replaced", "--start-over (StartOver)"}},
		{"emptied", "", "4", []string{"position 4 is out of range", "only 0 bytes"}},
		{"at the end", "one\n", "4", nil},
		{"at the end of a line without its own", "one", "3", nil},
		{"grown by lines", "one\ntwo\n", "4", nil},
	}
	for _, tt := range tests {
		for name, packed := range packings(t, tt.data) {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				if name == "nosum.jsonl.zst" && tt.data == "" || strings.HasSuffix(name, "zst") && packed == "" {
					packed = zstded(t, []zstd.EOption{zstd.WithZeroFrames(true)}, "")
				}
				path := write(t, name, packed)
				r, err := text(path).Open(t.Context(), path, []byte(tt.at))
				if len(tt.says) > 0 {
					wantError(t, err, append(tt.says, path)...)
					if !errors.Is(err, weir.ErrRefused) {
						t.Errorf("%v is not weir.ErrRefused", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				recs, err := drain(r)
				off, _ := strconv.Atoi(tt.at)
				if err = errors.Join(err, r.Close()); err != nil || strings.Join(recs, "\n") != strings.TrimSuffix(tt.data[off:], "\n") {
					t.Errorf("read %q, %v", recs, err)
				}
			})
		}
	}
}

func TestFileGoneSinceTheCheckpoint(t *testing.T) {
	path := write(t, "a.jsonl", "one\n")
	src := text(path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := src.Open(t.Context(), path, []byte("4"))
	wantError(t, err, path, "doesn't exist")
	if !errors.Is(err, weir.ErrInput) {
		t.Errorf("%v is not weir.ErrInput", err)
	}
}

// The line's number is counted after the fact; without the file the error is
// still the one that matters.
func TestBadLineInAFileThatIsGone(t *testing.T) {
	path := write(t, "a.jsonl", "one\n\xff\n")
	r, err := text(path).Open(t.Context(), path, []byte("4"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = drain(r)
	wantError(t, err, "a.jsonl: byte offset 4: invalid UTF-8 at byte 0 (0xff)")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestFileShrinksWhileRead(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	path := write(t, "a.jsonl", strings.Repeat(line, 10_000))
	r, err := text(path).Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	recs, _, err := r.Read(nil, 1)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	if err := os.Truncate(path, 600_000); err != nil {
		t.Fatal(err)
	}
	_, err = drain(r)
	wantError(t, err, "the file ends after 600000 bytes, but had 1000000 when it was opened", "line 6001, byte offset 600000")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A file may grow while it is read; once its end was reached it stays there.
func TestFileGrowsWhileRead(t *testing.T) {
	path := write(t, "a.jsonl", "one\n")
	r, err := text(path).Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	grow := func(line string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(line)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	grow("two\n")
	recs, err := drain(r)
	if err != nil || !slices.Equal(recs, []string{"one", "two"}) {
		t.Fatalf("read %q, %v", recs, err)
	}
	grow("three\n")
	if recs, end, err := r.Read(nil, 10); len(recs) > 0 || !end || err != nil {
		t.Errorf("after the end: %q, %v, %v", recs, end, err)
	}
	at := r.Position()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	// A later run finds the rest.
	if recs, _, err := readAll(t, text(path), path, at); err != nil || !slices.Equal(recs, []string{"three"}) {
		t.Errorf("from %s: %q, %v", at, recs, err)
	}
}

// multi is compressed data of several streams, and where each of them ends.
type multi struct {
	name string
	data string
	ends []int
}

func multis(t *testing.T, lines []string) []multi {
	var ms []multi
	add := func(name string, pack func(string) string) {
		m := multi{name: name}
		for i := 0; i < len(lines); i += len(lines) / 3 {
			m.data += pack(strings.Join(lines[i:min(i+len(lines)/3, len(lines))], "\n") + "\n")
			m.ends = append(m.ends, len(m.data))
		}
		ms = append(ms, m)
	}
	add("a.gz", func(s string) string { return gzipped(t, s) })
	for _, opts := range [][]zstd.EOption{
		nil, {zstd.WithEncoderCRC(false)}, {zstd.WithSingleSegment(true)}, {zstd.WithEncoderPadding(64)}, {zstd.WithEncoderLevel(zstd.SpeedBestCompression)},
	} {
		add("a.zst", func(s string) string { return zstded(t, opts, s) })
	}
	return ms
}

func manyLines() []string {
	var lines []string
	for i := range 24 {
		lines = append(lines, fmt.Sprintf("%d: %x %s", i, i*7919*104729, strings.Repeat("=", i)))
	}
	return lines
}

// Cut at any byte but the end of a stream, compressed data never just ends.
func TestTruncatedStreams(t *testing.T) {
	lines := manyLines()
	for i, m := range multis(t, lines) {
		path := filepath.Join(t.TempDir(), m.name)
		for cut := range len(m.data) {
			got, err := readData(t, path, m.data[:cut], codec.String())
			if len(got) > len(lines) || !slices.Equal(got, lines[:len(got)]) {
				t.Fatalf("%s (%d) cut at %d: records that were never written: %q", m.name, i, cut, got)
			}
			if (err == nil) != slices.Contains(m.ends, cut) && !(err == nil && padded(m, cut)) {
				t.Fatalf("%s (%d) cut at %d of %d, streams end at %d: %d records, error %v", m.name, i, cut, len(m.data), m.ends, len(got), err)
			}
			if e, ok := errors.AsType[*file.LineError](err); ok {
				if want := int64(len(strings.Join(lines[:len(got)], "\n"))); e.Line != int64(len(got)+1) || len(got) > 0 && e.Offset != want+1 {
					t.Fatalf("%s (%d) cut at %d: %v; want line %d, byte offset %d", m.name, i, cut, err, len(got)+1, want+1)
				}
				wantError(t, err, "the file is incomplete", fmt.Sprintf("breaks off after %d of the file's bytes", cut))
			}
		}
	}
}

// padded reports whether data that is cut there ends before the padding that
// follows a frame: it is whole too.
func padded(m multi, cut int) bool {
	return strings.HasPrefix(m.data[cut:], "\x50\x2a\x4d\x18")
}

// A flipped bit is either harmless (a time in a header) or an error.
func TestDamagedStreams(t *testing.T) {
	lines := manyLines()
	for i, m := range multis(t, lines) {
		if i == 2 { // without a checksum nothing can be promised
			continue
		}
		path := filepath.Join(t.TempDir(), m.name)
		for at := range len(m.data) {
			b := []byte(m.data)
			b[at] ^= 1 << (at % 8)
			got, err := readData(t, path, string(b), codec.Bytes())
			same := len(got) == len(lines)
			for j := range got {
				same = same && j < len(lines) && string(got[j]) == lines[j]
			}
			if err == nil && !same {
				t.Fatalf("%s (%d), bit %d of byte %d flipped: %d changed records and no error", m.name, i, at%8, at, len(got))
			}
		}
	}
}

func TestTrailingGarbage(t *testing.T) {
	for _, m := range multis(t, manyLines()) {
		for _, garbage := range []string{"\x00", "\n", "xy", "abc", "more than a header of garbage", strings.Repeat("\x00", 512)} {
			got, err := readData(t, filepath.Join(t.TempDir(), m.name), m.data+garbage, codec.String())
			if err == nil || len(got) != 24 {
				t.Errorf("%s followed by %q: %d records, error %v", m.name, garbage, len(got), err)
			}
		}
	}
}

// A long way to a position can be given up.
func TestOpenStopsWhenCanceled(t *testing.T) {
	path := write(t, "a.gz", gzipped(t, "one\ntwo\n"))
	_, err := text(path).Open(canceled(), path, []byte("4"))
	wantError(t, err, "stopped on the way to position 4", "context canceled")
}
