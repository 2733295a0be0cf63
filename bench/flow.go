package main

import (
	"context"
	"fmt"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir"
)

func flowRows() []row {
	return []row{
		{name: "back-pressure", unit: "MiB", bound: 4, what: "more memory at its peak with a sink that is 20 times slower than the source", run: backPressure},
		{name: "follow-latency", unit: "ms", bound: 25, what: "p99 from a line's arrival in a followed file to its row in SQLite at half load, less the interval", run: followLatency},
	}
}

// backPressure reads the same records into a quick sink and into a slow one, and
// compares the most that the heap has held.
func backPressure(ctx context.Context, pairs int) (result, error) {
	recs := events(cold, false)
	var quick, slow []float64
	for range min(pairs, 3) {
		q, err := peak(ctx, recs, 4*pregenerated, 0)
		if err != nil {
			return result{}, err
		}
		s, err := peak(ctx, recs, pregenerated/4, 4*time.Microsecond)
		if err != nil {
			return result{}, err
		}
		quick, slow = append(quick, q), append(slow, s)
	}
	q, s := median(quick), median(slow)
	return result{s - q, fmt.Sprintf("%.1f MiB with the quick sink, %.1f with the slow one; load %s", q, s, load())}, nil
}

// peak runs a job whose sink is busy for so long with each record, and returns
// the most that the heap has held meanwhile, in MiB.
func peak(ctx context.Context, recs []event, n int, busy time.Duration) (float64, error) {
	var most atomic.Int64
	sample := func() {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		most.Store(max(most.Load(), int64(s[0].Value.Uint64())))
	}
	heap() // begin clean
	var seen atomic.Int64
	job := weir.NewJob("bench")
	job.From("events", cycle[event]{recs, n}).Map(toClick).KeyBy(adOf).Count("count").
		To("out", weir.Each(func(weir.Pair[string, int64]) error {
			for began := time.Now(); busy > 0 && time.Since(began) < busy; {
			}
			if seen.Add(1)%1024 == 0 {
				sample()
			}
			return nil
		}))
	err := job.Run(ctx, weir.Parallelism(2), weir.Interval(100*time.Millisecond))
	return float64(most.Load()) / (1 << 20), err
}
