// Package cli gives a job's binary its verbs: run, explain and what is added
// to them. A main function is one line:
//
//	func main() { cli.Main(job) }
//
//	func job(p *cli.Params) *weir.Job { ... }
//
// The job's parameters become flags and environment variables with help texts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirstream/weir"
)

// Build declares a job from its parameters. It is called more than once: first to learn
// which parameters there are, with their defaults, and then with their values.
// So it must do nothing but declare.
type Build func(p *Params) *weir.Job

// Option configures Main.
type Option interface{ apply(*app) }

type option func(*app)

func (f option) apply(a *app) { f(a) }

// WithCommand adds a verb of the binary's own.
func WithCommand(c *cobra.Command) Option {
	return option(func(a *app) { a.extra = append(a.extra, c) })
}

// WithLogger sends the structured logs to l. The default writes those of level
// --log-level and above to the standard error.
func WithLogger(l *slog.Logger) Option { return option(func(a *app) { a.log = l }) }

// WithTracer makes spans of a run, as [weir.Tracer] tells. The default is none.
func WithTracer(t trace.Tracer) Option { return option(func(a *app) { a.tracer = t }) }

// app is one invocation of the binary.
type app struct {
	build  Build
	extra  []*cobra.Command
	log    *slog.Logger
	tracer trace.Tracer
	stdin  io.Reader // of a person; nil: nobody can be asked
	stdout io.Writer
	stderr io.Writer
	getenv func(string) (string, bool)
}

// Main runs the verb that the command line names and exits with its code: see
// the Exit constants. SIGINT and SIGTERM stop a run politely: it takes a last
// checkpoint and exits with 0. A second signal exits at once with 130.
func Main(build Build, opts ...Option) {
	a := &app{build: build, stdin: terminal(os.Stdin), stdout: os.Stdout, stderr: newScreen(os.Stderr), getenv: os.LookupEnv}
	for _, o := range opts {
		o.apply(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		first := time.Now()
		fmt.Fprintln(a.stderr, "stopping: taking a last checkpoint; a second signal exits at once")
		cancel()
		for range signals {
			if time.Since(first) > oneRequest {
				os.Exit(ExitSignal)
			}
		}
	}()
	code := a.execute(ctx, os.Args[1:])
	os.Exit(code)
}

// oneRequest is how long signals count as one: some tools send the same signal
// twice in a row, to the process and to its group.
const oneRequest = 20 * time.Millisecond

// execute runs one command line and returns its exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.command()
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var usage usageError
	if errors.Is(err, errVerdict) || errors.Is(err, errUnwell) {
		return exitCode(err)
	}
	fmt.Fprintf(a.stderr, "error: %v\n", err)
	if errors.As(err, &usage) {
		fmt.Fprintf(a.stderr, "see '%s --help'\n", c.CommandPath())
	}
	return exitCode(err)
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           filepath.Base(os.Args[0]),
		Short:         "a job of the stream processor Weir",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{wrongFlag(err)} })
	root.AddCommand(a.runCommand(), a.explainCommand(), a.planCommand(), a.doctorCommand(), a.checkpointsCommand())
	root.AddCommand(a.extra...)
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("there is no verb %q", args[0])}
		}
		return c.Help()
	}
	root.Args = cobra.ArbitraryArgs
	return root
}

// usageError marks a command line that can't be understood.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }
