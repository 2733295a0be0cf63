package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// stored is a message as a reader of the topic has it.
type stored struct {
	Partition  int32
	Key, Value string
	NoKey      bool
	Tombstone  bool
	Headers    []string
	Millis     int64
}

func (s *scene) stored(topic string) []stored {
	s.t.Helper()
	s.decided()
	var out []stored
	for _, r := range kafkatest.ReadCommitted(s.t, s.brokers, topic) {
		out = append(out, storedAs(r))
	}
	return out
}

func storedAs(r *kgo.Record) stored {
	m := stored{Partition: r.Partition, Key: string(r.Key), Value: string(r.Value), NoKey: r.Key == nil, Tombstone: r.Value == nil, Millis: r.Timestamp.UnixMilli()}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, fmt.Sprintf("%s=%q %v", h.Key, h.Value, h.Value == nil))
	}
	return m
}

// All parts of a message arrive as its encoder has set them.
func TestMessage(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	headers := []Header{{"a", []byte("1")}, {"a", nil}, {"", []byte{}}}
	for name, c := range map[string]struct {
		encode Encoder[int]
		want   stored
	}{
		"appended": {func(_ *int, m *Message) error {
			m.Key, m.Value = append(m.Key, "k"...), append(m.Value, "v"...)
			m.Headers, m.Time, m.Partition = append(m.Headers, headers...), at, 1
			return nil
		}, stored{Partition: 1, Key: "k", Value: "v", Headers: []string{`a="1" false`, `a="" true`, `="" false`}, Millis: at.UnixMilli()}},
		"set": {func(_ *int, m *Message) error {
			m.Key, m.Value, m.Headers, m.Time, m.Partition = []byte("k"), []byte("v"), headers, at, 0
			return nil
		}, stored{Key: "k", Value: "v", Headers: []string{`a="1" false`, `a="" true`, `="" false`}, Millis: at.UnixMilli()}},
		"nothing": {func(_ *int, m *Message) error { m.Time, m.Partition = at, 2; return nil }, stored{Partition: 2, NoKey: true, Millis: at.UnixMilli()}},
		"tombstone": {func(_ *int, m *Message) error {
			m.Key, m.Value, m.Time, m.Partition = append(m.Key, "k"...), nil, at, 2
			return nil
		}, stored{Partition: 2, Key: "k", Tombstone: true, Millis: at.UnixMilli()}},
		"empty key": {func(_ *int, m *Message) error { m.Key, m.Time, m.Partition = []byte{}, at, 2; return nil }, stored{Partition: 2, Millis: at.UnixMilli()}},
		"empty key out of something": {func(_ *int, m *Message) error {
			m.Key, m.Time, m.Partition = []byte("xyz")[1:1], at, 2
			return nil
		}, stored{Partition: 2, Millis: at.UnixMilli()}},
		"no key": {func(_ *int, m *Message) error { m.Key, m.Time, m.Partition = nil, at, 2; return nil }, stored{Partition: 2, NoKey: true, Millis: at.UnixMilli()}},
		"empty append": {func(_ *int, m *Message) error {
			m.Key, m.Time, m.Partition = append(m.Key, ""...), at, 2
			return nil
		}, stored{Partition: 2, NoKey: true, Millis: at.UnixMilli()}},
		"no time":   {func(_ *int, m *Message) error { m.Time, m.Partition = time.Time{}, 2; return nil }, stored{Partition: 2, NoKey: true, Millis: -1}},
		"the epoch": {func(_ *int, m *Message) error { m.Time, m.Partition = time.UnixMilli(0), 2; return nil }, stored{Partition: 2, NoKey: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, 3)
			l := begin(t, s, Sink(s.cluster(), s.topic, c.encode), 1)
			check(t, l.run(t.Context(), nil, 1, 1))
			if diff := cmp.Diff([]stored{c.want, c.want}, s.stored(s.topic)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Messages go to the topic that they name, if the sink has declared it.
func TestTopicPerRecord(t *testing.T) {
	s := stage(t, 1)
	more := kafkatest.Topic(t, s.brokers, 1)
	l := begin(t, s, s.sink(AlsoTo(more)), 1)
	to := func(topic, key string) Message { m := message(key, "v"); m.Topic = topic; return m }
	check(t, l.write(to("", "1"), to(more, "2"), to(s.topic, "3"), to(more, "4")))
	rejected(t, l.write(to(more, "5"), to("elsewhere", "6"), to("", "7")), 1, `"elsewhere"`, "AlsoTo")
	check(t, l.run(t.Context(), nil, to("", "7")))
	equal(t, "the sink's own", s.read(s.topic), "1=v", "3=v", "7=v")
	equal(t, "the other", s.read(more), "2=v", "4=v", "5=v")
}

// rejected checks that err is about the record at i alone.
func rejected(t *testing.T, err error, i int, texts ...string) {
	t.Helper()
	r, ok := errors.AsType[weir.Rejection](err)
	if !ok || r.Rejected() != i {
		t.Fatalf("got %v, want a rejection of record %d", err, i)
	}
	says(t, err, weir.ErrInput, texts...)
}

// What the brokers would refuse is rejected before it is sent, and nothing else is.
func TestRejected(t *testing.T) {
	s := stage(t, 2, "max.message.bytes=2000", "message.timestamp.after.max.ms=60000", "message.timestamp.before.max.ms=3600000")
	compacted := kafkatest.Topic(t, s.brokers, 1, "cleanup.policy=compact", "message.timestamp.type=LogAppendTime")
	appendTime := kafkatest.Topic(t, s.brokers, 1, "message.timestamp.type=LogAppendTime", "message.timestamp.after.max.ms=60000")
	l := begin(t, s, s.sink(AlsoTo(compacted, appendTime)), 1)
	now := time.Now()
	sized := func(n int) Message { // alone in a batch it is as long as the client counts, to the byte
		m := message("k", "")
		for batchOf(&m) < n {
			m.Value = append(m.Value, make([]byte, max(1, (n-batchOf(&m))/2))...)
		}
		return m
	}
	change := func(f func(*Message)) Message { m := message("k", "v"); f(&m); return m }
	for name, c := range map[string]struct {
		m    Message
		want []string // nil: it is taken
	}{
		"as long as can be":        {sized(2000), nil},
		"too long":                 {sized(2001), []string{"2001 bytes", "takes 2000", "max.message.bytes", s.topic}},
		"too long by a header":     {change(func(m *Message) { m.Headers = []Header{{"h", make([]byte, 2000)}} }), []string{"max.message.bytes"}},
		"much too long":            {sized(5 << 20), []string{"max.message.bytes"}},
		"partition":                {change(func(m *Message) { m.Partition = 1 }), nil},
		"no such partition":        {change(func(m *Message) { m.Partition = 2 }), []string{"partition 2", "had 2"}},
		"soon":                     {change(func(m *Message) { m.Time = now.Add(50 * time.Second) }), nil},
		"too far ahead":            {change(func(m *Message) { m.Time = now.Add(time.Hour) }), []string{"message.timestamp.after.max.ms", "1m0s"}},
		"a while ago":              {change(func(m *Message) { m.Time = now.Add(-50 * time.Minute) }), nil},
		"too long ago":             {change(func(m *Message) { m.Time = now.Add(-2 * time.Hour) }), []string{"message.timestamp.before.max.ms", "1h0m0s"}},
		"before 1970":              {change(func(m *Message) { m.Time = time.UnixMilli(-1) }), []string{"before 1970"}},
		"without a time":           {change(func(m *Message) { m.Time = time.Time{} }), nil},
		"no key, compacted":        {change(func(m *Message) { m.Topic, m.Key = compacted, nil }), []string{"no key", compacted, "compacted"}},
		"empty key, compacted":     {change(func(m *Message) { m.Topic, m.Key = compacted, []byte{} }), nil},
		"tombstone, compacted":     {change(func(m *Message) { m.Topic, m.Value = compacted, nil }), nil},
		"tombstone, not compacted": {change(func(m *Message) { m.Value = nil }), nil},
		"brokers set the time":     {change(func(m *Message) { m.Topic, m.Time = appendTime, now.Add(time.Hour) }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := l.write(message("before", "v"), c.m, message("behind", "v"))
			if c.want == nil {
				check(t, err)
				return
			}
			rejected(t, err, 1, c.want...)
			if strings.Contains(name, "long") && strings.Contains(name, "too long") && c.m.Time.After(now.Add(-time.Hour)) {
				says(t, err, weir.ErrOversized)
			}
		})
	}
	// What was taken is really written: the brokers agree with us.
	check(t, l.run(t.Context(), nil))
	got := s.read(s.topic)
	if n := len(slices.DeleteFunc(got, func(r string) bool { return !strings.HasPrefix(r, "before=") })); n != 17 {
		t.Errorf("%d of the 17 records before a case are there", n)
	}
}

// The record that is just too long for us would have been taken by the brokers at
// best: at most the 5 bytes that the client adds are given away.
func TestLongestMessage(t *testing.T) {
	s := stage(t, 1, "max.message.bytes=3000")
	l := begin(t, s, s.sink(Compression(Uncompressed)), 1)
	m := message("key", strings.Repeat("x", 3000))
	for !errors.Is(l.write(m), nil) {
		m.Value = m.Value[1:]
	}
	check(t, l.run(t.Context(), nil))
	raw := kafkatest.Client(t, s.brokers, kgo.ProducerBatchMaxBytes(1<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	longer := func(n int) error {
		return raw.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Key: m.Key, Value: append(bytes.Clone(m.Value), make([]byte, n)...)}).FirstErr()
	}
	check(t, longer(5))
	if err := longer(6); err == nil {
		t.Error("a message 6 bytes longer than the longest that the sink takes is taken by the broker, too")
	}
}

// An encoder that fails or panics rejects its record and leaves no trace of it.
func TestEncoderFails(t *testing.T) {
	s := stage(t, 1)
	broken := errors.New("this one can't be encoded")
	encode := func(rec *string, m *Message) error {
		m.Key = append(m.Key, *rec...)
		m.Value = append(m.Value, strings.Repeat("half-written ", 100)...)
		switch *rec {
		case "error":
			return broken
		case "panic":
			panic("no such field")
		}
		m.Value = append(m.Value[:0], 'v')
		return nil
	}
	l := begin(t, s, Sink(s.cluster(), s.topic, encode), 1)
	rejected(t, l.write("a", "error", "b"), 1, broken.Error())
	err := l.write("b", "c", "panic", "d")
	rejected(t, err, 2, "no such field")
	if p, ok := errors.AsType[*weir.PanicError](err); !ok || !bytes.Contains(p.Stack, []byte("TestEncoderFails")) {
		t.Errorf("%v has no stack of the encoder", err)
	}
	check(t, l.run(t.Context(), nil, "d"))
	equal(t, "topic", s.read(s.topic), "a=v", "b=v", "c=v", "d=v")
}

// A partitioner is asked about messages without a partition, and its mistakes reject
// the message.
func TestPartitioner(t *testing.T) {
	s := stage(t, 4)
	choose := func(m *Message, n int32) int32 {
		switch string(m.Key) {
		case "last":
			return n - 1
		case "beyond":
			return n
		case "panic":
			panic("not this one")
		}
		return -1
	}
	l := begin(t, s, s.sink(Partitioner(choose)), 1)
	two := message("last", "by hand")
	two.Partition = 2
	check(t, l.write(message("last", "v"), two, message("other", "v")))
	rejected(t, l.write(message("beyond", "v")), 0, "partition 4", "had 4")
	rejected(t, l.write(message("panic", "v")), 0, "not this one")
	check(t, l.run(t.Context(), nil))
	at := map[string]int32{}
	for _, m := range s.stored(s.topic) {
		at[m.Key+"="+m.Value] = m.Partition
	}
	raw := kafkatest.Client(t, s.brokers) // Kafka's own clients agree on where a key belongs
	r := &kgo.Record{Topic: s.topic, Key: []byte("other")}
	check(t, raw.ProduceSync(t.Context(), r).FirstErr())
	if diff := cmp.Diff(map[string]int32{"last=v": 3, "last=by hand": 2, "other=v": r.Partition}, at); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without an encoder's word a message is stamped with the present, or with the event
// time if that was asked for.
func TestStamp(t *testing.T) {
	s := stage(t, 1)
	encode := func(rec *int, m *Message) error { m.Value = fmt.Appendf(m.Value, "%d", *rec); return nil }
	event := time.UnixMilli(1_234_567_890_123)
	for n, opts := range [][]SinkOption{nil, {StampEventTime()}} {
		began := time.Now().UnixMilli()
		l := begin(t, s, Sink(s.cluster(), s.topic, encode, opts...), int64(n+1))
		check(t, l.w.Write([]int{2 * n, 2*n + 1}, []int64{event.UnixNano(), 0}))
		check(t, l.run(t.Context(), nil))
		got := s.stored(s.topic)[2*n:]
		switch {
		case n == 0 && (got[0].Millis < began || got[1].Millis < began || got[1].Millis > time.Now().UnixMilli()):
			t.Errorf("stamped %d and %d, want the present", got[0].Millis, got[1].Millis)
		case n == 1 && (got[0].Millis != event.UnixMilli() || got[1].Millis != -1):
			t.Errorf("stamped %d and %d, want the event time %d and none", got[0].Millis, got[1].Millis, event.UnixMilli())
		}
	}
}

// Messages of all sizes, with memory that the caller uses again at once, arrive as
// they were.
func TestManySizes(t *testing.T) {
	s := stage(t, 3)
	encode := func(rec *[]byte, m *Message) error {
		b := *rec
		switch n := len(b); n % 5 {
		case 0: // all of it is the caller's
			m.Key, m.Value = b[:min(n, 8)], b
			m.Headers = append(m.Headers, Header{"part", b[n/2:]})
		case 1: // appended
			m.Key, m.Value = append(m.Key, b[:min(n, 8)]...), append(m.Value, b...)
			m.Headers = append(m.Headers, Header{"part", m.Value[n/2:]})
		case 2: // a slice of what was appended
			m.Key, m.Value = append(m.Key, b[:min(n, 8)]...), append(append(m.Value, '!'), b...)[1:]
			m.Headers = []Header{{"part", m.Value[n/2:]}}
		case 3: // key and value are one
			m.Value = append(m.Value, b...)
			m.Key = m.Value[:min(n, 8)]
			m.Headers = append(m.Headers, Header{"part", m.Value[n/2:]}, Header{"whole", m.Value})
		case 4: // a header lies where the value was to be
			m.Headers = append(m.Headers, Header{"part", append(m.Value, b[n/2:]...)})
			m.Key, m.Value = append(m.Key, b[:min(n, 8)]...), b
		}
		return nil
	}
	l := begin(t, s, Sink(s.cluster(), s.topic, encode), 1)
	want := map[string]int{}
	scratch := make([]byte, 300_000)
	n := 0
	for epoch := range 3 {
		for i := range 700 {
			size := (i * 13) % 400
			if i%50 == 7 {
				size = 1000 * (i + epoch)
				size %= 300_000
			}
			rec := scratch[:size]
			for j := range rec {
				rec[j] = byte('a' + (n+j)%26)
			}
			want[string(rec)]++
			n++
			check(t, l.write(rec))
			clear(rec)
		}
		check(t, l.run(t.Context(), nil))
	}
	s.decided()
	got := map[string]int{}
	for _, m := range kafkatest.ReadCommitted(t, s.brokers, s.topic) {
		v := string(m.Value)
		got[v]++
		if string(m.Key) != v[:min(len(v), 8)] || string(m.Headers[0].Value) != v[len(v)/2:] {
			t.Fatalf("offset %d: key %.20q, value %.20q... of %d bytes, header %.20q don't belong together", m.Offset, m.Key, v, len(v), m.Headers[0].Value)
		}
	}
	if !maps.Equal(want, got) {
		t.Errorf("%d different messages were written, and %d are there", len(want), len(got))
	}
}

// TestSlabs: a writer uses its slabs again, once all of their records are answered.
func TestSlabs(t *testing.T) {
	s := stage(t, 1)
	l := begin(t, s, s.sink(), 1)
	for range 20 {
		for range 4 {
			check(t, l.write(slices.Repeat([]Message{message("k", "v")}, slabLen/2)...))
		}
		check(t, l.run(t.Context(), nil))
	}
	w := l.w.(*writer[Message])
	w.slabs.mu.Lock()
	defer w.slabs.mu.Unlock()
	if n := len(w.slabs.free); n < 1 || n > 3 {
		t.Errorf("%d slabs are free after 20 epochs of 2 slabs each, want 2 or 3", n)
	}
}
