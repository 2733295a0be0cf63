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

	aside bool  // lines that are too long are passed over
	long  *long // one of which the end hasn't been found yet

	// Of a file that is followed: its first bytes, as far as they were read, and
	// how many bytes before rd are kept in buf.
	grows bool
	head  []byte
	keep  int
}

func newScanner(in *input, maxLine int, grows bool) *scanner {
	size, least := int64(bufferSize), int64(4<<10)
	if grows {
		least = growingBuffer
	}
	if in.format == plain {
		size = min(size, max(in.size+1, least)) // many small files shouldn't cost many large buffers
	}
	s := &scanner{in: in, max: maxLine, buf: make([]byte, size), grows: grows}
	if grows {
		s.keep = sample
	}
	return s
}

// growingBuffer is the least buffer of a file that is followed: it is small as a
// rule when it is opened.
const growingBuffer = 64 << 10

// next returns the next line that isn't blank, without its end, and the offset
// of its first byte. The line is valid until the next call. io.EOF is the end.
// errTooLong comes with the beginning of a line that has been passed over.
func (s *scanner) next() (line []byte, at int64, err error) {
	for {
		if s.long != nil {
			return s.passLong()
		}
		line, err = s.cut()
		if err != nil {
			return nil, 0, err
		}
		if line == nil {
			s.long = &long{at: s.off, before: s.position()}
			continue
		}
		at = s.off
		n := len(line)
		if n > 0 && line[n-1] == '\n' {
			n--
		}
		if n > 0 && line[n-1] == '\r' {
			n--
		}
		if n > s.max && !s.aside {
			return nil, 0, s.tooLong()
		}
		s.pass(len(line))
		s.passedLine()
		if n > s.max {
			return line[:n], at, errTooLong
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

// pass goes on behind n bytes of the buffer.
func (s *scanner) pass(n int) {
	s.rd += n
	s.off += int64(n)
	s.clean = 0
}

func (s *scanner) passedLine() {
	if s.lines >= 0 {
		s.lines++
	}
}

// cut finds the next line, with its end, and leaves it in the buffer. nil is a
// line that is too long, and is to be passed over.
func (s *scanner) cut() ([]byte, error) {
	for {
		if i := bytes.IndexByte(s.buf[s.rd+s.clean:s.wr], '\n'); i >= 0 {
			return s.buf[s.rd : s.rd+s.clean+i+1], nil
		}
		s.clean = s.wr - s.rd
		if s.clean >= s.max+len("\r\n") { // what follows can't make it a line
			if s.aside {
				return nil, nil
			}
			return nil, s.tooLong()
		}
		switch {
		case s.err == nil:
			s.fill()
		case !errors.Is(s.err, io.EOF):
			return nil, s.broken(s.err)
		case s.grows: // what is there of a line waits for its end
			s.err = nil
			return nil, io.EOF
		case s.clean > 0:
			return s.buf[s.rd:s.wr], nil
		default:
			return nil, io.EOF
		}
	}
}

// fill reads more behind what is in the buffer.
func (s *scanner) fill() {
	if from := s.rd - min(s.rd, s.keep); from > 0 {
		s.wr = copy(s.buf, s.buf[from:s.wr])
		s.rd -= from
	}
	if s.wr == len(s.buf) {
		// Doubling, so that a long line costs what it is and not the limit.
		grown := make([]byte, min(2*len(s.buf), s.max+len("\r\n")+s.keep))
		copy(grown, s.buf)
		s.buf = grown
	}
	n, err := s.in.Read(s.buf[s.wr:])
	if s.grows && n > 0 {
		if e := s.append(n); e != nil {
			n, err = 0, e
		}
	}
	s.wr += n
	s.err = err
}

// append checks that n bytes that were just read from a file that is followed
// stand behind the same bytes as before: a file that is truncated and at once
// written anew can be larger than it was.
func (s *scanner) append(n int) error {
	at := s.in.raw - int64(n)
	if at == int64(len(s.head)) && at < sample {
		s.head = append(s.head, s.buf[s.wr:s.wr+min(n, sample-len(s.head))]...)
	}
	var now [sample]byte
	k := min(s.wr, sample)
	if _, err := s.in.f.ReadAt(now[:k], at-int64(k)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("input file: %w", err)
	}
	if !bytes.Equal(now[:k], s.buf[s.wr-k:s.wr]) {
		return errRewritten(s.in.path, at)
	}
	return nil
}

// position is where s stands, which is at the start of a line. Without a file
// that is followed it has no sum.
func (s *scanner) position() position {
	p := position{off: s.off}
	if n := min(s.off, sample); s.grows && n > 0 {
		p.sum = sumOf(s.head[:n], s.buf[s.rd-int(n):s.rd])
	}
	return p
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
	if s.grows {
		return s.join(off, last)
	}
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

// join fills in what s keeps of a file that is followed, before off.
func (s *scanner) join(off int64, last byte) error {
	if last != '\n' {
		return fmt.Errorf("%w: input file %q: position %d is not the start of a line (the byte before it is %q): "+
			"the file was replaced since the checkpoint, or its last line had no end when a run that didn't follow the file took it as a whole one; "+
			"go on without file.Follow, or start the job over with --start-over (StartOver)", weir.ErrRefused, s.in.path, off, string([]byte{last}))
	}
	head, tail, err := samples(s.in, off)
	if err != nil {
		return err
	}
	s.head = head
	s.rd = copy(s.buf, tail)
	s.wr = s.rd
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
