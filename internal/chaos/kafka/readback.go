package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/kafkalab"
)

// spot is where a record lies in a topic.
type spot struct {
	partition int32
	offset    int64
}

func spotOf(r kafkalab.Record) spot { return spot{r.Partition, r.Offset} }

// kcat reads all of a topic that is committed, each partition in its order.
func kcat(ctx context.Context, brokers []string, topic string) ([]kafkalab.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return kafkalab.Kcat{Brokers: brokers, Settings: []string{"check.crcs=true"}}.All(ctx, topic)
}

// transaction is which one a record belongs to: with transaction.version 2 each
// has an epoch of its own.
type transaction struct {
	producer int64
	epoch    int16
}

// transactions reads a topic again with another client, which says of each
// committed record which transaction it belongs to. ends are the partitions' ends.
func transactions(ctx context.Context, cl *kgo.Client, topic string) (map[spot]transaction, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("starts of %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", topic, err)
	}
	at, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if s, ok := starts.Lookup(topic, o.Partition); ok && s.Offset < o.Offset {
			at[o.Partition], left[o.Partition] = kgo.NewOffset().At(s.Offset), o.Offset
		}
	})
	seeds := cl.OptValue(kgo.SeedBrokers)
	hosts, _ := seeds.([]string)
	c, err := kgo.NewClient(kgo.SeedBrokers(hosts...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	found := map[spot]transaction{}
	for len(left) > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return nil, fmt.Errorf("read %s up to %v: %w", topic, left, err)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			if p.Err != nil {
				err = p.Err
			}
			for _, r := range p.Records {
				if !r.Attrs.IsControl() {
					found[spot{r.Partition, r.Offset}] = transaction{r.ProducerID, r.ProducerEpoch}
				}
				if r.Offset+1 >= left[r.Partition] {
					delete(left, r.Partition)
				}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", topic, err)
		}
	}
	return found, nil
}

// clicksOf is the clicks of a topic by split.
func clicksOf(topic string, recs []kafkalab.Record) (map[string][]click, error) {
	in := map[string][]click{}
	for _, r := range recs {
		split := fmt.Sprintf("%s/%d", topic, r.Partition)
		if r.Offset != int64(len(in[split])) {
			return nil, fmt.Errorf("%s has offset %d behind %d records", split, r.Offset, len(in[split]))
		}
		c, err := parseClick(r.Value)
		if err != nil {
			return nil, fmt.Errorf("%s, offset %d: %w", split, r.Offset, err)
		}
		in[split] = append(in[split], c)
	}
	return in, nil
}

func parseClick(line []byte) (click, error) {
	var l struct {
		ID string          `json:"click_id"`
		Ad string          `json:"ad_id"`
		At json.RawMessage `json:"ts"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return click{}, err
	}
	c := click{id: l.ID, ad: l.Ad}
	if l.At[0] != '"' {
		return c, json.Unmarshal(l.At, &c.at)
	}
	var at time.Time
	err := json.Unmarshal(l.At, &at)
	c.at = at.UnixMilli()
	return c, err
}
