package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir"
)

// errTooLong comes with a line that has been passed over because of its length.
var errTooLong = errors.New("the line is too long")

// long is a line that is too long, while it is being passed over.
type long struct {
	at     int64
	raw    []byte   // as much as is kept
	before position // of its start
}

// passAtOnce is how much of a line that is too long is passed over in one Read,
// so that a barrier needn't wait until a huge one has ended.
const passAtOnce = 16 << 20

// errMore says that there is more to pass over.
var errMore = errors.New("there is more of the line")

// passLong passes over the rest of a line that is too long, and holds no more
// of it than can be set aside.
func (s *scanner) passLong() ([]byte, int64, error) {
	l := s.long
	for passed := 0; passed < passAtOnce; {
		b := s.buf[s.rd:s.wr]
		end := bytes.IndexByte(b, '\n')
		if end >= 0 {
			b = b[:end+1]
		}
		l.raw = append(l.raw, b[:min(len(b), weir.MaxRejected+len("\r\n")-len(l.raw))]...)
		s.pass(len(b))
		passed += len(b)
		if end >= 0 {
			return s.passedLong()
		}
		switch {
		case s.err == nil:
			s.fill()
		case !errors.Is(s.err, io.EOF):
			return nil, 0, s.broken(s.err)
		case s.grows:
			s.err = nil
			return nil, 0, io.EOF
		default:
			return s.passedLong()
		}
	}
	return nil, 0, errMore
}

func (s *scanner) passedLong() ([]byte, int64, error) {
	l := s.long
	s.long = nil
	s.passedLine()
	return withoutEnd(l.raw), l.at, errTooLong
}

func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// SetAside makes Read pass over lines that it can't take.
func (r *reader[T]) SetAside() { r.aside = true }

// Rejected returns the lines that the last Read has passed over.
func (r *reader[T]) Rejected() []weir.Rejected { return r.rejected }

func (r *reader[T]) reject(at int64, line []byte, err error) {
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("the line is longer than %d bytes (file.MaxLine): %w", r.max, weir.ErrOversized)
	}
	raw := bytes.Clone(line[:min(len(line), weir.MaxRejected)])
	r.rejected = append(r.rejected, weir.Rejected{Mark: at, Raw: raw, Err: err})
}

// Reread returns the line that begins at a byte offset, without its end, and no
// more than weir.MaxRejected bytes of it. In a compressed file all before it is
// decompressed again.
func (l *lines[T]) Reread(split string, mark int64) ([]byte, error) {
	in, err := openInput(split)
	if err != nil {
		return nil, err
	}
	line, err := lineAt(in, mark)
	if e := in.close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("read the line at byte offset %d again: %w", mark, err)
	}
	return line, nil
}

func lineAt(in *input, off int64) ([]byte, error) {
	s := newScanner(in, weir.MaxRejected, false)
	s.aside = true
	if off < 0 {
		return nil, outOfRange(in.path, off, in.size)
	}
	if err := s.seek(context.Background(), off); err != nil {
		return nil, err
	}
	line, at, err := s.next()
	for errors.Is(err, errMore) {
		line, at, err = s.next()
	}
	switch {
	case errors.Is(err, io.EOF) || err == nil && at != off:
		return nil, fmt.Errorf("%w: input file %q: no line begins at byte offset %d: it was replaced since", weir.ErrRefused, in.path, off)
	case err != nil && !errors.Is(err, errTooLong):
		return nil, err
	}
	return line[:min(len(line), weir.MaxRejected)], nil
}
