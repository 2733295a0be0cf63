package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// commit sets a group's offsets, as some program would.
func commit(t testing.TB, brokers []string, group, topic string, at map[int32]int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	for p, o := range at {
		offsets.AddOffset(topic, p, o, -1)
	}
	adm := kadm.NewClient(kafkatest.Client(t, brokers))
	for { // until the group's coordinator is there
		err := adm.CommitAllOffsets(t.Context(), group, offsets)
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// started are the offsets, and the ends where there are some, of Start's positions.
func started(t testing.TB, src weir.Source[string]) (map[string]string, error) {
	t.Helper()
	splits, err := src.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, err := src.(weir.Starter).Start(t.Context(), splits)
	out := map[string]string{}
	for split, p := range at {
		out[split[strings.LastIndex(split, "/")+1:]] = strings.Join(strings.Split(string(p), ":")[3:], " to ")
	}
	return out, err
}

func TestStart(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, group := kafkatest.Topic(t, brokers, 3, "retention.ms=-1"), kafkatest.Name(t)
	at := func(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }
	var recs []*kgo.Record
	for p := range int32(2) { // partition 2 stays empty
		for i := range int64(10) {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Value: []byte("x"), Timestamp: at(100*i + int64(p))})
		}
	}
	produceBatched(t, brokers, 4, recs)
	deleteUpTo(t, brokers, topic, 2)
	// From offset 10 on partition 1 waits for a transaction.
	kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), &kgo.Record{Topic: topic, Partition: 1, Value: []byte("open"), Timestamp: at(5000)})
	kafkatest.Produce(t, brokers, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("behind"), Timestamp: at(6000)})
	commit(t, brokers, group, topic, map[int32]int64{0: 7, 1: 3})
	some := map[string]map[int32]int64{topic: {0: 4, 2: 0}}
	for _, tt := range []struct {
		name string
		opts []kafka.SourceOption
		want []string // of partitions 0 to 2
		says []string
	}{
		{name: "default", want: []string{"2", "0", "0"}},
		{name: "earliest", opts: []kafka.SourceOption{kafka.StartAt(kafka.Earliest())}, want: []string{"2", "0", "0"}},
		{name: "latest", opts: []kafka.SourceOption{kafka.StartAt(kafka.Latest())}, want: []string{"10", "10", "0"}},
		{name: "latest, uncommitted", opts: []kafka.SourceOption{kafka.StartAt(kafka.Latest()), kafka.ReadUncommitted()}, want: []string{"10", "12", "0"}},
		{name: "a time", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtTime(at(500)))}, want: []string{"5", "5", "0"}},
		{name: "a time between milliseconds", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtTime(at(500).Add(time.Nanosecond)))}, want: []string{"6", "5", "0"}},
		{name: "a time before all", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtTime(at(-5000)))}, want: []string{"2", "0", "0"}},
		{name: "a time behind all", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtTime(at(5000)))}, want: []string{"10", "10", "0"}},
		{name: "committed", opts: []kafka.SourceOption{kafka.Group(group), kafka.StartAt(kafka.AtCommitted())}, says: []string{"group " + group, topic + "/2"}},
		{name: "committed, or latest", opts: []kafka.SourceOption{kafka.Group(group), kafka.StartAt(kafka.AtCommitted(kafka.Latest()))}, want: []string{"7", "3", "0"}},
		{name: "an unknown group", opts: []kafka.SourceOption{kafka.Group(group + "?"), kafka.StartAt(kafka.AtCommitted())}, says: []string{topic + "/0, " + topic + "/1, " + topic + "/2"}},
		{name: "an unknown group, or earliest", opts: []kafka.SourceOption{kafka.Group(group + "?"), kafka.StartAt(kafka.AtCommitted(kafka.Earliest()))}, want: []string{"2", "0", "0"}},
		{name: "no group", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtCommitted())}, says: []string{"kafka.Group"}},
		{name: "offsets", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtOffsets(some))}, says: []string{topic + "/1"}},
		{name: "offsets, or a time", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtOffsets(some, kafka.AtTime(at(300))))}, want: []string{"4", "3", "0"}},
		{name: "offsets, or committed, or the end", opts: []kafka.SourceOption{kafka.Group(group), kafka.StartAt(kafka.AtOffsets(map[string]map[int32]int64{topic: {0: 4}}, kafka.AtCommitted(kafka.Latest())))}, want: []string{"4", "3", "0"}},
		{name: "an offset of no partition", opts: []kafka.SourceOption{kafka.StartAt(kafka.AtOffsets(map[string]map[int32]int64{topic: {3: 1}}, kafka.Earliest()))}, says: []string{topic, "no partition 3"}},
		{name: "bounded", opts: []kafka.SourceOption{kafka.Bounded()}, want: []string{"2 to 10", "0 to 12", "0 to 0"}},
		{name: "bounded, from the end", opts: []kafka.SourceOption{kafka.Bounded(), kafka.StartAt(kafka.Latest())}, want: []string{"10 to 10", "10 to 12", "0 to 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := started(t, texts(brokers, topic, tt.opts...))
			if len(tt.says) > 0 {
				wantError(t, err, tt.says...)
				if !errors.Is(err, weir.ErrInput) {
					t.Errorf("%v isn't bad input", err)
				}
				return
			}
			want := map[string]string{}
			for p, o := range tt.want {
				want[fmt.Sprint(p)] = o
			}
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("begins at %v, error %v; want %v", got, err, want)
			}
		})
	}
}

func TestDeclarations(t *testing.T) {
	c := kafka.NewCluster([]string{"127.0.0.1:1"})
	many := map[string]map[int32]int64{"clicks": {0: 1}}
	for _, tt := range []struct {
		src  weir.Source[string]
		says string
	}{
		{kafka.Source(c, kafka.Named(), text()), "name of a topic"},
		{kafka.Source(c, kafka.Named("a", "b", "a"), text()), "topic a twice"},
		{kafka.Source(c, kafka.Named("a b"), text()), `"a b"`},
		{kafka.Source(c, kafka.Named(strings.Repeat("a", 250)), text()), "250 characters"},
		{kafka.Source(c, kafka.Matching(""), text()), "regular expression"},
		{kafka.Source(c, kafka.Matching("("), text()), "missing closing )"},
		{kafka.Source(c, kafka.Topics{}, text()), "no topics"},
		{kafka.Source[string](nil, kafka.Named("clicks"), text()), "cluster"},
		{kafka.Source[string](c, kafka.Named("clicks"), nil), "codec"},
		{kafka.SourceOf[string](c, kafka.Named("clicks"), nil), "function"},
		{texts(nil, "clicks", kafka.Bounded(), kafka.StopAtEnd()), "choose one"},
		{texts(nil, "clicks", kafka.Discover(-1)), "Discover"},
		{texts(nil, "clicks", kafka.Discover(1)), "too often"},
		{texts(nil, "clicks", kafka.IdleAfter(-1)), "IdleAfter"},
		{texts(nil, "clicks", kafka.MaxMessage(0)), "MaxMessage"},
		{texts(nil, "clicks", kafka.MaxBatch(1<<31)), "MaxBatch"},
		{texts(nil, "clicks", kafka.Buffer(-1)), "Buffer"},
		{texts(nil, "clicks", kafka.StartAt(kafka.AtTime(time.Time{}))), "1970"},
		{texts(nil, "clicks", kafka.StartAt(kafka.AtOffsets(nil))), "no offset"},
		{texts(nil, "views", kafka.StartAt(kafka.AtOffsets(many))), "clicks isn't read"},
		{texts(nil, "clicks", kafka.StartAt(kafka.AtOffsets(map[string]map[int32]int64{"clicks": {0: -1}}))), "negative"},
		{texts(nil, "clicks", kafka.StartAt(kafka.AtCommitted(kafka.Latest(), kafka.Earliest()))), "one other Start"},
		{texts(nil, "clicks", kafka.StartAt(kafka.AtCommitted(kafka.AtOffsets(nil)))), "no offset"},
	} {
		check := tt.src.(interface{ Check() error }).Check()
		wantError(t, check, tt.says)
		for what, call := range map[string]func() error{
			"Splits": func() error { _, err := tt.src.Splits(t.Context()); return err },
			"Start":  func() error { _, err := tt.src.(weir.Starter).Start(t.Context(), []string{"clicks/0"}); return err },
			"Open":   func() error { _, err := tt.src.Open(t.Context(), "clicks/0", nil); return err },
		} {
			if err := call(); !errors.Is(err, check) {
				t.Errorf("%s: %v, and not %v", what, err, check)
			}
		}
	}
	for _, src := range []weir.Source[string]{
		texts(nil, "clicks"), kafka.Source(c, kafka.Matching(".*"), text(), kafka.StartAt(kafka.AtOffsets(many))),
		texts(nil, "clicks", kafka.Discover(0), kafka.StopAtEnd(), kafka.Require(kafka.Key|kafka.Timestamp, kafka.Value)),
	} {
		if err := src.(interface{ Check() error }).Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestDescribe(t *testing.T) {
	for want, src := range map[string]weir.Source[string]{
		"topic clicks on kafka cluster h:1, read_committed":                                     texts([]string{"h:1"}, "clicks"),
		"topic clicks on kafka cluster h:1, read_uncommitted, to the end as of the first start": texts([]string{"h:1"}, "clicks", kafka.ReadUncommitted(), kafka.Bounded()),
		`topics matching "a.*" on kafka cluster main, read_committed, to the end as of each start`: kafka.Source(
			kafka.NewCluster([]string{"h:1"}, kafka.Name("main")), kafka.Matching("a.*"), text(), kafka.StopAtEnd()),
	} {
		if got := src.(weir.Described).Describe(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	brokers := kafkatest.Brokers(t)
	src := texts(brokers, kafkatest.Topic(t, brokers, 1))
	job := weir.NewJob("copy")
	job.From("in", src).To("out", weir.Each(func(string) error { return nil }))
	x, err := job.Explain(t.Context())
	if want := src.(weir.Described).Describe(); err != nil || !strings.Contains(x.Plan, want) {
		t.Errorf("explained as %s, %v; want %q in it", x.Plan, err, want)
	}
}

// A bounded source ends where the topic did when the job first started, also in a
// process that was started later; one that stops at the end stops where it is then.
func TestEndsAndStops(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 10)...)
	for _, tt := range []struct {
		opt    kafka.SourceOption
		second []string
	}{{kafka.Bounded(), numbers(4, 10)}, {kafka.StopAtEnd(), nil}} {
		src := texts(brokers, topic, tt.opt)
		at, err := src.(weir.Starter).Start(t.Context(), []string{topic + "/0"})
		if err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, brokers, record(topic, 0, "later"))
		first := open(t.Context(), t, src, topic+"/0", at[topic+"/0"])
		if got, err := readSome(t, first, 4); err != nil || !slices.Equal(got, numbers(0, 4)) {
			t.Fatalf("read %v, error %v", got, err)
		}
		kafkatest.Produce(t, brokers, record(topic, 0, "later still"))
		again := open(t.Context(), t, texts(brokers, topic, tt.opt), topic+"/0", first.Position())
		atStop := again.(weir.Pausing).AtStop
		got, err := readUntil(t, again, 3, func([]string, int) bool { return atStop() })
		want := tt.second
		if want == nil { // whatever there was at this start
			want = append(numbers(4, 10), kafkatestValues(t, brokers, topic)[10:]...)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("after a restart: %v, error %v; want %v", got, err, want)
		}
		if atStop() == (tt.second != nil) {
			t.Errorf("at its stop: %t", atStop())
		}
		kafkatest.Produce(t, brokers, record(topic, 0, "too late"))
		for range 3 {
			if more, _, err := again.Read(nil, 10); err != nil || len(more) > 0 {
				t.Errorf("behind its end: %v, error %v", more, err)
			}
		}
	}
}

func kafkatestValues(t testing.TB, brokers []string, topic string) (out []string) {
	for _, r := range kafkatest.ReadCommitted(t, brokers, topic) {
		out = append(out, string(r.Value))
	}
	return out
}

// However many partitions there are, finding out where they begin, and opening
// them, takes a few requests.
func TestFewRequests(t *testing.T) {
	c := kafkatest.FakeOnly(t, "its requests are counted")
	topic := kafkatest.Topic(t, c.ListenAddrs(), 100)
	seen := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets, kmsg.Metadata, kmsg.OffsetFetch}, Count: -1, Observe: true})
	src := texts(c.ListenAddrs(), topic, kafka.StartAt(kafka.Latest()))
	splits, err := src.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, err := src.(weir.Starter).Start(t.Context(), splits)
	if err != nil || len(at) != 100 {
		t.Fatal(len(at), err)
	}
	for _, split := range splits {
		open(t.Context(), t, src, split, at[split])
	}
	if n := seen.Hits(); n < 5 || n > 40 {
		t.Errorf("%d requests for 100 partitions", n)
	}
}
