package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// values lists partition, offset and value of each record.
func values(records []*kgo.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, fmt.Sprintf("%d/%d=%s", r.Partition, r.Offset, r.Value))
	}
	return all
}

func record(topic string, partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

func equal(t *testing.T, got []*kgo.Record, want ...string) {
	t.Helper()
	if v := values(got); !slices.Equal(v, want) {
		t.Fatalf("read %v, want %v", v, want)
	}
}

func TestReadBack(t *testing.T) {
	brokers := Brokers(t)
	topic := Topic(t, brokers, 3)
	Produce(t, brokers, record(topic, 2, "c"), record(topic, 0, "a"), record(topic, 0, "b"),
		&kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Timestamp: time.UnixMilli(-1),
			Headers: []kgo.RecordHeader{{Key: "h", Value: nil}}})
	got := ReadCommitted(t, brokers, topic)
	equal(t, got, "0/0=a", "0/1=b", "1/0=", "2/0=c")
	if r := got[2]; r.Value != nil || string(r.Key) != "k" || r.Timestamp.UnixMilli() != -1 || len(r.Headers) != 1 || r.Headers[0].Value != nil {
		t.Fatalf("a record without value and time came back as %+v", r)
	}
}

// Two transactions lie across each other: the stable end is the first record
// of the one that is open, behind a record that turns out as aborted.
func TestReadCommittedStopsAtTheStableEnd(t *testing.T) {
	brokers := Brokers(t)
	topic := Topic(t, brokers, 1)
	endA := ProduceIn(t, brokers, Name(t), record(topic, 0, "aborted"))
	endB := ProduceIn(t, brokers, Name(t), record(topic, 0, "b"))
	endA(kgo.TryAbort)
	ctx, cancel := patient()
	defer cancel()
	adm := kadm.NewClient(Client(t, brokers))
	if err := until(ctx, func() error { // its marker comes after the answer
		ends, err := adm.ListEndOffsets(ctx, topic)
		if end, _ := ends.Lookup(topic, 0); err == nil && end.Offset != 3 {
			err = fmt.Errorf("the log ends at %d, want 3", end.Offset)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	Produce(t, brokers, record(topic, 0, "behind"))
	equal(t, ReadCommitted(t, brokers, topic))
	equal(t, ReadUncommitted(t, brokers, topic), "0/0=aborted", "0/1=b", "0/3=behind")
	endB(kgo.TryCommit)
	Settle(t, brokers, topic)
	equal(t, ReadCommitted(t, brokers, topic), "0/1=b", "0/3=behind")
}

func TestTopicConfigsAndEnd(t *testing.T) {
	brokers := Brokers(t)
	var topic string
	t.Run("made", func(t *testing.T) {
		topic = Topic(t, Brokers(t), 2, "cleanup.policy=compact")
		ctx, cancel := patient()
		defer cancel()
		configs, err := kadm.NewClient(Client(t, brokers)).DescribeTopicConfigs(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs[0].Configs {
			if c.Key == "cleanup.policy" && c.MaybeValue() != "compact" {
				t.Fatalf("cleanup.policy is %q", c.MaybeValue())
			}
		}
	})
	ctx, cancel := patient()
	defer cancel()
	err := until(ctx, func() error {
		topics, err := kadm.NewClient(Client(t, brokers)).ListTopics(ctx)
		if err == nil && topics.Has(topic) {
			err = fmt.Errorf("topic %s is still there", topic)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneClusterATest(t *testing.T) {
	c := FakeOnly(t, "a real cluster is the same for every test")
	t.Run("below", func(t *testing.T) {
		if Fake(t) != c {
			t.Fatal("a test below has a cluster of its own")
		}
	})
	if other := NewFake(t); other == c {
		t.Fatal("a further cluster is the first one")
	}
}

// What the connector refuses to run without.
func TestLikeKafka44(t *testing.T) {
	cl := Client(t, Brokers(t))
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	var level int16
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	if level != 2 {
		t.Fatalf("the finalized transaction.version is %d, want 2", level)
	}
	for _, want := range []struct {
		key kmsg.Key
		max int16
	}{{kmsg.Produce, 13}, {kmsg.TxnOffsetCommit, 6}, {kmsg.EndTxn, 5}, {kmsg.InitProducerID, 5}} {
		i := slices.IndexFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(want.key) })
		if i < 0 || resp.ApiKeys[i].MaxVersion < want.max {
			t.Errorf("%s: the broker speaks %+v, want version %d", want.key.Name(), resp.ApiKeys[max(i, 0)], want.max)
		}
	}
}
