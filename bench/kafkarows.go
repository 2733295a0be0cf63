package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/weirstream/weir/bench/rig"
)

// rows are those of a real broker.
func (k *kafkaBench) rows() []row {
	all := []row{
		k.efficiency("kafka-count", rig.Count, false, "records a CPU second, of a raw franz-go loop's: JSON, count by ad and minute, exactly-once, one task"),
		k.efficiency("kafka-copy", rig.Copy, false, "the same of a copy"),
		k.efficiency("kafka-dedup", rig.Dedup, false, "the same of a count of each id once"),
		k.efficiency("kafka-count-json", rig.Count, true, "the same of the count, with the default codec on both sides"),
		k.cost("kafka-count-cpu", rig.Count, 1, "count, with the fast codec"),
		k.cost("kafka-copy-cpu", rig.Copy, 2, "copy"),
		k.cost("kafka-dedup-cpu", rig.Dedup, 3, "count of each id once, with the fast codec"),
		{name: "kafka-memory", unit: "MB", bound: 250, what: "resident memory of the count at its peak", run: k.memory},
		{name: "kafka-allocs", unit: "allocations", bound: 0.001, what: "allocations a record of the count, less those of the loop", run: k.allocs},
		{name: "kafka-first-commit", unit: "s", bound: 0.7, what: "from the very first start of the process to its first committed output, at 500 ms", run: k.firstCommit},
		k.twoTasks("kafka-two-tasks", false, "the count's throughput with two tasks, to that with one"),
		k.twoTasks("kafka-two-tasks-json", true, "the same with the default codec"),
		{name: "kafka-exactly-once", unit: "%", bound: 95, least: true, what: "the count's throughput exactly-once, to that at-least-once, at 500 ms", run: k.exactlyOnce},
		k.latency("kafka-latency-p50", 0.5, kafkaInterval/2),
		k.latency("kafka-latency-p99", 0.99, kafkaInterval),
	}
	for i := range all {
		all[i].kafka = true
	}
	return all
}

func (k *kafkaBench) sides(ctx context.Context, work rig.Work, defaultCodec bool) (twoSides, error) {
	raw, job := k.spec(rig.Raw, work), k.spec(rig.Weir, work)
	raw.DefaultCodec, job.DefaultCodec = defaultCodec, defaultCodec
	return k.pairs(ctx, raw, job)
}

// paired says what the figures stand on.
func (k *kafkaBench) paired(t twoSides) string {
	return fmt.Sprintf("%d pairs of %.3g M records; load %s", len(t.as), float64(k.records)/1e6, load())
}

// efficiency is the raw loop's CPU time to the job's, as in sqlite-upsert.
func (k *kafkaBench) efficiency(name string, work rig.Work, defaultCodec bool, what string) row {
	return row{name: name, unit: "%", bound: 85, least: true, what: what, run: func(ctx context.Context, _ int) (result, error) {
		t, err := k.sides(ctx, work, defaultCodec)
		if err != nil {
			return result{}, err
		}
		mid, least, most := t.over(func(raw, job rig.Lap) float64 { return 100 * cpuPer(raw) / cpuPer(job) })
		wall, _, _ := t.over(func(raw, job rig.Lap) float64 { return 100 * rate(job) / rate(raw) })
		return result{mid, fmt.Sprintf("loop %.2f, job %.2f CPU s a million; %.0f to %.0f %%; by wall time %.0f %%, the job %.0f k/s; %s",
			middle(t.as, cpuPer), middle(t.bs, cpuPer), least, most, wall, middle(t.bs, rate)/1000, k.paired(t))}, nil
	}}
}

// cost is the job's CPU time by itself.
func (k *kafkaBench) cost(name string, work rig.Work, bound float64, what string) row {
	return row{name: name, unit: "CPU s/million", bound: bound, what: what, run: func(ctx context.Context, _ int) (result, error) {
		t, err := k.sides(ctx, work, false)
		if err != nil {
			return result{}, err
		}
		broker := func(l rig.Lap) float64 { return l.Broker.Seconds() / float64(l.Records) * 1e6 }
		return result{middle(t.bs, cpuPer), fmt.Sprintf("the loop %.2f; the broker meanwhile %.2f, and for the loop %.2f; %s",
			middle(t.as, cpuPer), middle(t.bs, broker), middle(t.as, broker), k.paired(t))}, nil
	}}
}

func (k *kafkaBench) memory(ctx context.Context, _ int) (result, error) {
	t, err := k.sides(ctx, rig.Count, false)
	if err != nil {
		return result{}, err
	}
	mb := func(l rig.Lap) float64 { return float64(l.PeakBytes) / 1e6 }
	return result{middle(t.bs, mb), fmt.Sprintf("the loop %.0f; %s", middle(t.as, mb), k.paired(t))}, nil
}

func (k *kafkaBench) allocs(ctx context.Context, _ int) (result, error) {
	t, err := k.sides(ctx, rig.Count, false)
	if err != nil {
		return result{}, err
	}
	per := func(l rig.Lap) float64 { return float64(l.Mallocs) / float64(l.Records) }
	mid, least, most := t.over(func(raw, job rig.Lap) float64 { return per(job) - per(raw) })
	return result{mid, fmt.Sprintf("loop %.4f, job %.4f; %.5f to %.5f; %s", middle(t.as, per), middle(t.bs, per), least, most, k.paired(t))}, nil
}

func (k *kafkaBench) firstCommit(ctx context.Context, _ int) (result, error) {
	t, err := k.sides(ctx, rig.Count, false)
	if err != nil {
		return result{}, err
	}
	seconds := func(l rig.Lap) float64 { return l.FirstCommit.Seconds() }
	return result{middle(t.bs, seconds), fmt.Sprintf("the loop %.2f; %s", middle(t.as, seconds), k.paired(t))}, nil
}

func (k *kafkaBench) twoTasks(name string, defaultCodec bool, what string) row {
	return row{name: name, unit: "times", bound: 1.5, least: true, what: what, run: func(ctx context.Context, _ int) (result, error) {
		one := k.spec(rig.Weir, rig.Count)
		one.DefaultCodec = defaultCodec
		two := one
		two.Tasks = 2
		t, err := k.pairs(ctx, one, two)
		if err != nil {
			return result{}, err
		}
		mid, least, most := t.over(func(one, two rig.Lap) float64 { return rate(two) / rate(one) })
		job := func(l rig.Lap) float64 { return l.CPU.Seconds() / l.Wall.Seconds() }
		broker := func(l rig.Lap) float64 { return l.Broker.Seconds() / l.Wall.Seconds() }
		return result{mid, fmt.Sprintf("%.0f and %.0f k/s; %.2f to %.2f; %.2f and %.2f CPU s a million; of %d cores the job used %.2f and %.2f, and the broker beside it %.2f and %.2f; %s",
			middle(t.as, rate)/1000, middle(t.bs, rate)/1000, least, most, middle(t.as, cpuPer), middle(t.bs, cpuPer),
			runtime.NumCPU(), middle(t.as, job), middle(t.bs, job), middle(t.as, broker), middle(t.bs, broker), k.paired(t))}, nil
	}}
}

func (k *kafkaBench) exactlyOnce(ctx context.Context, _ int) (result, error) {
	atLeast, exactly := k.spec(rig.Weir, rig.Count), k.spec(rig.Weir, rig.Count)
	atLeast.AtLeastOnce = true
	t, err := k.pairs(ctx, atLeast, exactly)
	if err != nil {
		return result{}, err
	}
	mid, least, most := t.over(func(atLeast, exactly rig.Lap) float64 { return 100 * rate(exactly) / rate(atLeast) })
	byCPU, _, _ := t.over(func(atLeast, exactly rig.Lap) float64 { return 100 * cpuPer(atLeast) / cpuPer(exactly) })
	return result{mid, fmt.Sprintf("%.0f to %.0f k/s; %.0f to %.0f %%; by CPU time %.0f %%; %s",
		middle(t.as, rate)/1000, middle(t.bs, rate)/1000, least, most, byCPU, k.paired(t))}, nil
}

// latency is a quantile of what a record takes through the copy, less what of it
// the interval alone explains.
func (k *kafkaBench) latency(name string, q float64, explained time.Duration) row {
	what := fmt.Sprintf("p%.0f from produce to visible at %d records/s, less %v of an interval of %v", 100*q, latencyRate, explained, kafkaInterval)
	return row{name: name, unit: "ms", bound: 25, what: what, run: func(ctx context.Context, _ int) (result, error) {
		if err := k.pace(ctx); err != nil {
			return result{}, err
		}
		raw, job := k.paced[rig.Raw], k.paced[rig.Weir]
		cores := func(l rig.Latency) float64 { return l.Lap.CPU.Seconds() / l.Lap.Wall.Seconds() }
		line := func(l rig.Latency) string {
			return fmt.Sprintf("p50 %.0f, p99 %.0f, max %.0f ms with %.2f cores", ms(l.At(0.5)), ms(l.At(0.99)), ms(l.At(1)), cores(l))
		}
		return result{ms(job.At(q) - explained), fmt.Sprintf("job %s; loop %s; load %s", line(job), line(raw), load())}, nil
	}}
}
