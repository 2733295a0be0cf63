package cli

import (
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weirstream/weir"
)

// liveScreen returns the screen that a run shows a view on, or nil: then it
// prints lines.
func (a *app) liveScreen(w *watch, e *engine) *screen {
	s, own := a.stderr.(*screen)
	switch w.live {
	case "off":
		return nil
	case "on":
		if !own {
			s = &screen{w: a.stderr, size: func() (int, int) { return terminalSize(nil) }}
			a.stderr = s
		}
		return s
	}
	// Logs that somebody else writes, or in a form for machines, don't go with it.
	if !own || !s.terminal || a.log != nil || e.logFormat != "text" || e.progress <= 0 || a.env("TERM") == "dumb" {
		return nil
	}
	return s
}

func (a *app) env(name string) string {
	v, _ := a.getenv(name)
	return v
}

// style is what the environment says of the terminal.
func (a *app) style() style {
	locale := a.env("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = a.env(name)
		}
	}
	locale = strings.ToLower(locale)
	return style{color: a.env("NO_COLOR") == "",
		unicode: strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") || modernConsole(a.getenv)}
}

// isTerminal reports whether a view can be shown on f.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) && understandsCodes(f) }

// live keeps the view of a running job up to date.
type live struct {
	*screen
	style   style
	running *weir.Running
	before  weir.Metrics
}

// update draws the view of now. What changed is told against the update before.
func (l *live) update() error {
	now := l.running.Metrics()
	v := view{now: now, before: l.before}
	if now.At.Sub(l.before.At) >= shortest {
		l.before = now
	}
	return l.draw(func(width, height int) []string { return v.render(width, height, l.style) })
}

// shortest is the time that a rate is taken over at least.
const shortest = 500 * time.Millisecond
