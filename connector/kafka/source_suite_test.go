package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// notPositions are positions that no partition can be read from.
var notPositions = [][]byte{
	{}, []byte("17"), []byte("kafka1:"), []byte("kafka1:c:AAAAAAAAAAAAAAAAAAAAAA:0"),
	[]byte("kafka1:c:AAAAAAAAAAAAAAAAAAAAAA:-1"), []byte("kafka2:c:AAAAAAAAAAAAAAAAAAAAAA:0"),
}

// filled makes a topic with some values in each partition, and says what they are.
func filled(t *testing.T, brokers []string, partitions, n int, opts ...kgo.Opt) (topic string, want map[string][]string) {
	topic = kafkatest.Topic(t, brokers, partitions)
	want = map[string][]string{}
	var recs []*kgo.Record
	for p := range partitions {
		split := fmt.Sprintf("%s/%d", topic, p)
		want[split] = nil
		for i := range n * p {
			v := fmt.Sprintf("%d.%d %s", p, i, strings.Repeat("x", i*i%23))
			want[split] = append(want[split], v)
			recs = append(recs, record(topic, int32(p), v))
		}
	}
	produceBatched(t, brokers, 7, recs, opts...)
	return topic, want
}

// produceBatched writes records, at most so many in a batch.
func produceBatched(t *testing.T, brokers []string, batch int, recs []*kgo.Record, opts ...kgo.Opt) {
	t.Helper()
	cl := kafkatest.Client(t, brokers, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	for len(recs) > 0 {
		n := min(batch, len(recs))
		if err := cl.ProduceSync(t.Context(), recs[:n]...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		recs = recs[n:]
	}
}

func TestTopicsAreASource(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"plain": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			topic, want := filled(t, brokers, 3, 12, kgo.ProducerBatchCompression(codec))
			connectortest.Source(t, connectortest.SourceUnderTest[string]{
				New:     func(*testing.T) weir.Source[string] { return texts(brokers, topic) },
				Want:    want,
				Refused: notPositions,
				Endless: true,
			})
		})
	}
	t.Run("bounded", func(t *testing.T) {
		topic, want := filled(t, brokers, 3, 12)
		connectortest.Source(t, connectortest.SourceUnderTest[string]{
			New:     func(*testing.T) weir.Source[string] { return texts(brokers, topic, kafka.Bounded()) },
			Want:    want,
			Refused: notPositions,
		})
	})
	t.Run("stopped", func(t *testing.T) {
		topic, want := filled(t, brokers, 2, 12)
		connectortest.Source(t, connectortest.SourceUnderTest[string]{
			New:     func(*testing.T) weir.Source[string] { return texts(brokers, topic, kafka.StopAtEnd()) },
			Want:    want,
			Refused: notPositions,
			Endless: true,
		})
	})
}

// growingTopics gets messages, partitions and topics.
func growingTopics(t *testing.T) connectortest.GrowingSplits[string] {
	brokers := kafkatest.Brokers(t)
	prefix := kafkatest.Name(t)
	want := map[string][]string{}
	add := func(topic string, partition int32, values ...string) {
		for _, v := range values {
			kafkatest.Produce(t, brokers, record(prefix+topic, partition, v))
		}
		split := fmt.Sprintf("%s%s/%d", prefix, topic, partition)
		want[split] = append(want[split], values...)
	}
	steps := []func(){
		func() {},
		func() { kafkatest.CreateTopic(t, brokers, prefix+"a", 1); add("a", 0) },
		func() { add("a", 0, "a1", "a2") },
		func() { kafkatest.CreateTopic(t, brokers, prefix+"b", 2); add("b", 1, "b1"); add("b", 0) },
		func() { addPartitions(t, brokers, prefix+"a", 2); add("a", 1, "p1", "p2"); add("b", 0, "b2") },
	}
	return connectortest.GrowingSplits[string]{
		Source: func() weir.Source[string] {
			return kafka.Source(kafka.NewCluster(brokers), kafka.Matching(prefix+"[ab]"), codec.String(),
				kafka.StartAt(kafka.Latest()), kafka.Discover(time.Millisecond))
		},
		Grow: func() (map[string][]string, bool) {
			steps[0]()
			steps = steps[1:]
			return want, len(steps) > 0
		},
	}
}

func TestGrowingTopicsAreASource(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, want := filled(t, brokers, 1, 1)
	connectortest.Source(t, connectortest.SourceUnderTest[string]{
		New:     func(*testing.T) weir.Source[string] { return texts(brokers, topic) },
		Want:    want,
		Refused: notPositions,
		Endless: true,
		Growing: &connectortest.GrowingSource[string]{New: growingTopics},
	})
}

type click struct {
	ID string `json:"id"`
}

func TestSpoiledTopicsAreASource(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	want := []connectortest.SpoiledRecord[click]{
		{Rec: click{ID: "a"}},
		{Raw: []byte("oops")},
		{Raw: []byte(strings.Repeat("x", 70_000))},
		{Rec: click{ID: "b"}},
		{Raw: []byte{}},
		{Rec: click{ID: "c"}},
		{Raw: []byte(`{"n":1`)},
		{Rec: click{ID: "d"}},
		{Raw: []byte("\xff\xfe")},
	}
	spoiled, good := kafkatest.Topic(t, brokers, 1), kafkatest.Topic(t, brokers, 1)
	var clean []click
	for _, w := range want {
		r := &kgo.Record{Topic: spoiled, Value: w.Raw}
		switch {
		case w.Raw == nil:
			r.Value = []byte(`{"id":"` + w.Rec.ID + `"}`)
			clean = append(clean, w.Rec)
			kafkatest.Produce(t, brokers, &kgo.Record{Topic: good, Value: r.Value})
		case len(w.Raw) == 0:
			r.Value = nil // a tombstone
		}
		kafkatest.Produce(t, brokers, r)
	}
	c := codec.JSON[click]()
	source := func(topic string) weir.Source[click] {
		return kafka.Source(kafka.NewCluster(brokers), kafka.Named(topic), c, kafka.MaxMessage(1000))
	}
	connectortest.Source(t, connectortest.SourceUnderTest[click]{
		New:     func(*testing.T) weir.Source[click] { return source(good) },
		Want:    map[string][]click{good + "/0": clean},
		Refused: notPositions,
		Endless: true,
		Spoiled: &connectortest.SpoiledSource[click]{
			New:  func(*testing.T) weir.Source[click] { return source(spoiled) },
			Want: map[string][]connectortest.SpoiledRecord[click]{spoiled + "/0": want},
		},
	})
}
