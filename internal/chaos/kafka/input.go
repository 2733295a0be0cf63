package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// What the clicks of a job look like.
const (
	// adCount ads: few enough that windows change in many epochs.
	adCount = 25
	// pulse is how often the feeder sends.
	pulse = 10 * time.Millisecond
	// timely is how late a click may be that must count, and hopeless how late one
	// is that must not, where the windows and the search for repeats take
	// clicks of 30 and 31 minutes ago. Between them it would matter how far apart
	// partitions are read: the watermark of one that is idle isn't waited for.
	timely, hopeless = 15 * minute, 33 * minute
)

// generator makes clicks of one job, one after the other: mostly out of order
// within the bound, some late, some far too late, some repeated.
type generator struct {
	rng   *rand.Rand
	rules trial.Rules
	gap   int64 // milliseconds of the clicks' time from one to the next, about
	now   int64
	n     int
	old   []click // some that may be repeated
}

func newGenerator(rng *rand.Rand, r trial.Rules, gap int64) *generator {
	return &generator{rng: rng, rules: r, gap: gap, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + rng.Int64N(minute)}
}

func (g *generator) next() click {
	rng := g.rng
	g.now += rng.Int64N(2*g.gap + 1)
	g.n++
	c := click{id: fmt.Sprintf("c%x", g.n), ad: fmt.Sprintf("ad-%d", min(rng.IntN(adCount), rng.IntN(adCount))), at: g.now}
	switch p := rng.IntN(1000); {
	case p < 10:
		c.at -= g.rules.Disorder + rng.Int64N(timely-g.rules.Disorder)
	case p < 15:
		c.at -= hopeless + g.rules.Disorder + minute + rng.Int64N(20*minute)
	case p < 50 && len(g.old) > 0:
		// A repeat of up to some minutes ago, at its own time or a little later.
		o := g.old[rng.IntN(len(g.old))]
		if at := o.at + rng.Int64N(3)*1000; at > g.now-timely && at <= g.now {
			return click{o.id, o.ad, at}
		}
	default:
		c.at -= rng.Int64N(g.rules.Disorder + 1)
	}
	if len(g.old) < 500 {
		g.old = append(g.old, c)
	} else {
		g.old[rng.IntN(len(g.old))] = c
	}
	return c
}

// line is a click as JSON; every third one has its time in epoch milliseconds.
func (c click) line() []byte {
	if c.at%3 == 0 {
		return fmt.Appendf(nil, `{"click_id":%q,"ad_id":%q,"user_id":"u","ts":%d}`, c.id, c.ad, c.at)
	}
	return fmt.Appendf(nil, `{"click_id":%q,"ad_id":%q,"user_id":"u","ts":%q}`, c.id, c.ad,
		time.UnixMilli(c.at).UTC().Format("2006-01-02T15:04:05.000Z"))
}

// partition is where an id and its repeats go.
func (c click) partition(of int32) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.id)) // it never fails
	return int32(h.Sum32() % uint32(of))
}

// feeder produces clicks while the worker works, until it is stopped. A pulse is
// sent once all partitions have the one before it, so that none falls behind.
type feeder struct {
	stop context.CancelFunc
	done chan struct{}
	of   int32
	sent int64 // clicks; read it once done is closed
	err  error
}

func feed(ctx context.Context, brokers []string, topic string, partitions int32, g *generator, each int) (*feeder, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID("chaos-feeder"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	stopping, stop := context.WithCancel(ctx)
	f := &feeder{stop: stop, done: make(chan struct{}), of: partitions}
	go func() {
		defer close(f.done)
		defer cl.Close()
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for f.err == nil {
			select {
			case <-stopping.Done():
				return
			case <-tick.C:
			}
			// A pulse is finished even when the feeder is stopped in it.
			f.err = f.pulse(ctx, cl, topic, g, each)
		}
	}()
	return f, nil
}

func (f *feeder) pulse(ctx context.Context, cl *kgo.Client, topic string, g *generator, each int) error {
	recs := make([]*kgo.Record, 0, each)
	for range each {
		c := g.next()
		recs = append(recs, &kgo.Record{Topic: topic, Partition: c.partition(f.of), Key: []byte(c.id), Value: c.line()})
	}
	f.sent += int64(each)
	return cl.ProduceSync(ctx, recs...).FirstErr()
}

// end stops the feeder and waits for it.
func (f *feeder) end() error {
	f.stop()
	<-f.done
	return f.err
}

// fileClicks is how many a file has: enough for several lives.
const fileClicks = 400_000

// writeFile makes the file that a job reads instead of a topic.
func (j *job) writeFile(n int) error {
	path := j.path("clicks.jsonl")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	j.input = map[string][]click{path: nil}
	for range n {
		c := j.source.next()
		j.input[path] = append(j.input[path], c)
		_, _ = w.Write(append(c.line(), '\n')) // Flush tells
	}
	return errors.Join(w.Flush(), f.Close())
}
