package cli

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir"
)

// glass is a terminal: what is written to it shows as rows of cells.
type glass struct {
	width, height int
	rows          [][]rune // all that were ever there; the last height of them can be reached
	row, col      int
}

func (g *glass) at(row int) []rune {
	for len(g.rows) <= row {
		g.rows = append(g.rows, nil)
	}
	return g.rows[row]
}

// Write implements io.Writer, for what the screen writes: text, new lines, the
// cursor up, and erasing what follows.
func (g *glass) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch r := text[i]; r {
		case '\n': // the terminal's own translation adds the return
			g.row, g.col = g.row+1, 0
		case '\r':
			g.col = 0
		case '\x1b':
			end := i + 2
			for text[end] < '@' {
				end++
			}
			g.code(string(text[i+2:end]), text[end])
			i = end
		default:
			if g.col == g.width {
				g.row, g.col = g.row+1, 0
			}
			line := g.at(g.row)
			for len(line) <= g.col {
				line = append(line, ' ')
			}
			line[g.col] = r
			g.rows[g.row] = line
			g.col++
		}
	}
	return len(p), nil
}

func (g *glass) code(arg string, what rune) {
	switch what {
	case 'A':
		n, _ := strconv.Atoi(arg)
		top := max(0, len(g.rows)-g.height) // the cursor can't leave the screen
		g.row = max(top, g.row-n)
	case 'J':
		g.at(g.row)
		g.rows = g.rows[:g.row+1]
		g.rows[g.row] = g.rows[g.row][:min(g.col, len(g.rows[g.row]))]
	}
}

func (g *glass) String() string {
	var out []string
	for _, r := range g.rows {
		out = append(out, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

func fixed(lines ...string) func(int, int) []string {
	return func(int, int) []string { return lines }
}

func TestMessagesDontTearTheView(t *testing.T) {
	g := &glass{width: 40, height: 10}
	s := &screen{w: g, size: func() (int, int) { return g.width, g.height }}
	write := func(text string) {
		if _, err := io.WriteString(s, text); err != nil {
			t.Fatal(err)
		}
	}
	draw := func(lines ...string) {
		if err := s.draw(fixed(lines...)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(lines ...string) {
		t.Helper()
		if got := g.String(); got != strings.Join(lines, "\n") {
			t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(lines, "\n"))
		}
	}
	write("before\n")
	draw("view 1", "more")
	want("before", "view 1", "more")
	write("a message\n")
	want("before", "a message", "view 1", "more")
	write("half a ")
	want("before", "a message", "view 1", "more")
	draw("view 2")
	want("before", "a message", "view 2")
	write("line\nand the next\n")
	want("before", "a message", "half a line", "and the next", "view 2")
	draw("view 3", "", "three lines")
	want("before", "a message", "half a line", "and the next", "view 3", "", "three lines")
	for i := range 20 { // it scrolls
		write(fmt.Sprintf("line %d\n", i))
	}
	if got := g.String(); strings.Count(got, "view 3") != 1 || strings.Count(got, "line ") != 20 || !strings.HasSuffix(got, "line 19\nview 3\n\nthree lines") {
		t.Errorf("after scrolling:\n%s", got)
	}
	s.leave()
	write("after\n")
	if got := g.String(); !strings.HasSuffix(got, "three lines\nafter") {
		t.Errorf("the last view stays:\n%s", got)
	}
}

// A terminal that was made narrower has broken the view's lines in two.
func TestANarrowerTerminal(t *testing.T) {
	g := &glass{width: 40, height: 20}
	s := &screen{w: g, size: func() (int, int) { return g.width, g.height }}
	long := "\x1b[1m" + strings.Repeat("x", 38) + "\x1b[0m"
	if err := s.draw(fixed(long, "short")); err != nil {
		t.Fatal(err)
	}
	var broken [][]rune
	for _, r := range g.rows {
		for g.width = 20; len(r) > g.width; r = r[g.width:] {
			broken = append(broken, r[:g.width])
		}
		broken = append(broken, r)
	}
	g.rows, g.row = broken, len(broken)
	g.width = 20
	if err := s.draw(fixed("narrow")); err != nil {
		t.Fatal(err)
	}
	if got := g.String(); got != "narrow" {
		t.Errorf("left over:\n%s", got)
	}
}

func TestWritersFromEverywhere(t *testing.T) {
	g := &glass{width: 80, height: 20}
	s := &screen{w: g, size: func() (int, int) { return g.width, g.height }}
	log := slog.New(slog.NewTextHandler(s, nil))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 50 {
				log.Info("message", "from", i, "n", n)
				_ = s.draw(fixed(fmt.Sprintf("view %d", n), "and more"))
			}
		})
	}
	wg.Wait()
	got := strings.Split(g.String(), "\n")
	if len(got) != 202 || !strings.HasPrefix(got[200], "view ") || got[201] != "and more" {
		t.Errorf("%d lines, the last are %q", len(got), got[max(0, len(got)-3):])
	}
}

// TestLiveRun runs a job with a view that is forced on.
func TestLiveRun(t *testing.T) {
	var out []int64
	g := &glass{width: 80, height: 24}
	a := &app{build: sums(&out), stdout: io.Discard, getenv: func(string) (string, bool) { return "", false }}
	a.stderr = &screen{w: g, size: func() (int, int) { return g.width, g.height }}
	if code := a.execute(t.Context(), []string{"run", "--live=on", "--n", "500", "--progress", "1ms"}); code != ExitOK {
		t.Fatalf("code %d: %s", code, g)
	}
	got := g.String()
	for _, want := range []string{"started for the first time", "sums  ended", "numbers", "500", "at least once", "\nfinished: 500 records"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q isn't in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "sums  "); n != 1 {
		t.Errorf("the view is there %d times:\n%s", n, got)
	}
}

func TestWhenAViewIsShown(t *testing.T) {
	for _, c := range []struct {
		name     string
		live     string
		terminal bool
		change   func(*app, *engine)
		want     bool
	}{
		{"a terminal", "auto", true, func(*app, *engine) {}, true},
		{"no terminal", "auto", false, func(*app, *engine) {}, false},
		{"off", "off", true, func(*app, *engine) {}, false},
		{"on", "on", false, func(*app, *engine) {}, true},
		{"no progress", "auto", true, func(_ *app, e *engine) { e.progress = 0 }, false},
		{"JSON logs", "auto", true, func(_ *app, e *engine) { e.logFormat = "json" }, false},
		{"somebody else's logs", "auto", true, func(a *app, _ *engine) { a.log = slog.New(slog.DiscardHandler) }, false},
		{"a dumb terminal", "auto", true, func(a *app, _ *engine) {
			a.getenv = func(k string) (string, bool) { return "dumb", k == "TERM" }
		}, false},
		{"not our own", "auto", true, func(a *app, _ *engine) { a.stderr = &bytes.Buffer{} }, false},
		{"not our own, but on", "on", true, func(a *app, _ *engine) { a.stderr = &bytes.Buffer{} }, true},
	} {
		a := &app{stderr: &screen{w: io.Discard, terminal: c.terminal}, getenv: func(string) (string, bool) { return "", false }}
		e := &engine{progress: time.Second, logFormat: "text"}
		c.change(a, e)
		if got := a.liveScreen(&watch{live: c.live}, e) != nil; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestStyleOfTheTerminal(t *testing.T) {
	for env, want := range map[string]style{
		"": {color: true}, "LANG=C.UTF-8": {color: true, unicode: true}, "LANG=de_DE.utf8": {color: true, unicode: true},
		"LANG=de_DE.UTF-8 LC_ALL=C": {color: true}, "LANG=C LC_CTYPE=en_US.UTF-8": {color: true, unicode: true},
		"NO_COLOR=1 LANG=C.UTF-8": {unicode: true},
	} {
		a := &app{getenv: func(k string) (string, bool) {
			for f := range strings.FieldsSeq(env) {
				if name, v, _ := strings.Cut(f, "="); name == k {
					return v, true
				}
			}
			return "", false
		}}
		if got := a.style(); got != want {
			t.Errorf("%s: %+v, want %+v", env, got, want)
		}
	}
}

func TestWaitingForTheWatermark(t *testing.T) {
	pr := weir.Progress{Splits: []weir.SplitProgress{
		{Source: "clicks", Split: "a", Watermark: noon, Since: noon.Add(-time.Hour)},
		{Source: "clicks", Split: "b", Watermark: noon.Add(-time.Hour), Since: noon.Add(-3 * time.Minute)},
		{Source: "clicks", Split: "c", Watermark: noon.Add(-2 * time.Hour), Since: noon.Add(-9 * time.Minute), Idle: true},
		{Source: "clicks", Split: "d", Since: noon.Add(-9 * time.Minute), Ended: true},
	}}
	if got, want := watermark(pr, noon), "2026-03-01T11:00:00Z (held back for 3m00s by split b of clicks)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	pr.Splits = pr.Splits[2:]
	if got := watermark(pr, noon); got != "idle" {
		t.Errorf("no split is read: %s", got)
	}
	pr.Splits = pr.Splits[1:]
	if got := watermark(pr, noon); got != "at the end" {
		t.Errorf("all have ended: %s", got)
	}
}
