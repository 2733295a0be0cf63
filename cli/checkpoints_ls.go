package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/control/store"
)

func (a *app) listCommand() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "list the checkpoints, oldest first"}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	all := c.Flags().Bool("all", false, "list every entry of the log: starts and retirements, too")
	return a.looks(c, nil, func(ctx context.Context, job, dir string, _ []string) error {
		return withStore(ctx, dir, job, func(s *store.Store) error {
			rows := listed(s, *all, time.Now())
			if *asJSON {
				return a.printJSON(rows)
			}
			return a.list(rows)
		})
	})
}

// row is one line of ls.
type row struct {
	N    int64     `json:"n"`
	Kind string    `json:"kind"` // checkpoint, start, retire
	ID   string    `json:"id"`
	At   time.Time `json:"at,omitzero"`
	Age  float64   `json:"ageSeconds,omitempty"`

	*point
	Start  *started `json:"start,omitempty"`
	Retire *retired `json:"retire,omitempty"`
}

// point is a checkpoint in ls, show and rollback.
type point struct {
	Epoch       int64  `json:"epoch"`
	Standing    string `json:"standing"`
	Finished    bool   `json:"finished"`
	Incarnation int64  `json:"incarnation"`
	Parent      int64  `json:"parent"`            // 0: none
	Content     int64  `json:"content,omitempty"` // of a rollback: of which checkpoint
	New         int64  `json:"bytesNew"`
	Total       int64  `json:"bytesTotal"`
	Keys        int64  `json:"keys"`
	Records     int64  `json:"records"`
}

type started struct {
	UUID    string `json:"uuid"`
	Decider string `json:"decider"`
}

type retired struct {
	Slots   []int64 `json:"slots"`
	Files   int     `json:"files"`
	Settled int64   `json:"settled,omitempty"` // every ledger names this one, or a later one
}

func listed(s *store.Store, all bool, now time.Time) []row {
	rows := []row{}
	add := func(id log.ID, kind string, at time.Time) *row {
		rows = append(rows, row{N: id.Slot, Kind: kind, ID: id.String(), At: at})
		r := &rows[len(rows)-1]
		if !at.IsZero() {
			r.Age = now.Sub(at).Seconds()
		}
		return r
	}
	points := map[int64]store.Checkpoint{}
	for _, c := range s.Checkpoints() {
		points[c.ID.Slot] = c
	}
	for _, e := range s.Log() {
		switch c, ok := points[e.Slot]; {
		case ok:
			add(e.ID, "checkpoint", c.At).point = pointOf(c)
		case all && e.Start != nil:
			add(e.ID, "start", e.Start.At).Start = &started{e.Start.UUID, e.Start.Decider}
		case all && e.Retire != nil:
			add(e.ID, "retire", time.Time{}).Retire = &retired{e.Retire.Slots, len(e.Retire.Blobs), e.Retire.Settled.Slot}
		}
	}
	return rows
}

func pointOf(c store.Checkpoint) *point {
	p := &point{Epoch: c.Epoch, Standing: string(c.Standing), Finished: c.Finished, Incarnation: c.Incarnation, Parent: c.Parent.Slot,
		Content: c.Content.Slot, New: c.New, Total: c.Total, Keys: c.Keys}
	for _, s := range c.Splits {
		p.Records += s.Records
	}
	return p
}

func (a *app) list(rows []row) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no checkpoints yet")
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "N\tEPOCH\tAGE\tRECORDS\tKEYS\tNEW\tTOTAL\tPARENT\tSTART\tSTANDING")
	for _, r := range rows {
		switch {
		case r.Start != nil:
			fmt.Fprintf(w, "%d\t\t%s\t\t\t\t\t\t%d\tstart, %s decides\n", r.N, age(r.Age), r.N, r.Start.Decider)
		case r.Retire != nil:
			fmt.Fprintf(w, "%d\t\t\t\t\t\t\t\t\t%s\n", r.N, r.Retire.words())
		default:
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.N, r.Epoch, age(r.Age), count(r.Records), count(r.Keys),
				size(r.New), size(r.Total), slotOf(weir.CheckpointID{Slot: r.Parent, Sum: [32]byte{}}), r.Incarnation, r.words())
		}
	}
	return w.Flush()
}

// words says how a checkpoint stands.
func (p *point) words() string {
	words := []string{p.Standing}
	if p.Finished {
		words = append(words, "finished")
	}
	if p.Content != 0 {
		words = append(words, fmt.Sprintf("rollback to %d", p.Content))
	}
	return strings.Join(words, ", ")
}

func (r *retired) words() string {
	var words []string
	if len(r.Slots) > 0 || r.Files > 0 {
		words = append(words, fmt.Sprintf("retires %d entries and %d files", len(r.Slots), r.Files))
	}
	if r.Settled != 0 {
		words = append(words, fmt.Sprintf("every ledger has come to %d", r.Settled))
	}
	return strings.Join(words, "; ")
}

func slots(n []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ", "), "[]")
}

// age is a time past in whole units.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
