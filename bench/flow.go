package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
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

// backPressure reads records into a quick sink and into a slow one, and compares
// the most memory that was in use: what is alive, as the collector finds it in
// the middle of the run.
func backPressure(ctx context.Context, pairs int) (result, error) {
	recs := events(hot, false) // few: copies of state are no part of it
	var quick, slow []float64
	for range min(pairs, 3) {
		q, err := peak(ctx, recs, 0)
		if err != nil {
			return result{}, err
		}
		s, err := peak(ctx, recs, 4*time.Microsecond)
		if err != nil {
			return result{}, err
		}
		quick, slow = append(quick, q), append(slow, s)
	}
	q, s := median(quick), median(slow)
	return result{s - q, fmt.Sprintf("%.1f MiB alive with the quick sink, %.1f with the slow one; load %s", q, s, load())}, nil
}

// peak runs a job whose sink is busy for so long with each record, and returns
// the most that was alive meanwhile, in MiB.
func peak(ctx context.Context, recs []event, busy time.Duration) (float64, error) {
	const samples = 8
	var most, seen atomic.Int64
	job := weir.NewJob("bench")
	job.From("events", cycle[event]{recs, pregenerated}).Map(toClick).KeyBy(adOf).Count("count").
		To("out", weir.Each(func(weir.Pair[string, int64]) error {
			for began := time.Now(); busy > 0 && time.Since(began) < busy; {
			}
			if seen.Add(1)%(pregenerated/samples) == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), int64(m.HeapAlloc)))
			}
			return nil
		}))
	err := inTemp(func(dir string) error { // as many checkpoints of either
		return job.Run(ctx, weir.Parallelism(2), weir.EveryRecords(pregenerated/samples), weir.StateDir(filepath.Join(dir, "state")))
	})
	return float64(most.Load()) / (1 << 20), err
}
