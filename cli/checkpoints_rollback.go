package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirstream/weir"
)

func (a *app) rollbackCommand() *cobra.Command {
	c := &cobra.Command{Use: "rollback N", Short: "go back: append a checkpoint with the content of checkpoint N, from which the next run goes on",
		Args: arguments([]string{"N"})}
	e := &engine{}
	e.flags(c.Flags())
	c.Flags().VisitAll(func(f *pflag.Flag) { // of the flags that every job has, what a run alone needs
		f.Hidden = !slices.Contains([]string{"state", "takeover", "drop", "log-level", "log-format"}, f.Name)
	})
	yes := c.Flags().Bool("yes", false, "don't ask")
	duplicates := c.Flags().Bool("allow-duplicates", false, "go back although a sink only appends, and will hold rows twice")
	return a.bind(c, e, false, func(c *cobra.Command, job *weir.Job, e *engine, opts []weir.RunOption) error {
		n, err := slotNumber(c.Flags().Arg(0))
		if err != nil {
			return err
		}
		if err := a.needState(c.Flags(), &e.state); err != nil {
			return err
		}
		if e.startOver {
			return usageError{errors.New("--start-over and rollback exclude each other: one gives the checkpoints up, the other goes on from one")}
		}
		log, err := a.logger(e)
		if err != nil {
			return err
		}
		p := &printer{w: a.stderr}
		opts = append(opts, weir.Logger(log), weir.OnWait(p.waiting))
		to := weir.Rollback{To: n, AllowDuplicates: *duplicates}
		plan, err := job.PlanRollback(c.Context(), to, opts...)
		if err != nil {
			return err
		}
		fmt.Fprint(a.stdout, plan)
		if err := a.confirm(*yes); err != nil {
			return err
		}
		id, err := job.Rollback(c.Context(), to, opts...)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "rolled back: checkpoint %d has the content of %d, and the next run goes on from it\n", id.Slot, n)
		return err
	})
}

// confirm asks a person, unless yes.
func (a *app) confirm(yes bool) error {
	if yes {
		return nil
	}
	if a.stdin == nil {
		return usageError{errors.New("nothing was changed: there is no terminal to ask at, so say --yes")}
	}
	fmt.Fprint(a.stdout, "go back? [y/N] ")
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return usageError{errors.New("nothing was changed: the answer wasn't yes")}
}

// terminal returns f if a person sits at it.
func terminal(f *os.File) io.Reader {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}
