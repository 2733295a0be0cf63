// Package file reads files of lines, JSON lines or any other format in which a
// record is one line, and writes folders of JSON lines: each epoch's once.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

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
// first reached, unless it is followed (see [Follow]). A file that got shorter,
// or whose position is no longer the start of a line, was replaced and is
// refused. Only regular files are read.
func Lines[T any](path string, c codec.Codec[T], opts ...Option) weir.Source[T] {
	conf := config{maxLine: DefaultMaxLine}
	for _, o := range opts {
		o.apply(&conf)
	}
	l := &lines[T]{path: filepath.Clean(path), codec: c, conf: conf}
	l.open.infos = map[string]fs.FileInfo{}
	switch {
	case path == "":
		l.err = errors.New("file.Lines needs a path, and was given an empty one")
	case c == nil:
		l.err = fmt.Errorf("file.Lines needs a codec for %q, and was given nil", path)
	default:
		l.err = conf.check(path)
	}
	return l
}

// DefaultMaxLine is the longest line that is read unless MaxLine says
// otherwise: 1 MiB.
const DefaultMaxLine = 1 << 20

// Option is an option of Lines.
type Option interface{ apply(*config) }

type config struct {
	maxLine int
	follow  *followConfig // nil: files are read to their end
}

type option func(*config)

func (f option) apply(c *config) { f(c) }

// MaxLine sets the length of the longest line that is read, in bytes of
// uncompressed data without the line's end. Up to so much memory is used for
// each file. The default is [DefaultMaxLine].
func MaxLine(bytes int) Option { return option(func(c *config) { c.maxLine = bytes }) }

func (c config) check(path string) error {
	if c.maxLine < 1 || c.maxLine > 1<<30 {
		return fmt.Errorf("file.MaxLine(%d): give a number of bytes from 1 to %d", c.maxLine, 1<<30)
	}
	if c.follow != nil {
		return c.follow.check(path)
	}
	return nil
}

type lines[T any] struct {
	path  string
	codec codec.Codec[T]
	conf  config
	err   error // of the declaration

	open struct { // what is followed
		sync.Mutex
		infos map[string]fs.FileInfo // by split
	}
	counted lineCounts // for Locate
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (l *lines[T]) Check() error { return l.err }

// Open starts at the beginning, or at a line's byte offset.
func (l *lines[T]) Open(ctx context.Context, split string, at []byte) (weir.Reader[T], error) {
	if l.err != nil {
		return nil, l.err
	}
	p, err := parsePosition(split, at)
	if err != nil {
		return nil, err
	}
	in, err := openInput(split)
	if err != nil {
		return nil, err
	}
	r, err := l.read(ctx, in, p)
	if err != nil {
		_ = in.close() // only read from, so there is nothing to lose
		return nil, err
	}
	r.at = slices.Clone(at)
	return r, nil
}

// read starts reading an open file at a position.
func (l *lines[T]) read(ctx context.Context, in *input, p position) (*reader[T], error) {
	if err := p.verify(in); err != nil {
		return nil, err
	}
	followed := l.conf.follow != nil && in.format == plain
	s := newScanner(in, l.conf.maxLine, followed)
	if err := s.seek(ctx, p.off); err != nil {
		return nil, err
	}
	r := &reader[T]{scanner: s, codec: l.codec, pos: s.off, from: s.off, done: func() {}}
	if followed {
		if err := l.follow(ctx, in); err != nil {
			return nil, err
		}
		r.done = sync.OnceFunc(func() { l.unfollow(in) })
	}
	return r, nil
}

// Locate says which line a byte offset belongs to. It reads the file up to it,
// from the nearest place before it whose line is known.
func (l *lines[T]) Locate(split string, mark int64) string {
	n, err := l.counted.before(split, mark)
	if err != nil {
		return fmt.Sprintf("%s, byte offset %d (its line number can't be told: %v)", split, mark, err)
	}
	return fmt.Sprintf("%s, line %d, byte offset %d", split, n+1, mark)
}
