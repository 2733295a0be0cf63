package rig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics makes, fills, reads and deletes topics of one cluster.
type Topics struct {
	brokers  []string
	admin    *kadm.Client
	patience time.Duration // with transactions that are open
}

// NewTopics connects to a cluster. Close ends it.
func NewTopics(brokers []string) (*Topics, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return nil, err
	}
	return &Topics{brokers, kadm.NewClient(client), 30 * time.Second}, nil
}

// Close ends the connections.
func (t *Topics) Close() { t.admin.Close() }

// Create makes a topic of Partitions partitions.
func (t *Topics) Create(ctx context.Context, topic string) error {
	_, err := t.admin.CreateTopic(ctx, Partitions, 1, nil, topic)
	return err
}

// Delete deletes the topics of a lap: its output, its control topic if it has one,
// and its input if it was its own.
func (t *Topics) Delete(ctx context.Context, s Spec) error {
	for _, topic := range []string{s.Name + ".in", s.Output, s.Name + ".ckpt"} {
		if _, err := t.admin.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("delete topic %s: %w", topic, err)
		}
	}
	return nil
}

// Input returns a topic that holds a workload. It is filled if it isn't there.
func (t *Topics) Input(ctx context.Context, w Workload) (string, error) {
	topic := fmt.Sprintf("bench-clicks-%d-%d", w.Seed, w.Records)
	err := t.Create(ctx, topic)
	if err == nil {
		err = t.Fill(ctx, topic, w)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return "", err
	}
	ends, err := t.ends(ctx, topic)
	if err != nil {
		return "", err
	}
	sum := int64(0)
	for _, end := range ends {
		sum += end
	}
	if sum != w.Records {
		return "", fmt.Errorf("topic %s has %d records, not %d: delete it", topic, sum, w.Records)
	}
	return topic, nil
}

// Fill writes the clicks of the workload to a topic.
func (t *Topics) Fill(ctx context.Context, topic string, w Workload) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(t.brokers...), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(100_000), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	const slab = 1_000
	var failed atomic.Pointer[error]
	note := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	for i := int64(0); i < w.Records && failed.Load() == nil; i += slab {
		n := min(slab, w.Records-i)
		recs := make([]kgo.Record, n)
		text := make([]byte, 0, n*96)
		for j := range recs {
			c := w.click(i + int64(j))
			from := len(text)
			text = appendKey(text, c.ad)
			key := len(text)
			text = appendValue(text, c)
			recs[j].Key, recs[j].Value = text[from:key:key], text[key:len(text):len(text)]
			client.Produce(ctx, &recs[j], note)
		}
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("fill %s: %w", topic, *err)
	}
	return nil
}

// ends returns the ends of a topic's partitions, once no transaction is open in
// any of them: a marker comes a little after the answer to its commit.
func (t *Topics) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ends, err := t.admin.ListEndOffsets(ctx, topic)
		if err = errors.Join(err, ends.Error()); err != nil {
			return nil, err
		}
		stable, err := t.admin.ListCommittedOffsets(ctx, topic)
		if err = errors.Join(err, stable.Error()); err != nil {
			return nil, err
		}
		out := map[int32]int64{}
		open := ""
		ends.Each(func(o kadm.ListedOffset) {
			out[o.Partition] = o.Offset
			if s, ok := stable.Lookup(topic, o.Partition); !ok || s.Offset != o.Offset {
				open = fmt.Sprintf("%s/%d is stable up to offset %d of %d: a transaction is open in it", topic, o.Partition, s.Offset, o.Offset)
			}
		})
		if open == "" {
			return out, nil
		}
		if time.Since(began) > t.patience {
			return nil, errors.New(open)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Read hands over every committed record of a topic, in the order of each
// partition. A record is valid during the call.
func (t *Topics) Read(ctx context.Context, topic string, f func(*kgo.Record) error) error {
	ends, err := t.ends(ctx, topic)
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			from[p] = kgo.NewOffset().At(0)
		} else {
			delete(ends, p)
		}
	}
	if len(from) == 0 {
		return nil
	}
	// Markers are kept: the last offset of a partition is one.
	client, err := kgo.NewClient(kgo.SeedBrokers(t.brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.WithPools(&pool{}))
	if err != nil {
		return err
	}
	defer client.Close()
	for len(ends) > 0 {
		fetches := client.PollRecords(ctx, 10_000)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			if !r.Attrs.IsControl() {
				if err := f(r); err != nil {
					return err
				}
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
			r.Recycle()
		}
	}
	return nil
}
