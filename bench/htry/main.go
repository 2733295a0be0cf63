// Command htry is scratch.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/bench/rig"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	if len(os.Args) == 3 && os.Args[1] == rig.Lapping {
		must(rig.Main(ctx, os.Args[2], os.Stdout))
		return
	}
	n, _ := strconv.ParseInt(os.Args[1], 10, 64)
	addrs := strings.Split(os.Getenv("BROKERS"), ",")
	t, err := rig.NewTopics(addrs)
	must(err)
	w := rig.Workload{Seed: 1, Records: n}
	in := fmt.Sprintf("clicks-%d", n)
	if t.Create(ctx, in) == nil {
		at := time.Now()
		must(t.Fill(ctx, in, w))
		fmt.Println("filled", time.Since(at), rig.CPU())
	}
	at := time.Now()
	ref := rig.NewReference(w)
	fmt.Println("reference", time.Since(at))
	for i, a := range os.Args[2:] {
		s := rig.Spec{Work: rig.Work(a), Brokers: addrs, Input: in, Tasks: 1, Interval: 500 * time.Millisecond, Side: rig.Side(os.Getenv("SIDE")),
			DefaultCodec: os.Getenv("CODEC") != ""}
		if s.Side == "" {
			s.Side = rig.Raw
		}
		if x := os.Getenv("TASKS"); x != "" {
			s.Tasks, _ = strconv.Atoi(x)
		}
		s.AtLeastOnce = os.Getenv("ALO") != ""
		s.Profile = os.Getenv("PROFILE")
		s.Name = fmt.Sprintf("try-%d-%d", time.Now().UnixNano(), i)
		s.Output = s.Name + ".out"
		if d := os.Getenv("PACE"); d != "" {
			s.Input = s.Name + ".in"
			must(t.Create(ctx, s.Input))
		}
		must(t.Create(ctx, s.Output))
		dir, _ := os.MkdirTemp("", "h-lap")
		s.StateDir = dir
		if d := os.Getenv("PACE"); d != "" {
			dd, _ := time.ParseDuration(d)
			l, err := rig.Pace(ctx, s, 2000, dd)
			fmt.Println(len(l.Took), l.Lap, err)
			if err == nil {
				fmt.Println(l.At(.5), l.At(.9), l.At(.99), l.At(1))
			}
			must(os.RemoveAll(dir))
			continue
		}
		l, err := rig.Run(ctx, s)
		must(err)
		at := time.Now()
		must(ref.Check(ctx, t, s.Output, s.Work))
		fmt.Printf("%s %s: %.3f CPU s/M, %.0f k/s, wall %v, first %v, %.4f allocs, %d MB, %d commits, checked in %v\n", s.Side, s.Work, l.CPU.Seconds()/float64(l.Records)*1e6,
			float64(l.Records)/l.Wall.Seconds()/1000, l.Wall, l.FirstCommit, float64(l.Mallocs)/float64(l.Records), l.PeakBytes/1e6, l.Commits, time.Since(at))
		must(t.Delete(ctx, s))
		must(os.RemoveAll(dir))
	}
}
