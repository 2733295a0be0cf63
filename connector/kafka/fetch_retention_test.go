package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/sys"

	"context"

	"github.com/weirstream/weir/codec"
)

func TestRetentionOf(t *testing.T) {
	for _, tt := range []struct {
		configs string
		time    time.Duration
		bytes   int64
	}{
		{"cleanup.policy=delete retention.ms=604800000 retention.bytes=-1", 168 * time.Hour, 0},
		{"cleanup.policy=delete retention.ms=-1 retention.bytes=1000", 0, 1000},
		{"cleanup.policy=compact retention.ms=604800000 retention.bytes=1000", 0, 0},
		{"cleanup.policy=compact,delete retention.ms=1000", time.Second, 0},
		{"retention.ms=9223372036854775807", 0, 0},
		{"retention.ms=0", 0, 0},
		{"retention.ms=soon retention.bytes=much", 0, 0},
		{"", 0, 0},
	} {
		var rc kadm.ResourceConfig
		for _, c := range strings.Fields(tt.configs) {
			key, value, _ := strings.Cut(c, "=")
			rc.Configs = append(rc.Configs, kadm.Config{Key: key, Value: &value})
		}
		if d, b := retentionOf(rc); d != tt.time || b != tt.bytes {
			t.Errorf("%s: %v and %d bytes; want %v and %d", tt.configs, d, b, tt.time, tt.bytes)
		}
	}
}

func TestDanger(t *testing.T) {
	now := time.Date(2026, 1, 8, 0, 0, 0, 0, time.UTC)
	written := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	week := 7 * 24 * time.Hour
	for _, tt := range []struct {
		name       string
		at, newest int64
		start, end int64
		keep       keep
		want       danger
		says       string
	}{
		{"young", 10, written(time.Hour), 0, 20, keep{time: week}, safe, ""},
		{"a quarter left", 10, written(week * 3 / 4), 0, 20, keep{time: week}, safe, ""},
		{"less than a fifth left", 10, written(week * 5 / 6), 0, 20, keep{time: week}, near, "2026-01-09T04:00:00Z"},
		{"almost nothing left", 10, written(week - time.Hour), 0, 20, keep{time: week}, imminent, "offset 10"},
		{"over", 10, written(week + time.Hour), 0, 20, keep{time: week}, imminent, "offset 10"},
		{"all is read", 20, -1, 0, 20, keep{time: week}, safe, ""},
		{"all is read, long ago", 20, written(week), 0, 20, keep{time: week}, safe, ""},
		{"for ever", 10, written(100 * week), 0, 20, keep{}, safe, ""},
		{"no timestamp", 10, -1, 0, 20, keep{time: week}, safe, ""},
		{"passed", 10, written(time.Hour), 11, 20, keep{time: week}, lost, "starts at 11"},
		{"large, and far from its start", 60, -1, 10, 110, keep{bytes: 1000}, safe, ""},
		{"large, and near its start", 25, -1, 10, 110, keep{bytes: 1000}, near, "retention.bytes=1000"},
		{"large, and at its start", 12, -1, 10, 110, keep{bytes: 1000}, imminent, "offset 12"},
		{"not full yet", 2, -1, 0, 110, keep{bytes: 1000}, safe, ""},
	} {
		tt.keep.marks = []mark{{tt.at, tt.newest}}
		tap := &tap{start: tt.start, end: tt.end, keep: tt.keep}
		d, says := tap.judge(now)
		if d != tt.want || !strings.Contains(says, tt.says) || (says == "") != (d == safe) {
			t.Errorf("%s: %d, %q; want %d, %q", tt.name, d, says, tt.want, tt.says)
		}
	}
}

// A job that falls behind is warned of, once a step, and its status tells until
// when what follows its checkpoint is kept.
func TestRetentionIsTold(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1, fmt.Sprintf("retention.ms=%d", (1000*time.Hour).Milliseconds()))
	now := time.Now().Truncate(time.Millisecond).UTC()
	written := func(ago time.Duration) *kgo.Record {
		return &kgo.Record{Topic: topic, Value: []byte("x"), Timestamp: now.Add(-ago)}
	}
	for _, ago := range []time.Duration{900 * time.Hour, 400 * time.Hour, time.Hour} {
		kafkatest.Produce(t, brokers, written(ago)) // each a batch
	}
	warned := make(chan string, 100)
	env := *sys.From(t.Context())
	env.Warn = func(what string) { warned <- what }
	var ctx context.Context = sys.With(t.Context(), &env)
	src := Source(NewCluster(brokers), Named(topic), codec.String(), Discover(10*time.Millisecond))
	r, err := src.Open(ctx, topic+"/0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	begin := r.Position()
	expires := func() time.Time { return r.(weir.StatusReader).Status().Expires }
	read := func(n int) {
		t.Helper()
		for n > 0 {
			got, _, err := r.Read(nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			if n -= len(got); len(got) == 0 {
				<-r.Ready()
			}
		}
	}
	committed := func(at []byte) {
		t.Helper()
		if err := src.(weir.Committed).Committed(ctx, []weir.Position{{Split: topic + "/0", At: at}}); err != nil {
			t.Fatal(err)
		}
	}
	read(1)
	if what := <-warned; !strings.Contains(what, "topic "+topic+", partition 0") || !strings.Contains(what, "offset 0") || !strings.Contains(what, now.Add(100*time.Hour).Format(time.RFC3339)) {
		t.Errorf("it was warned: %s", what)
	}
	if got, want := expires(), now.Add(100*time.Hour); !got.Equal(want) {
		t.Errorf("what follows the checkpoint is kept until %v, want %v", got, want)
	}
	second := r.Position()
	read(2)
	last := r.Position()
	if got, want := expires(), now.Add(100*time.Hour); !got.Equal(want) {
		t.Errorf("read, and not committed: until %v, want %v", got, want)
	}
	committed(second)
	if got, want := expires(), now.Add(600*time.Hour); !got.Equal(want) {
		t.Errorf("after a checkpoint: until %v, want %v", got, want)
	}
	committed(begin) // a call may be repeated
	committed(last)
	if got := expires(); !got.IsZero() {
		t.Errorf("with nothing unread: until %v", got)
	}
	kafkatest.Produce(t, brokers, written(500*time.Hour))
	for expires().IsZero() {
		<-r.Ready()
	}
	if got, want := expires(), now.Add(500*time.Hour); !got.Equal(want) {
		t.Errorf("with a message that has come since: until %v, want %v", got, want)
	}
	if len(warned) > 0 {
		t.Errorf("there was a second warning: %s", <-warned)
	}
}
