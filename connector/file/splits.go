package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/weirstream/weir"
)

// Splits returns the files, sorted by name.
func (l *lines[T]) Splits(context.Context) ([]string, error) {
	if l.err != nil {
		return nil, l.err
	}
	paths, err := expand(l.path, l.conf.follow != nil)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if !utf8.ValidString(p) {
			return nil, fmt.Errorf("%w: input file %q: its name is not valid UTF-8, so a checkpoint can't name it; rename it", weir.ErrInput, p)
		}
		if err := regular(p); err != nil {
			return nil, err
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// expand returns the files that path stands for, at least one unless some may
// still come.
func expand(path string, mayCome bool) ([]string, error) {
	if _, err := os.Lstat(path); err == nil || !strings.ContainsAny(path, wildcards) {
		return []string{path}, nil
	}
	paths, err := glob(path)
	switch {
	case errors.Is(err, filepath.ErrBadPattern), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: input files %q: %w", weir.ErrInput, path, err)
	case err != nil:
		return nil, fmt.Errorf("input files %q: %w", path, err)
	case len(paths) == 0 && !mayCome:
		return nil, fmt.Errorf("%w: input files: nothing matches %q%s: %w", weir.ErrInput, path, workDir(path), fs.ErrNotExist)
	}
	return paths, nil
}

const wildcards = `*?[\`

// glob is filepath.Glob, but a folder that can't be listed is an error there
// instead of a part of the input that goes missing without a word.
func glob(pattern string) ([]string, error) {
	dir, name := filepath.Split(pattern)
	if _, err := filepath.Match(name, ""); err != nil {
		return nil, fmt.Errorf("%w (a \\ takes the meaning from the character behind it)", err)
	}
	dirs := []string{filepath.Clean(dir)}
	if strings.ContainsAny(dir, wildcards) {
		var err error
		if dirs, err = glob(dirs[0]); err != nil {
			return nil, err
		}
	}
	var paths []string
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if ok, _ := filepath.Match(name, e.Name()); ok { // the pattern was checked above
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	return paths, nil
}

// regular refuses what can't be read twice from the same place, before it is
// opened: opening a pipe waits for its writer.
func regular(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: input file %q doesn't exist%s: %w", weir.ErrInput, path, workDir(path), fs.ErrNotExist)
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: input file: %w", weir.ErrInput, err)
	}
	if err != nil {
		return fmt.Errorf("input file: %w", err)
	}
	return checkMode(path, info.Mode())
}

func checkMode(path string, mode fs.FileMode) error {
	var what string
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("%w: input file %q is a directory; name a file in it, or a pattern like %q", weir.ErrInput, path, filepath.Join(path, "*.jsonl"))
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "no regular file"
	}
	return fmt.Errorf("%w: input file %q is %s, which can't be read again from a position after a crash; copy what it holds into a file",
		weir.ErrInput, path, what)
}

// workDir says where a relative path was looked for.
func workDir(path string) string {
	if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		return " in " + dir
	}
	return ""
}
