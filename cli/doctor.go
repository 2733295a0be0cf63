package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
)

// errUnwell ends doctor where it has found a problem: what was printed says which.
var errUnwell = errors.New("there are problems")

// doctor is the flags of the verb.
type doctor struct {
	downtime time.Duration
	json     bool
	repair   bool
	as       string
	yes      bool
	answers  *bufio.Reader // of a person; nil: nobody can be asked
}

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{Use: "doctor", Short: "examine what the job needs in order to run, and say what to mend", Args: noArgs}
	c.Long = c.Short + ".\n\nIt takes no lock, changes nothing, and works before the first start and while the job runs. With --repair it offers what it can mend\n" +
		"by itself and shows the evidence for it; each is asked for.\n" +
		fmt.Sprintf("It exits with 0, and with %d where there is a problem; warnings are none.", ExitUnwell)
	e, d := &engine{}, &doctor{}
	e.flags(c.Flags())
	c.Flags().DurationVar(&d.downtime, "downtime", 24*time.Hour, "how long the job may stand still and still go on: retention is judged by it [WEIR_DOWNTIME]")
	c.Flags().BoolVar(&d.json, "json", false, "print JSON")
	c.Flags().BoolVar(&d.repair, "repair", false, "offer what can be mended here, and ask for each")
	c.Flags().StringVar(&d.as, "as", "", "with --repair: where nothing proves how a hanging transaction ended, end it so: commit or abort")
	c.Flags().BoolVar(&d.yes, "yes", false, "with --repair: don't ask")
	return a.bind(c, e, false, func(c *cobra.Command, job *weir.Job, _ *engine, opts []weir.RunOption) error {
		if err := d.check(); err != nil {
			return err
		}
		if a.stdin != nil {
			d.answers = bufio.NewReader(a.stdin)
		}
		return a.doctor(c.Context(), job, d, append(opts, weir.DowntimeBudget(d.downtime)))
	})
}

func (d *doctor) check() error {
	switch {
	case d.repair && d.json:
		return usageError{errors.New("--repair asks, so that it can't be used with --json")}
	case !d.repair && (d.yes || d.as != ""):
		return usageError{errors.New("--yes and --as go with --repair")}
	case d.as != "" && d.as != "commit" && d.as != "abort":
		return usageError{fmt.Errorf("--as %q: it must be commit or abort", d.as)}
	}
	return nil
}

// doctor examines, mends what is to be mended, and then examines again.
func (a *app) doctor(ctx context.Context, job *weir.Job, d *doctor, opts []weir.RunOption) error {
	found, err := job.Doctor(ctx, opts...)
	if err != nil {
		return err
	}
	if err := a.printFindings(job.Name(), found, d.json); err != nil {
		return err
	}
	if d.repair {
		tried, err := a.repairs(ctx, found, d)
		if err != nil {
			return err
		}
		if tried == 0 {
			return verdict(found)
		}
		if found, err = job.Doctor(ctx, opts...); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, "\nexamined again:")
		if err := a.printFindings(job.Name(), found, false); err != nil {
			return err
		}
	}
	return verdict(found)
}

func verdict(found []weir.Finding) error {
	if atLevel(found, weir.LevelProblem) > 0 {
		return errUnwell
	}
	return nil
}

func atLevel(found []weir.Finding, level weir.Level) (n int) {
	for _, f := range found {
		if f.Level == level {
			n++
		}
	}
	return n
}

// repairs goes through what can be mended, and returns how much was tried.
func (a *app) repairs(ctx context.Context, found []weir.Finding, d *doctor) (tried int, err error) {
	for _, f := range found {
		if len(f.Repairs) == 0 {
			continue
		}
		fmt.Fprintf(a.stdout, "\n%s: %s\n", clean(f.Subject), clean(f.Text))
		r, why := d.choose(f.Repairs)
		if r == nil {
			fmt.Fprintf(a.stdout, "  not done: %s\n", why)
			continue
		}
		fmt.Fprintf(a.stdout, "  would: %s\n", clean(r.Text))
		for _, e := range r.Evidence {
			fmt.Fprintf(a.stdout, "  because %s\n", clean(e))
		}
		if len(r.Evidence) == 0 {
			fmt.Fprintf(a.stdout, "  nothing proves that it is right: that it is done as %s is your own decision\n", clean(r.As))
		}
		yes, err := a.agreed(d)
		if err != nil {
			return tried, err
		}
		if !yes {
			fmt.Fprintln(a.stdout, "  left as it is")
			continue
		}
		tried++
		if err := r.Do(ctx); err != nil {
			fmt.Fprintf(a.stdout, "  failed: %s\n", clean(err.Error()))
			continue
		}
		fmt.Fprintln(a.stdout, "  done")
	}
	return tried, nil
}

// choose takes the way that has evidence, if there is one, and else the one that
// the operator has named.
func (d *doctor) choose(ways []weir.Repair) (_ *weir.Repair, why string) {
	i := slices.IndexFunc(ways, func(r weir.Repair) bool { return len(r.Evidence) > 0 })
	switch {
	case i >= 0 && d.as != "" && ways[i].As != "" && ways[i].As != d.as:
		return nil, fmt.Sprintf("--as %s contradicts the evidence, which says %s: %s", d.as, ways[i].As, strings.Join(ways[i].Evidence, "; "))
	case i >= 0:
		return &ways[i], ""
	}
	for i, r := range ways {
		if d.as != "" && r.As == d.as {
			return &ways[i], ""
		}
	}
	var words []string
	for _, r := range ways {
		words = append(words, "--as "+r.As)
	}
	return nil, "nothing proves which way is right. " + strings.Join(words, " or ") + " does it all the same, and is then your own decision"
}

// agreed asks a person, unless that was answered on the command line.
func (a *app) agreed(d *doctor) (bool, error) {
	if d.yes {
		return true, nil
	}
	if d.answers == nil {
		return false, usageError{errors.New("nothing more was changed: there is no terminal to ask at, so say --yes")}
	}
	fmt.Fprint(a.stdout, "  do it? [y/N] ")
	answer, err := d.answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// foundJSON is one finding, for scripts.
type foundJSON struct {
	Of      string       `json:"of"` // empty: the job
	Level   weir.Level   `json:"level"`
	Subject string       `json:"subject"`
	Text    string       `json:"text"`
	Fix     string       `json:"fix,omitempty"`
	Repairs []repairJSON `json:"repairs,omitempty"`
}

type repairJSON struct {
	Text     string   `json:"text"`
	As       string   `json:"as,omitempty"`
	Evidence []string `json:"evidence"`
}

func (a *app) printFindings(job string, found []weir.Finding, asJSON bool) error {
	if !asJSON {
		width, st := 100, style{unicode: a.style().unicode}
		if f, ok := a.stdout.(*os.File); ok && isTerminal(f) {
			width, _ = terminalSize(f)
			st = a.style()
		}
		_, err := io.WriteString(a.stdout, strings.Join(findings{job, found}.render(width, st), "\n")+"\n")
		return err
	}
	out := struct {
		Job      string      `json:"job"`
		Problems int         `json:"problems"`
		Warnings int         `json:"warnings"`
		Findings []foundJSON `json:"findings"`
	}{job, atLevel(found, weir.LevelProblem), atLevel(found, weir.LevelWarning), []foundJSON{}}
	for _, f := range found {
		j := foundJSON{Of: f.Of, Level: f.Level, Subject: f.Subject, Text: f.Text, Fix: f.Fix}
		for _, r := range f.Repairs {
			j.Repairs = append(j.Repairs, repairJSON{r.Text, r.As, append([]string{}, r.Evidence...)})
		}
		out.Findings = append(out.Findings, j)
	}
	return a.printJSON(out)
}

// findings are what doctor prints.
type findings struct {
	job string
	all []weir.Finding
}

const (
	levelCells   = 9  // "problem" and a gap
	subjectCells = 34 // a longer subject has a line of its own
)

// render prints the findings in the order in which they were made: level, subject
// and text in columns, and below the text what to do. Only words are wrapped; a
// command stays on its line.
func (fs findings) render(width int, st style) []string {
	subject := 0
	for _, f := range fs.all {
		if n := cells(f.Subject); n <= subjectCells {
			subject = max(subject, n)
		}
	}
	left := levelCells + subject + 2
	if width < left+30 {
		left = levelCells // a narrow terminal: the text goes below the subject
	}
	var out []string
	for i, f := range fs.all {
		if i == 0 || f.Of != fs.all[i-1].Of {
			of := f.Of
			if of == "" {
				of = "job " + fs.job
			}
			if i > 0 {
				out = append(out, "")
			}
			out = append(out, st.paint(part{clean(of), bold}))
		}
		out = append(out, fs.one(f, left, width, st)...)
	}
	return append(out, "", fs.sum(st))
}

func (fs findings) one(f weir.Finding, left, width int, st style) []string {
	how := map[weir.Level]ink{weir.LevelOK: good, weir.LevelWarning: warn, weir.LevelProblem: bad}[f.Level]
	head := "  " + st.paint(part{fmt.Sprintf("%-7s", f.Level), how}) + "  "
	left += 2
	subject := clean(f.Subject)
	room := left - levelCells - 2
	var out []string
	text := wrap(clean(f.Text), width-left)
	if cells(subject) > room-2 {
		out = append(out, head+st.paint(part{subject, plain}))
	} else {
		out = append(out, head+st.paint(part{subject + strings.Repeat(" ", room-cells(subject)) + text[0], plain}))
		text = text[1:]
	}
	pad := strings.Repeat(" ", left)
	for _, l := range text {
		out = append(out, pad+st.paint(part{l, plain}))
	}
	pad, left = strings.Repeat(" ", levelCells+2), levelCells+2 // commands need the room
	first := "do: "
	for l := range strings.Lines(f.Fix) {
		l = strings.TrimRight(l, "\n")
		if command, ok := strings.CutPrefix(l, "  "); ok {
			out = append(out, pad+"  "+st.paint(part{clean(command), bold}))
			continue
		}
		for _, w := range wrap(clean(l), width-left-len(first)) {
			out = append(out, pad+st.paint(part{first + w, plain}))
			first = "    "
		}
	}
	return out
}

// sum is the last line.
func (fs findings) sum(st style) string {
	bads, warns := atLevel(fs.all, weir.LevelProblem), atLevel(fs.all, weir.LevelWarning)
	p := part{fmt.Sprintf("%d ok, %s, %s", atLevel(fs.all, weir.LevelOK), plural(warns, "warning"), plural(bads, "problem")), good}
	switch {
	case bads > 0:
		p.ink = bad
	case warns > 0:
		p.ink = warn
	}
	return st.paint(p)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// wrap breaks text into lines at spaces; a word that is too long stays whole.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case cells(line)+1+cells(word) <= width:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	return append(out, line)
}
