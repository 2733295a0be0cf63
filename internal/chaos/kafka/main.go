// Command kafka kills, stops and cuts off the real binary of the kafkaclicks
// example, and the real brokers that it works on, and compares what readers of
// its output see with an oracle of its own.
//
//	go run ./internal/chaos/kafka [-kills 200] [-zombies 20] [-brokers 20] [-cluster 20] [-cuts 20] [-mixed 30] [-seed N] [-only kills,cuts]
//
// Each job is fed while it works, goes through several lives, and is then let read
// to its end. Its output is read back by kcat, read_committed, and held to the
// clicks that kcat reads from its input: as a whole, and transaction by transaction
// to the clicks between the positions of one checkpoint and of the next. Nothing
// may be open at the brokers any more, and the group's lag must be 0.
//
// Every process reaches its brokers through a proxy of its own, which knows the
// protocol. So a moment can be "while the answer to the third EndTxn is on its
// way", and what a process was at is known to the request. That, and what lies in
// the state directory, is the histogram that is printed. Everything random comes
// from the seed, but where in its work a process is hit by the clock depends on
// the machine too.
//
// The checks themselves are checked: a job without transactions that is killed
// must show repeats, and an output that was changed by hand must be found.
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
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
	"github.com/weirstream/weir/internal/kafkalab"
)

func main() { trial.Main(run) }

// part is one kind of trouble.
type part struct {
	name   string
	rounds *int
	nodes  int // of the brokers that it needs
	run    func(h *harness, ctx context.Context, l *lab, rounds int) error
}

// harness is one run of the command, with what it has counted.
type harness struct {
	seed  uint64
	keep  bool
	only  string
	out   io.Writer
	parts []part

	dir      string
	jobs     int
	rounds   int
	lives    int
	living   map[*life]bool
	total    verdict
	phases   map[string]map[phase]int // by part
	notes    map[string]int           // what else happened, how often
	recovery []time.Duration          // from a kill to the first new output
	clock    []string                 // how long each part took
}

// run returns the exit code: 0 if all holds, 1 if it doesn't, 2 if that
// couldn't be found out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	h := &harness{out: stdout, phases: map[string]map[phase]int{}, notes: map[string]int{}, living: map[*life]bool{}}
	if err := h.flags(args, stderr); err != nil {
		fmt.Fprintf(stderr, "chaos: %v\n", err)
		return 2
	}
	fmt.Fprintf(stdout, "chaos: seed %d\n", h.seed)
	return trial.Code(h.run(ctx), stderr, h.dir, h.seed)
}

func (h *harness) flags(args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet("chaos/kafka", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Uint64Var(&h.seed, "seed", 0, "of everything random; 0: drawn, and printed")
	fs.BoolVar(&h.keep, "keep", false, "keep the working directory")
	fs.StringVar(&h.only, "only", "", "parts to run, with commas between; none: all")
	add := func(name string, rounds, nodes int, help string, run func(*harness, context.Context, *lab, int) error) {
		h.parts = append(h.parts, part{name, fs.Int(name, rounds, help), nodes, run})
	}
	add("kills", 200, 1, "kills of the worker, a tenth of them without a proxy, with the time to the first new output taken", (*harness).kills)
	add("zombies", 20, 1, "stops of the worker past the transaction's timeout, and a successor", (*harness).zombies)
	add("cuts", 20, 1, "cuts of the connection, of each of eight kinds", (*harness).cuts)
	add("mixed", 30, 1, "kills of jobs with other sources and sinks", (*harness).mixed)
	add("controls", 1, 1, "runs that must be found wrong", (*harness).controls)
	add("brokers", 20, 1, "kills of the only broker", (*harness).brokers)
	add("cluster", 20, 3, "kills of one of three brokers", (*harness).brokers)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errors.New("it takes no arguments")
	}
	for name := range strings.SplitSeq(h.only, ",") {
		if name != "" && !slices.ContainsFunc(h.parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	if h.seed == 0 {
		h.seed = rand.Uint64N(1e9) + 1
	}
	return errors.Join(kafkalab.Missing(), kafkalab.MissingKcat())
}

func (h *harness) run(ctx context.Context) (err error) {
	if h.dir, err = os.MkdirTemp("", "weir-chaos-kafka-"); err != nil {
		return err
	}
	defer func() {
		for l := range h.living { // left by a failure
			l.kill()
			err = errors.Join(err, l.close())
		}
		if !trial.IsFailure(err) && !h.keep {
			err = errors.Join(err, os.RemoveAll(h.dir))
		}
	}()
	if err := h.build(ctx); err != nil {
		return err
	}
	began := time.Now()
	for _, nodes := range []int{1, 3} {
		if err == nil {
			err = h.on(ctx, nodes)
		}
	}
	h.report(time.Since(began), err)
	return err
}

// on runs the parts that need so many brokers, on the same ones.
func (h *harness) on(ctx context.Context, nodes int) (err error) {
	var parts []part
	for _, p := range h.parts {
		if p.nodes == nodes && *p.rounds > 0 && (h.only == "" || slices.Contains(strings.Split(h.only, ","), p.name)) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	l, err := newLab(ctx, filepath.Join(h.dir, fmt.Sprintf("broker-%d", nodes)), nodes)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, l.close(trial.IsFailure(err) || h.keep))
	}()
	for _, p := range parts {
		began := time.Now()
		if err := p.run(h, ctx, l, *p.rounds); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		h.clock = append(h.clock, fmt.Sprintf("%s %s", p.name, time.Since(began).Round(time.Second)))
	}
	return nil
}

// build makes the binaries, from any folder of the module.
func (h *harness) build(ctx context.Context) error {
	for _, pkg := range []string{"examples/kafkaclicks", "internal/chaos/kafka/mixed"} {
		c := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(h.dir, filepath.Base(pkg)), "github.com/weirstream/weir/"+pkg)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// hit counts what a process was at.
func (h *harness) hit(part string, p phase) {
	if h.phases[part] == nil {
		h.phases[part] = map[phase]int{}
	}
	h.phases[part][p]++
	h.rounds++
}

func (h *harness) report(took time.Duration, err error) {
	fmt.Fprintf(h.out, "jobs %d, lives %d, rounds %d, outputs %d in %d epochs compared, in %s (%s)\n",
		h.jobs, h.lives, h.rounds, h.total.records, h.total.epochs, took.Round(time.Second), strings.Join(h.clock, ", "))
	fmt.Fprintln(h.out, "what the processes were at when they, or their brokers, were hit:")
	parts := []string{}
	for _, p := range h.parts {
		if h.phases[p.name] != nil {
			parts = append(parts, p.name)
		}
	}
	fmt.Fprintf(h.out, "  %-12s", "")
	for _, part := range parts {
		fmt.Fprintf(h.out, " %8s", part)
	}
	fmt.Fprintln(h.out)
	for _, p := range phases {
		fmt.Fprintf(h.out, "  %-12s", p.name)
		for _, part := range parts {
			fmt.Fprintf(h.out, " %8d", h.phases[part][p])
		}
		fmt.Fprintf(h.out, "  %s\n", p.says)
	}
	for _, note := range sorted(h.notes) {
		fmt.Fprintf(h.out, "%6d  %s\n", h.notes[note], note)
	}
	if n := len(h.recovery); n > 0 {
		slices.Sort(h.recovery)
		at := func(p int) time.Duration { return h.recovery[min(n-1, n*p/100)].Round(time.Millisecond) }
		fmt.Fprintf(h.out, "from a worker's kill to the first new committed output, checkpoints 100 ms apart, %d kills: median %s, p99 %s, max %s\n",
			n, at(50), at(99), h.recovery[n-1].Round(time.Millisecond))
	}
	verdict := ""
	if err != nil {
		verdict = ", and a failure"
	}
	fmt.Fprintf(h.out, "chaos: %d rounds, %d lost, %d duplicated, %d changed%s, seed %d\n", h.rounds, h.total.lost, h.total.dup, h.total.changed, verdict, h.seed)
}

func sorted(m map[string]int) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
