package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// whole puts all of a message into words.
func whole(m *kafka.Message, rec *string) error {
	*rec = fmt.Sprintf("%d/%d %s %s %s", m.Partition, m.Offset, quoted(m.Key), quoted(m.Value), m.Time.Format(time.RFC3339Nano))
	for _, h := range m.Headers {
		*rec += fmt.Sprintf(" %s=%s", h.Key, quoted(h.Value))
	}
	if strings.Contains(string(m.Value), "panic") {
		panic("as asked")
	}
	return nil
}

func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func TestWholeMessages(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	at := time.Date(2026, 7, 1, 12, 0, 0, 123_456_789, time.FixedZone("", 3600))
	kafkatest.Produce(t, brokers,
		&kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "", Value: []byte{}}}},
		&kgo.Record{Topic: topic, Timestamp: time.UnixMilli(-1)},
		&kgo.Record{Topic: topic, Key: []byte{}, Value: []byte{}, Timestamp: at.Add(time.Millisecond)},
	)
	src := kafka.SourceOf(kafka.NewCluster(brokers), kafka.Named(topic), whole, kafka.Bounded())
	got, err := readToEnd(t, open(t.Context(), t, src, topic+"/0", nil), 2)
	want := []string{
		`0/0 "k" "v" 2026-07-01T11:00:00.123Z a="1" a=null =""`,
		`0/1 null null 0001-01-01T00:00:00Z`,
		`0/2 "" "" 2026-07-01T11:00:00.124Z`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read\n%q, error %v; want\n%q", got, err, want)
	}
}

// poisons are messages that some declarations don't take.
func poisons(topic string) []*kgo.Record {
	at := time.UnixMilli(1_700_000_000_000)
	return []*kgo.Record{
		{Topic: topic, Key: []byte("k"), Value: []byte(`"good"`), Timestamp: at},
		{Topic: topic, Value: []byte(`"no key"`), Timestamp: at},
		{Topic: topic, Key: []byte{}, Value: []byte(`"empty key"`), Timestamp: at},
		{Topic: topic, Key: []byte("k"), Timestamp: at},
		{Topic: topic, Key: []byte("k"), Value: []byte{}, Timestamp: at},
		{Topic: topic, Key: []byte("k"), Value: []byte(`"no time"`), Timestamp: time.UnixMilli(-1)},
		{Topic: topic, Key: []byte("k"), Value: []byte(`"long ` + strings.Repeat("x", 100) + `"`), Timestamp: at},
		{Topic: topic, Key: []byte(strings.Repeat("k", 99)), Value: []byte(`"long key"`), Timestamp: at},
		{Topic: topic, Key: []byte("k"), Value: []byte(`bad`), Timestamp: at},
		{Topic: topic, Value: []byte(`"panic"`), Timestamp: time.UnixMilli(-1)},
		{Topic: topic, Key: []byte("k"), Value: []byte(`"last"`), Timestamp: at},
	}
}

// Each declaration takes what it can: the rest is set aside, and its position
// passed, or stops the reader in front of it, named.
func TestPoison(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1, "retention.ms=-1")
	recs := poisons(topic)
	produceBatched(t, brokers, 4, recs)
	c, named, limit := kafka.NewCluster(brokers), kafka.Named(topic), kafka.MaxMessage(100)
	json := codec.JSON[string]()
	panics := func(m *kafka.Message, rec *string) error {
		if strings.Contains(string(m.Value), "panic") {
			panic("as asked")
		}
		*rec = "taken"
		return nil
	}
	for _, tt := range []struct {
		name string
		src  weir.Source[string]
		bad  map[int64]string
	}{
		{"value", kafka.Source(c, named, json, limit), map[int64]string{3: "no value", 4: "breaks off", 6: "108 bytes", 7: "109 bytes", 8: "not valid JSON"}},
		{"value, key, time", kafka.Source(c, named, json, limit, kafka.Require(kafka.Key, kafka.Timestamp)),
			map[int64]string{1: "no key", 3: "no value", 4: "breaks off", 5: "no timestamp", 6: "108 bytes", 7: "109 bytes", 8: "not valid JSON", 9: "no key, timestamp"}},
		{"all of it", kafka.SourceOf(c, named, panics), map[int64]string{9: "the decoder panicked: as asked"}},
		{"all of it, with a value", kafka.SourceOf(c, named, panics, kafka.Require(kafka.Value)), map[int64]string{3: "no value", 9: "panicked"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := open(t.Context(), t, tt.src, topic+"/0", nil)
			r.(weir.Rejecter).SetAside()
			var bad []weir.Rejected
			var marks []int64
			_, err := readUntil(t, r, 3, func([]string, int) bool {
				for _, rj := range r.(weir.Rejecter).Rejected() {
					rj.Raw = slices.Clone(rj.Raw)
					bad = append(bad, rj)
				}
				marks = append(marks, r.(weir.Marker).Marks()...)
				return status(r).Lag == 0
			})
			if err != nil || len(bad) != len(tt.bad) || len(marks)+len(bad) != len(recs) {
				t.Fatalf("%d records, %+v set aside, error %v", len(marks), bad, err)
			}
			for _, rj := range bad {
				if what := tt.bad[rj.Mark]; what == "" || !strings.Contains(rj.Err.Error(), what) || string(rj.Raw) != string(recs[rj.Mark].Value) {
					t.Errorf("offset %d: %q, %v; want %q, %s", rj.Mark, rj.Raw, rj.Err, recs[rj.Mark].Value, what)
				}
				if long := errors.Is(rj.Err, weir.ErrOversized); long != (rj.Mark == 6 || rj.Mark == 7) {
					t.Errorf("offset %d: %v; oversized: %t", rj.Mark, rj.Err, long)
				}
			}
			checkStops(t, tt.src, topic, tt.bad, len(recs))
		})
	}
}

// checkStops reads without setting anything aside, and goes on behind each message
// that stops it.
func checkStops(t *testing.T, src weir.Source[string], topic string, bad map[int64]string, all int) {
	t.Helper()
	var at []byte
	for range all {
		r := open(t.Context(), t, src, topic+"/0", at)
		_, err := readUntil(t, r, 2, func([]string, int) bool { return status(r).Lag == 0 })
		if err == nil {
			if len(bad) > 0 {
				t.Errorf("nothing has stopped it at %v", bad)
			}
			return
		}
		me, ok := errors.AsType[*kafka.MessageError](err)
		if !ok || bad[me.Offset] == "" || me.Topic != topic || me.Partition != 0 {
			t.Fatalf("it stops with %v", err)
		}
		wantError(t, err, fmt.Sprintf("topic %s, partition 0, offset %d: ", topic, me.Offset), bad[me.Offset], "dead letters")
		if strings.Contains(bad[me.Offset], "panicked") != (len(me.Stack) > 0) {
			t.Errorf("offset %d: the stack is %q", me.Offset, me.Stack)
		}
		delete(bad, me.Offset)
		p := string(r.Position())
		colon := strings.LastIndex(p, ":") + 1
		if offset, _, _ := strings.Cut(p[colon:], "@"); offset != fmt.Sprint(me.Offset) {
			t.Errorf("in front of offset %d it stands at %q", me.Offset, p)
		}
		at = fmt.Appendf(nil, "%s%d", p[:colon], me.Offset+1)
	}
}

func TestLocateAndReread(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 2)
	id := kafkatest.Name(t)
	kafkatest.ProduceIn(t, brokers, id, record(topic, 1, "aborted"))(kgo.TryAbort)
	kafkatest.Produce(t, brokers, record(topic, 1, "two"), record(topic, 1, strings.Repeat("x", weir.MaxRejected)[:900_000]))
	src := texts(brokers, topic)
	if got := src.(weir.Locator).Locate(topic+"/1", 17); got != "topic "+topic+", partition 1, offset 17" {
		t.Error(got)
	}
	again := src.(weir.Rereader)
	for mark, want := range map[int64]string{0: "aborted", 2: "two", 3: strings.Repeat("x", 900_000)} {
		if got, err := again.Reread(topic+"/1", mark); err != nil || string(got) != want {
			t.Errorf("offset %d: %.40q, error %v", mark, got, err)
		}
	}
	for _, split := range []string{topic + "/1", topic + "/0", topic + "/2", "nothing"} {
		if got, err := again.Reread(split, 4); err == nil {
			t.Errorf("%s, offset 4: %q and no error", split, got)
		}
	}
	deletePartitionUpTo(t, brokers, topic, 1, 3)
	if _, err := again.Reread(topic+"/1", 2); err == nil || !strings.Contains(err.Error(), "retention has deleted it") {
		t.Errorf("after retention: %v", err)
	}
}
