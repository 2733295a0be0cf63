package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/sys"
)

// texts is a source of the values of a topic.
func texts(brokers []string, topic string, opts ...kafka.SourceOption) weir.Source[string] {
	return kafka.Source(kafka.NewCluster(brokers), kafka.Named(topic), codec.String(), opts...)
}

func record(topic string, partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

// numbered are so many records of partition 0, with their numbers as values.
func numbered(topic string, from, to int) (recs []*kgo.Record) {
	for i := from; i < to; i++ {
		recs = append(recs, record(topic, 0, fmt.Sprint(i)))
	}
	return recs
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// heard is what a source has told its operator.
type heard struct {
	sync.Mutex
	waits, warns []string
	news         chan struct{}
}

// await waits until it was told something.
func (h *heard) await(t testing.TB, where *[]string, parts ...string) {
	t.Helper()
	late := time.After(kafkatest.Patience)
	for !h.has(where, parts...) {
		select {
		case <-h.news:
		case <-late:
			t.Fatalf("nothing was said about %q: %q", parts, *where)
		}
	}
}

func (h *heard) has(where *[]string, parts ...string) bool {
	h.Lock()
	defer h.Unlock()
	for _, w := range *where {
		if says(w, parts...) {
			return true
		}
	}
	return false
}

func says(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// listening is a context whose source has somebody to tell.
func listening(t testing.TB) (context.Context, *heard) {
	h := &heard{news: make(chan struct{}, 1)}
	add := func(to *[]string) func(string) {
		return func(what string) {
			h.Lock()
			defer h.Unlock()
			*to = append(*to, what)
			select {
			case h.news <- struct{}{}:
			default:
			}
		}
	}
	env := *sys.From(t.Context())
	env.Waiting, env.Warn = add(&h.waits), add(&h.warns)
	return sys.With(t.Context(), &env), h
}

// open opens a split and closes it with the test.
func open[T any](ctx context.Context, t testing.TB, src weir.Source[T], split string, at []byte) weir.Reader[T] {
	t.Helper()
	r, err := src.Open(ctx, split, at)
	if err != nil {
		t.Fatalf("open %s at %q: %v", split, at, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close %s: %v", split, err)
		}
	})
	return r
}

// readUntil reads until done says so, an error, or the end. done is asked after
// each Read, and told how many records it has found.
func readUntil[T any](t testing.TB, r weir.Reader[T], limit int, done func(got []T, found int) bool) (got []T, err error) {
	t.Helper()
	late := time.After(kafkatest.Patience)
	for {
		var end bool
		before := len(got)
		got, end, err = r.Read(got, limit)
		found := len(got) - before + len(r.(weir.Rejecter).Rejected())
		if end || err != nil || done(got, found) {
			return got, err
		}
		if found > 0 {
			continue
		}
		select {
		case <-r.Ready():
		case <-late:
			t.Fatalf("after %v there are %d records at %q, %+v: %v", kafkatest.Patience, len(got), r.Position(), status(r), got)
		}
	}
}

func status[T any](r weir.Reader[T]) weir.Status { return r.(weir.StatusReader).Status() }

// readIdle reads until the split is idle, as the engine asks: when a Read has found
// nothing.
func readIdle[T any](t testing.TB, r weir.Reader[T], limit int) (got []T, err error) {
	t.Helper()
	return readUntil(t, r, limit, func(_ []T, found int) bool { return found == 0 && status(r).Idle })
}

// readToEnd reads until the end.
func readToEnd[T any](t testing.TB, r weir.Reader[T], limit int) (got []T, err error) {
	t.Helper()
	return readUntil(t, r, limit, func([]T, int) bool { return false })
}

// readSome reads until there are so many records.
func readSome[T any](t testing.TB, r weir.Reader[T], n int) (got []T, err error) {
	t.Helper()
	return readUntil(t, r, n, func(got []T, _ int) bool { return len(got) >= n })
}

// wantError wants an error that says all of the parts.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q doesn't say %q", err, p)
		}
	}
}

// addPartitions gives a topic more partitions, and waits until all have leaders.
func addPartitions(t testing.TB, brokers []string, topic string, to int) {
	t.Helper()
	adm := kadm.NewClient(kafkatest.Client(t, brokers))
	resp, err := adm.UpdatePartitions(t.Context(), to, topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	for led := 0; led < to; {
		topics, err := adm.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		led = 0
		for _, p := range topics[topic].Partitions {
			if p.Err == nil && p.Leader >= 0 {
				led++
			}
		}
	}
}

// deleteUpTo deletes what is before an offset of partition 0, as retention does.
func deleteUpTo(t testing.TB, brokers []string, topic string, at int64) {
	t.Helper()
	deletePartitionUpTo(t, brokers, topic, 0, at)
}

func deletePartitionUpTo(t testing.TB, brokers []string, topic string, partition int32, at int64) {
	t.Helper()
	adm := kadm.NewClient(kafkatest.Client(t, brokers))
	var upTo kadm.Offsets
	upTo.AddOffset(topic, partition, at, -1)
	resp, err := adm.DeleteRecords(t.Context(), upTo)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recreate deletes a topic and makes it again, with other records.
func recreate(t testing.TB, brokers []string, topic string, recs ...*kgo.Record) {
	t.Helper()
	adm := kadm.NewClient(kafkatest.Client(t, brokers))
	if resp, err := adm.DeleteTopics(t.Context(), topic); err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	for {
		resp, err := adm.CreateTopic(t.Context(), 1, -1, nil, topic)
		if err == nil && resp.Err == nil {
			break
		}
		if t.Context().Err() != nil { // until the broker has forgotten the old one
			t.Fatal(err)
		}
	}
	for {
		topics, err := adm.ListTopics(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if p := topics[topic].Partitions[0]; len(topics[topic].Partitions) == 1 && p.Err == nil && p.Leader >= 0 {
			break
		}
	}
	kafkatest.Produce(t, brokers, recs...)
}

func deleteTopic(t testing.TB, brokers []string, topic string) {
	t.Helper()
	resp, err := kadm.NewClient(kafkatest.Client(t, brokers)).DeleteTopics(t.Context(), topic)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func text() codec.Codec[string] { return codec.String() }

type reader = weir.Reader[string]
