package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// saved tells a source that its readers' positions were committed.
func saved(t testing.TB, src weir.Source[string], readers map[string]reader) error {
	t.Helper()
	var at []weir.Position
	for split, r := range readers {
		at = append(at, weir.Position{Source: "in", Split: split, At: r.Position()})
	}
	return src.(weir.Committed).Committed(t.Context(), at)
}

// The offsets of a checkpoint are in the group when the last reader has closed, at
// the latest; a call after that does nothing.
func TestCommittedToTheGroup(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, group := kafkatest.Topic(t, brokers, 2), kafkatest.Name(t)
	kafkatest.Produce(t, brokers, append(numbered(topic, 0, 5), record(topic, 1, "x"))...)
	src := texts(brokers, topic, kafka.Group(group))
	readers := map[string]reader{}
	for _, split := range []string{topic + "/0", topic + "/1"} {
		r, err := src.Open(t.Context(), split, nil)
		if err != nil {
			t.Fatal(err)
		}
		readers[split] = r
	}
	for range 3 {
		if _, err := readSome(t, readers[topic+"/0"], 1); err != nil {
			t.Fatal(err)
		}
		if err := saved(t, src, readers); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range readers {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	at, err := kadm.NewClient(kafkatest.Client(t, brokers)).FetchOffsets(t.Context(), group)
	if err != nil || at[topic][0].At != 3 || at[topic][1].At != 0 {
		t.Errorf("the group has %+v, error %v", at, err)
	}
	if err := saved(t, src, readers); err != nil {
		t.Error(err)
	}
	if err := src.(weir.Committed).Committed(t.Context(), []weir.Position{{Split: topic + "/0", At: []byte("17")}}); err == nil {
		t.Error("what is no position is taken for one")
	}
}

// A group that can't be committed to costs a word in the log, told by a later
// call, and no more.
func TestGroupThatCannotBeCommittedTo(t *testing.T) {
	c := kafkatest.FakeOnly(t, "the broker refuses as it is told to")
	topic, group := kafkatest.Topic(t, c.ListenAddrs(), 1), kafkatest.Name(t)
	kafkatest.Produce(t, c.ListenAddrs(), numbered(topic, 0, 5)...)
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	src := texts(c.ListenAddrs(), topic, kafka.Group(group))
	r := open(t.Context(), t, src, topic+"/0", nil)
	readers := map[string]reader{topic + "/0": r}
	if err := saved(t, src, readers); err != nil {
		t.Fatal(err)
	}
	if err := refused.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil && t.Context().Err() == nil { // the answer is on its way
		err = saved(t, src, readers)
	}
	wantError(t, err, "group "+group, "GROUP_AUTHORIZATION_FAILED")
	if got, err := readSome(t, r, 5); err != nil || len(got) != 5 {
		t.Errorf("read %v, error %v", got, err)
	}
}
