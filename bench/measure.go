package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/bench/rig"
)

// lap is what one run of something took.
type lap struct {
	cpu, wall time.Duration
	mallocs   uint64
}

// timed runs f on a clean heap.
func timed(f func() error) (lap, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, w := rig.CPU(), time.Now()
	err := f()
	l := lap{cpu: rig.CPU() - c, wall: time.Since(w)}
	runtime.ReadMemStats(&after)
	l.mallocs = after.Mallocs - before.Mallocs
	return l, err
}

// pairsOf runs a and b in turn, n times, after one warm-up of each. What runs
// first changes from pair to pair.
func pairsOf(ctx context.Context, n int, a, b func() error) (as, bs []lap, err error) {
	for i := -1; i < n; i++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		var la, lb lap
		var errA, errB error
		if i%2 == 0 {
			la, errA = timed(a)
			lb, errB = timed(b)
		} else {
			lb, errB = timed(b)
			la, errA = timed(a)
		}
		if errA != nil {
			return nil, nil, errA
		}
		if errB != nil {
			return nil, nil, errB
		}
		if i >= 0 {
			as, bs = append(as, la), append(bs, lb)
		}
	}
	return as, bs, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return (x[n/2] + x[(n-1)/2]) / 2
}

// each maps pairs to numbers.
func each(as, bs []lap, f func(a, b lap) float64) []float64 {
	out := make([]float64, len(as))
	for i := range as {
		out[i] = f(as[i], bs[i])
	}
	return out
}

// extra is the median of what a record costs more in b than in a, with a note.
func extra(as, bs []lap, records int, nameA, nameB string) result {
	n := float64(records)
	diffs := each(as, bs, func(a, b lap) float64 { return float64(b.cpu-a.cpu) / n })
	slices.Sort(diffs)
	a := median(each(as, bs, func(a, _ lap) float64 { return float64(a.cpu) / n }))
	b := median(each(as, bs, func(_, b lap) float64 { return float64(b.cpu) / n }))
	ratio := median(each(as, bs, func(a, b lap) float64 { return float64(b.cpu) / float64(a.cpu) }))
	return result{value: median(diffs), note: fmt.Sprintf("%s %.1f, %s %.1f ns a record, ratio %.2f; differences %.1f to %.1f; load %s",
		nameA, a, nameB, b, ratio, diffs[0], diffs[len(diffs)-1], load())}
}

// load says how busy the machine is, or "" where it doesn't tell.
func load() string {
	var parts []string
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 0 {
			parts = append(parts, f[0])
		}
	}
	if b, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		if _, after, ok := strings.Cut(string(b), "avg10="); ok {
			pressure, _, _ := strings.Cut(after, " ")
			parts = append(parts, "CPU pressure "+pressure+" %")
		}
	}
	return strings.Join(parts, ", ") + fmt.Sprintf(" on %d cores", runtime.NumCPU())
}
