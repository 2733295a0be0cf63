package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirstream/weir"
)

// engine is the flags that every job has.
type engine struct {
	state       string
	interval    time.Duration
	records     int64
	parallelism int
	batch       int
	retain      int
	takeover    bool
	startOver   bool
	drop        []string
	restarts    int
	stateMemory byteSize
	progress    time.Duration
	logLevel    string
	logFormat   string
}

func (e *engine) flags(fs *pflag.FlagSet) {
	fs.StringVar(&e.state, "state", "", "folder for checkpoints; without it they live in memory and end with the run [WEIR_STATE]")
	fs.DurationVar(&e.interval, "checkpoint-interval", time.Second, "time between checkpoints [WEIR_CHECKPOINT_INTERVAL]")
	fs.Int64Var(&e.records, "checkpoint-records", 0, "a checkpoint after so many records of a split, instead of by time [WEIR_CHECKPOINT_RECORDS]")
	fs.IntVar(&e.parallelism, "parallelism", 0, "tasks a keyed step; 0: one a core [WEIR_PARALLELISM]")
	fs.IntVar(&e.batch, "batch-size", 0, "records that go from task to task at once, at most 1024; 0: the default [WEIR_BATCH_SIZE]")
	fs.IntVar(&e.retain, "retain", 10, "checkpoints kept [WEIR_RETAIN]")
	fs.BoolVar(&e.takeover, "takeover", false, "start although another process holds the state folder, and fence it [WEIR_TAKEOVER]")
	fs.BoolVar(&e.startOver, "start-over", false, "give up the checkpoints and begin from nothing; rows already written stay [WEIR_START_OVER]")
	fs.StringSliceVar(&e.drop, "drop", nil, "id of a step, source or sink that is gone from the job: give up what there is of it; may be given more than once [WEIR_DROP]")
	fs.IntVar(&e.restarts, "restarts", 5, "recoveries in place in a row after errors that may pass; 0: none, not even when a disk is full [WEIR_RESTARTS]")
	fs.Var(&e.stateMemory, "state-memory", "the most memory that state may take, such as 4GiB; reaching it ends the run; 0: no limit [WEIR_STATE_MEMORY]")
	fs.DurationVar(&e.progress, "progress", time.Second, "time between progress lines; 0: none [WEIR_PROGRESS]")
	fs.StringVar(&e.logLevel, "log-level", "warn", "debug, info, warn or error [WEIR_LOG_LEVEL]")
	fs.StringVar(&e.logFormat, "log-format", "text", "text or json [WEIR_LOG_FORMAT]")
}

// options turns the flags into options of Run.
func (e *engine) options(fs *pflag.FlagSet) ([]weir.RunOption, error) {
	opts := []weir.RunOption{weir.Interval(e.interval), weir.Retain(e.retain), weir.Restarts(e.restarts), weir.StateMemory(int64(e.stateMemory))}
	if e.records != 0 {
		if fs.Changed("checkpoint-interval") {
			return nil, usageError{errors.New("--checkpoint-interval and --checkpoint-records exclude each other")}
		}
		opts = append(opts, weir.EveryRecords(e.records))
	}
	if e.state != "" {
		opts = append(opts, weir.StateDir(e.state))
	}
	if e.parallelism != 0 {
		opts = append(opts, weir.Parallelism(e.parallelism))
	}
	if e.batch != 0 {
		opts = append(opts, weir.BatchSize(e.batch))
	}
	if e.takeover {
		opts = append(opts, weir.Takeover())
	}
	if e.startOver {
		opts = append(opts, weir.StartOver())
	}
	if len(e.drop) > 0 {
		opts = append(opts, weir.Drop(e.drop...))
	}
	return opts, nil
}

func (a *app) logger(e *engine) (*slog.Logger, error) {
	if a.log != nil {
		return a.log, nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.logLevel)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: it must be debug, info, warn or error", e.logLevel)}
	}
	o := &slog.HandlerOptions{Level: level}
	switch e.logFormat {
	case "text":
		return slog.New(spoken{slog.NewTextHandler(a.stderr, o)}), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, o)), nil
	}
	return nil, usageError{fmt.Errorf("--log-format %q: it must be text or json", e.logFormat)}
}

// spoken leaves out what run prints in words of its own.
type spoken struct{ slog.Handler }

// Handle implements slog.Handler.
func (h spoken) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "waiting" || r.Message == "restarting in place" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h spoken) WithAttrs(attrs []slog.Attr) slog.Handler { return spoken{h.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (h spoken) WithGroup(name string) slog.Handler { return spoken{h.Handler.WithGroup(name)} }

// wrongFlag says what a number must be in words of the command line, not of Go.
func wrongFlag(err error) error {
	var flag *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &flag) || !errors.As(err, &number) {
		return err
	}
	why := "it must be a whole number"
	if number.Func == "ParseBool" {
		why = "it must be true or false"
	}
	return fmt.Errorf("--%s %q: %s", flag.GetFlag().Name, flag.GetValue(), why)
}

// act is what a verb does with the job, once its flags are read.
type act func(c *cobra.Command, job *weir.Job, e *engine, opts []weir.RunOption) error

// view makes a command that only looks: at the job as declared, at its store. It
// runs nothing, so a parameter that the job needs may be missing: the job is then
// declared twice, with other guesses, and what differs isn't believed.
func (a *app) view(use, short string, do act) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noArgs}
	e := &engine{}
	e.flags(c.Flags())
	return a.bind(c, e, true, do)
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments: %q", c.Name(), args)}
	}
	return nil
}

// bind gives a command, whose own flags are all there, the job's parameters and
// what it does. looks: it runs nothing.
func (a *app) bind(c *cobra.Command, e *engine, looks bool, do act) *cobra.Command {
	learn := &Params{}
	a.build(learn)
	for _, d := range learn.declared {
		if c.Flags().Lookup(d.name) != nil {
			c.RunE = func(*cobra.Command, []string) error {
				return usageError{fmt.Errorf("the job's parameter --%s has the name of a flag that every job has: rename it", d.name)}
			}
			return c
		}
	}
	learn.flags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := a.fromEnv(c.Flags(), learn); err != nil {
			return err
		}
		p := &Params{values: learn.given(c.Flags(), a.getenv), lenient: looks, guess: "not-given"}
		job := a.build(p)
		if len(p.errs) > 0 {
			return usageError{errors.Join(p.errs...)}
		}
		opts, err := e.options(c.Flags())
		if err != nil {
			return err
		}
		for _, name := range p.missing {
			others := maps.Clone(p.values)
			others[name] = "nor-is-this"
			other := a.build(&Params{values: others, lenient: true, guess: p.guess})
			opts = append(opts, weir.Guessed(other, "--"+name+" isn't given"))
		}
		return do(c, job, e, opts)
	}
	return c
}

// fromEnv sets the flags that every job has from the environment.
func (a *app) fromEnv(fs *pflag.FlagSet, learn *Params) error {
	own := map[string]bool{"help": true}
	for _, d := range learn.declared {
		own[d.name] = true
	}
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		if own[f.Name] || f.Changed {
			return
		}
		if v, ok := a.getenv(envName(f.Name)); ok {
			if err := fs.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", envName(f.Name), v, wrongFlag(err)))
			}
		}
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}
