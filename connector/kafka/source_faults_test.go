package kafka_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// While leaders move, connections break and brokers answer with errors, each
// message is read once, and the job isn't restarted for it.
func TestBrokersThatComeAndGo(t *testing.T) {
	c := kafkatest.FakeOnly(t, "its brokers are made to fail")
	brokers := c.ListenAddrs()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const partitions, each = 6, 300
	topic := kafkatest.Topic(t, brokers, partitions)
	var recs []*kgo.Record
	var want []string
	for i := range partitions * each {
		v := fmt.Sprintf("%05d", i)
		want = append(want, v)
		recs = append(recs, record(topic, int32(i%partitions), v+strings.Repeat("x", 1000)))
	}
	produceBatched(t, brokers, 60, recs, kgo.ProducerBatchCompression(kgo.NoCompression()))
	var breaks atomic.Int32
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if breaks.Add(-1) >= 0 {
			return nil, errors.New("the connection is cut"), true
		}
		return nil, nil, false
	})
	var last *kfake.FaultHandle
	fault := func(key kmsg.Key, err *kerr.Error) func() {
		return func() {
			if last != nil {
				last.Remove()
			}
			last = c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: 2})
			c.ShufflePartitionLeaders() // so that everything is asked for
		}
	}
	trouble := []func(){
		c.ShufflePartitionLeaders,
		func() { breaks.Store(2) },
		fault(kmsg.Fetch, kerr.KafkaStorageError),
		fault(kmsg.Fetch, kerr.UnknownTopicID),
		fault(kmsg.Metadata, kerr.LeaderNotAvailable),
		fault(kmsg.ListOffsets, kerr.NotLeaderForPartition),
		fault(kmsg.OffsetForLeaderEpoch, kerr.FencedLeaderEpoch),
	}
	n := 0
	job := newCopying(t, func() weir.Source[string] {
		return texts(brokers, topic, kafka.StopAtEnd(), kafka.Buffer(1)) // small answers, so that there are many
	})
	seen := map[string]int{}
	j := weir.NewJob(job.name)
	j.From("in", job.src()).To("out", weir.Each(func(v string) error {
		seen[v[:5]]++
		if n++; n%53 == 0 {
			trouble[rng.IntN(len(trouble))]()
		}
		return nil
	}))
	restarts := 0
	if err := j.Run(t.Context(), weir.StateDir(job.dir), weir.Parallelism(1), weir.OnRestart(func(r weir.Restart) { restarts++; t.Log(r.Err) })); err != nil {
		t.Fatal(err)
	}
	for _, v := range want {
		if seen[v] != 1 {
			t.Errorf("message %s was read %d times", v, seen[v])
		}
		delete(seen, v)
	}
	if len(seen) > 0 || restarts > 0 {
		t.Errorf("%d messages that there aren't, and %d restarts", len(seen), restarts)
	}
}

// A broker that answers with damaged bytes costs a restart in place, and nothing
// else.
func TestDamageOnTheWay(t *testing.T) {
	c := kafkatest.FakeOnly(t, "its answers are damaged")
	brokers := c.ListenAddrs()
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 50)...)
	damage := true
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !damage {
			return nil, nil, false
		}
		damage = false
		f := req.(*kmsg.FetchRequest)
		resp := f.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range f.Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = 50, 50, make([]byte, 100)
			rp.RecordBatches[11], rp.RecordBatches[16] = 88, 2
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	job := newCopying(t, func() weir.Source[string] { return texts(brokers, topic, kafka.StopAtEnd()) })
	var why []error
	run := job.start(t.Context(), weir.OnRestart(func(r weir.Restart) { why = append(why, r.Err) }))
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := job.out.take(); !slices.Equal(got, numbers(0, 50)) || len(why) != 1 {
		t.Errorf("read %v; restarts: %v", got, why)
	}
	if len(why) > 0 {
		wantError(t, why[0], "topic "+topic+", partition 0, offsets 0 to 0", "checksum")
	}
}

// A leader that is a broker of which nobody knew before is found.
func TestBrokerThatIsNew(t *testing.T) {
	c := kafkatest.NewFake(t)
	brokers := c.ListenAddrs()
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 5)...)
	ctx, h := listening(t)
	r := open(ctx, t, texts(brokers, topic), topic+"/0", nil)
	if got, err := readIdle(t, r, 10); err != nil || len(got) != 5 {
		t.Fatalf("read %v, error %v", got, err)
	}
	node, _, err := c.AddNode(-1, 0)
	if err == nil {
		err = c.MoveTopicPartition(topic, 0, node)
	}
	if err != nil {
		t.Fatal(err)
	}
	kafkatest.Produce(t, brokers, numbered(topic, 5, 8)...)
	if got, err := readSome(t, r, 3); err != nil || !slices.Equal(got, numbers(5, 8)) || len(h.waits) > 0 {
		t.Errorf("read %v, error %v, and waited for %q", got, err, h.waits)
	}
}
