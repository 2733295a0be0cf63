// Command bench measures what a record and a checkpoint cost.
//
// Each row compares the engine with a bare loop that a good engineer would
// write by hand and that calls the same functions, or measures one cost of the
// engine. Engine and loop take turns in one process (A/B/A/B); what counts is
// the process's CPU time, and of the pairs the median. Its numbers are for
// people: on a busy machine they say more than wall times, but no test depends
// on them.
//
// The Kafka rows do the same on a real broker, with a process for each lap. They
// need java and mvn; where these are missing a line says so.
//
//	go run ./bench [-json] [-pairs 7] [-only row,row] [-kafka=false] [-kafka-records 12000000]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"github.com/weirstream/weir/bench/rig"
)

// row is one line of the table.
type row struct {
	name  string
	unit  string
	bound float64
	least bool // the bound is a lower one
	what  string
	kafka bool // it needs a broker
	run   func(ctx context.Context, pairs int) (result, error)
}

// result is what a row measured.
type result struct {
	value float64
	note  string
}

func rows(k *kafkaBench) []row {
	all := recordRows()
	all = append(all, checkpointRows()...)
	all = append(all, stateRows()...)
	all = append(all, flowRows()...)
	all = append(all, sqliteRows()...)
	return append(all, k.rows()...)
}

func (r row) ok(v float64) bool {
	if r.least {
		return v >= r.bound
	}
	return v <= r.bound
}

// options are what the flags say.
type options struct {
	json          bool
	pairs         int
	only, profile string
	kafka         kafkaBench
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run is the program, or one lap in a process of its own.
func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == rig.Lapping {
		return rig.Main(ctx, args[1], os.Stdout)
	}
	var o options
	flag.BoolVar(&o.json, "json", false, "print JSON lines")
	flag.IntVar(&o.pairs, "pairs", 7, "pairs of runs, engine and bare loop, a row")
	flag.StringVar(&o.only, "only", "", "rows to measure, separated by commas; all when empty")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of everything to this file")
	o.kafka.flags(flag.CommandLine)
	flag.Parse()
	return errors.Join(bench(ctx, os.Stdout, &o), o.kafka.close())
}

func bench(ctx context.Context, w io.Writer, o *options) (err error) {
	if o.pairs < 1 || o.kafka.laps < 1 || o.kafka.records < 1 {
		return fmt.Errorf("-pairs %d, -kafka-pairs %d, -kafka-records %d: at least 1", o.pairs, o.kafka.laps, o.kafka.records)
	}
	chosen, err := choose(o.only, &o.kafka)
	if err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	out := printer(w)
	if o.json {
		out = jsonLines(w)
	} else {
		fmt.Fprintf(w, "medians of %d pairs, CPU time; machine: %s\n", o.pairs, load())
		fmt.Fprintf(w, "kafka rows: of %d, because a pair is two processes over %d records (-kafka-pairs, -kafka-records)\n\n", o.kafka.laps, o.kafka.records)
	}
	why := o.kafka.missing()
	for _, r := range chosen {
		pairs := o.pairs
		if r.kafka {
			if why != nil {
				continue
			}
			pairs = o.kafka.laps
		}
		res, err := r.run(ctx, pairs)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if err := out(r, res, pairs); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if why != nil && slices.ContainsFunc(chosen, func(r row) bool { return r.kafka }) {
		fmt.Fprintln(os.Stderr, "LEFT OUT: the Kafka rows, because", why)
	}
	return nil
}

func choose(only string, k *kafkaBench) ([]row, error) {
	all := rows(k)
	if only == "" {
		return all, nil
	}
	var names []string
	for _, r := range all {
		names = append(names, r.name)
	}
	want := strings.Split(only, ",")
	for _, name := range want {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("-only %s: there is no such row; the rows are %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(r row) bool { return !slices.Contains(want, r.name) }), nil
}

func printer(w io.Writer) func(row, result, int) error {
	return func(r row, res result, _ int) error {
		rel, verdict := "<=", "ok"
		if r.least {
			rel = ">="
		}
		if !r.ok(res.value) {
			verdict = "MISSED"
		}
		_, err := fmt.Fprintf(w, "%-20s %9s %-14s %s %-6s %-6s  %s\n%44s %s\n", r.name, number(res.value), r.unit, rel, number(r.bound), verdict, r.what, "", res.note)
		return err
	}
}

func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v < 0.01 && v > -0.01:
		return fmt.Sprintf("%.5f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func jsonLines(w io.Writer) func(row, result, int) error {
	enc := json.NewEncoder(w)
	return func(r row, res result, pairs int) error {
		return enc.Encode(struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
			Unit  string  `json:"unit"`
			Bound float64 `json:"bound"`
			OK    bool    `json:"ok"`
			Least bool    `json:"least"` // the bound is a lower one
			Pairs int     `json:"pairs"`
			Load  string  `json:"load"`
			Note  string  `json:"note"`
		}{r.name, res.value, r.unit, r.bound, r.ok(res.value), r.least, pairs, load(), res.note})
	}
}
