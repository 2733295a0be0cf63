package cli

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/control/store"
	"github.com/weirstream/weir/internal/data"
)

func (a *app) diffCommand() *cobra.Command {
	c := &cobra.Command{Use: "diff N M", Short: "print what changed between two checkpoints: splits, and the state of each key"}
	asJSON := c.Flags().Bool("json", false, "print a line of JSON for each split and each key")
	step := c.Flags().String("step", "", "only this step")
	limit := c.Flags().Int("limit", 20, "print so many keys of a step; 0: all")
	return a.looks(c, []string{"N", "M"}, func(ctx context.Context, job, dir string, args []string) error {
		return withCheckpoint(ctx, dir, job, args[0], func(s *store.Store, old store.Checkpoint) error {
			n, err := slotNumber(args[1])
			if err != nil {
				return err
			}
			now, err := s.Find(n)
			if err != nil {
				return err
			}
			d := &differences{app: a, ctx: ctx, s: s, old: old, now: now, limit: *limit, json: *asJSON}
			return d.print(*step)
		})
	})
}

// differences prints how two checkpoints differ.
type differences struct {
	*app
	ctx      context.Context
	s        *store.Store
	old, now store.Checkpoint
	limit    int
	json     bool
}

func (d *differences) print(only string) error {
	if !d.json {
		fmt.Fprintf(d.stdout, "checkpoint %d (epoch %d) and %d (epoch %d)\n", d.old.ID.Slot, d.old.Epoch, d.now.ID.Slot, d.now.Epoch)
	}
	steps := []string{only}
	if only == "" {
		steps = store.Steps(d.old, d.now)
		for _, c := range store.Splits(d.old, d.now) {
			if err := d.split(c); err != nil {
				return err
			}
		}
	}
	for _, step := range steps {
		if err := d.step(step); err != nil {
			return err
		}
	}
	return nil
}

type splitLine struct {
	Source string       `json:"source"`
	Split  string       `json:"split"`
	Old    *splitDetail `json:"old"`
	New    *splitDetail `json:"new"`
}

func (d *differences) split(c store.SplitChange) error {
	detail := func(s *data.SplitState) *splitDetail {
		if s == nil {
			return nil
		}
		return &splitDetail{s.Source, s.Split, position64(s.Position), eventTime(s.Watermark), s.Records, s.Late, s.Ended}
	}
	l := splitLine{c.Source, c.Split, detail(c.Old), detail(c.New)}
	if d.json {
		return printLine(d.stdout, l)
	}
	text := func(s *splitDetail) string {
		if s == nil {
			return "not there"
		}
		end := ""
		if s.Ended {
			end = ", ended"
		}
		return fmt.Sprintf("position %s, %s records, watermark %s%s", strings.Trim(string(s.Position), `"`), count(s.Records), s.Watermark, end)
	}
	_, err := fmt.Fprintf(d.stdout, "split %s of %s\n  - %s\n  + %s\n", c.Split, c.Source, text(l.Old), text(l.New))
	return err
}

// step counts what is different, and prints the first of it on the way: how much
// there is becomes known at the end.
func (d *differences) step(step string) error {
	var added, removed, changed, printed int64
	if !d.json {
		fmt.Fprintf(d.stdout, "step %s\n", step)
	}
	err := d.s.Diff(d.old, d.now, step, func(c store.Change) error {
		switch {
		case c.Old == nil:
			added++
		case c.New == nil:
			removed++
		default:
			changed++
		}
		if d.limit > 0 && printed >= int64(d.limit) {
			return interrupted(d.ctx)
		}
		printed++
		return errors.Join(interrupted(d.ctx), d.change(c))
	})
	if err != nil || d.json {
		return err
	}
	more := ""
	if all := added + removed + changed; all > printed {
		more = fmt.Sprintf("; the first %d of %s are printed: --limit 0 prints all", printed, count(all))
	}
	_, err = fmt.Fprintf(d.stdout, "  %s added, %s removed, %s changed%s\n", count(added), count(removed), count(changed), more)
	return err
}

type changeLine struct {
	Step   string         `json:"step"`
	Key    jsontext.Value `json:"key"`
	Window string         `json:"window,omitempty"`
	Old    jsontext.Value `json:"old,omitempty"`
	New    jsontext.Value `json:"new,omitempty"`
}

func (d *differences) change(c store.Change) error {
	window := ""
	if !c.Window.IsZero() {
		window = c.Window.Format(time.RFC3339Nano)
	}
	if d.json {
		return printLine(d.stdout, changeLine{c.Step, c.Key, window, c.Old, c.New})
	}
	key := string(c.Key)
	if window != "" {
		key += "  " + window
	}
	var err error
	switch {
	case c.Old == nil:
		_, err = fmt.Fprintf(d.stdout, "  + %s  %s\n", key, c.New)
	case c.New == nil:
		_, err = fmt.Fprintf(d.stdout, "  - %s  %s\n", key, c.Old)
	default:
		_, err = fmt.Fprintf(d.stdout, "  ~ %s  %s -> %s\n", key, c.Old, c.New)
	}
	return err
}
