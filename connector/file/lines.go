// Package file reads files of lines: JSON lines, or any other format in which
// a record is one line.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

// Lines is a bounded source with a record a line. path is one file or a
// pattern of [filepath.Match]; a file whose very name it is comes first. Each
// file is a split, named by the path as it was given: a job that is started
// again must spell it in the same way.
//
// A file whose name ends in .gz or .zst is decompressed, also where several
// compressed streams stand behind each other; the first bytes must agree with
// the name. The position is the byte offset of a line in the uncompressed data,
// as decimal text. To continue in a compressed file, all before the position is
// decompressed again.
//
// A line ends with \n or \r\n, the last one also with the file. Lines that are
// empty, or hold only spaces and tabs, are skipped but counted in line numbers.
// A byte order mark at the start is skipped. A line that is too long (see
// [MaxLine]) or that the codec refuses stops the job with a [LineError].
//
// A file may grow by whole lines while it is read; it ends where its end is
// first reached. A file that got shorter, or whose position is no longer the
// start of a line, was replaced and is refused. Only regular files are read.
func Lines[T any](path string, c codec.Codec[T], opts ...Option) weir.Source[T] {
	conf := config{maxLine: DefaultMaxLine}
	for _, o := range opts {
		o.apply(&conf)
	}
	l := &lines[T]{path: filepath.Clean(path), codec: c, conf: conf}
	switch {
	case path == "":
		l.err = errors.New("file.Lines needs a path, and was given an empty one")
	case c == nil:
		l.err = fmt.Errorf("file.Lines needs a codec for %q, and was given nil", path)
	default:
		l.err = conf.check()
	}
	return l
}

// DefaultMaxLine is the longest line that is read unless MaxLine says
// otherwise: 1 MiB.
const DefaultMaxLine = 1 << 20

// Option is an option of Lines.
type Option interface{ apply(*config) }

type config struct{ maxLine int }

type option func(*config)

func (f option) apply(c *config) { f(c) }

// MaxLine sets the length of the longest line that is read, in bytes of
// uncompressed data without the line's end. Up to so much memory is used for
// each file. The default is [DefaultMaxLine].
func MaxLine(bytes int) Option { return option(func(c *config) { c.maxLine = bytes }) }

func (c config) check() error {
	if c.maxLine < 1 || c.maxLine > 1<<30 {
		return fmt.Errorf("file.MaxLine(%d): give a number of bytes from 1 to %d", c.maxLine, 1<<30)
	}
	return nil
}

type lines[T any] struct {
	path  string
	codec codec.Codec[T]
	conf  config
	err   error // of the declaration
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (l *lines[T]) Check() error { return l.err }

// Splits returns the files, sorted by name.
func (l *lines[T]) Splits(context.Context) ([]string, error) {
	if l.err != nil {
		return nil, l.err
	}
	paths, err := expand(l.path)
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

// expand returns the files that path stands for, at least one.
func expand(path string) ([]string, error) {
	if _, err := os.Lstat(path); err == nil || !strings.ContainsAny(path, wildcards) {
		return []string{path}, nil
	}
	paths, err := glob(path)
	switch {
	case errors.Is(err, filepath.ErrBadPattern), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: input files %q: %w", weir.ErrInput, path, err)
	case err != nil:
		return nil, fmt.Errorf("input files %q: %w", path, err)
	case len(paths) == 0:
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

// Open starts at the beginning, or at a line's byte offset.
func (l *lines[T]) Open(ctx context.Context, split string, at []byte) (weir.Reader[T], error) {
	if l.err != nil {
		return nil, l.err
	}
	off, err := offset(split, at)
	if err != nil {
		return nil, err
	}
	in, err := openInput(split)
	if err != nil {
		return nil, err
	}
	s := newScanner(in, l.conf.maxLine)
	if err := s.seek(ctx, off); err != nil {
		_ = in.close() // only read from, so there is nothing to lose
		return nil, err
	}
	return &reader[T]{scanner: s, codec: l.codec, pos: s.off}, nil
}

// offset reads a position. Only what reader.Position writes is taken.
func offset(split string, at []byte) (int64, error) {
	if at == nil {
		return 0, nil
	}
	off, err := strconv.ParseInt(string(at), 10, 64)
	if err != nil || off < 0 || strconv.FormatInt(off, 10) != string(at) {
		return 0, fmt.Errorf("%w: input file %q: position %.40q is not a byte offset; the checkpoint is of another source, or was changed",
			weir.ErrRefused, split, at)
	}
	return off, nil
}

// Locate says which line a byte offset belongs to. It reads the file up to it.
func (l *lines[T]) Locate(split string, mark int64) string {
	n, err := countLines(context.Background(), split, mark)
	if err != nil {
		return fmt.Sprintf("%s, byte offset %d (its line number can't be told: %v)", split, mark, err)
	}
	return fmt.Sprintf("%s, line %d, byte offset %d", split, n+1, mark)
}
