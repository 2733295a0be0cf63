package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// scene is a job's place on a cluster: names that no other test has.
type scene struct {
	t       *testing.T
	brokers []string
	job     weir.JobID
	topic   string
	cl      *kgo.Client // of somebody else
}

// stage makes a scene with a topic of so many partitions; 0: it is left to the sink.
func stage(t *testing.T, partitions int, settings ...string) *scene {
	t.Helper()
	s := &scene{t: t, brokers: kafkatest.Brokers(t), job: weir.JobID{Name: kafkatest.Name(t), UUID: "run-1"}}
	s.topic = s.job.Name + ".out"
	s.cl = kafkatest.Client(t, s.brokers)
	if partitions > 0 {
		kafkatest.CreateTopic(t, s.brokers, s.topic, partitions, settings...)
	}
	return s
}

func (s *scene) cluster(opts ...ClusterOption) *Cluster { return NewCluster(s.brokers, opts...) }

func (s *scene) control() string { return s.job.Name + controlSuffix }

// copies is an encoder that takes messages as they are.
func copies(rec *Message, m *Message) error {
	*m = *rec
	return nil
}

func (s *scene) sink(opts ...SinkOption) weir.Sink[Message] {
	return Sink(s.cluster(), s.topic, copies, append([]SinkOption{Linger(0)}, opts...)...)
}

// message is one with a key and a value, the present as its time, in the partition
// of its key.
func message(key, value string) Message {
	return Message{Key: []byte(key), Value: []byte(value), Partition: -1, Time: time.Now()}
}

// life is one incarnation of a job with one sink and one task.
type life[T any] struct {
	*scene
	by     weir.Incarnation
	p      weir.Participant
	w      weir.Writer[T]
	parent weir.CheckpointID
	epoch  int64 // committed last
}

// nonce is that of an incarnation in these tests.
func nonce(n int64) string { return fmt.Sprintf("nonce-%d", n) }

// try starts incarnation n, from nothing if it is the first.
func try[T any](ctx context.Context, s *scene, sink weir.Sink[T], n int64, change ...func(*weir.Fence)) (*life[T], error) {
	p, err := sink.Connect(ctx, []string{"out"})
	if err != nil {
		return nil, err
	}
	l := &life[T]{scene: s, by: weir.Incarnation{Number: n, Nonce: nonce(n)}, p: p}
	s.t.Cleanup(func() { check(s.t, p.Close()) })
	f := weir.Fence{Job: s.job, By: l.by, Create: n == 1}
	for _, c := range change {
		c(&f)
	}
	ledgers, err := p.Fence(ctx, f)
	if err != nil {
		return l, err
	}
	if !ledgers["out"].Found && sink.Spec().Kind == weir.Transactional {
		return l, errNoLedger
	}
	o, err := sink.Open(ctx, p, "out")
	if err != nil {
		return l, err
	}
	l.w, l.parent, l.epoch = o.Writer(0), ledgers["out"].ID, ledgers["out"].ID.Slot-1
	if l.parent.IsZero() {
		return l, l.commit(ctx, 0, nil)
	}
	return l, nil
}

var errNoLedger = errors.New("there is no ledger")

func begin[T any](t *testing.T, s *scene, sink weir.Sink[T], n int64, change ...func(*weir.Fence)) *life[T] {
	t.Helper()
	l, err := try(t.Context(), s, sink, n, change...)
	check(t, err)
	return l
}

// next is the checkpoint of an epoch.
func (l *life[T]) next(epoch int64, at []weir.Position) weir.Commit {
	id := weir.CheckpointID{Slot: epoch + 1, Sum: sha256.Sum256(fmt.Appendf(nil, "%d %s", epoch, l.by.Nonce))}
	return weir.Commit{Epoch: epoch, ID: id, Parent: l.parent, Positions: at, Empty: epoch == 0}
}

func (l *life[T]) commit(ctx context.Context, epoch int64, at []weir.Position) error {
	c := l.next(epoch, at)
	if err := l.p.Commit(ctx, c); err != nil {
		return err
	}
	l.parent, l.epoch = c.ID, epoch
	return nil
}

// write hands records over.
func (l *life[T]) write(recs ...T) error { return l.w.Write(recs, make([]int64, len(recs))) }

// seal ends the epoch, and prepares it.
func (l *life[T]) seal(ctx context.Context) error {
	if err := l.w.Seal(l.epoch + 1); err != nil {
		return err
	}
	_, err := l.p.Prepare(ctx, l.epoch+1)
	return err
}

// run is one epoch.
func (l *life[T]) run(ctx context.Context, at []weir.Position, recs ...T) error {
	if err := l.write(recs...); err != nil {
		return err
	}
	if err := l.seal(ctx); err != nil {
		return err
	}
	if err := l.commit(ctx, l.epoch+1, at); err != nil {
		return err
	}
	if v, ok := l.p.(weir.Revealer); ok {
		return v.Visible(ctx, l.parent)
	}
	return nil
}

// core is what is behind the participant.
func (l *life[T]) core() *participant { return l.p.(*participant) }

// decided waits until the markers of what was decided are written.
func (s *scene) decided() {
	s.t.Helper()
	ids := (&Cluster{}).txids(s.job.Name)
	check(s.t, decided(s.t.Context(), kadm.NewClient(s.cl), ids[:]...))
}

// read are the topic's committed messages, as KEY=VALUE by partition and offset, once
// all that was decided is visible.
func (s *scene) read(topic string) []string {
	s.t.Helper()
	s.decided()
	var out []string
	for _, r := range kafkatest.ReadCommitted(s.t, s.brokers, topic) {
		out = append(out, string(r.Key)+"="+string(r.Value))
	}
	return out
}

// records are the job's committed control records.
func (s *scene) records() []*controlRecord {
	s.t.Helper()
	s.decided()
	var out []*controlRecord
	for _, r := range kafkatest.ReadCommitted(s.t, s.brokers, s.control()) {
		c, err := parseControl(r.Key, r.Value)
		check(s.t, err)
		c.offset = r.Offset
		out = append(out, c)
	}
	return out
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// says checks an error's kind and text.
func says(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoesn't say %q", err, text)
		}
	}
}

// equal compares lists.
func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got\n%q\nwant\n%q", what, got, want)
	}
}
