package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// The first start makes the control topic, and a record with no checkpoint before
// anything else, so that a start after a crash finds a ledger.
func TestGenesis(t *testing.T) {
	s := stage(t, 0)
	sink := s.sink(CreateTopics(3, 0, "cleanup.policy=compact"))
	p, err := sink.Connect(t.Context(), []string{"out"})
	check(t, err)
	f := weir.Fence{Job: s.job, By: weir.Incarnation{Number: 1, Nonce: nonce(1)}, Create: true}
	ledgers, err := p.Fence(t.Context(), f)
	check(t, err)
	check(t, p.Close())
	if l := ledgers["out"]; !l.Found || !l.ID.IsZero() {
		t.Errorf("the ledger is %+v, want one that names nothing", l)
	}
	l := begin(t, s, sink, 2)
	check(t, l.run(t.Context(), nil, message("k", "v")))
	var numbers []string
	for _, r := range s.records() {
		numbers = append(numbers, fmt.Sprintf("%d by %d: %d %d", r.Number, r.Incarnation, r.Epoch, len(r.Checkpoint)))
	}
	whole := len(l.parent.String())
	equal(t, "records", numbers, "0 by 1: -1 0", "1 by 2: -1 0", fmt.Sprintf("2 by 2: 0 %d", whole), fmt.Sprintf("3 by 2: 1 %d", whole))
	set := s.settings(s.control())
	for name, want := range map[string]string{"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "3600000",
		"max.compaction.lag.ms": "3600000", "min.cleanable.dirty.ratio": "0.1", "unclean.leader.election.enable": "false"} {
		if set[name] != want {
			t.Errorf("the control topic has %s=%q, want %q", name, set[name], want)
		}
	}
	if d := s.describe(s.control()); len(d.Partitions) != 1 {
		t.Errorf("the control topic has %d partitions, want 1", len(d.Partitions))
	}
	if d := s.describe(s.topic); len(d.Partitions) != 3 || s.settings(s.topic)["cleanup.policy"] != "compact" {
		t.Errorf("the output topic has %d partitions and the policy %q, want what CreateTopics says", len(d.Partitions), s.settings(s.topic)["cleanup.policy"])
	}
}

func (s *scene) settings(topic string) map[string]string {
	s.t.Helper()
	all, err := kadm.NewClient(s.cl).DescribeTopicConfigs(s.t.Context(), topic)
	check(s.t, err)
	out := map[string]string{}
	for _, c := range all[0].Configs {
		out[c.Key] = c.MaybeValue()
	}
	return out
}

func (s *scene) describe(topic string) kadm.TopicDetail {
	s.t.Helper()
	all, err := kadm.NewClient(s.cl).ListTopics(s.t.Context(), topic)
	check(s.t, err)
	check(s.t, all[topic].Err)
	return all[topic]
}

func (s *scene) remove(topics ...string) {
	s.t.Helper()
	gone, err := kadm.NewClient(s.cl).DeleteTopics(s.t.Context(), topics...)
	check(s.t, err)
	check(s.t, gone.Error())
	for { // until no broker knows them any more
		all, err := kadm.NewClient(s.cl).ListTopics(s.t.Context())
		check(s.t, err)
		if !all.Has(topics[0]) {
			return
		}
	}
}

// What doesn't fit is refused before anything is fenced, and says what to do.
func TestRefused(t *testing.T) {
	made := func(policy string, partitions int) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			kafkatest.CreateTopic(t, s.brokers, s.control(), partitions, "cleanup.policy="+policy)
		}
	}
	for name, c := range map[string]struct {
		before func(*testing.T, *scene)
		opts   []SinkOption
		want   []string
	}{
		"no topic":              {nil, nil, []string{"there is no topic", "CreateTopics"}},
		"policy delete":         {made("delete", 1), nil, []string{"cleanup.policy=delete", "set it to compact", "kafka-configs.sh"}},
		"policy compact,delete": {made("compact,delete", 1), nil, []string{"cleanup.policy=compact,delete", "set it to compact"}},
		"partitions":            {made("compact", 2), nil, []string{"has 2 partitions, and must have 1"}},
		"illegal name":          {func(_ *testing.T, s *scene) { s.job.Name += " and co" }, nil, []string{"another name", `' '`}},
		"long name":             {func(_ *testing.T, s *scene) { s.job.Name = strings.Repeat("n", 245) }, nil, []string{"another name", "250 characters"}},
		"timeout": {nil, []SinkOption{TransactionTimeout(24 * time.Hour), CreateTopics(1, 0)},
			[]string{"24h0m0s", "TransactionTimeout", "transaction.max.timeout.ms"}},
		"replication":    {nil, []SinkOption{CreateTopics(1, 100)}, []string{"create topic", "INVALID_REPLICATION_FACTOR"}},
		"of Kafka's own": {func(_ *testing.T, s *scene) { s.topic = "__consumer_offsets" }, []SinkOption{CreateTopics(1, 0)}, []string{"Kafka's own"}},
		"something else's records": {func(t *testing.T, s *scene) {
			made("compact", 1)(t, s)
			kafkatest.Produce(t, s.brokers, &kgo.Record{Topic: s.control(), Key: []byte("k"), Value: []byte("hello")})
		}, nil, []string{"record at offset 0", "isn't JSON", "somebody else has written"}},
		"a newer version": {func(t *testing.T, s *scene) {
			made("compact", 1)(t, s)
			kafkatest.Produce(t, s.brokers, &kgo.Record{Topic: s.control(), Key: []byte("k"), Value: []byte(`{"weir":7}`)})
		}, nil, []string{"version 7", "newer one"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, 0)
			if c.before != nil {
				c.before(t, s)
			}
			_, err := try(t.Context(), s, s.sink(c.opts...), 1)
			says(t, err, weir.ErrRefused, c.want...)
		})
	}
}

// Without transaction.version 2 the sink refuses to promise anything, whatever the
// brokers could do; at least once needs nothing of it.
func TestTransactionVersion(t *testing.T) {
	kafkatest.FakeOnly(t, "a broker's finalized features are chosen when it is formatted")
	old := kafkatest.NewFake(t, kfake.MaxVersions(kversion.V3_9_0()))
	low := kafkatest.NewFake(t)
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis = 1000
	up := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	up.Feature, up.MaxVersionLevel, up.AllowDowngrade, up.UpgradeType = transactionFeature, 1, true, 2
	req.FeatureUpdates = append(req.FeatureUpdates, up)
	cl := kafkatest.Client(t, low.ListenAddrs())
	resp, err := req.RequestWith(t.Context(), cl)
	check(t, err)
	if resp.ErrorCode != 0 {
		t.Fatalf("lower the feature: code %d", resp.ErrorCode)
	}
	for found, brokers := range map[string][]string{"it isn't finalized": old.ListenAddrs(), "it is finalized at 1": low.ListenAddrs()} {
		s := stage(t, 0)
		c := NewCluster(brokers)
		_, err := Sink(c, "topic", copies).Connect(t.Context(), []string{"out"})
		says(t, err, weir.ErrRefused, found, "transaction.version 2", "kafka-features.sh", "upgrade --feature transaction.version=2", "AtLeastOnce")
		s.brokers = brokers
		s.cl = kafkatest.Client(t, brokers)
		l := begin(t, s, Sink(c, s.topic, copies, AtLeastOnce(), CreateTopics(1, 0)), 1)
		check(t, l.run(t.Context(), nil, message("k", "v")))
	}
}

// Two runs of one job: the second is kept away, unless it is told to start over, and
// then the first one is over for good.
func TestRuns(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("first", "1")))
	other := *s
	other.job.UUID = "run-2"
	_, err := try(t.Context(), &other, s.sink(), 1)
	says(t, err, weir.ErrRefused, "another run of the job", s.job.UUID, "--start-over", l.parent.String())
	check(t, l.run(t.Context(), nil, message("first", "2"))) // it wasn't disturbed
	// A new sink of a job that has checkpoints elsewhere.
	p, err := s.sink().Connect(t.Context(), []string{"out"})
	check(t, err)
	found, err := p.Fence(t.Context(), weir.Fence{Job: other.job, By: weir.Incarnation{Number: 9, Nonce: "n"}})
	check(t, err)
	if len(found) > 0 {
		t.Errorf("ledgers of another run were found: %v", found)
	}
	err = p.(weir.Adopter).Adopt(t.Context(), weir.CheckpointID{Slot: 7}, []weir.Adopted{{Sink: "out"}})
	says(t, err, weir.ErrRefused, "another run of the job", s.job.UUID)
	check(t, p.Close())
	check(t, l.run(t.Context(), nil, message("first", "3"))) // nor by that
	check(t, l.write(message("first", "never")))
	check(t, l.core().lane(l.core().next.Load()).cl.Flush(t.Context()))
	over := func(f *weir.Fence) { f.StartOver = true }
	next := begin(t, &other, s.sink(), 1, over)
	check(t, next.run(t.Context(), nil, message("second", "1")))
	check(t, l.seal(t.Context()))
	says(t, l.commit(t.Context(), l.epoch+1, nil), weir.ErrFenced, "given up", "run-2")
	_, err = try(t.Context(), s, s.sink(), 2)
	says(t, err, weir.ErrFenced, "given up", "run-2")
	check(t, next.run(t.Context(), nil, message("second", "2")))
	equal(t, "topic", s.read(s.topic), "first=1", "first=2", "first=3", "second=1", "second=2")
}

// The start that gives a run up fences it first, and may be repeated after a crash.
func TestStartOverTwice(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	for n := int64(2); n < 5; n++ {
		p, err := s.sink().Connect(t.Context(), []string{"out"})
		check(t, err)
		by := weir.Incarnation{Number: n, Nonce: nonce(n)}
		_, err = p.Fence(t.Context(), weir.Fence{Job: s.job, By: by})
		if n == 2 {
			check(t, err)
		} else {
			says(t, err, weir.ErrFenced, "given up")
		}
		ledgers, err := p.Fence(t.Context(), weir.Fence{Job: weir.JobID{Name: s.job.Name, UUID: "run-2"}, By: by, Create: true, StartOver: true})
		check(t, err)
		if l := ledgers["out"]; !l.Found || !l.ID.IsZero() {
			t.Errorf("start %d: the ledger is %+v, want one that names nothing", n, l)
		}
		check(t, p.Close())
	}
}

// A state directory that was copied or comes from a backup has starts that the
// control topic doesn't know, or knows as somebody else's.
func TestCopyOfTheStateDirectory(t *testing.T) {
	s := stage(t, 1)
	begin(t, s, s.sink(), 1)
	l := begin(t, s, s.sink(), 5)
	for n, kind := range map[int64]error{5: weir.ErrRefused, 4: weir.ErrFenced} {
		_, err := try(t.Context(), s, s.sink(), n, func(f *weir.Fence) { f.By.Nonce = "another" })
		says(t, err, kind, "is a copy or comes from a backup", "incarnation 5 (nonce-5)")
	}
	check(t, l.run(t.Context(), nil, message("k", "v")))
}

// A control topic that was deleted has no ledger; one that was copied to another
// place is refused.
func TestControlTopicReplaced(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "v")))
	records := kafkatest.ReadCommitted(t, s.brokers, s.control())
	s.remove(s.control())
	if _, err := try(t.Context(), s, s.sink(), 2); !errors.Is(err, errNoLedger) {
		t.Fatalf("without a control topic: got %v, want no ledger", err)
	}
	kafkatest.CreateTopic(t, s.brokers, s.control(), 1, "cleanup.policy=compact")
	if _, err := try(t.Context(), s, s.sink(), 3); !errors.Is(err, errNoLedger) {
		t.Fatalf("with an empty control topic: got %v, want no ledger", err)
	}
	for _, r := range records {
		kafkatest.Produce(t, s.brokers, &kgo.Record{Topic: s.control(), Key: r.Key, Value: r.Value})
	}
	_, err := try(t.Context(), s, s.sink(), 4)
	says(t, err, weir.ErrRefused, "is a copy", "was written to topic id", "--start-over")
}

// Output topics that are gone, or were made anew, are refused once output was
// committed to them.
func TestOutputTopicReplaced(t *testing.T) {
	s := stage(t, 0)
	sink := func() weir.Sink[Message] { return s.sink(CreateTopics(1, 0)) }
	l := begin(t, s, sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "v")))
	check(t, l.p.Close())
	s.remove(s.topic)
	_, err := try(t.Context(), s, sink(), 2)
	says(t, err, weir.ErrRefused, s.topic, "is gone", l.parent.String(), "--start-over")
	kafkatest.CreateTopic(t, s.brokers, s.topic, 1)
	_, err = try(t.Context(), s, sink(), 3)
	says(t, err, weir.ErrRefused, s.topic, "made anew", l.parent.String())
	over := *s
	over.job.UUID = "run-2"
	l = begin(t, &over, sink(), 1, func(f *weir.Fence) { f.StartOver = true })
	check(t, l.run(t.Context(), nil, message("k", "again")))
	equal(t, "topic", s.read(s.topic), "k=again")
}

// A transaction that is open in a partition while its coordinator is done with it
// hangs: the start is refused, before it has fenced anybody, and names all of it.
func TestHanging(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "brokers that lose markers are killed for it: see TestLostMarkers")
	for _, where := range []string{"output", "control"} {
		t.Run(where, func(t *testing.T) {
			s := stage(t, 2)
			l := begin(t, s, s.sink(), 1)
			check(t, l.run(t.Context(), nil, message("k", "v")))
			topic := map[string]string{"output": s.topic, "control": s.control()}[where]
			held := l.core().lane(l.core().last.Number).now.Load()
			lie := openAt(fake, topic, 0, held.producer, held.epoch-1, 1234)
			defer lie()
			inits := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Count: -1, Observe: true})
			defer inits.Remove()
			_, err := try(t.Context(), s, s.sink(), 2)
			says(t, err, weir.ErrRefused, "hangs", topic+"/0", "offset 1234", fmt.Sprintf("producer %d, epoch %d", held.producer, held.epoch-1), "doctor", "coordinator")
			if n := inits.Hits(); n != 0 {
				t.Errorf("%d producers were initialized, which loses the coordinator's evidence", n)
			}
		})
	}
}

// openAt makes kfake say that a transaction is open in a partition.
func openAt(fake *kfake.Cluster, topic string, partition int32, producer int64, epoch int16, start int64) (end func()) {
	done := false
	fake.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if done {
			return nil, nil, false
		}
		fake.KeepControl()
		r := req.(*kmsg.DescribeProducersRequest)
		resp := r.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, rt := range r.Topics {
			t := kmsg.NewDescribeProducersResponseTopic()
			t.Topic = rt.Topic
			for _, n := range rt.Partitions {
				p := kmsg.NewDescribeProducersResponseTopicPartition()
				p.Partition = n
				if rt.Topic == topic && n == partition {
					a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					a.ProducerID, a.ProducerEpoch, a.CurrentTxnStartOffset = producer, int32(epoch), start
					p.ActiveProducers = append(p.ActiveProducers, a)
				}
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
	return func() { done = true }
}

// TestForeignTransaction: somebody else's transaction in an output topic is none of
// the job's business.
func TestForeignTransaction(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	end := kafkatest.ProduceIn(t, s.brokers, kafkatest.Name(t), &kgo.Record{Topic: s.topic, Key: []byte("other"), Value: []byte("v")})
	l = begin(t, s, s.sink(), 2)
	check(t, l.run(t.Context(), nil, message("k", "2")))
	end(kgo.TryCommit)
	kafkatest.Settle(t, s.brokers, s.topic)
	equal(t, "topic", s.read(s.topic), "k=1", "other=v", "k=2")
}

// A transaction that a dead incarnation has left open is aborted by the next start,
// at once: readers don't wait for its timeout.
func TestLeftOpen(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(TransactionTimeout(10*time.Minute)), 1)
	check(t, l.run(t.Context(), nil, message("k", "1")))
	check(t, l.write(message("k", "lost")))
	check(t, l.seal(t.Context()))
	check(t, l.write(message("k", "lost, too"))) // of the epoch behind it
	check(t, l.core().lane(0).cl.Flush(t.Context()))
	check(t, l.core().lane(1).cl.Flush(t.Context()))
	next := begin(t, s, s.sink(), 2)
	check(t, next.run(t.Context(), nil, message("k", "2")))
	kafkatest.Settle(t, s.brokers, s.topic, s.control())
	equal(t, "topic", s.read(s.topic), "k=1", "k=2")
}
