package file_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/file"
)

// spoils are what can happen to a file that is followed, of which "one" and "two"
// have been read.
var spoils = []struct {
	name    string
	do      func(t *testing.T, path string)
	running []string // what the error says, while it is read and at a later start
	later   []string
}{
	{"truncated", func(t *testing.T, path string) { truncate(t, path, 0) },
		[]string{"has 0 bytes and had 8", "copytruncate", "--start-over"}, []string{"position 8 is out of range", "truncated or replaced"}},
	{"truncated to a line", func(t *testing.T, path string) { truncate(t, path, 4) },
		[]string{"has 4 bytes and had 8"}, []string{"position 8 is out of range"}},
	{"truncated and written anew, as long as before", func(t *testing.T, path string) { truncate(t, path, 0); add(t, path, "six\nten\n") },
		nil, []string{"up to position 8 it isn't the file that was read"}},
	{"truncated and written anew, longer", func(t *testing.T, path string) { truncate(t, path, 0); add(t, path, "three\nfour\nfive\n") },
		[]string{"has changed before byte 8", "truncated and written anew"}, []string{"up to position 8 it isn't the file that was read"}},
	{"rotated by renaming", func(t *testing.T, path string) { rename(t, path, path+".1"); add(t, path, "three\n") },
		[]string{"is another file now", "rotated by renaming", "bring the old file back", "clicks-2026-03-01.jsonl"}, []string{"position 8 is out of range"}},
	{"rotated by renaming, and longer", func(t *testing.T, path string) { rename(t, path, path+".1"); add(t, path, "three\nfour\nfive\n") },
		[]string{"is another file now"}, []string{"up to position 8 it isn't the file that was read", "rotated under this name"}},
	{"replaced by another file", func(t *testing.T, path string) { add(t, path+".new", "one\nTWO\nsix\n"); rename(t, path+".new", path) },
		[]string{"is another file now"}, []string{"up to position 8 it isn't the file that was read"}},
	{"deleted", func(t *testing.T, path string) { remove(t, path) },
		[]string{"is gone, although it is followed", "bring it back"}, []string{"doesn't exist"}},
	{"a folder in its place", func(t *testing.T, path string) {
		remove(t, path)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}, []string{"is another file now"}, []string{"is a directory"}},
	{"copied, and the copy put in its place", func(t *testing.T, path string) {
		add(t, path+".new", "one\ntwo\nthree\n")
		rename(t, path+".new", path)
	}, []string{"is another file now"}, nil}, // which is what it says it is
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestSpoiledWhileItIsFollowed(t *testing.T) {
	for _, tt := range spoils {
		if tt.running == nil {
			continue // nobody can tell, until there is more
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := write(t, "a.jsonl", "one\ntwo\n")
				r := followed(t, text(path, file.Follow()), path, nil)
				defer shut(t, r)
				all(t, r, 10)
				tt.do(t, path)
				<-r.Ready()
				recs, end, err := r.Read(nil, 10)
				if len(recs) > 0 || end || !errors.Is(err, weir.ErrRefused) {
					t.Errorf("Read = %q, %v, %v", recs, end, err)
				}
				wantError(t, err, append(tt.running, path)...)
				if _, _, again := r.Read(nil, 10); again != err {
					t.Errorf("Read once more: %v", again)
				}
			})
		})
	}
}

func TestSpoiledSinceTheCheckpoint(t *testing.T) {
	for _, tt := range spoils {
		for _, opts := range [][]file.Option{{file.Follow()}, nil} { // a run that doesn't follow checks as well
			t.Run(fmt.Sprint(tt.name, len(opts)), func(t *testing.T) {
				path := write(t, "a.jsonl", "one\ntwo\n")
				r := followed(t, text(path, file.Follow()), path, nil)
				all(t, r, 10)
				at := r.Position()
				shut(t, r)
				tt.do(t, path)
				r, err := text(path, opts...).Open(t.Context(), path, at)
				if tt.later == nil {
					if err != nil {
						t.Fatal(err)
					}
					recs, _, err := r.Read(nil, 10)
					if !slices.Equal(recs, []string{"three"}) || err != nil {
						t.Errorf("read %q, %v", recs, err)
					}
					shut(t, r)
					return
				}
				wantError(t, err, append(tt.later, path)...)
				if !errors.Is(err, weir.ErrRefused) && !errors.Is(err, weir.ErrInput) {
					t.Errorf("%v is neither weir.ErrRefused nor weir.ErrInput", err)
				}
			})
		}
	}
}

// A file that is truncated while its reader is far from its end.
func TestTruncatedBehindTheReader(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	for name, data := range map[string]string{"shorter": "", "longer": strings.Repeat(strings.Repeat("y", 49)+"\n", 30_000)} {
		path := write(t, "a.jsonl", strings.Repeat(line, 10_000))
		r := followed(t, text(path, file.Follow()), path, nil)
		if _, _, err := r.Read(nil, 10); err != nil {
			t.Fatal(err)
		}
		truncate(t, path, 0)
		add(t, path, data)
		var err error
		n := 10
		for recs := []string{""}; err == nil && len(recs) > 0; n += len(recs) {
			recs, _, err = r.Read(nil, 100)
			for _, rec := range recs {
				if rec[0] == 'y' {
					t.Fatalf("%s: a line of the new data was read", name)
				}
			}
		}
		if !errors.Is(err, weir.ErrRefused) || n >= 10_000 {
			t.Errorf("%s: after %d lines: %v", name, n, err)
		}
		shut(t, r)
	}
}
