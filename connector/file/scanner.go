package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir"
)

const bufferSize = 256 << 10

// scanner cuts an input into lines, and knows where each of them begins.
type scanner struct {
	in  *input
	max int // bytes of the longest line

	buf    []byte
	rd, wr int   // buf[rd:wr] was read from in, and no line of it returned
	clean  int   // so many bytes from rd on hold no line end
	off    int64 // of buf[rd] in the uncompressed data
	err    error // what in.Read ended with; met when buf holds no more lines

	// lines before rd; -1 after a seek that didn't pass over them.
	lines int64
}

func newScanner(in *input, maxLine int) *scanner {
	size := int64(bufferSize)
	if in.format == plain {
		size = min(size, max(in.size+1, 4<<10)) // many small files shouldn't cost many large buffers
	}
	return &scanner{in: in, max: maxLine, buf: make([]byte, size)}
}

// next returns the next line that isn't blank, without its end, and the offset
// of its first byte. The line is valid until the next call. io.EOF is the end.
func (s *scanner) next() (line []byte, at int64, err error) {
	for {
		line, err = s.cut()
		if err != nil {
			return nil, 0, err
		}
		at = s.off
		n := len(line)
		if n > 0 && line[n-1] == '\n' {
			n--
		}
		if n > 0 && line[n-1] == '\r' {
			n--
		}
		if n > s.max {
			return nil, 0, s.tooLong()
		}
		s.rd += len(line)
		s.off += int64(len(line))
		s.clean = 0
		if s.lines >= 0 {
			s.lines++
		}
		line = line[:n]
		if at == 0 {
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		if len(line) > 0 && (line[0] > ' ' || len(bytes.Trim(line, " \t\r")) > 0) {
			return line, at, nil
		}
	}
}

const byteOrderMark = "\xef\xbb\xbf"

// cut finds the next line, with its end, and leaves it in the buffer.
func (s *scanner) cut() ([]byte, error) {
	for {
		if i := bytes.IndexByte(s.buf[s.rd+s.clean:s.wr], '\n'); i >= 0 {
			return s.buf[s.rd : s.rd+s.clean+i+1], nil
		}
		s.clean = s.wr - s.rd
		if s.clean >= s.max+len("\r\n") { // what follows can't make it a line
			return nil, s.tooLong()
		}
		switch {
		case s.err == nil:
			s.fill()
		case !errors.Is(s.err, io.EOF):
			return nil, s.broken(s.err)
		case s.clean > 0:
			return s.buf[s.rd:s.wr], nil
		default:
			return nil, io.EOF
		}
	}
}

// fill reads more behind what is in the buffer.
func (s *scanner) fill() {
	if s.rd > 0 {
		s.wr = copy(s.buf, s.buf[s.rd:s.wr])
		s.rd = 0
	}
	if s.wr == len(s.buf) {
		// Doubling, so that a long line costs what it is and not the limit.
		grown := make([]byte, min(2*len(s.buf), s.max+len("\r\n")))
		copy(grown, s.buf)
		s.buf = grown
	}
	n, err := s.in.Read(s.buf[s.wr:])
	s.wr += n
	s.err = err
}

// seek goes to the start of the line at off.
func (s *scanner) seek(ctx context.Context, off int64) error {
	if off == 0 {
		return nil
	}
	var last byte
	var err error
	if s.in.format == plain {
		s.lines = -1
		last, err = s.in.seek(off)
	} else {
		last, err = s.skip(ctx, off)
	}
	if err != nil {
		return err
	}
	s.off = off
	if last == '\n' {
		return nil
	}
	// Only the file's last line may lack its end, and then nothing follows.
	for s.wr == 0 && s.err == nil {
		s.fill()
	}
	switch {
	case s.wr > 0:
		return fmt.Errorf("%w: input file %q: position %d is not the start of a line (the byte before it is %q): "+
			"the file was replaced, or its last line was continued, since the checkpoint; "+
			"put the file back as it was, or start the job over with --start-over (StartOver)", weir.ErrRefused, s.in.path, off, string([]byte{last}))
	case !errors.Is(s.err, io.EOF):
		return s.broken(s.err)
	}
	return nil
}

// skip reads up to off, counting the lines, and returns the byte before off.
func (s *scanner) skip(ctx context.Context, off int64) (last byte, err error) {
	for s.off < off {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("input file %q: stopped on the way to position %d: %w", s.in.path, off, context.Cause(ctx))
		}
		n, err := s.in.Read(s.buf[:min(int64(len(s.buf)), off-s.off)])
		if n > 0 {
			last = s.buf[n-1]
			s.lines += int64(bytes.Count(s.buf[:n], []byte{'\n'}))
			s.off += int64(n)
		}
		if s.off == off {
			s.err = err
			break
		}
		if errors.Is(err, io.EOF) {
			return 0, outOfRange(s.in.path, off, s.off)
		}
		if err != nil {
			return 0, s.broken(err)
		}
	}
	return last, nil
}

func outOfRange(path string, off, size int64) error {
	return fmt.Errorf("%w: input file %q: position %d is out of range, the file has only %d bytes of data: "+
		"it was truncated or replaced since the checkpoint; put it back as it was, or start the job over with --start-over (StartOver)",
		weir.ErrRefused, path, off, size)
}

// countLines counts the line ends before the offset.
func countLines(ctx context.Context, path string, off int64) (int64, error) {
	in, err := openInput(path)
	if err != nil {
		return 0, err
	}
	s := newScanner(in, DefaultMaxLine)
	_, err = s.skip(ctx, off)
	_ = in.close() // only read from, so there is nothing to lose
	return s.lines, err
}
