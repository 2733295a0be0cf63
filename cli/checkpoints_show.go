package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/control/store"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

func (a *app) showCommand() *cobra.Command {
	c := &cobra.Command{Use: "show N", Short: "print a checkpoint: splits, steps and files, or the state of a step or of a key"}
	asJSON := c.Flags().Bool("json", false, "print JSON: of a step, one entry a line")
	step := c.Flags().String("step", "", "print the state of this step")
	key := c.Flags().String("key", "", "with --step: print the state of this key only: as JSON, or plain where keys are texts")
	limit := c.Flags().Int("limit", 10, "with --step: print so many entries; 0: all")
	return a.looks(c, []string{"N"}, func(ctx context.Context, job, dir string, args []string) error {
		keyed := c.Flags().Changed("key")
		if keyed && *step == "" {
			return usageError{errors.New("--key needs --step: the key of which step")}
		}
		return withCheckpoint(ctx, dir, job, args[0], func(s *store.Store, c store.Checkpoint) error {
			p := &entryPrinter{w: a.stdout, json: *asJSON}
			switch {
			case keyed:
				return showKey(p, s, c, *step, *key)
			case *step != "":
				return showStep(ctx, p, s, c, *step, *limit)
			case *asJSON:
				return a.printJSON(detailsOf(c))
			}
			return a.show(c)
		})
	})
}

// entryPrinter prints entries of a state, one a line.
type entryPrinter struct {
	w    io.Writer
	json bool
}

func (p *entryPrinter) print(e store.Entry) error {
	if p.json {
		return printEntry(p.w, e)
	}
	key := fmt.Sprintf("%s  ", e.Key)
	if !e.Window.IsZero() {
		key += e.Window.Format(time.RFC3339Nano) + "  "
	}
	_, err := fmt.Fprintf(p.w, "%s%s\n", key, e.Value)
	return err
}

// printEntry prints an entry as a line of JSON.
func printEntry(w io.Writer, e store.Entry) error {
	window := ""
	if !e.Window.IsZero() {
		window = fmt.Sprintf(`,"window":%q`, e.Window.Format(time.RFC3339Nano))
	}
	_, err := fmt.Fprintf(w, `{"key":%s%s,"value":%s}`+"\n", e.Key, window, e.Value)
	return err
}

func showKey(p *entryPrinter, s *store.Store, c store.Checkpoint, step, key string) error {
	st, err := s.State(c, step)
	if err != nil {
		return err
	}
	found, err := st.Key(key)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &store.UnknownError{What: fmt.Sprintf("step %s holds nothing of key %s in checkpoint %d", step, key, c.ID.Slot)}
	}
	for _, e := range found {
		if err := p.print(e); err != nil {
			return err
		}
	}
	return nil
}

func showStep(ctx context.Context, p *entryPrinter, s *store.Store, c store.Checkpoint, step string, limit int) error {
	st, err := s.State(c, step)
	if err != nil {
		return err
	}
	n := 0
	err = st.Each(func(e store.Entry) error {
		if limit > 0 && n == limit {
			return errMore
		}
		n++
		return errors.Join(interrupted(ctx), p.print(e))
	})
	if errors.Is(err, errMore) {
		if p.json {
			return nil
		}
		_, err = fmt.Fprintf(p.w, "... the first %d of %s: --limit 0 prints all\n", n, count(st.Step.Live))
	}
	return err
}

// errMore ends a list at its limit.
var errMore = errors.New("there is more")

// details is a checkpoint as show prints it.
type details struct {
	N  int64     `json:"n"`
	ID string    `json:"id"`
	At time.Time `json:"at"`
	*point
	KeyGroups int           `json:"keyGroups"`
	Splits    []splitDetail `json:"splits"`
	Steps     []stepDetail  `json:"steps"`
	Files     []log.Segment `json:"files"`
	Outputs   []log.Segment `json:"outputs,omitempty"` // kept for followers
}

type splitDetail struct {
	Source    string         `json:"source"`
	Split     string         `json:"split"`
	Position  jsontext.Value `json:"position"`
	Watermark string         `json:"watermark,omitempty"`
	Records   int64          `json:"records"`
	Late      int64          `json:"late"`
	Ended     bool           `json:"ended"`
}

type stepDetail struct {
	ID       string `json:"id"`
	Op       string `json:"op"`
	Keys     int64  `json:"keys"`
	Bytes    int64  `json:"bytes"`
	Parts    int    `json:"parts"`
	Segments int    `json:"segments"`
	Clock    string `json:"clock,omitempty"`
	Key      string `json:"keyType"`
	Value    string `json:"valueType"`
}

func detailsOf(c store.Checkpoint) details {
	d := details{N: c.ID.Slot, ID: c.ID.String(), At: c.At, point: pointOf(c), KeyGroups: c.KeyGroups, Files: c.Segments,
		Splits: []splitDetail{}, Steps: []stepDetail{}}
	for _, s := range c.Splits {
		d.Splits = append(d.Splits, splitDetail{s.Source, s.Split, position64(s.Position), eventTime(s.Watermark), s.Records, s.Late, s.Ended})
	}
	ops := map[string]plan.Op{}
	if c.Start != nil {
		for _, n := range c.Start.Graph.Nodes {
			if n.Side == "" {
				ops[n.ID] = n.Op
			}
		}
	}
	for _, st := range c.Manifest.Steps {
		sd := stepDetail{ID: st.ID, Op: string(ops[st.ID]), Keys: st.Live, Parts: len(st.Parts), Clock: clock(st), Key: st.Key, Value: st.Value}
		files := map[string]bool{}
		for _, p := range st.Parts {
			sd.Bytes += p.Len
			files[p.Segment] = true
		}
		sd.Segments = len(files)
		d.Steps = append(d.Steps, sd)
	}
	for _, o := range c.Outputs {
		d.Outputs = append(d.Outputs, o)
	}
	return d
}

// position64 is a split's position: readable, or its bytes.
func position64(b []byte) jsontext.Value {
	var v any = string(b)
	if !utf8.Valid(b) || strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) }) {
		v = map[string]string{"base64": base64.StdEncoding.EncodeToString(b)}
	}
	out, _ := json.Marshal(v) // a string, or a map of them
	return out
}

// eventTime is a watermark in words; empty before the first record.
func eventTime(at int64) string {
	switch at {
	case data.MinTime:
		return ""
	case data.EndOfTime:
		return "the end"
	}
	return time.Unix(0, at).UTC().Format(time.RFC3339Nano)
}

// clock is how far time had come in a step, in all of its key groups.
func clock(st log.Step) string {
	low, high, ok := store.Clock(st)
	switch {
	case !ok:
		return ""
	case low == high:
		return eventTime(low)
	}
	return eventTime(low) + " to " + eventTime(high)
}

func (a *app) show(c store.Checkpoint) error {
	d := detailsOf(c)
	fmt.Fprintf(a.stdout, "checkpoint %d: epoch %d, %s\nid      %s\nmade    %s, by incarnation %d\n", d.N, d.Epoch, d.words(), d.ID,
		d.At.Format(time.RFC3339), d.Incarnation)
	if d.Parent != 0 {
		fmt.Fprintf(a.stdout, "parent  %d\n", d.Parent)
	}
	fmt.Fprintf(a.stdout, "files   %d with %s, %s of it new\n\n", len(d.Files)+len(d.Outputs), size(d.Total), size(d.New))
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tSPLIT\tPOSITION\tRECORDS\tLATE\tWATERMARK")
	for _, s := range d.Splits {
		watermark := s.Watermark
		if s.Ended {
			watermark += " (ended)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Source, s.Split, strings.Trim(string(s.Position), `"`), count(s.Records), count(s.Late), watermark)
	}
	if err := w.Flush(); err != nil || len(d.Steps) == 0 {
		return err
	}
	fmt.Fprintln(a.stdout)
	fmt.Fprintln(w, "STEP\tWHAT\tKEYS\tBYTES\tPARTS\tSEGMENTS\tTIME\tKEY\tVALUE")
	for _, s := range d.Steps {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", s.ID, s.Op, count(s.Keys), size(s.Bytes), s.Parts, s.Segments, s.Clock, s.Key, s.Value)
	}
	return w.Flush()
}
