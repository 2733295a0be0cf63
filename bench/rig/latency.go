package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Latency is how long records took from produce to visible, read committed.
type Latency struct {
	Took []time.Duration // sorted
	Lap  Lap
}

// At returns a quantile: 0.5 is the median.
func (l Latency) At(q float64) time.Duration { return l.Took[int(q*float64(len(l.Took)-1))] }

// And is both together.
func (l Latency) And(o Latency) Latency {
	l.Took = append(l.Took, o.Took...)
	slices.Sort(l.Took)
	l.Lap.CPU, l.Lap.Wall = l.Lap.CPU+o.Lap.CPU, l.Lap.Wall+o.Lap.Wall
	return l
}

const (
	paceTick = time.Millisecond
	settle   = time.Second // after the first record has arrived: only what is produced later counts
)

// pace is records on their way through a lap.
type pace struct {
	s       Spec
	began   time.Time
	rate    int
	during  time.Duration
	arrived chan struct{} // closed when the first record has
	seen    []bool        // by number

	// Of the producer, once done is closed.
	done  chan struct{}
	total int64
	from  time.Duration // after began: what was produced since counts
	err   error
}

// Pace starts a lap that follows its input, produces records at a steady rate
// for so long, and sees when each can be read from the output.
func Pace(ctx context.Context, s Spec, perSecond int, during time.Duration) (out Latency, err error) {
	s.Follow = true
	lap, err := start(ctx, s)
	if err != nil {
		return out, err
	}
	defer func() {
		var e error
		out.Lap, e = lap.end()
		err = errors.Join(err, e)
	}()
	ctx, stop := context.WithTimeout(ctx, during+time.Minute)
	defer stop()
	p := &pace{s: s, began: time.Now(), rate: perSecond, during: during, arrived: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if p.err = p.produce(ctx); p.err != nil {
			stop()
		}
	}()
	took, err := p.read(ctx)
	stop()
	<-p.done
	if err = errors.Join(err, p.err); err != nil {
		return out, err
	}
	for _, t := range took {
		if t.at >= p.from {
			out.Took = append(out.Took, t.took)
		}
	}
	if len(out.Took) == 0 {
		return out, errors.New("no record was produced after the first had arrived")
	}
	slices.Sort(out.Took)
	return out, nil
}

// produce produces records at a steady rate. A value begins with the record's
// number and with when it was produced, in nanoseconds after began, and is as long
// as a click.
func (p *pace) produce(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.s.Brokers...), kgo.DefaultProduceTopic(p.s.Input), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, 1)
	note := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	arrived := p.arrived
	until := time.Duration(1<<63 - 1)
	for n := int64(0); ; {
		select {
		case <-tick.C:
		case err := <-failed:
			return fmt.Errorf("produce: %w", err)
		case <-arrived:
			arrived = nil
			p.from = time.Since(p.began) + settle
			until = p.from + p.during
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := time.Since(p.began)
		if now > until {
			p.total = n
			return client.Flush(ctx)
		}
		for to := int64(now.Seconds() * float64(p.rate)); n < to; n++ {
			value := binary.BigEndian.AppendUint64(make([]byte, 0, 77), uint64(n))
			value = binary.BigEndian.AppendUint64(value, uint64(time.Since(p.began)))
			client.Produce(ctx, &kgo.Record{Key: appendKey(nil, int(mix(uint64(n))%Ads)), Value: value[:77]}, note)
		}
	}
}

// arrival is a record that was read from the output.
type arrival struct{ at, took time.Duration }

// read reads the output until each record has come once.
func (p *pace) read(ctx context.Context) (took []arrival, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.s.Brokers...), kgo.ConsumeTopics(p.s.Output), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	done := p.done
	for done != nil || int64(len(took)) < p.total {
		poll, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(poll)
		stop()
		now := time.Since(p.began)
		if err := fetches.Err(); err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return took, fmt.Errorf("after %d records: %w", len(took), err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			at, err := p.see(iter.Next())
			if err != nil {
				return took, err
			}
			took = append(took, arrival{at, now - at})
			if len(took) == 1 {
				close(p.arrived)
			}
		}
		select {
		case <-done:
			done = nil
		default:
		}
	}
	return took, nil
}

// see notes that a record has arrived, and says when it was produced.
func (p *pace) see(r *kgo.Record) (time.Duration, error) {
	if len(r.Value) != 77 {
		return 0, fmt.Errorf("a value has %d bytes, want 77", len(r.Value))
	}
	n := int(binary.BigEndian.Uint64(r.Value))
	if most := 2 * p.rate * int((p.during+2*time.Minute)/time.Second); n < 0 || n > most {
		return 0, fmt.Errorf("record %d was never produced", n)
	}
	for len(p.seen) <= n {
		p.seen = append(p.seen, false)
	}
	if p.seen[n] {
		return 0, fmt.Errorf("record %d came a second time", n)
	}
	p.seen[n] = true
	return time.Duration(binary.BigEndian.Uint64(r.Value[8:])), nil
}
