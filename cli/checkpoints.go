package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/control/store"
)

// checkpointsCommand has the verbs that look at a state directory, and the two
// that change one.
func (a *app) checkpointsCommand() *cobra.Command {
	c := &cobra.Command{Use: "checkpoints", Short: "look at the checkpoints in a state directory, remove some, or roll the job back",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no verb %q of checkpoints", args[0])}
			}
			return c.Help()
		}}
	c.AddCommand(a.listCommand(), a.showCommand(), a.diffCommand(), a.exportCommand(), a.removeCommand(), a.rollbackCommand())
	return c
}

// look is what a verb does that needs no more of the job than its name.
type look func(ctx context.Context, job, dir string, args []string) error

// looks finishes a command that works on a state directory and runs nothing. It
// takes the job's parameters, so that a command line can be changed by its verb
// alone, and needs none of them: only who runs the job must have them. want says
// which arguments it takes, one word each; a last one that ends with dots may be
// repeated.
func (a *app) looks(c *cobra.Command, want []string, do look) *cobra.Command {
	dir := c.Flags().String("state", "", "the job's folder for checkpoints [WEIR_STATE]")
	c.Args = arguments(want)
	learn := &Params{}
	a.build(learn)
	rest := &Params{}
	for _, d := range learn.declared { // where the names clash, the verb's own flag wins
		if c.Flags().Lookup(d.name) == nil {
			rest.declared = append(rest.declared, d)
		}
	}
	rest.flags(c.Flags())
	for _, d := range rest.declared {
		c.Flags().Lookup(d.name).Hidden = true
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		p := &Params{values: rest.given(c.Flags(), a.getenv), lenient: true}
		job := a.build(p)
		if len(p.errs) > 0 {
			return usageError{errors.Join(p.errs...)}
		}
		if err := a.needState(c.Flags(), dir); err != nil {
			return err
		}
		return do(c.Context(), job.Name(), *dir, args)
	}
	return c
}

// needState takes the state directory from the environment if no flag gives it.
func (a *app) needState(fs *pflag.FlagSet, dir *string) error {
	if v, ok := a.getenv(envName("state")); ok && !fs.Changed("state") {
		*dir = v
	}
	if *dir == "" {
		return usageError{fmt.Errorf("--state (or %s) is missing: the job's folder for checkpoints", envName("state"))}
	}
	return nil
}

func arguments(want []string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		many := len(want) > 0 && want[len(want)-1] == "N..."
		if len(args) == len(want) || many && len(args) >= len(want) {
			return nil
		}
		if len(want) == 0 {
			return usageError{fmt.Errorf("%s takes no arguments: %q", c.Name(), args)}
		}
		given := "none is given"
		if len(args) > 0 {
			given = "given is " + strings.Join(args, " ")
		}
		return usageError{fmt.Errorf("%s takes %s, as ls numbers checkpoints; %s", c.Name(), strings.Join(want, " "), given)}
	}
}

// slotNumber reads the number of a checkpoint.
func slotNumber(arg string) (int64, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return 0, usageError{fmt.Errorf("%q isn't the number of a checkpoint, as ls prints it", arg)}
	}
	return n, nil
}

// withStore opens a state directory for as long as do takes.
func withStore(ctx context.Context, dir, job string, do func(s *store.Store) error) (err error) {
	s, err := store.Open(ctx, dir, job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return do(s)
}

// withCheckpoint opens a state directory and finds one checkpoint in it.
func withCheckpoint(ctx context.Context, dir, job, arg string, do func(s *store.Store, c store.Checkpoint) error) error {
	n, err := slotNumber(arg)
	if err != nil {
		return err
	}
	return withStore(ctx, dir, job, func(s *store.Store) error {
		c, err := s.Find(n)
		if err != nil {
			return err
		}
		return do(s, c)
	})
}

// errInterrupted ends a verb that was told to stop while it printed.
var errInterrupted = errors.New("interrupted")

// interrupted returns errInterrupted once ctx is done.
func interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// printJSON prints a value over several lines, for people and programs.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// slotOf is a checkpoint's number, or a dash for none.
func slotOf(id weir.CheckpointID) string {
	if id.IsZero() {
		return "-"
	}
	return strconv.FormatInt(id.Slot, 10)
}
