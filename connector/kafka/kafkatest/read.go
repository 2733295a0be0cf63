package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadCommitted returns every committed record of the topic, by partition and
// offset, from its start to its last stable offset as of the call. What stands
// behind a transaction that is open at that moment is not among them, and nor
// may be what was committed an instant ago: [Settle] waits for that.
func ReadCommitted(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	return readTopic(t, brokers, topic, kgo.ReadCommitted())
}

// ReadUncommitted is [ReadCommitted] to the end of the log, with the records
// of open and aborted transactions.
func ReadUncommitted(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	return readTopic(t, brokers, topic, kgo.ReadUncommitted())
}

// Settle waits until no transaction is open in the topics: markers follow
// EndTxn's answer after some milliseconds on a real broker. After [Patience]
// it ends the test and says which partitions are held back, from where on.
func Settle(t testing.TB, brokers []string, topics ...string) {
	t.Helper()
	cl := open(t, brokers)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ctx, cancel := patient()
	defer cancel()
	err := until(ctx, func() error {
		ends, err := adm.ListEndOffsets(ctx, topics...) // the ends first: they only grow
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		if err == nil {
			err = stable.Error()
		}
		if err != nil {
			return err
		}
		var open []string
		ends.Each(func(end kadm.ListedOffset) {
			if s, _ := stable.Lookup(end.Topic, end.Partition); s.Offset < end.Offset {
				open = append(open, fmt.Sprintf("%s-%d is stable up to %d of %d", end.Topic, end.Partition, s.Offset, end.Offset))
			}
		})
		if len(open) > 0 {
			slices.Sort(open)
			return fmt.Errorf("a transaction is open: %s", strings.Join(open, "; "))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait for %s to settle: %v", strings.Join(topics, ", "), err)
	}
}

// readTopic works on raw fetches, because only they say how far a fetch got
// when it held no record: aborted ones, markers, holes of compaction.
func readTopic(t testing.TB, brokers []string, topic string, level kgo.IsolationLevel) []*kgo.Record {
	t.Helper()
	cl := open(t, brokers)
	defer cl.Close()
	ctx, cancel := patient()
	defer cancel()
	adm := kadm.NewClient(cl)
	var list = adm.ListEndOffsets
	if level == kgo.ReadCommitted() {
		list = adm.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("where does topic %s end: %v", topic, err)
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		t.Fatalf("where does topic %s start: %v", topic, err)
	}
	var all []*kgo.Record
	for _, end := range ends.Offsets().Sorted() {
		start, _ := starts.Lookup(topic, end.Partition)
		records, err := readPartition(ctx, cl, topic, end.Partition, start.Offset, end.At, level)
		if err != nil {
			t.Fatalf("read %s-%d up to %d: %v", topic, end.Partition, end.At, err)
		}
		all = append(all, records...)
	}
	return all
}

func readPartition(ctx context.Context, cl *kgo.Client, topic string, partition int32, at, end int64, level kgo.IsolationLevel) ([]*kgo.Record, error) {
	var all []*kgo.Record
	for at < end {
		rp, err := fetchOnce(ctx, cl, topic, partition, at, level)
		if err == nil {
			err = kerr.ErrorForCode(rp.ErrorCode)
		}
		switch {
		case kerr.IsRetriable(err) && ctx.Err() == nil:
			continue // a leader that moves; the fetch itself has waited
		case err != nil:
			return nil, fmt.Errorf("fetch at %d: %w", at, err)
		}
		got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: at, IsolationLevel: level, Topic: topic, Partition: partition,
		}, rp, kgo.DefaultDecompressor(), nil)
		if got.Err != nil {
			return nil, fmt.Errorf("records at %d: %w", at, got.Err)
		}
		for _, r := range got.Records {
			if r.Offset < end { // what came later is not of this reading
				all = append(all, r)
			}
		}
		at = next
	}
	return all, nil
}

// fetchOnce asks the partition's leader once, outside any session.
func fetchOnce(ctx context.Context, cl *kgo.Client, topic string, partition int32, at int64, level kgo.IsolationLevel) (*kmsg.FetchResponseTopicPartition, error) {
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	detail, ok := topics[topic].Partitions[partition]
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MaxWaitMillis, req.SessionEpoch = 8<<20, 200, -1
	if level == kgo.ReadCommitted() {
		req.IsolationLevel = 1
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, at, 8<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, topics[topic].ID
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl.Broker(int(detail.Leader)))
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer holds not the one partition that was asked for")
	}
	return &resp.Topics[0].Partitions[0], nil
}
