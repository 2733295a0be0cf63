package file_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/file"
)

func TestFollowedLinesAreASource(t *testing.T) {
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("line %d %s", i, strings.Repeat("x", i*i%23)))
	}
	layouts := map[string]string{
		"whole":      strings.Join(want, "\n") + "\n",
		"unfinished": strings.Join(want, "\n") + "\nnot yet a line",
		"crlf":       strings.Join(want, "\r\n") + "\r\n\r",
		"bom":        "\xef\xbb\xbf" + strings.Join(want, "\n") + "\n",
		"blank":      "  \n\t\n\n" + strings.Join(want, "\n\n\r\n") + "\n\n   \n",
	}
	bad := append(slices.Clone(notOffsets), []byte("14 sha256:0123456789abcdef"), []byte("14 sha256:"))
	for layout, data := range layouts {
		t.Run(layout, func(t *testing.T) {
			path := write(t, "a.jsonl", data)
			connectortest.Source(t, connectortest.SourceUnderTest[string]{
				New:     func(*testing.T) weir.Source[string] { return text(path, file.Follow()) },
				Want:    map[string][]string{path: want},
				Refused: bad,
				Endless: true,
			})
		})
	}
	t.Run("growing", func(t *testing.T) {
		path := write(t, "a.jsonl", layouts["whole"])
		connectortest.Source(t, connectortest.SourceUnderTest[string]{
			New:     func(*testing.T) weir.Source[string] { return text(path, file.Follow()) },
			Want:    map[string][]string{path: want},
			Refused: bad,
			Endless: true,
			Growing: &connectortest.GrowingSource[string]{New: growingFiles},
		})
	})
}

// growingFiles is a folder in which files come and grow, by lines and by halves
// of lines, which are not to be read.
func growingFiles(t *testing.T) connectortest.GrowingSplits[string] {
	dir := t.TempDir()
	steps := []map[string]string{
		{},
		{"a.jsonl": "a1\na2\r\n\na"},
		{"a.jsonl": "3\n", "b.jsonl": ""},
		{"b.jsonl": "b1 is long enough to be cut\nb2"},
		{"c.jsonl": "c1\n", "b.jsonl": "\n", "packed.jsonl.gz": gzipped(t, "p1\np2\n")},
		{"a.jsonl": "a4\na5\n", "c.jsonl": "c2\nc3\r"},
		{"c.jsonl": "\nc4\n"},
	}
	data := map[string]string{}
	return connectortest.GrowingSplits[string]{
		Source: func() weir.Source[string] {
			return text(filepath.Join(dir, "*.jsonl*"), file.Follow(file.Poll(time.Millisecond)))
		},
		Grow: func() (map[string][]string, bool) {
			for _, name := range slices.Sorted(maps.Keys(steps[0])) {
				path := filepath.Join(dir, name)
				add(t, path, steps[0][name])
				data[path] += steps[0][name]
			}
			steps = steps[1:]
			want := map[string][]string{}
			for path, d := range data {
				want[path] = nil
				if strings.HasSuffix(path, ".gz") {
					want[path] = []string{"p1", "p2"}
					continue
				}
				for line := range strings.Lines(d) {
					if whole := strings.TrimRight(line, "\r\n"); strings.HasSuffix(line, "\n") && whole != "" {
						want[path] = append(want[path], whole)
					}
				}
			}
			return want, len(steps) > 0
		},
	}
}

func TestSpoiledLinesAreASource(t *testing.T) {
	want := []connectortest.SpoiledRecord[click]{
		{Rec: click{ID: "a"}},
		{Raw: []byte("oops")},
		{Raw: []byte(strings.Repeat("x", 70_000))},
		{Rec: click{ID: "b"}},
		{Rec: click{ID: "c"}},
		{Raw: []byte(`{"n":1`)},
		{Raw: []byte(`{"id":"` + strings.Repeat("y", 100) + `"}`)},
		{Rec: click{ID: "d"}},
		{Raw: []byte("\xff\xfe")},
	}
	var data strings.Builder
	var clean []click
	for i, w := range want {
		line := string(w.Raw)
		if w.Raw == nil {
			line = fmt.Sprintf(`{"id":%q}`, w.Rec.ID)
			clean = append(clean, w.Rec)
		}
		data.WriteString(line + []string{"\n", "\r\n", "\n\n"}[i%3])
	}
	run := func(t *testing.T, packed string, opts ...file.Option) {
		dir := t.TempDir()
		path := filepath.Join(dir, "spoiled"+packed)
		good := filepath.Join(dir, "good.jsonl")
		body := data.String()
		if strings.HasSuffix(packed, ".gz") {
			body = gzipped(t, body)
		}
		err := errors.Join(os.WriteFile(path, []byte(body), 0o600),
			os.WriteFile(good, []byte(`{"id":"a"}`+"\n"+`{"id":"b"}`+"\n"+`{"id":"c"}`+"\n"+`{"id":"d"}`+"\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		opts = append(opts, file.MaxLine(100))
		connectortest.Source(t, connectortest.SourceUnderTest[click]{
			New:     func(*testing.T) weir.Source[click] { return file.Lines(good, codec.JSON[click](), opts...) },
			Want:    map[string][]click{good: clean},
			Refused: notOffsets,
			Endless: len(opts) > 1,
			Spoiled: &connectortest.SpoiledSource[click]{
				New:  func(*testing.T) weir.Source[click] { return file.Lines(path, codec.JSON[click](), opts...) },
				Want: map[string][]connectortest.SpoiledRecord[click]{path: want},
			},
		})
	}
	t.Run("plain", func(t *testing.T) { run(t, ".jsonl") })
	t.Run("compressed", func(t *testing.T) { run(t, ".jsonl.gz") })
	t.Run("followed", func(t *testing.T) { run(t, ".jsonl", file.Follow()) })
}
