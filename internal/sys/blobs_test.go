package sys_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirstream/weir/internal/sys"
)

func bytesOf(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

func TestBlobs(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		b := sys.NewBlobs(f)
		listed := func(prefix string, want ...string) {
			t.Helper()
			got, err := b.List(prefix)
			must(t, err)
			if !slices.Equal(got, want) {
				t.Errorf("list %q: got %q, want %q", prefix, got, want)
			}
		}
		listed("log/")
		must(t, b.PutIfAbsent("log/2", bytesOf([]byte("second"))))
		must(t, b.PutIfAbsent("log/1", bytesOf([]byte("first"))))
		must(t, b.PutIfAbsent("log/old/1", bytesOf(nil)))
		must(t, b.PutIfAbsent("top", bytesOf(nil)))
		wants(t, "put again", b.PutIfAbsent("log/1", bytesOf([]byte("other"))), fs.ErrExist, "log/1")
		listed("log/", "log/1", "log/2")
		listed("log/2", "log/2")
		listed("log/old/", "log/old/1")
		listed("", "top")
		lists(t, f, "tmp")
		got, err := b.Get("log/1")
		if must(t, err); string(got) != "first" {
			t.Errorf("get: got %q", got)
		}
		must(t, b.Delete("log/1"))
		must(t, b.Delete("log/1"))
		must(t, b.Delete("no/1"))
		listed("log/", "log/2")
		_, err = b.Get("log/1")
		wants(t, "get", err, fs.ErrNotExist, "log/1")
		must(t, b.PutIfAbsent("log/1", bytesOf([]byte("again"))))

		for _, name := range []string{"", ".", "/x", "../x", "a//x", "tmp", "tmp/x"} {
			_, got := b.Get(name)
			wants(t, "get", got, fs.ErrInvalid, "tmp")
			wants(t, "put", b.PutIfAbsent(name, bytesOf(nil)), fs.ErrInvalid, "tmp")
			wants(t, "delete", b.Delete(name), fs.ErrInvalid, "tmp")
		}
	})
}

func TestBlobsGetRange(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		b := sys.NewBlobs(f)
		must(t, b.PutIfAbsent("seg/1", bytesOf([]byte("0123456789"))))
		for _, c := range []struct {
			off, n int64
			want   string
			bad    bool
		}{{0, 10, "0123456789", false}, {3, 4, "3456", false}, {9, 1, "9", false}, {10, 0, "", false}, {0, 0, "", false},
			{9, 2, "", true}, {10, 1, "", true}, {11, 0, "", true}, {-1, 2, "", true}, {0, -1, "", true},
			{5, math.MaxInt64, "", true}, {math.MaxInt64, math.MaxInt64, "", true}} {
			got, err := b.GetRange("seg/1", c.off, c.n)
			if c.bad {
				wants(t, fmt.Sprintf("range %d+%d", c.off, c.n), err, io.ErrUnexpectedEOF, "seg/1")
			} else if string(got) != c.want || err != nil {
				t.Errorf("range %d+%d: got %q, %v; want %q", c.off, c.n, got, err, c.want)
			}
		}
	})
}

func TestBlobsPutThatFails(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		b := sys.NewBlobs(f)
		broken := errors.New("broken encoder")
		err := b.PutIfAbsent("log/1", func(w io.Writer) error {
			_, err := w.Write(make([]byte, 100<<10)) // more than any buffer on the way
			return errors.Join(err, broken)
		})
		wants(t, "put", err, broken, "log/1")
		lists(t, f, "log")
		lists(t, f, "tmp")
		must(t, b.PutIfAbsent("log/1", bytesOf([]byte("whole"))))
	})
}

func TestBlobsOnePutWins(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		const stores, names = 4, 10
		var won atomic.Int64
		var all sync.WaitGroup
		for s := range stores {
			b := sys.NewBlobs(f) // as if each were a process
			all.Go(func() {
				for i := range names {
					err := b.PutIfAbsent(fmt.Sprintf("log/%d", i), bytesOf(bytes.Repeat([]byte{byte(s)}, 1000)))
					if err == nil {
						won.Add(1)
					} else if !errors.Is(err, fs.ErrExist) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if won.Load() != names {
			t.Errorf("%d names were put %d times", names, won.Load())
		}
		for i := range names {
			got, err := sys.NewBlobs(f).Get(fmt.Sprintf("log/%d", i))
			if err != nil || len(got) != 1000 || strings.Trim(string(got), string(got[:1])) != "" {
				t.Errorf("log/%d isn't of one writer: %d bytes, error %v", i, len(got), err)
			}
		}
	})
}

func TestCleanTemp(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		must(t, sys.CleanTemp(f)) // nothing there yet
		b := sys.NewBlobs(f)
		must(t, b.PutIfAbsent("log/1", bytesOf(nil)))
		create(t, f, "tmp/left-1", "x")
		create(t, f, "tmp/left-2", "")
		// Another process cleans while this one writes: the put fails whole.
		err := b.PutIfAbsent("log/2", func(w io.Writer) error { return sys.CleanTemp(f) })
		wants(t, "put", err, fs.ErrNotExist, "log/2")
		lists(t, f, "tmp")
		lists(t, f, "log", "1")
	})
}
