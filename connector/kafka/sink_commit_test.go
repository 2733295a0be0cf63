package kafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// Codes that a coordinator which is busy answers are waited for, and the epoch is
// committed.
func TestBusyBrokers(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "codes are injected")
	for name, f := range map[string]kfake.Fault{
		"offsets, concurrent":  {Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.ConcurrentTransactions, Count: 4},
		"offsets, loading":     {Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: 2},
		"offsets, moved":       {Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.NotCoordinator, Count: 2},
		"end, concurrent":      {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ConcurrentTransactions, Count: 4},
		"end, moved":           {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.NotCoordinator, Count: 2},
		"end, loading":         {Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: 2},
		"produce, concurrent":  {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ConcurrentTransactions, Count: 4},
		"produce, moved":       {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2},
		"produce, not in sync": {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 2},
		"produce, unsure":      {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 2},
		"init, concurrent":     {Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: 6},
		"init, loading":        {Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 2},
		"fetch":                {Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			h := fake.Fault(f)
			defer h.Remove()
			check(t, s.live(t.Context(), storyEpochs, nil))
			s.check(storyEpochs)
			s.chain(name)
			if h.Hits() == 0 {
				t.Error("the code was never answered")
			}
		})
	}
}

// The story holds when markers come some time after EndTxn's answer, as they do on
// real brokers.
func TestLateMarkers(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "a real broker does it by itself")
	kafkatest.LateMarkers(t, fake, 15*time.Millisecond)
	for _, pause := range []int{1 << 30, 6, 10, 12, 14} {
		s := newStory(t)
		s.overtaken(t, pause, true)
	}
}

// A code of one partition, whatever the others say, fails the epoch: nothing of it is
// ever seen, and a new incarnation does it again.
func TestOneCode(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "codes are injected")
	out := func(s *story) string { return s.topic }
	in := func(s *story) string { return s.source }
	ckpt := func(s *story) string { return s.control() }
	for name, c := range map[string]struct {
		fault kfake.Fault
		topic func(*story) string
		want  []string
	}{
		"metadata":      {kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.OffsetMetadataTooLarge}, in, []string{"commit epoch 1", "commit offsets to group", "/0: OFFSET_METADATA_TOO_LARGE"}},
		"offsets fence": {kfake.Fault{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.InvalidProducerEpoch}, in, []string{"INVALID_PRODUCER_EPOCH", "no newer incarnation"}},
		"refused":       {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Partitions: []int32{1}}, out, []string{"prepare epoch 1", "partition 1: INVALID_RECORD"}},
		"timestamp":     {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Partitions: []int32{0}}, out, []string{"partition 0: INVALID_TIMESTAMP"}},
		"too large":     {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Partitions: []int32{0}}, out, []string{"partition 0: MESSAGE_TOO_LARGE"}},
		"abortable":     {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TransactionAbortable}, out, []string{"TRANSACTION_ABORTABLE"}},
		"fence":         {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerEpoch}, out, []string{"INVALID_PRODUCER_EPOCH", "no newer incarnation has claimed"}},
		"control":       {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTxnState}, ckpt, []string{"commit epoch 1", "write the control record", "INVALID_TXN_STATE"}},
		"end":           {kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, TopLevel: true}, nil, []string{"commit epoch 1", "end the transaction"}},
		"end, fenced":   {kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ProducerFenced, TopLevel: true}, nil, []string{"PRODUCER_FENCED", "no newer incarnation"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			check(t, s.live(t.Context(), 0, nil))
			if c.topic != nil {
				c.fault.Topic = c.topic(s)
			}
			var h atomic.Pointer[kfake.FaultHandle]
			var once sync.Once
			err := s.live(t.Context(), storyEpochs, func(_ string, _ []byte, do func() error) error {
				if s.claimed() {
					once.Do(func() { h.Store(fake.Fault(c.fault)) })
				}
				return do()
			})
			defer h.Load().Remove()
			if errors.Is(err, weir.ErrFenced) || errors.Is(err, weir.ErrRefused) {
				t.Errorf("got %v, want an error that a new incarnation is made after", err)
			}
			if err == nil {
				t.Fatal("the epochs were committed")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoesn't say %q", err, w)
				}
			}
			if temporaryError(err) {
				t.Errorf("%v says that it may be repeated", err)
			}
			h.Load().Remove()
			equal(t, "topic", s.read(s.topic))
			check(t, s.live(t.Context(), storyEpochs, nil))
			s.check(storyEpochs)
			s.chain(name)
		})
	}
}

// claimed reports whether the newest incarnation has claimed the control topic.
func (s *story) claimed() bool {
	records, err := seen(s.t, s.brokers, s.control())
	if err != nil || len(records) == 0 {
		return false
	}
	c, err := parseControl(records[len(records)-1].Key, records[len(records)-1].Value)
	return err == nil && c.Incarnation == s.starts.Load()
}

// temporaryError is what control asks of an error.
func temporaryError(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// A client that is given a new epoch in the middle of a transaction has lost what it
// wrote before: the epoch fails, although no record did.
func TestTornTransaction(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "an answer is made up")
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.write(message("k", "lost")))
	check(t, l.core().lane(l.core().next.Load()).cl.Flush(t.Context()))
	// The broker has forgotten the producer because retention has passed what it
	// wrote: the client then begins anew by itself, as nothing was lost.
	fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := req.(*kmsg.ProduceRequest)
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range r.Topics {
			to := kmsg.NewProduceResponseTopic()
			to.Topic, to.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode, p.LogStartOffset, p.BaseOffset = rp.Partition, kerr.UnknownProducerID.Code, 1<<40, -1
				to.Partitions = append(to.Partitions, p)
			}
			resp.Topics = append(resp.Topics, to)
		}
		return resp, nil, true
	})
	check(t, l.write(message("k", "kept")))
	err := l.seal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "what was written before isn't part of it") {
		t.Fatalf("got %v, want an error about a torn transaction", err)
	}
	l = begin(t, s, s.sink(), 2)
	check(t, l.run(t.Context(), nil, message("k", "2")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2")
}

// A transaction that was aborted although its commit was confirmed is found out
// before anybody relies on it.
func TestAbortedCommit(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "a request is changed on its way")
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	once := true
	fake.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if once {
			once = false
			req.(*kmsg.EndTxnRequest).Commit = false
		}
		return nil, nil, false
	})
	err := l.run(t.Context(), nil, message("k", "2"))
	if !errors.Is(err, errAborted) || temporaryError(err) {
		t.Fatalf("got %v, want %v, for good", err, errAborted)
	}
	if err := l.run(t.Context(), nil, message("k", "3")); !errors.Is(err, errAborted) {
		t.Errorf("it goes on: %v", err)
	}
	l = begin(t, s, s.sink(), 2)
	if l.epoch != 1 {
		t.Errorf("the next start goes on from epoch %d, want 1", l.epoch)
	}
	check(t, l.run(t.Context(), nil, message("k", "2")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2")
}

// A first transaction is committed like any other, how quick its answers ever come:
// the client must have learned where it has written to.
func TestFirstTransaction(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for range 25 {
		s := &scene{t: t, brokers: brokers, job: weir.JobID{Name: kafkatest.Name(t), UUID: "run-1"}, cl: kafkatest.Client(t, brokers)}
		s.topic = s.job.Name + ".out"
		l := begin(t, s, s.sink(CreateTopics(1, 0)), 1)
		for n := range 3 {
			check(t, l.run(t.Context(), nil, message("k", fmt.Sprint(n))))
		}
		equal(t, "topic", s.read(s.topic), "k=0", "k=1", "k=2")
		check(t, l.p.Close())
	}
}

// A transaction that is open for longer than its timeout costs a replay, and neither
// data nor the job.
func TestTransactionTimesOut(t *testing.T) {
	s := stage(t, 1)
	timeout := 1500 * time.Millisecond
	l := begin(t, s, s.sink(TransactionTimeout(timeout)), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.write(message("k", "timed out")))
	number := l.core().next.Load()
	check(t, l.core().lane(number).cl.Flush(t.Context()))
	s.gone(l.core().lane(number).txid)
	err := l.seal(t.Context())
	if err == nil {
		err = l.commit(t.Context(), 2, nil)
	}
	if err == nil || errors.Is(err, weir.ErrFenced) || errors.Is(err, weir.ErrRefused) || temporaryError(err) {
		t.Fatalf("got %v, want an error that a new incarnation is made after", err)
	}
	if !errors.Is(err, errAged) {
		says(t, err, err, "no newer incarnation has claimed", "timeout (1.5s)")
	}
	l = begin(t, s, s.sink(TransactionTimeout(timeout)), 2)
	check(t, l.run(t.Context(), nil, message("k", "2")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2")
}

// gone waits until the coordinator has ended the transaction of an id.
func (s *scene) gone(txid string) {
	s.t.Helper()
	for {
		told, err := kadm.NewClient(s.cl).DescribeTransactions(s.t.Context(), txid)
		check(s.t, err)
		if st := told[txid].State; st != "Ongoing" && !strings.HasPrefix(st, "Prepare") {
			return
		}
	}
}

// An epoch asks for a barrier in time to be committed before its transaction times
// out, and one without output doesn't.
func TestPress(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(TransactionTimeout(2*time.Second)), 1)
	asked := make(chan time.Time, 10)
	l.p.(weir.Pressed).Press(func() { asked <- time.Now() })
	for n := range 3 {
		began := time.Now()
		check(t, l.write(message("k", fmt.Sprint(n))))
		select {
		case at := <-asked:
			if at.Sub(began) < time.Second {
				t.Errorf("asked for a barrier %v after the first record, want half of the timeout", at.Sub(began))
			}
		case <-t.Context().Done():
			t.Fatal("nobody asked for a barrier")
		}
		check(t, l.run(t.Context(), nil))
	}
	if n := len(asked); n > 0 {
		t.Errorf("asked %d times more", n)
	}
	equal(t, "topic", s.read(s.topic), "k=0", "k=1", "k=2")
}

// Offsets go to the group of their source, with the checkpoint's id; positions of
// other clusters and other kinds of sources are left alone.
func TestOffsets(t *testing.T) {
	s := newStory(t)
	other := kafkatest.Topic(t, s.brokers, 3)
	var otherID topicID
	for otherID == (topicID{}) {
		meta, err := kadm.NewClient(s.cl).Metadata(t.Context(), other)
		check(t, err)
		otherID = topicID(meta.Topics[other].ID)
	}
	at := func(topic string, partition int32, offset int64) weir.Position {
		p := s.at
		p.offset = offset
		if topic == other {
			p.topic = otherID
		}
		return weir.Position{Source: "in", Split: splitName(topic, partition), At: p.append(nil)}
	}
	elsewhere := s.at
	elsewhere.cluster = "elsewhere"
	c := s.cluster()
	group := kafkatest.Name(t)
	c.shared.commitTo(other, group)
	l := begin(t, s.scene, Sink(c, s.topic, copies), 1)
	check(t, l.run(t.Context(), []weir.Position{
		at(s.source, 0, 7), at(other, 2, 9), at(other, 0, 1),
		{Source: "file", Split: "a/0", At: []byte("a file's position")},
		{Source: "far", Split: splitName(s.source, 5), At: elsewhere.append(nil)},
	}))
	got := map[string]string{}
	for _, g := range []string{s.job.Name, group} {
		offsets, err := kadm.NewClient(s.cl).FetchOffsets(kadm.RequireStable(t.Context()), g)
		check(t, err)
		offsets.Each(func(o kadm.OffsetResponse) {
			got[fmt.Sprintf("%v %s", g == group, splitName(o.Topic, o.Partition))] = fmt.Sprintf("%d %v", o.At, o.Metadata == l.parent.String())
		})
	}
	want := map[string]string{"false " + splitName(s.source, 0): "7 true", "true " + splitName(other, 0): "1 true", "true " + splitName(other, 2): "9 true"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the groups have %v, want %v", got, want)
	}
	if !c.shared.carries(s.job.Name) {
		t.Error("the job's sources aren't told that their offsets are committed")
	}
	check(t, l.p.Close())
	if c.shared.carries(s.job.Name) {
		t.Error("the job's sources are told that their offsets are committed, after the sink was closed")
	}
	// A topic that is gone has no offsets to be committed.
	l = begin(t, s.scene, Sink(c, s.topic, copies), 2)
	s.remove(other)
	err := l.run(t.Context(), []weir.Position{at(s.source, 0, 8), at(other, 0, 2)}, message("k", "v"))
	says(t, err, weir.ErrRefused, "commit offsets to group "+group, splitName(other, 0))
	equal(t, "topic", s.read(s.topic))
}

// Close aborts what is open, so that readers needn't wait for a timeout.
func TestCloseAborts(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(TransactionTimeout(10*time.Minute)), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.write(message("k", "given up")))
	check(t, l.w.Seal(l.epoch+1))
	check(t, l.write(message("k", "given up, too")))
	check(t, l.p.Close())
	kafkatest.Produce(t, s.brokers, &kgo.Record{Topic: s.topic, Key: []byte("plain"), Value: []byte("v")})
	kafkatest.Settle(t, s.brokers, s.topic)
	equal(t, "topic", s.read(s.topic), "k=1", "plain=v")
	check(t, l.p.Close()) // once more
	for _, err := range []error{l.write(message("k", "v")), l.p.Commit(t.Context(), l.next(2, nil)), l.p.Flush(t.Context())} {
		if !errors.Is(err, errSinkClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// Calls out of turn are refused, and nothing is committed by them.
func TestOutOfTurn(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.write(message("k", "2")))
	says(t, l.commit(t.Context(), 2, nil), weir.ErrRefused, "weren't written by this incarnation")
	if err := l.w.Seal(5); err == nil || !strings.Contains(err.Error(), "epoch 5 is sealed behind epoch 1") {
		t.Errorf("Seal of a later epoch: %v", err)
	}
	check(t, l.w.Seal(2))
	if _, err := l.p.Prepare(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "epoch 3 is prepared, and epoch 1 was committed last") {
		t.Errorf("Prepare of a later epoch: %v", err)
	}
	l = begin(t, s, s.sink(), 2)
	check(t, l.run(t.Context(), nil, message("k", "2")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2")
}

// A sink that is added to a job with checkpoints begins at whatever epoch the job has
// come to, and goes on after a restart.
func TestAdopted(t *testing.T) {
	s := stage(t, 0)
	sink := s.sink(CreateTopics(1, 0))
	p, err := sink.Connect(t.Context(), []string{"out"})
	check(t, err)
	at := weir.CheckpointID{Slot: 40, Sum: [32]byte{1}}
	by := weir.Incarnation{Number: 39, Nonce: nonce(39)}
	_, err = p.Fence(t.Context(), weir.Fence{Job: s.job, By: by})
	check(t, err)
	check(t, p.(weir.Adopter).Adopt(t.Context(), at, []weir.Adopted{{Sink: "out"}}))
	o, err := sink.Open(t.Context(), p, "out")
	check(t, err)
	l := &life[Message]{scene: s, by: by, p: p, w: o.Writer(0), parent: at, epoch: 40}
	check(t, l.run(t.Context(), nil, message("k", "41")))
	check(t, l.run(t.Context(), nil, message("k", "42")))
	check(t, p.Close())
	l = begin(t, s, sink, 50)
	if l.epoch != 42 {
		t.Errorf("the next start goes on from epoch %d, want 42", l.epoch)
	}
	check(t, l.run(t.Context(), nil, message("k", "43")))
	equal(t, "topic", s.read(s.topic), "k=41", "k=42", "k=43")
	// It gets another id, and the topic of a sink that isn't new must be there.
	check(t, l.p.Close())
	s.remove(s.topic)
	p, err = sink.Connect(t.Context(), []string{"renamed"})
	check(t, err)
	defer p.Close()
	ledgers, err := p.Fence(t.Context(), weir.Fence{Job: s.job, By: weir.Incarnation{Number: 60, Nonce: nonce(60)}, Former: []string{"out"}})
	check(t, err)
	if got := ledgers["out"]; got.ID != l.parent || !got.Found || len(ledgers) != 1 {
		t.Errorf("ledgers %v, want that of the old id at %v", ledgers, l.parent)
	}
	check(t, p.(weir.Adopter).Adopt(t.Context(), l.parent, []weir.Adopted{{Sink: "renamed", Was: "out"}}))
	_, err = sink.Open(t.Context(), p, "renamed")
	says(t, err, weir.ErrRefused, "is gone", l.parent.String())
}
