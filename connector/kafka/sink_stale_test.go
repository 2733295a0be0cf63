package kafka

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// deposed makes reads of the control topic end at an offset, as those of a leader do
// that was cut off and doesn't know yet that it was deposed. What is written goes to
// its successor.
func deposed(fake *kfake.Cluster, name string, id topicID, end int64, batches []byte) (over *atomic.Bool) {
	over = &atomic.Bool{}
	fake.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req, ok := kreq.(*kmsg.FetchRequest)
		if !ok || over.Load() || len(req.Topics) != 1 || req.Topics[0].TopicID != id || req.Topics[0].Partitions[0].FetchOffset >= end {
			return nil, nil, false
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = req.Version
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = name, id
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = end, end, batches
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	fake.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req, ok := kreq.(*kmsg.ListOffsetsRequest)
		if !ok || over.Load() || len(req.Topics) != 1 || req.Topics[0].Topic != name || req.Topics[0].Partitions[0].Timestamp != -1 {
			return nil, nil, false
		}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Version = req.Version
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = name
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Offset = end
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	return over
}

// A start that is told of an older end of the control topic doesn't go on from
// there: its claim stands behind a record that it knows nothing of.
func TestDeposedLeader(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "a broker that answers for a partition which it no longer leads has to be made")
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.run(t.Context(), nil, message("k", "2")))
	records := s.records()
	end := records[len(records)-1].offset + 2 // behind its marker
	check(t, l.run(t.Context(), nil, message("k", "3")))
	whole, err := l.core().fetchControl(t.Context(), l.core().control, 0)
	check(t, err)
	var old []byte
	for rest := whole.RecordBatches; ; {
		b, after, ok := cutBatch(rest)
		if !ok || b.last >= end {
			break
		}
		old, rest = append(old, b.raw...), after
	}
	id := l.core().control.id
	check(t, l.p.Close())

	over := deposed(fake, s.control(), id, end, old)
	_, err = try(t.Context(), s, s.sink(), 50)
	if err == nil || !temporary(err) || !strings.Contains(err.Error(), "its leader has changed") {
		t.Fatalf("the start says %v, want that it waits for a leader that knows", err)
	}
	over.Store(true)
	n := begin(t, s, s.sink(), 51)
	if n.epoch != 3 {
		t.Errorf("it goes on from epoch %d, want 3", n.epoch)
	}
	check(t, n.run(t.Context(), nil, message("k", "4")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2", "k=3", "k=4")
	numbers := map[int64]bool{}
	for _, r := range s.records() {
		if numbers[r.Number] {
			t.Errorf("two transactions have number %d", r.Number)
		}
		numbers[r.Number] = true
	}
}

// A job that gives its sink on Kafka up, goes on without, and gets another one there
// has epochs in between that the control topic knows nothing of.
func TestAdoptedLater(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.p.Close())
	at := weir.CheckpointID{Slot: 100, Sum: [32]byte{1}} // of epoch 99
	for n := int64(101); n < 104; n++ {
		sink := s.sink()
		p, err := sink.Connect(t.Context(), []string{"new"})
		check(t, err)
		by := weir.Incarnation{Number: n, Nonce: nonce(n)}
		ledgers, err := p.Fence(t.Context(), weir.Fence{Job: s.job, By: by, Former: []string{"out"}})
		check(t, err)
		if ledgers["new"].Found != (n > 101) || !ledgers["out"].Found {
			t.Errorf("start %d finds the ledgers %v", n, ledgers)
		}
		if n == 101 {
			check(t, p.(weir.Adopter).Adopt(t.Context(), at, []weir.Adopted{{Sink: "new"}}))
		}
		o, err := sink.Open(t.Context(), p, "new")
		check(t, err)
		if got := ledgers["new"].ID; n > 101 {
			at = got
		}
		x := &life[Message]{scene: s, by: by, p: p, w: o.Writer(0), parent: at, epoch: n - 2}
		check(t, x.run(t.Context(), nil, message("k", by.Nonce)))
		check(t, p.Close())
	}
	equal(t, "topic", s.read(s.topic), "k=1", "k=nonce-101", "k=nonce-102", "k=nonce-103")
}
