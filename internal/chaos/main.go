// Command chaos kills the real binary of the ad-click job with SIGKILL, again
// and again, and compares the tables that it leaves with an oracle of its own.
//
//	go run ./internal/chaos -rounds 200
//
// A job runs from nothing to the end of its input through several lives, each
// with another parallelism, batch size and way to take checkpoints. Moments
// are chosen by the clock, by what the process says and by what appears in its
// state directory. The jobs take turns in where their counts go: one database or
// two, eagerly or not, files, and pairs of these. After each kill copies of the
// databases are compared too, and the files: a sink must show the counts of
// exactly the checkpoint that its ledger names, which is the committed one or,
// of a follower, the one before; an eager one counts between those and the final
// ones. Each file must be whole, stay what it was, and go on where the one before
// it ended. Everything random comes from the seed, but where in its work a
// process is hit also depends on the machine.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

func main() { trial.Main(run) }

// run returns the exit code: 0 if all holds, 1 if it doesn't, 2 if that
// couldn't be found out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	h := &harness{out: stdout, phases: map[phase]int{}, hits: map[string]int{}}
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&h.rounds, "rounds", 200, "kills that must hit a living process")
	fs.Uint64Var(&h.seed, "seed", 0, "of everything random; 0: drawn, and printed")
	fs.BoolVar(&h.keep, "keep", false, "keep the working directory")
	fs.StringVar(&h.input, "input", "", "a file of clicks; none: one is made for each job")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if fs.NArg() > 0 || h.rounds < 1 {
		fmt.Fprintln(stderr, "chaos: it takes no arguments, and -rounds must be at least 1")
		return 2
	}
	if h.seed == 0 {
		h.seed = rand.Uint64N(1e9) + 1
	}
	fmt.Fprintf(stdout, "chaos: seed %d\n", h.seed)
	return trial.Code(h.run(ctx), stderr, h.dir, h.seed)
}

// harness is one run of the command, with what it has counted.
type harness struct {
	rounds int
	seed   uint64
	keep   bool
	input  string
	out    io.Writer

	dir, bin           string
	kills, lives, jobs int
	looks, wrong       int
	phases             map[phase]int
	hits               map[string]int // kills by variant
}

func (h *harness) run(ctx context.Context) (err error) {
	if h.dir, err = os.MkdirTemp("", "weir-chaos-"); err != nil {
		return err
	}
	defer func() {
		if !trial.IsFailure(err) && !h.keep {
			err = errors.Join(err, os.RemoveAll(h.dir))
		}
	}()
	if err := h.build(ctx); err != nil {
		return err
	}
	began := time.Now()
	for h.kills < h.rounds && err == nil {
		h.jobs++
		err = h.job(ctx)
	}
	h.report(time.Since(began))
	return err
}

// build makes the binary that users run, from any folder of the module.
func (h *harness) build(ctx context.Context) error {
	h.bin = filepath.Join(h.dir, "adclicks")
	c := exec.CommandContext(ctx, "go", "build", "-o", h.bin, "github.com/weirstream/weir/examples/adclicks")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build the job: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (h *harness) report(took time.Duration) {
	fmt.Fprintf(h.out, "jobs %d, lives %d, kills %d, comparisons %d, wrong rows %d, in %s\n",
		h.jobs, h.lives, h.kills, h.looks, h.wrong, took.Round(time.Second))
	fmt.Fprintln(h.out, "where the counts went of the jobs that were killed:")
	for _, v := range variants {
		fmt.Fprintf(h.out, "  %-28s %5d\n", v.name, h.hits[v.name])
	}
	fmt.Fprintln(h.out, "what the processes were at when they were killed:")
	for _, p := range phases {
		fmt.Fprintf(h.out, "  %-10s %5d  %s\n", p.name, h.phases[p], p.says)
	}
	fmt.Fprintf(h.out, "chaos: %d kills, %d wrong rows, seed %d\n", h.kills, h.wrong, h.seed)
}
