package file

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir"
)

// LineError is a line that can't be read. It names the line so that it can be
// found with any editor: `clicks.jsonl: line 17, byte offset 1632: ...`.
type LineError struct {
	Path   string
	Line   int64 // from 1, blank lines included; 0 if it can't be told
	Offset int64 // of the line's first byte, in the uncompressed data
	Err    error // what is wrong
	Hint   string
	Stack  []byte // where the codec panicked, if it did
}

// Error returns all of it in one line.
func (e *LineError) Error() string {
	line := ""
	if e.Line > 0 {
		line = fmt.Sprintf("line %d, ", e.Line)
	}
	hint := ""
	if e.Hint != "" {
		hint = "; " + e.Hint
	}
	return fmt.Sprintf("%s: %sbyte offset %d: %v%s", e.Path, line, e.Offset, e.Err, hint)
}

// Unwrap returns what is wrong.
func (e *LineError) Unwrap() error { return e.Err }

func (s *scanner) undecodable(at int64, err error, stack []byte) error {
	s.unread(at)
	e := s.lineError(err, "correct or remove the line, leave those before it as they are, and start again")
	if e.Stack = stack; stack != nil {
		e.Hint = "correct the codec"
	}
	return e
}

func (s *scanner) tooLong() error {
	return s.lineError(fmt.Errorf("the line is longer than %d bytes", s.max), "raise file.MaxLine if such lines are meant to be")
}

// broken is an input that ends before its end.
func (s *scanner) broken(err error) error {
	switch {
	case errors.Is(err, weir.ErrRefused):
		return err // it isn't about a line
	case errors.Is(err, io.ErrUnexpectedEOF) && s.in.format != plain:
		err = fmt.Errorf("the %s data breaks off after %d of the file's bytes: %w", s.in.format, s.in.raw, err)
		return s.lineError(err, "the file is incomplete, get it again")
	case s.in.format != plain && !s.in.failed:
		err = fmt.Errorf("the %s data is damaged, at most %d bytes into the file: %w", s.in.format, s.in.raw, err)
		return s.lineError(err, "get the file again")
	}
	return s.lineError(err, "")
}

// unread goes back to the start of the line that next returned.
func (s *scanner) unread(at int64) {
	s.rd -= int(s.off - at)
	s.off = at
	if s.lines > 0 {
		s.lines--
	}
}

// lineError names the line that begins at s.off. After a seek the lines before
// it are counted only now: nobody needs their number unless one is bad.
func (s *scanner) lineError(err error, hint string) *LineError {
	e := &LineError{Path: s.in.path, Line: s.lines + 1, Offset: s.off, Err: err, Hint: hint}
	if s.lines < 0 {
		n, err := new(lineCounts).before(s.in.path, s.off)
		e.Line = n + 1
		if err != nil {
			e.Line = 0
		}
	}
	return e
}
