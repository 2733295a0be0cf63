package cli

import (
	"strings"
	"time"
	"unicode"
)

// ink is how a part of a line looks.
type ink int

const (
	plain ink = iota
	bold
	dim
	good
	warn
	bad
)

// part is text that looks one way. It holds no control characters: see clean.
type part struct {
	text string
	ink  ink
}

// style is what the terminal can do.
type style struct {
	color   bool
	unicode bool
}

func (s style) paint(p part) string {
	if !s.unicode {
		p.text = ascii(p.text)
	}
	codes := [...]string{plain: "", bold: "1", dim: "2", good: "32", warn: "33", bad: "31"}
	if !s.color || codes[p.ink] == "" || p.text == "" {
		return p.text
	}
	return "\x1b[" + codes[p.ink] + "m" + p.text + "\x1b[0m"
}

func (s style) ellipsis() string {
	if s.unicode {
		return "…"
	}
	return "~"
}

// line puts parts one behind the other and cuts off what is too much.
func (s style) line(width int, parts ...part) string {
	var b strings.Builder
	for _, p := range parts {
		n := cells(p.text)
		if n > width {
			p.text = s.cut(p.text, width)
			b.WriteString(s.paint(p))
			break
		}
		width -= n
		b.WriteString(s.paint(p))
	}
	return strings.TrimRight(b.String(), " ")
}

// cut shortens text to a width; what is cut off leaves a mark.
func (s style) cut(text string, width int) string {
	if cells(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	n := 0
	for i, r := range text {
		if n+cellsOf(r) > width-1 {
			return text[:i] + s.ellipsis()
		}
		n += cellsOf(r)
	}
	return text
}

// bar shows a share of 1.
func (s style) bar(share float64) string {
	const width = 8
	share = min(1, max(0, share))
	if !s.unicode {
		n := int(share*width + 0.5)
		return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
	}
	eighths := int(share*width*8 + 0.5)
	b := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		b += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return b + strings.Repeat("░", width-(eighths+7)/8)
}

// level shows how long something took, next to the longest.
func (s style) level(took, longest time.Duration) string {
	if longest <= 0 {
		return ""
	}
	eighth := min(8, max(1, int(8*took/longest)))
	if took <= 0 {
		eighth = 0
	}
	if s.unicode {
		return " " + string([]rune(" ▁▂▃▄▅▆▇█")[eighth])
	}
	return " " + strings.Repeat("#", (eighth+1)/2)
}

// table is rows under titles. A column with a drop is left out where the terminal
// is too narrow, that with the highest first.
type table struct {
	cols  []column
	rows  [][]part
	notes []part // below each row
}

type column struct {
	title string
	right bool
	drop  int // 0: never
}

func (t *table) add(note part, row ...part) {
	t.rows, t.notes = append(t.rows, row), append(t.notes, note)
}

// lines draws the table; without rows it is nothing.
func (t *table) lines(width int, st style) []string {
	if len(t.rows) == 0 {
		return nil
	}
	widths, use := t.fit(width)
	titles := make([]part, len(t.cols))
	for i, c := range t.cols {
		titles[i] = part{c.title, dim}
	}
	out := []string{t.row(titles, widths, use, width, st)}
	for i, r := range t.rows {
		out = append(out, t.row(r, widths, use, width, st))
		if t.notes[i].text != "" {
			out = append(out, st.line(width, part{"  ", plain}, t.notes[i]))
		}
	}
	return out
}

const gap = 2 // between columns

// fit returns the columns' widths and which of them are used.
func (t *table) fit(width int) (widths []int, use []bool) {
	widths, use = make([]int, len(t.cols)), make([]bool, len(t.cols))
	total := -gap
	for i, c := range t.cols {
		widths[i] = cells(c.title)
		empty := true
		for _, r := range t.rows {
			widths[i] = max(widths[i], cells(r[i].text))
			empty = empty && r[i].text == ""
		}
		if use[i] = !empty; use[i] {
			total += widths[i] + gap
		}
	}
	for total > width {
		worst := -1
		for i, c := range t.cols {
			if use[i] && c.drop > 0 && (worst < 0 || c.drop > t.cols[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		use[worst] = false
		total -= widths[worst] + gap
	}
	if total > width { // names are what can be shortened
		widths[0] = max(4, widths[0]-(total-width))
	}
	return widths, use
}

func (t *table) row(row []part, widths []int, use []bool, width int, st style) string {
	var parts []part
	for i, p := range row {
		if !use[i] {
			continue
		}
		if len(parts) > 0 {
			parts = append(parts, part{strings.Repeat(" ", gap), plain})
		}
		p.text = st.cut(p.text, widths[i])
		pad := part{strings.Repeat(" ", widths[i]-cells(p.text)), plain}
		if t.cols[i].right {
			parts = append(parts, pad, p)
		} else {
			parts = append(parts, p, pad)
		}
	}
	return st.line(width, parts...)
}

// clean makes text safe to print on a terminal: names of files may hold anything.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}

// ascii is text for a terminal that can't show anything else. It takes the same
// columns.
func ascii(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r <= unicode.MaxASCII:
			b.WriteRune(r)
		case r == 'µ':
			b.WriteByte('u')
		default:
			b.WriteString("??"[:cellsOf(r)])
		}
	}
	return b.String()
}

// cells is how many columns text takes.
func cells(s string) (n int) {
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

// cellsOf is how many columns a character takes: two, where East Asian letters
// and pictures are concerned, and none for marks that combine with another.
func cellsOf(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
