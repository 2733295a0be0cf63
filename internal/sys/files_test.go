package sys_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// everyFiles runs a test on each implementation of Files, with an empty folder.
func everyFiles(t *testing.T, test func(t *testing.T, f sys.Files)) {
	t.Helper()
	open := map[string]func(*testing.T) (sys.Files, error){
		"os":  func(t *testing.T) (sys.Files, error) { return sys.OpenFiles(t.TempDir() + "/made/for/it") },
		"mem": func(*testing.T) (sys.Files, error) { return sys.NewMemFiles(), nil },
		"sim": func(*testing.T) (sys.Files, error) {
			return sim.NewMachine(sim.NewDisk()).Env().Files("made/for/it")
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			f, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			test(t, f)
			if err := f.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants checks what an error wraps, and that it names the file.
func wants(t *testing.T, what string, err, want error, file string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	} else if !strings.Contains(err.Error(), file) {
		t.Errorf("%s: error %q doesn't name %q", what, err, file)
	}
}

func create(t *testing.T, f sys.Files, name, content string) {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	n, err := io.WriteString(file, content)
	if n != len(content) || err != nil {
		t.Fatalf("write %s: %d of %d bytes, error %v", name, n, len(content), err)
	}
	must(t, file.Sync())
	must(t, file.Close())
}

func content(t *testing.T, f sys.Files, name string) string {
	t.Helper()
	file, err := f.Open(name)
	must(t, err)
	b, err := io.ReadAll(file)
	must(t, err)
	must(t, file.Close())
	return string(b)
}

func lists(t *testing.T, f sys.Files, dir string, want ...string) {
	t.Helper()
	got, err := f.List(dir)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("list %s: got %q, want %q", dir, got, want)
	}
}

func TestFilesNames(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		lists(t, f, ".")
		must(t, f.Mkdir("a/b"))
		must(t, f.Mkdir("a/b"))
		must(t, f.Mkdir("a"))
		must(t, f.Mkdir("."))
		create(t, f, "a/b/2", "two")
		create(t, f, "a/1", "one")
		lists(t, f, ".", "a/")
		lists(t, f, "a", "1", "b/")
		lists(t, f, "a/b", "2")
		must(t, f.SyncDir("."))
		must(t, f.SyncDir("a/b"))
		must(t, f.Remove("a/b/2"))
		must(t, f.Remove("a/b"))
		lists(t, f, "a", "1")

		_, err := f.Create("a/1")
		wants(t, "create again", err, fs.ErrExist, "1")
		_, err = f.Create("a")
		wants(t, "create over a folder", err, fs.ErrExist, "a")
		_, err = f.Create("no/1")
		wants(t, "create in no folder", err, fs.ErrNotExist, "no")
		_, err = f.Open("a/no")
		wants(t, "open", err, fs.ErrNotExist, "no")
		_, err = f.List("no")
		wants(t, "list", err, fs.ErrNotExist, "no")
		wants(t, "sync folder", f.SyncDir("no"), fs.ErrNotExist, "no")
		wants(t, "remove", f.Remove("a/no"), fs.ErrNotExist, "no")
		for what, err := range map[string]error{"mkdir over a file": f.Mkdir("a/1"), "mkdir below a file": f.Mkdir("a/1/x"),
			"remove a full folder": f.Remove("a"), "remove the folder itself": f.Remove(".")} {
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		}
		if got := content(t, f, "a/1"); got != "one" {
			t.Errorf("after what failed the file holds %q", got)
		}
	})
}

func TestFilesLinkAndRename(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		must(t, f.Mkdir("a"))
		must(t, f.Mkdir("b"))
		create(t, f, "a/1", "one")
		create(t, f, "a/2", "two")
		must(t, f.Link("a/1", "b/1"))
		wants(t, "link over a file", f.Link("a/2", "b/1"), fs.ErrExist, "1")
		wants(t, "link nothing", f.Link("a/no", "b/2"), fs.ErrNotExist, "no")
		wants(t, "link into nothing", f.Link("a/1", "no/2"), fs.ErrNotExist, "no")
		must(t, f.Remove("a/1"))
		if got := content(t, f, "b/1"); got != "one" {
			t.Errorf("the link holds %q once the first name is gone", got)
		}
		must(t, f.Rename("a/2", "b/1"))
		lists(t, f, "a")
		lists(t, f, "b", "1")
		if got := content(t, f, "b/1"); got != "two" {
			t.Errorf("the target of the rename holds %q", got)
		}
		must(t, f.Rename("b/1", "b/3"))
		lists(t, f, "b", "3")
		wants(t, "rename nothing", f.Rename("b/1", "b/4"), fs.ErrNotExist, "1")
		wants(t, "rename into nothing", f.Rename("b/3", "no/4"), fs.ErrNotExist, "no")
		lists(t, f, "b", "3")
	})
}

func TestFilesContent(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		w, err := f.Create("x")
		must(t, err)
		_, err = io.WriteString(w, "hello, ")
		must(t, err)
		r, err := f.Open("x")
		must(t, err)
		got := make([]byte, 4)
		_, err = io.ReadFull(r, got)
		must(t, err)
		_, err = io.WriteString(w, "world")
		must(t, err)
		rest, err := io.ReadAll(r)
		must(t, err)
		if string(got)+string(rest) != "hello, world" {
			t.Errorf("read %q, then %q", got, rest)
		}
		for _, file := range []sys.File{w, r} {
			if n, err := file.Size(); n != 12 || err != nil {
				t.Errorf("size %d, error %v; want 12", n, err)
			}
		}
		for _, c := range []struct {
			off  int64
			want string
			err  error
		}{{7, "worl", nil}, {8, "orld", nil}, {9, "rld", io.EOF}, {12, "", io.EOF}, {99, "", io.EOF}} {
			n, err := r.ReadAt(got, c.off)
			if string(got[:n]) != c.want || c.err == nil && err != nil && err != io.EOF || c.err != nil && err != c.err {
				t.Errorf("read at %d: got %q, %v; want %q, %v", c.off, got[:n], err, c.want, c.err)
			}
		}
		if _, err := r.ReadAt(got, -1); err == nil || err == io.EOF {
			t.Errorf("read at -1: got error %v", err)
		}
		if n, err := r.Write([]byte("x")); n != 0 || err == nil {
			t.Errorf("wrote %d bytes to a file opened for reading, error %v", n, err)
		}
		must(t, f.Remove("x"))
		if n, err := w.ReadAt(got, 8); string(got[:n]) != "orld" || err != nil && err != io.EOF {
			t.Errorf("an open file whose name is gone: got %q, %v", got[:n], err)
		}
		must(t, w.Close())
		must(t, r.Close())
		_, err = w.Write([]byte("x"))
		wants(t, "write when closed", err, fs.ErrClosed, "x")
		wants(t, "sync when closed", w.Sync(), fs.ErrClosed, "x")
		_, err = r.Read(got)
		wants(t, "read when closed", err, fs.ErrClosed, "x")
		wants(t, "close again", r.Close(), fs.ErrClosed, "x")
	})
}

func TestFilesStayInside(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		create(t, f, "x", "")
		for _, name := range []string{"../x", "/x", "a/../../x", ""} {
			_, created := f.Create(name)
			_, opened := f.Open(name)
			_, locked := f.Lock(name)
			_, listed := f.List(name)
			for what, err := range map[string]error{"create": created, "open": opened, "lock": locked, "list": listed,
				"mkdir": f.Mkdir(name), "remove": f.Remove(name), "sync folder": f.SyncDir(name),
				"link from": f.Link(name, "y"), "link to": f.Link("x", name),
				"rename from": f.Rename(name, "y"), "rename to": f.Rename("x", name)} {
				if err == nil {
					t.Errorf("%s %q: no error", what, name)
				}
			}
		}
		lists(t, f, ".", "x")
	})
}

func TestFilesLock(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		l, err := f.Lock("LOCK")
		must(t, err)
		_, err = f.Lock("LOCK")
		wants(t, "lock again", err, sys.ErrLocked, "LOCK")
		other, err := f.Lock("OTHER")
		must(t, err)
		must(t, other.Close())
		must(t, l.Close())
		l, err = f.Lock("LOCK")
		must(t, err)
		must(t, l.Close())
		lists(t, f, ".", "LOCK", "OTHER")
	})
}

func TestFilesClosed(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		must(t, f.Close())
		_, err := f.Create("x")
		wants(t, "create", err, fs.ErrClosed, "x")
		wants(t, "mkdir", f.Mkdir("x"), fs.ErrClosed, "x")
		_, err = f.List(".")
		wants(t, "list", err, fs.ErrClosed, "list")
	})
}

func TestFilesConcurrently(t *testing.T) {
	everyFiles(t, func(t *testing.T, f sys.Files) {
		const workers, rounds = 4, 20
		won := make([]int, workers)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range rounds {
					file, err := f.Create(fmt.Sprint(i))
					if errors.Is(err, fs.ErrExist) {
						continue
					}
					if err == nil {
						_, err = fmt.Fprint(file, w)
						err = errors.Join(err, file.Sync(), file.Close(), f.SyncDir("."))
						won[w]++
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		total := 0
		for w, n := range won {
			total += n
			for i := range rounds {
				if content(t, f, fmt.Sprint(i)) == fmt.Sprint(w) {
					n--
				}
			}
			if n != 0 {
				t.Errorf("worker %d: %d of the files that it made don't hold its number", w, n)
			}
		}
		if total != rounds {
			t.Errorf("%d files were made %d times", rounds, total)
		}
	})
}
