package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/term"
)

// screen is the standard error. While it shows a view, the view stays at the
// bottom, and what is written scrolls past above it: a message that is written
// meanwhile doesn't tear it. Any goroutine may write. Nothing about the terminal
// is changed but the cursor's place, so that there is nothing to set back when
// the process is killed.
type screen struct {
	mu   sync.Mutex
	w    io.Writer
	size func() (width, height int)
	// The view that is shown: its lines' widths, and the lines.
	shown []int
	lines []string
	rest  []byte // a line that has been begun to be written
	live  bool

	terminal bool // it can show a view
}

// newScreen returns a screen on a terminal or, if f is none, on a file.
func newScreen(f *os.File) *screen {
	return &screen{w: f, terminal: isTerminal(f), size: func() (int, int) { return terminalSize(f) }}
}

// terminalSize is what the terminal says, then what the environment says, and
// else 80 columns and 24 lines.
func terminalSize(f *os.File) (width, height int) {
	width, height = 80, 24
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	if n, err := strconv.Atoi(os.Getenv("LINES")); err == nil && n > 0 {
		height = n
	}
	if f == nil {
		return width, height
	}
	if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
		width, height = w, h
	}
	return width, height
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return s.w.Write(p)
	}
	s.rest = append(s.rest, p...)
	end := bytes.LastIndexByte(s.rest, '\n') + 1
	if end == 0 {
		return len(p), nil // with the rest of its line
	}
	var b strings.Builder
	s.erase(&b)
	b.Write(s.rest[:end])
	s.rest = append(s.rest[:0], s.rest[end:]...)
	s.paint(&b)
	_, err := io.WriteString(s.w, b.String())
	return len(p), err
}

// draw shows a view instead of the one that is shown. render gets the size that
// the terminal has now.
func (s *screen) draw(render func(width, height int) []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.erase(&b)
	width, height := s.size()
	// A line that fills the last column makes some terminals begin another, and
	// the cursor stands below the view.
	s.lines, s.live = render(width-1, height-1), true
	s.paint(&b)
	_, err := io.WriteString(s.w, b.String())
	return err
}

// leave lets the last view stand where it is.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.shown, s.lines = false, nil, nil
	_, _ = s.w.Write(s.rest) // there is nobody to tell
	s.rest = nil
}

// erase moves to where the view begins. The terminal may have become narrower
// since and have broken its lines.
func (s *screen) erase(b *strings.Builder) {
	width, _ := s.size()
	up := 0
	for _, n := range s.shown {
		up += max(1, (n+width-1)/width)
	}
	b.WriteString("\r")
	if up > 0 {
		fmt.Fprintf(b, "\x1b[%dA", up)
	}
	b.WriteString("\x1b[J")
	s.shown = nil
}

func (s *screen) paint(b *strings.Builder) {
	for _, l := range s.lines {
		b.WriteString(l)
		b.WriteString("\n")
		s.shown = append(s.shown, cells(unpainted(l)))
	}
}

// unpainted is a line without the codes that style puts into it.
func unpainted(s string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		end := strings.IndexByte(s[i:], 'm')
		if end < 0 {
			return b.String()
		}
		s = s[i+end+1:]
	}
}
