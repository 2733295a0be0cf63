package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/internal/sys"
)

// resolve makes one spelling of all spellings of a path: absolute, with links
// resolved as far as the path exists. It reads links and changes nothing.
func resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("sqlite: the path of the database is empty: name a file")
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("sqlite: %q isn't the path of a file: name one (results must outlive the process)", path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("sqlite: the path %q holds a NUL byte", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite: make %q absolute: %w", path, err)
	}
	for range 40 { // as many links as Linux follows
		if full, err := filepath.EvalSymlinks(path); err == nil {
			return full, nil
		}
		// The file is missing: its folder may be behind a link, and it may
		// itself be a link to where SQLite will create it.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // it isn't a link: it is the end of the way
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", fmt.Errorf("sqlite: %q leads through too many links", path)
}

// probeSize is as much as a small transaction writes.
const probeSize = 64 << 10

// probe finds out whether the disk of a database takes writes: a file beside it
// is written and removed again.
func probe(ctx context.Context, path string) error {
	if _, err := exists(path); err != nil {
		return err
	}
	return call(ctx, "probe", func() error {
		files, err := sys.OpenFiles(filepath.Dir(path))
		if err != nil {
			return err
		}
		name := "." + filepath.Base(path) + "-probe-" + rand.Text()[:8]
		return errors.Join(sys.ProbeDisk(files, name, probeSize), files.Close())
	})
}

// exists reports whether there is a database file. A missing folder is an
// error, since creating it would hide a misspelled path.
func exists(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return false, fmt.Errorf("sqlite: %s is a folder: name a file in it", path)
	case err == nil:
		return true, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, fmt.Errorf("sqlite: look at %s: %w", path, err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
		return false, fmt.Errorf("sqlite: the folder %s of the database doesn't exist: make it, or name another path", filepath.Dir(path))
	}
	return false, nil
}
