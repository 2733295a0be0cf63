package kafka_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// endings are topics whose last offsets hold no message, or none to be seen.
var endings = []struct {
	name string
	make func(t *testing.T, brokers []string, topic string)
	want []string // the committed ones
	all  []string // those that a reader of uncommitted ones sees
}{
	{"empty", func(*testing.T, []string, string) {}, nil, nil},
	{"plain", func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, numbered(topic, 0, 3)...)
	}, numbers(0, 3), numbers(0, 3)},
	{"a commit marker", func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, numbered(topic, 0, 3)...)
		kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), numbered(topic, 3, 5)...)(kgo.TryCommit)
	}, numbers(0, 5), numbers(0, 5)},
	{"an abort marker", func(t *testing.T, brokers []string, topic string) {
		end := kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), numbered(topic, 0, 2)...)
		kafkatest.Produce(t, brokers, numbered(topic, 2, 4)...)
		end(kgo.TryAbort)
	}, numbers(2, 4), numbers(0, 4)},
	{"only aborted messages", func(t *testing.T, brokers []string, topic string) {
		kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), numbered(topic, 0, 20)...)(kgo.TryAbort)
	}, nil, numbers(0, 20)},
	{"transactions of one producer", func(t *testing.T, brokers []string, topic string) {
		id := kafkatest.Name(t)
		for i := range 6 {
			how := kgo.TryCommit
			if i%2 == 0 {
				how = kgo.TryAbort
			}
			kafkatest.ProduceIn(t, brokers, id, numbered(topic, i, i+1)...)(how)
		}
	}, []string{"1", "3", "5"}, numbers(0, 6)},
	{"transactions across each other", func(t *testing.T, brokers []string, topic string) {
		a := kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), numbered(topic, 0, 1)...)
		b := kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), numbered(topic, 1, 2)...)
		kafkatest.Produce(t, brokers, numbered(topic, 2, 3)...)
		b(kgo.TryCommit)
		a(kgo.TryAbort)
	}, numbers(1, 3), numbers(0, 3)},
}

// A bounded run ends also where the last offsets are markers, aborted, or nothing;
// an endless one counts as idle there, with no lag. Both have what a reader of their
// isolation level sees, and stand at the end of the log.
func TestEveryEndOfALog(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for _, tt := range endings {
		t.Run(tt.name, func(t *testing.T) {
			topic := kafkatest.Topic(t, brokers, 1)
			tt.make(t, brokers, topic)
			kafkatest.Settle(t, brokers, topic)
			for _, level := range []struct {
				opts []kafka.SourceOption
				want []string
				read []*kgo.Record
			}{
				{nil, tt.want, kafkatest.ReadCommitted(t, brokers, topic)},
				{[]kafka.SourceOption{kafka.ReadUncommitted()}, tt.all, kafkatest.ReadUncommitted(t, brokers, topic)},
			} {
				var oracle []string
				for _, r := range level.read {
					oracle = append(oracle, string(r.Value))
				}
				if !slices.Equal(oracle, level.want) {
					t.Fatalf("the topic holds %v, want %v", oracle, level.want)
				}
				for name, opt := range map[string]kafka.SourceOption{"endless": nil, "bounded": kafka.Bounded(), "stopped": kafka.StopAtEnd()} {
					opts := level.opts
					if opt != nil {
						opts = append(slices.Clone(opts), opt)
					}
					for _, limit := range []int{1, 3, 100} {
						checkEnd(t, fmt.Sprintf("%s, reads of %d", name, limit), texts(brokers, topic, opts...), topic, limit, level.want)
					}
				}
			}
		})
	}
}

func checkEnd(t *testing.T, what string, src weir.Source[string], topic string, limit int, want []string) {
	t.Helper()
	r, err := src.Open(t.Context(), topic+"/0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := readIdle(t, r, limit)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: read %v, error %v; want %v", what, got, err, want)
	}
	if st := status(r); st.Lag != 0 || st.Done != st.Total || !st.Idle {
		t.Errorf("%s: at the end: %+v", what, st)
	}
	if again := open(t.Context(), t, src, topic+"/0", r.Position()); status(again).Lag != 0 {
		t.Errorf("%s: opened at its end, %q: %+v", what, r.Position(), status(again))
	}
}

// A stop in the middle of a transaction's messages, of a batch, or before a marker
// goes on there.
func TestEveryPositionInALogOfTransactions(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	id := kafkatest.Name(t)
	for i := range 5 {
		how := kgo.TryCommit
		if i%2 == 1 {
			how = kgo.TryAbort
		}
		kafkatest.ProduceIn(t, brokers, id, numbered(topic, 3*i, 3*i+3)...)(how)
	}
	kafkatest.Settle(t, brokers, topic)
	want := slices.Concat(numbers(0, 3), numbers(6, 9), numbers(12, 15))
	src := texts(brokers, topic, kafka.Bounded())
	r := open(t.Context(), t, src, topic+"/0", nil)
	for n := 0; ; n++ {
		rest, err := readToEnd(t, open(t.Context(), t, texts(brokers, topic, kafka.Bounded()), topic+"/0", r.Position()), 100)
		if err != nil || !slices.Equal(rest, want[n:]) {
			t.Fatalf("from %q: %v, error %v; want %v", r.Position(), rest, err, want[n:])
		}
		if n == len(want) {
			break
		}
		if got, err := readSome(t, r, 1); err != nil || got[0] != want[n] {
			t.Fatalf("number %d is %v, error %v", n, got, err)
		}
	}
}

// A topic that was compacted is read to its end, past what is no longer there:
// each message that is left, once.
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1, "cleanup.policy=compact", "segment.ms=200", "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=0")
	keyed := func(key, value string) *kgo.Record {
		return &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
	}
	var recs []*kgo.Record
	for i := range 300 {
		recs = append(recs, keyed(fmt.Sprint(i%3), fmt.Sprint(i)))
	}
	produceBatched(t, brokers, 20, recs)
	kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), keyed("0", "aborted"))(kgo.TryAbort)
	kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), keyed("4", "committed"))(kgo.TryCommit)
	kafkatest.Settle(t, brokers, topic)
	left := 300
	for n := 0; left > 50 && t.Context().Err() == nil; n++ { // a segment is closed by a message that comes after its time
		kafkatest.Produce(t, brokers, keyed("5", fmt.Sprint(n)))
		if c := kafkatest.Fake(t); c != nil {
			c.Compact()
		}
		left = len(kafkatest.ReadCommitted(t, brokers, topic))
	}
	for name, opts := range map[string][]kafka.SourceOption{"endless": nil, "bounded": {kafka.Bounded()}} {
		var got, before, want []string
		var err error
		for try := 0; try == 0 || !slices.Equal(before, want); try++ { // it may be compacted once more meanwhile
			before = kafkatestValues(t, brokers, topic)
			got, err = readIdle(t, open(t.Context(), t, texts(brokers, topic, opts...), topic+"/0", nil), 7)
			want = kafkatestValues(t, brokers, topic)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: read %v, error %v; want %v", name, got, err, want)
		}
	}
}
