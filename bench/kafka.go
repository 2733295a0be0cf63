package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/bench/rig"
)

const (
	kafkaInterval = 500 * time.Millisecond
	kafkaPairs    = 3
	latencyRate   = 2_000
	latencyFor    = 15 * time.Second
	latencyRuns   = 2       // of each side
	warmUp        = 100_000 // records that are read before anything is measured
)

// kafkaBench measures the Kafka rows. Each lap is a process of its own, so that
// its CPU time and its memory are those of one side alone, on one broker, on the
// same input. What a lap has written is compared with a reference before the lap
// counts. Rows share laps.
type kafkaBench struct {
	on      bool
	records int64
	seed    uint64
	laps    int
	profile string
	brokers string // of a cluster that is there already; "": one is started

	broker  *rig.Broker // nil: it isn't ours
	addrs   []string
	input   string
	run     string // what all names of this run begin with
	topics  *rig.Topics
	ref     *rig.Reference
	made    map[string]twoSides
	paced   map[rig.Side]rig.Latency
	numbers int // laps so far
}

// twoSides are the laps of pairs.
type twoSides struct{ as, bs []rig.Lap }

func (k *kafkaBench) flags(f *flag.FlagSet) {
	f.BoolVar(&k.on, "kafka", true, "measure the Kafka rows, on a real broker")
	f.Int64Var(&k.records, "kafka-records", 12_000_000, "records of the Kafka rows")
	f.IntVar(&k.laps, "kafka-pairs", kafkaPairs, "pairs of the Kafka rows")
	f.Uint64Var(&k.seed, "kafka-seed", 1, "seed of the clicks")
	f.StringVar(&k.profile, "kafka-profile", "", "a folder for CPU profiles of the Kafka laps")
	f.StringVar(&k.brokers, "kafka-brokers", "", "HOST:PORT,... of a cluster to use instead of starting one; the input stays there for the next run")
}

// missing says why the rows are left out, or is nil.
func (k *kafkaBench) missing() error {
	switch {
	case !k.on:
		return errors.New("-kafka=false says so")
	case k.brokers != "":
		return nil
	}
	return rig.Missing()
}

// spec is a lap of a side with everything as usual.
func (k *kafkaBench) spec(side rig.Side, work rig.Work) rig.Spec {
	return rig.Spec{Side: side, Work: work, Tasks: 1, Interval: kafkaInterval}
}

// open starts the broker and writes the input, once.
func (k *kafkaBench) open(ctx context.Context) (err error) {
	if k.run != "" {
		return nil
	}
	if k.brokers != "" {
		k.addrs = strings.Split(k.brokers, ",")
	} else {
		if k.broker, err = rig.StartBroker(ctx); err != nil {
			return err
		}
		k.addrs = k.broker.Brokers()
	}
	if k.topics, err = rig.NewTopics(k.addrs); err != nil {
		return err
	}
	k.made, k.paced = map[string]twoSides{}, map[rig.Side]rig.Latency{}
	k.run = fmt.Sprintf("bench-%d", time.Now().UnixMilli())
	records := k.records
	k.records = min(records, warmUp)
	err = k.fill(ctx)
	for _, side := range []rig.Side{rig.Raw, rig.Weir} {
		if err == nil { // the broker's coordinators come into being here
			_, err = k.lap(ctx, k.spec(side, rig.Count))
		}
	}
	k.records = records
	return errors.Join(err, k.fill(ctx))
}

// fill writes the input, and computes what is to come of it.
func (k *kafkaBench) fill(ctx context.Context) (err error) {
	w := rig.Workload{Seed: k.seed, Records: k.records}
	k.input, err = k.topics.Input(ctx, w)
	k.ref = rig.NewReference(w)
	return err
}

// brokerCPU is the broker's CPU time so far, or 0.
func (k *kafkaBench) brokerCPU() time.Duration {
	if k.broker == nil {
		return 0
	}
	return k.broker.CPU()
}

// close stops the broker.
func (k *kafkaBench) close() error {
	if k.topics != nil {
		k.topics.Close()
	}
	if k.broker != nil {
		return k.broker.Stop()
	}
	return nil
}

// pairs runs a and b in turn. What runs first changes from pair to pair.
func (k *kafkaBench) pairs(ctx context.Context, a, b rig.Spec) (twoSides, error) {
	name, err := json.Marshal([]rig.Spec{a, b})
	if err != nil {
		return twoSides{}, err
	}
	if done, ok := k.made[string(name)]; ok {
		return done, nil
	}
	if err := k.open(ctx); err != nil {
		return twoSides{}, err
	}
	var out twoSides
	for i := range k.laps {
		specs, laps := []*rig.Spec{&a, &b}, []*[]rig.Lap{&out.as, &out.bs}
		if i%2 == 1 {
			slices.Reverse(specs)
			slices.Reverse(laps)
		}
		for j, s := range specs {
			l, err := k.lap(ctx, *s)
			if err != nil {
				return twoSides{}, err
			}
			*laps[j] = append(*laps[j], l)
		}
	}
	k.made[string(name)] = out
	return out, nil
}

// name gives a lap names that no other has.
func (k *kafkaBench) name(s *rig.Spec) {
	k.numbers++
	s.Brokers, s.Name = k.addrs, fmt.Sprintf("%s-%d", k.run, k.numbers)
	s.Output = s.Name + ".out"
}

// lap runs one lap and checks what it wrote.
func (k *kafkaBench) lap(ctx context.Context, s rig.Spec) (l rig.Lap, err error) {
	k.name(&s)
	s.Input = k.input
	if k.profile != "" {
		s.Profile = filepath.Join(k.profile, fmt.Sprintf("%s-%s-%d.pprof", s.Side, s.Work, k.numbers))
	}
	ctx, stop := context.WithTimeoutCause(ctx, time.Minute+time.Duration(k.records)*50*time.Microsecond, errors.New("the lap takes far too long"))
	defer stop()
	if err := k.topics.Create(ctx, s.Output); err != nil {
		return l, err
	}
	err = inTemp(func(dir string) error {
		s.StateDir = dir
		before := k.brokerCPU()
		if l, err = rig.Run(ctx, s); err != nil {
			return err
		}
		l.Broker = k.brokerCPU() - before
		if l.Records != k.records {
			return fmt.Errorf("%s %s: %d of %d records were committed", s.Side, s.Work, l.Records, k.records)
		}
		return k.ref.Check(ctx, k.topics, s.Output, s.Work)
	})
	return l, errors.Join(err, k.topics.Delete(context.WithoutCancel(ctx), s))
}

// pace lets both sides copy records that come at a steady rate, in turn.
func (k *kafkaBench) pace(ctx context.Context) error {
	if err := k.open(ctx); err != nil || len(k.paced) > 0 {
		return err
	}
	for range latencyRuns {
		for _, side := range []rig.Side{rig.Raw, rig.Weir} {
			s := k.spec(side, rig.Copy)
			k.name(&s)
			s.Input = s.Name + ".in"
			if err := errors.Join(k.topics.Create(ctx, s.Input), k.topics.Create(ctx, s.Output)); err != nil {
				return err
			}
			err := inTemp(func(dir string) error {
				s.StateDir = dir
				l, err := rig.Pace(ctx, s, latencyRate, latencyFor)
				k.paced[side] = k.paced[side].And(l)
				return err
			})
			err = errors.Join(err, k.topics.Delete(context.WithoutCancel(ctx), s))
			if err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
		}
	}
	return nil
}

// cpuPer is a lap's CPU time, in seconds for a million records.
func cpuPer(l rig.Lap) float64 { return l.CPU.Seconds() / float64(l.Records) * 1e6 }

// rate is how many records a lap takes in a second.
func rate(l rig.Lap) float64 { return float64(l.Records) / l.Wall.Seconds() }

// over maps pairs to the median of a number, and its least and its greatest.
func (t twoSides) over(f func(a, b rig.Lap) float64) (mid, least, most float64) {
	out := make([]float64, len(t.as))
	for i := range out {
		out[i] = f(t.as[i], t.bs[i])
	}
	return median(out), slices.Min(out), slices.Max(out)
}

// middle is the median of a number of one side's laps.
func middle(laps []rig.Lap, f func(rig.Lap) float64) float64 {
	out := make([]float64, len(laps))
	for i, l := range laps {
		out[i] = f(l)
	}
	return median(out)
}
