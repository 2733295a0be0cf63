// Package trial is what the programs share that hurt real binaries and look at
// what is left: how a run of theirs ends, a state directory read without the
// project's code, and what a count of clicks must be.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// failure is a property that doesn't hold.
type failure struct{ what string }

func (f *failure) Error() string { return f.what }

// Failed returns the error that a property doesn't hold.
func Failed(format string, args ...any) error { return &failure{fmt.Sprintf(format, args...)} }

// IsFailure reports whether something doesn't hold, rather than that this couldn't
// be found out.
func IsFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}

// Main runs a program and exits with the code that it returns.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Code says how a run ended and returns its exit code: 0 if all holds, 1 if it
// doesn't, 2 if that couldn't be found out.
func Code(err error, stderr io.Writer, kept string, seed uint64) int {
	switch {
	case IsFailure(err):
		fmt.Fprintf(stderr, "chaos: %v\nchaos: everything is kept in %s; seed %d\n", err, kept, seed)
		return 1
	case err != nil:
		fmt.Fprintf(stderr, "chaos: %v\n", err)
		return 2
	}
	return 0
}
