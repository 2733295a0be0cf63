package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir"
)

// Encoder makes a record a message. m.Key, m.Value and m.Headers are empty and
// have room to append to; what they hold afterwards is copied, so that they may
// as well be set to slices of the record.
//
// A key that is left as it is, or empty, is no key; m.Key = []byte{} is an empty
// one. m.Value = nil is a tombstone. m.Topic is empty, which means the sink's
// topic. m.Partition is -1, which leaves it to the key, as Kafka's own clients
// do, or to [Partitioner]. m.Time is the present, or with [StampEventTime] the
// record's event time; the zero time is a message without a timestamp.
//
// An error or a panic rejects the record: it is a dead letter, or stops the job.
type Encoder[T any] func(rec *T, m *Message) error

// sink is where a stream goes to topics; see Sink.
type sink[T any] struct {
	c      *Cluster
	encode Encoder[T]
	conf   sinkConfig
}

// Sink writes each record as a message to a topic, in Kafka transactions: a
// reader with isolation level read_committed gets each message once, and all of
// an epoch or nothing of it. All such sinks of a job on one cluster commit
// together, with the offsets that the job has read from that cluster and the
// checkpoint's id, which is in the control topic <prefix><job>.ckpt. That commit
// decides the epoch: a database or files of the same job follow it.
//
// It needs brokers from 4.0 on with transaction.version 2 finalized. The topic
// must exist, unless [CreateTopics] says how to make it.
//
// A message is rejected if its encoder returns an error, if it is longer than the
// topic's max.message.bytes, if it has no key and the topic is compacted, if its
// timestamp is out of the topic's bounds, and if it names a topic or a partition
// that isn't the sink's.
func Sink[T any](c *Cluster, topic string, encode Encoder[T], opts ...SinkOption) weir.Sink[T] {
	s := sink[T]{c: c, encode: encode, conf: sinkConfig{topic: topic}}
	for _, o := range opts {
		o.sink(&s.conf)
	}
	if encode == nil {
		s.conf.fail(errors.New("the encoder is nil"))
	}
	s.conf.check()
	c.shared.declare(&s.conf)
	return s
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (s sink[T]) Check() error {
	if len(s.conf.errs) == 0 {
		return nil
	}
	return fmt.Errorf("kafka sink of topic %q: %w", s.conf.topic, errors.Join(s.conf.errs...))
}

// Spec describes the sink.
func (s sink[T]) Spec() weir.SinkSpec {
	target := "topic " + s.conf.topic
	if len(s.conf.also) > 0 {
		target += " and " + strings.Join(s.conf.also, ", ")
	}
	if s.c.name != "" {
		target += " on " + s.c.name
	}
	spec := weir.SinkSpec{
		Kind:        weir.Transactional,
		Target:      target,
		Participant: s.c.participant(),
		Place:       "topic " + s.conf.topic,
		Rank:        1, // it decides, and databases follow: Kafka can't
		Appends:     true,
		Readers: "each output once to readers with isolation.level=read_committed, an epoch all or nothing " +
			"(not at one instant across partitions)",
		Needs: []string{
			"readers with isolation.level=read_committed; others see what is never committed, too",
			fmt.Sprintf("brokers from 4.0 on with %s finalized at %d or higher", transactionFeature, transactionLevel),
			"acks=all, which this sink sets for itself, on topics with replication.factor 3, min.insync.replicas 2 and unclean.leader.election.enable=false",
			"a transaction timeout (TransactionTimeout) longer than the checkpoint interval and two commits",
			"the control topic <prefix><job>" + controlSuffix + " stays, with cleanup.policy=compact",
		},
	}
	if s.conf.atLeastOnce {
		spec.Kind, spec.Rank, spec.Participant = weir.AtLeastOnce, 0, s.c.participant()+"#at-least-once"
		spec.Readers = "each output at least once, as soon as it is computed; after a crash, those since the last checkpoint come again"
		spec.Needs = []string{
			"readers that recognise repeats, or a compacted topic whose last message for a key counts",
			"acks=all, which this sink sets for itself, on topics with replication.factor 3, min.insync.replicas 2 and unclean.leader.election.enable=false",
		}
	}
	return spec
}

// Connect reaches the cluster and reads its id and features. It changes nothing.
func (s sink[T]) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	o, err := newOutputs(ctx, s.c, sinks, !s.conf.atLeastOnce)
	if err != nil {
		return nil, err
	}
	if s.conf.atLeastOnce {
		return newConfirmer(o)
	}
	return newParticipant(o), nil
}

// Open attaches the sink to its participant: its topics are looked at, or made.
func (s sink[T]) Open(ctx context.Context, p weir.Participant, id string) (weir.Outlet[T], error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	a, ok := p.(interface {
		attach(ctx context.Context, t *target) error
		core() *outputs
	})
	if !ok || a.core().name != s.Spec().Participant {
		return nil, fmt.Errorf("kafka: sink %q: opened on a participant that isn't %s", id, s.Spec().Participant)
	}
	if other := a.core().c; other != s.c && !other.same(s.c) {
		return nil, fmt.Errorf("%w: sink %q writes to the cluster %s and another one of the job to %s, and both are called %q: "+
			"tell one of them apart by Name, because they can't share a transaction", weir.ErrRefused, id, s.c, other, s.c.participant())
	}
	if err := s.c.shared.writes(weir.JobName(ctx), s.conf.topics()); err != nil {
		return nil, fmt.Errorf("kafka: sink %q: %w", id, err)
	}
	t := &target{sink: id, conf: s.conf, topics: map[string]*topic{}}
	if err := a.attach(ctx, t); err != nil {
		return nil, fmt.Errorf("kafka: sink %q: %w", id, err)
	}
	return outlet[T]{a.core(), t, s.encode}, nil
}

// same reports whether two clusters are meant to be one: they are declared alike.
func (c *Cluster) same(d *Cluster) bool {
	a, errA := c.settings()
	b, errB := d.settings()
	return errA == nil && errB == nil && c.prefix == d.prefix && slices.Equal(a.brokers, b.brokers)
}

// outlet is a sink in one run.
type outlet[T any] struct {
	o      *outputs
	t      *target
	encode Encoder[T]
}

// Writer returns the writer of one task.
func (o outlet[T]) Writer(int) weir.Writer[T] {
	return &writer[T]{sender: newSender(o.o, o.t), encode: o.encode}
}
