package file

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines are counted right in whatever order they are asked for, of several files
// in turn, and what is remembered on the way keeps its order.
func TestLineCountsInAnyOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	var paths []string
	var texts [][]byte
	for _, name := range []string{"a.jsonl", "b.jsonl"} {
		var b bytes.Buffer
		for b.Len() < 5*countEvery {
			b.WriteString(strings.Repeat("x", r.IntN(400)) + "\n")
		}
		paths, texts = append(paths, filepath.Join(dir, name)), append(texts, b.Bytes())
		if err := os.WriteFile(paths[len(paths)-1], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var c lineCounts
	for range 300 {
		f := r.IntN(2)
		off := r.IntN(len(texts[f]) + 1)
		if r.IntN(10) == 0 {
			off = off / countEvery * countEvery
		}
		got, err := c.before(paths[f], int64(off))
		if want := int64(bytes.Count(texts[f][:off], []byte{'\n'})); err != nil || got != want {
			t.Fatalf("file %d, offset %d: %d lines, %v; want %d", f, off, got, err, want)
		}
	}
	for path, known := range c.files {
		for i := 1; i < len(known); i++ {
			if d := known[i].off - known[i-1].off; d != countEvery {
				t.Errorf("%s: remembered offsets %d and %d", path, known[i-1].off, known[i].off)
			}
		}
	}
	if len(c.files) != 2 {
		t.Errorf("%d files are remembered", len(c.files))
	}
	if _, err := c.before(paths[0], int64(len(texts[0])+1)); err == nil {
		t.Error("an offset behind the end has a line")
	}
	if _, err := c.before(filepath.Join(dir, "none"), 5); err == nil {
		t.Error("a file that isn't there has lines")
	}
}
