package file_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/file"
)

var notOffsets = [][]byte{{}, []byte("x"), []byte("-1"), []byte("+1"), []byte("01"), []byte("1.0"), []byte("1"), []byte("100000"), []byte("99999999999999999999")}

func TestLinesIsASource(t *testing.T) {
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("line %d %s", i, strings.Repeat("x", i*i%23)))
	}
	layouts := map[string]string{
		"whole":      strings.Join(want, "\n") + "\n",
		"noend":      strings.Join(want, "\n"),
		"crlf":       strings.Join(want, "\r\n") + "\r\n",
		"crlfnoend":  strings.Join(want, "\r\n") + "\r",
		"bom":        "\xef\xbb\xbf" + strings.Join(want, "\n") + "\n",
		"blank":      "  \n\t\n\n" + strings.Join(want, "\n\n\r\n") + "\n\n   \n",
		"blanknoend": strings.Join(want, "\n  \n") + "\n   ",
	}
	for layout, data := range layouts {
		for name, packed := range packings(t, data) {
			t.Run(layout+"/"+name, func(t *testing.T) {
				path := write(t, name, packed)
				connectortest.Source(t, connectortest.SourceUnderTest[string]{
					New:     func(*testing.T) weir.Source[string] { return text(path) },
					Want:    map[string][]string{path: want},
					Refused: notOffsets,
				})
			})
		}
	}
}

func TestPatternIsASource(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]string{}
	add := func(name, packed string, lines ...string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(packed), 0o600)); err != nil {
			t.Fatal(err)
		}
		want[path] = lines
	}
	add("2026/b.jsonl", "b1\nb2\n", "b1", "b2")
	add("2026/a.jsonl.gz", gzipped(t, "a1\n", "a2"), "a1", "a2")
	add("2025/c.jsonl.zst", zstded(t, nil, "c1\n"), "c1")
	add("2025/empty.jsonl", "")
	add("2025/empty.jsonl.gz", gzipped(t, ""))
	add("2025/empty.jsonl.zst", zstded(t, []zstd.EOption{zstd.WithZeroFrames(true)}, ""))
	add("other.txt", "not one of them")
	delete(want, filepath.Join(dir, "other.txt"))
	connectortest.Source(t, connectortest.SourceUnderTest[string]{
		New:     func(*testing.T) weir.Source[string] { return text(filepath.Join(dir, "20[0-9]*", "*.jsonl*")) },
		Want:    want,
		Refused: notOffsets,
	})
}

func TestSplitsAreSortedAndClean(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"b.jsonl", "a.jsonl", "c[1].jsonl", "c1.jsonl", `d\.jsonl`} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path string
		want []string
	}{
		{"a.jsonl", []string{"a.jsonl"}},
		{"./x/../a.jsonl", []string{"a.jsonl"}},
		{"[ab].jsonl", []string{"a.jsonl", "b.jsonl"}},
		{".//[ab].jsonl", []string{"a.jsonl", "b.jsonl"}},
		{dir + "/?.jsonl", []string{dir + "/a.jsonl", dir + "/b.jsonl"}},
		{"c[1].jsonl", []string{"c[1].jsonl"}}, // a file of that very name comes first
		{`c\[1\].*`, []string{"c[1].jsonl"}},
		{`d\.jsonl`, []string{`d\.jsonl`}},
	}
	for _, tt := range tests {
		got, err := text(tt.path).Splits(t.Context())
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("Splits of %q = %q, %v; want %q", tt.path, got, err, tt.want)
		}
	}
}

func TestWhatCannotBeInput(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	socket, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	err = errors.Join(
		syscall.Mkfifo("pipe", 0o600), os.Mkdir("folder", 0o700), os.Symlink("pipe", "link"), os.Symlink("nowhere", "broken"),
		os.WriteFile("bad\xff.jsonl", nil, 0o600), os.WriteFile("file", nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		is   error
		says []string
	}{
		{"", nil, []string{"needs a path"}},
		{"missing.jsonl", fs.ErrNotExist, []string{`"missing.jsonl" doesn't exist in ` + dir}},
		{dir + "/missing.jsonl", fs.ErrNotExist, []string{`missing.jsonl" doesn't exist: `}},
		{"broken", fs.ErrNotExist, []string{`"broken" doesn't exist`}},
		{"file/a.jsonl", nil, []string{"not a directory"}},
		{"*.nothing", fs.ErrNotExist, []string{`nothing matches "*.nothing" in ` + dir}},
		{"no/such/*.jsonl", fs.ErrNotExist, []string{"no/such/*.jsonl", "no/such"}},
		{"file/*.jsonl", fs.ErrNotExist, []string{"nothing matches"}},
		{"[", filepath.ErrBadPattern, []string{`"["`, "syntax error in pattern"}},
		{"[/a", filepath.ErrBadPattern, []string{"syntax error in pattern"}},
		{"folder", nil, []string{`"folder" is a directory`, `folder/*.jsonl`}},
		{"f*", nil, []string{`"folder" is a directory`}},
		{"pipe", nil, []string{"named pipe", "can't be read again", "copy"}},
		{"link", nil, []string{"named pipe"}},
		{"socket", nil, []string{"socket"}},
		{os.DevNull, nil, []string{"a device"}},
		{"bad*", nil, []string{`"bad\xff.jsonl"`, "not valid UTF-8"}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			_, err := text(tt.path).Splits(t.Context())
			wantError(t, err, tt.says...)
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %q is not %q", err, tt.is)
			}
			if tt.path != "" && !errors.Is(err, weir.ErrInput) { // "" is a mistake of the declaration
				t.Errorf("error %q is not weir.ErrInput: a restart would find the same", err)
			}
		})
	}
	// A file that was there at Splits, or at the checkpoint.
	for _, split := range []string{"missing.jsonl", "folder", "pipe", os.DevNull} {
		if _, err := text("file").Open(t.Context(), split, nil); !errors.Is(err, weir.ErrInput) {
			t.Errorf("Open(%q): got %v, want weir.ErrInput", split, err)
		}
	}
}

func TestDeclarationErrors(t *testing.T) {
	path := write(t, "a.jsonl", "a\n")
	tests := []struct {
		name string
		src  weir.Source[string]
		says string
	}{
		{"no codec", file.Lines[string](path, nil), "needs a codec"},
		{"no path", text(""), "needs a path"},
		{"no length", text(path, file.MaxLine(0)), "file.MaxLine(0)"},
		{"a huge length", text(path, file.MaxLine(1<<30+1)), "file.MaxLine(1073741825)"},
	}
	for _, tt := range tests {
		wantError(t, tt.src.(interface{ Check() error }).Check(), tt.says)
		_, err := tt.src.Splits(t.Context())
		wantError(t, err, tt.says)
		_, err = tt.src.Open(t.Context(), path, nil)
		wantError(t, err, tt.says)
	}
}

// Names and contents must agree: a .gz that was decompressed in place, or a
// compressed file without its suffix, would otherwise be read as lines of
// something else.
func TestNameAndMagicMustAgree(t *testing.T) {
	plain, gz, zs := "a\nb\n", gzipped(t, "a\n"), zstded(t, nil, "a\n")
	skippable := "\x50\x2a\x4d\x18\x01\x00\x00\x00x" + zs
	tests := []struct {
		name, data string
		says       []string // none: no error
	}{
		{"a.gz", plain, []string{"gzip", "begins with 610a620a", "4 bytes in all"}},
		{"a.zst", plain, []string{"zstd", "begins with 610a620a"}},
		{"a.gz", zs, []string{"a name for gzip data", "begins with 28b52ffd"}},
		{"a.zst", gz, []string{"a name for zstd data", "begins with 1f8b08"}},
		{"a.jsonl", gz, []string{"holds gzip data", "doesn't end in .gz"}},
		{"a.jsonl", zs, []string{"holds zstd data", "doesn't end in .zst"}},
		{"a.gz", "", []string{"a name for gzip data, but is empty"}},
		{"a.zst", "", []string{"a name for zstd data, but is empty"}},
		{"a.zst", zs[:3], []string{"(3 bytes in all)"}},
		{"a.gz", gz[:9], []string{"header is damaged", "unexpected EOF"}},
		{"a.zst", skippable, nil},
		{"a.jsonl", "\x1f\x8b", nil}, // too short to be anything but text
	}
	for _, tt := range tests {
		path := write(t, tt.name, tt.data)
		r, err := file.Lines(path, codec.Bytes()).Open(t.Context(), path, nil)
		if len(tt.says) > 0 {
			wantError(t, err, append(tt.says, path)...)
			if !errors.Is(err, weir.ErrInput) {
				t.Errorf("%s with %q: %v is not weir.ErrInput", tt.name, tt.data, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with %q: %v", tt.name, tt.data, err)
			continue
		}
		if _, err := drain(r); err != nil {
			t.Errorf("%s with %q: %v", tt.name, tt.data, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Lines of any length, at any place in the buffer.
func TestLineLengths(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const buffer = 256 << 10
	lengths := []int{buffer - 1, buffer, buffer + 1, 1, buffer - 2, 1 << 20, 1<<20 - 1, 2 * buffer, 3, buffer/2 - 1, buffer / 2}
	for range 200 {
		lengths = append(lengths, 1+rng.IntN(1<<rng.IntN(18)))
	}
	var want []string
	for i, n := range lengths {
		want = append(want, strings.Repeat(string(rune('a'+i%26)), n))
	}
	for _, end := range []string{"\n", "\r\n"} {
		data := strings.Join(want, end) + end
		for name, packed := range map[string]string{"a.jsonl": data, "a.jsonl.gz": gzipped(t, data), "a.jsonl.zst": zstded(t, nil, data)} {
			path := write(t, name, packed)
			got, r, err := readAll(t, text(path), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, lines ending in %q: the lines came back changed (%d of %d)", name, end, len(got), len(want))
			}
			if at := string(r.Position()); at != fmt.Sprint(len(data)) {
				t.Errorf("%s: Position at the end = %s, want %d", name, at, len(data))
			}
		}
	}
}

func TestMaxLineCountsWithoutTheEnd(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "", "\r"} {
		path := write(t, "a.jsonl", "12345"+end)
		if got, _, err := readAll(t, text(path, file.MaxLine(5)), path, nil); err != nil || !slices.Equal(got, []string{"12345"}) {
			t.Errorf("a line as long as it may be, then %q: %q, %v", end, got, err)
		}
		_, _, err := readAll(t, text(path, file.MaxLine(4)), path, nil)
		wantError(t, err, "line 1, byte offset 0: the line is longer than 4 bytes")
	}
}

func TestLocate(t *testing.T) {
	data := "first\n\nthird\nfourth"
	for name, packed := range packings(t, data) {
		path := write(t, name, packed)
		loc := text(path).(weir.Locator)
		for _, ask := range [][2]int64{{13, 4}, {0, 1}, {7, 3}, {7, 3}, {13, 4}} { // forwards it counts on
			mark, line := ask[0], ask[1]
			if got, want := loc.Locate(path, mark), fmt.Sprintf("%s, line %d, byte offset %d", path, line, mark); got != want {
				t.Errorf("Locate(%d) = %q, want %q", mark, got, want)
			}
		}
		// Asked after an error, it must not fail, whatever became of the file.
		if got := loc.Locate(path, 1000); !strings.HasPrefix(got, path+", byte offset 1000 (its line number can't be told: ") {
			t.Errorf("Locate out of range = %q", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if got := loc.Locate(path, 7); !strings.Contains(got, "byte offset 7") || !strings.Contains(got, "doesn't exist") {
			t.Errorf("Locate in a file that is gone = %q", got)
		}
	}
}
