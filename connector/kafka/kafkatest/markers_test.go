package kafkatest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const why = "a real broker's markers are late by themselves"

func TestLateMarkersHoldTheRecordsBack(t *testing.T) {
	c := FakeOnly(t, why)
	brokers := c.ListenAddrs()
	topic := Topic(t, brokers, 1)
	m := LateMarkers(t, c, -1)
	end := ProduceIn(t, brokers, Name(t), record(topic, 0, "a"))
	end(kgo.TryCommit)
	Produce(t, brokers, record(topic, 0, "behind"))
	equal(t, ReadCommitted(t, brokers, topic))
	m.Release()
	Settle(t, brokers, topic)
	equal(t, ReadCommitted(t, brokers, topic), "0/0=a", "0/1=behind")
	if m.Late() != 1 {
		t.Fatalf("%d transactions were late, want 1", m.Late())
	}
}

func TestLateMarkersRefuseTheirOwner(t *testing.T) {
	c := FakeOnly(t, why)
	brokers := c.ListenAddrs()
	topic, id := Topic(t, brokers, 1), Name(t)
	m := LateMarkers(t, c, -1)
	cl := Client(t, brokers, kgo.TransactionalID(id))
	ctx, cancel := patient()
	defer cancel()
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		released := make(chan error, 1)
		go func() { // once the client has met the code, which it waits out
			defer m.Release()
			released <- until(ctx, func() error {
				if got := m.Refused(); got < i {
					return fmt.Errorf("%d requests were refused, want %d", got, i)
				}
				return nil
			})
		}()
		produce(t, cl, []*kgo.Record{{Topic: topic, Value: []byte{byte('a' + i)}}})
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, how); err != nil {
			t.Fatalf("end transaction %d: %v", i, err)
		}
	}
	if m.Late() != 3 {
		t.Fatalf("%d transactions were late, want 3", m.Late())
	}
	// What a new owner of the id meets, without a client that waits.
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 10000
	raw := Client(t, brokers, kgo.RequestRetries(0))
	resp, err := init.RequestWith(ctx, raw)
	if err != nil || !errors.Is(kerr.ErrorForCode(resp.ErrorCode), kerr.ConcurrentTransactions) {
		t.Fatalf("InitProducerId while markers are written: %v, code %d", err, resp.ErrorCode)
	}
	m.Release()
	Settle(t, brokers, topic)
	equal(t, ReadCommitted(t, brokers, topic), "0/0=a", "0/4=c")
}

func TestLateMarkersHoldTheOffsetsBack(t *testing.T) {
	c := FakeOnly(t, why)
	brokers := c.ListenAddrs()
	topic, group, id := Topic(t, brokers, 1), Name(t), Name(t)
	m := LateMarkers(t, c, -1)
	ctx, cancel := patient()
	defer cancel()
	cl := Client(t, brokers, kgo.TransactionalID(id))
	producer, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	code := func() int16 {
		resp, err := offsetFetch(group, topic).RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		g := resp.Groups[0]
		if g.ErrorCode != 0 || len(g.Topics) == 0 {
			return g.ErrorCode
		}
		return g.Topics[0].Partitions[0].ErrorCode
	}
	// An offset stands before, as kfake knows no group by pending offsets alone.
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, At: 1, LeaderEpoch: -1})
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	if got := code(); got != 0 {
		t.Fatalf("before the transaction: code %d", got)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = id, group, producer, epoch, -1
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: topicID(t, brokers, topic),
		Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 7, LeaderEpoch: -1}}}}
	resp, err := commit.RequestWith(ctx, cl)
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("TxnOffsetCommit: %v, %+v", err, resp)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, producer, epoch, true
	ended, err := end.RequestWith(ctx, cl)
	if err != nil || ended.ErrorCode != 0 || ended.ProducerEpoch != epoch+1 {
		t.Fatalf("EndTxn: %v, %+v", err, ended)
	}
	if got := code(); got != kerr.UnstableOffsetCommit.Code {
		t.Fatalf("between answer and markers: code %d, want UNSTABLE_OFFSET_COMMIT", got)
	}
	// The same EndTxn again, as after a lost answer.
	ended, err = end.RequestWith(ctx, Client(t, brokers, kgo.RequestRetries(0)))
	if err != nil || ended.ErrorCode != kerr.ConcurrentTransactions.Code {
		t.Fatalf("EndTxn again: %v, code %d, want CONCURRENT_TRANSACTIONS", err, ended.ErrorCode)
	}
	m.Release()
	err = until(ctx, func() error { return kerr.ErrorForCode(code()) })
	if err != nil {
		t.Fatal(err)
	}
	fetched, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if o, _ := fetched.Lookup(topic, 0); err != nil || o.At != 7 {
		t.Fatalf("the offset is %d (%v), want 7", o.At, err)
	}
}

func offsetFetch(group, topic string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	req.Groups = append(req.Groups, g)
	return req
}

func topicID(t *testing.T, brokers []string, topic string) [16]byte {
	t.Helper()
	ctx, cancel := patient()
	defer cancel()
	topics, err := kadm.NewClient(Client(t, brokers)).ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return topics[topic].ID
}
