package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/control/store"
)

func (a *app) exportCommand() *cobra.Command {
	c := &cobra.Command{Use: "export N", Short: `print the state of a step as lines of JSON: {"key": ..., "window": ..., "value": ...}`}
	step := c.Flags().String("step", "", "the step, by its id")
	return a.looks(c, []string{"N"}, func(ctx context.Context, job, dir string, args []string) error {
		if *step == "" {
			return usageError{errors.New("--step is missing: the step, by its id")}
		}
		return withCheckpoint(ctx, dir, job, args[0], func(s *store.Store, c store.Checkpoint) error {
			st, err := s.State(c, *step)
			if err != nil {
				return err
			}
			w := bufio.NewWriterSize(a.stdout, 64<<10)
			err = st.Each(func(e store.Entry) error { return errors.Join(interrupted(ctx), printEntry(w, e)) })
			return errors.Join(err, w.Flush())
		})
	})
}

// printLine prints a value as a line of JSON.
func printLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
