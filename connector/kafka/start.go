package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// Start is where a job begins to read when it starts for the first time.
type Start struct {
	kind      startKind
	at        time.Time
	offsets   map[string]map[int32]int64
	otherwise *Start
	many      bool // more than one otherwise was given
}

type startKind int

const (
	earliest startKind = iota
	latest
	atTime
	atCommitted
	atOffsets
)

// Earliest begins with the oldest message that there is.
func Earliest() Start { return Start{kind: earliest} }

// Latest begins with what becomes visible after the start: where a transaction is
// open, with the first message of it.
func Latest() Start { return Start{kind: latest} }

// AtTime begins, in each partition, with the first message whose timestamp is t or
// later, and as [Latest] does where there is none. Timestamps count as Kafka has
// them, in milliseconds.
func AtTime(t time.Time) Start { return Start{kind: atTime, at: t} }

// AtCommitted begins where the consumer group has committed that it stands: to take
// over from another program. [Group] names it. A partition without a committed offset
// is an error, unless a further Start says where it begins.
func AtCommitted(otherwise ...Start) Start {
	return Start{kind: atCommitted}.or(otherwise)
}

// AtOffsets begins at given offsets, by topic and partition. A partition that isn't
// among them is an error, unless a further Start says where it begins.
func AtOffsets(offsets map[string]map[int32]int64, otherwise ...Start) Start {
	s := Start{kind: atOffsets, offsets: map[string]map[int32]int64{}}.or(otherwise)
	for topic, of := range offsets {
		s.offsets[topic] = maps.Clone(of)
	}
	return s
}

func (s Start) or(otherwise []Start) Start {
	if len(otherwise) > 0 {
		s.otherwise = &otherwise[0]
	}
	s.many = len(otherwise) > 1
	return s
}

// String names it for messages.
func (s Start) String() string {
	text := [...]string{"Earliest", "Latest", "AtTime", "AtCommitted", "AtOffsets"}[s.kind]
	if s.kind == atTime {
		text += " " + s.at.UTC().Format(time.RFC3339Nano)
	}
	if s.otherwise != nil {
		text += ", otherwise " + s.otherwise.String()
	}
	return text
}

func (s Start) check(topics Topics) error {
	var errs []error
	switch {
	case s.many:
		errs = append(errs, fmt.Errorf("kafka.%s: give one other Start at most", s))
	case s.kind == atTime && s.at.UnixMilli() < 0:
		errs = append(errs, fmt.Errorf("kafka.%s: that is before 1970, and Kafka has no such timestamps", s))
	case s.kind == atOffsets && len(s.offsets) == 0:
		errs = append(errs, errors.New("kafka.AtOffsets names no offset"))
	}
	for _, topic := range slices.Sorted(maps.Keys(s.offsets)) {
		if topics.match == nil && !slices.Contains(topics.names, topic) {
			errs = append(errs, fmt.Errorf("kafka.AtOffsets: topic %s isn't read", topic))
		}
		for _, p := range slices.Sorted(maps.Keys(s.offsets[topic])) {
			if at := s.offsets[topic][p]; p < 0 || at < 0 {
				errs = append(errs, fmt.Errorf("kafka.AtOffsets: topic %s, partition %d, offset %d: neither can be negative", topic, p, at))
			}
		}
	}
	if s.otherwise != nil {
		errs = append(errs, s.otherwise.check(topics))
	}
	return errors.Join(errs...)
}

// Start says where the job begins to read its splits, all as of one moment or
// nearly so, with a few requests whatever their number.
func (s *source[T]) Start(ctx context.Context, splits []string) (map[string][]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	out := map[string][]byte{}
	err := s.asking(ctx, func(a *ask, _ bool) error {
		return a.patiently(ctx, fmt.Sprintf("find out where %s begins (%s)", s.conf.topics, s.conf.start), func() error {
			if t := s.conf.topics; t.create != nil && t.match == nil {
				if err := a.create(ctx, t.create, t.names); err != nil {
					return err
				}
			}
			r, err := a.resolve(ctx, s.conf, splits)
			if err != nil {
				return err
			}
			for _, split := range splits {
				b := r.bounds[split]
				p := position{cluster: b.cluster, topic: b.id, offset: r.at[split], end: noEnd, epoch: noEpoch}
				if s.conf.bounded {
					p.end = max(b.end, p.offset)
				}
				out[split] = p.append(nil)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// resolution is where splits begin.
type resolution struct {
	a      *ask
	conf   sourceConfig
	group  string
	topics []string
	bounds map[string]bounds
	at     map[string]int64
}

func (a *ask) resolve(ctx context.Context, conf sourceConfig, splits []string) (*resolution, error) {
	r := &resolution{a: a, conf: conf, group: conf.groupOf(ctx, a.c), at: map[string]int64{}}
	for _, split := range splits {
		topic, _, err := parseSplit(split)
		if err != nil {
			return nil, err
		}
		r.topics = append(r.topics, topic)
	}
	slices.Sort(r.topics)
	r.topics = slices.Compact(r.topics)
	var err error
	if r.bounds, err = a.bounds(ctx, r.topics); err != nil {
		return nil, err
	}
	for _, split := range splits {
		if _, ok := r.bounds[split]; !ok {
			return nil, fmt.Errorf("%w: split %s: the topic or its partition was deleted just now", weir.ErrInput, split)
		}
	}
	if err := conf.start.known(r.bounds); err != nil {
		return nil, err
	}
	return r, r.set(ctx, conf.start, splits)
}

// known wants every partition that an offset was given for to exist.
func (s Start) known(all map[string]bounds) error {
	for _, topic := range slices.Sorted(maps.Keys(s.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(s.offsets[topic])) {
			if _, ok := all[splitName(topic, p)]; !ok {
				return fmt.Errorf("%w: kafka.AtOffsets: topic %s has no partition %d", weir.ErrInput, topic, p)
			}
		}
	}
	return nil
}

// set finds out where some splits begin.
func (r *resolution) set(ctx context.Context, s Start, splits []string) error {
	var left []string
	var err error
	switch s.kind {
	case earliest, latest:
		for _, split := range splits {
			b := r.bounds[split]
			r.at[split] = b.start
			if s.kind == latest {
				r.at[split] = r.last(b)
			}
		}
	case atTime:
		err = r.byTime(ctx, s.at, splits)
	case atCommitted:
		left, err = r.committed(ctx, splits)
	case atOffsets:
		for _, split := range splits {
			topic, p, _ := parseSplit(split)
			at, ok := s.offsets[topic][p]
			if !ok {
				left = append(left, split)
				continue
			}
			r.at[split] = at
		}
	}
	switch {
	case err != nil || len(left) == 0:
		return err
	case s.otherwise != nil:
		return r.set(ctx, *s.otherwise, left)
	case s.kind == atCommitted:
		return fmt.Errorf("%w: consumer group %s has no committed offset for %s; commit some, or say where they begin otherwise (kafka.AtCommitted(kafka.Earliest()))",
			weir.ErrInput, r.group, some(left))
	}
	return fmt.Errorf("%w: kafka.AtOffsets has no offset for %s; give one, or say where they begin otherwise", weir.ErrInput, some(left))
}

// last is behind what can be read of a partition.
func (r *resolution) last(b bounds) int64 {
	if r.conf.uncommitted {
		return b.end
	}
	return min(b.stable, b.end)
}

// byTime asks for the first offset at or behind a time. Where there is none, the
// partition begins at its end, as it was before the question: what has come since
// is later.
func (r *resolution) byTime(ctx context.Context, t time.Time, splits []string) error {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++ // messages of the millisecond before are too old
	}
	req := kmsg.NewPtrListOffsetsRequest()
	if !r.conf.uncommitted {
		req.IsolationLevel = 1
	}
	for _, split := range splits {
		topic, p, _ := parseSplit(split)
		i := slices.IndexFunc(req.Topics, func(rt kmsg.ListOffsetsRequestTopic) bool { return rt.Topic == topic })
		if i < 0 {
			i = len(req.Topics)
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, ms, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		r.at[split] = r.last(r.bounds[split])
	}
	for _, shard := range r.a.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return shard.Err
		}
		for _, rt := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return fmt.Errorf("topic %s, partition %d: %w", rt.Topic, rp.Partition, err)
				}
				if rp.Offset >= 0 {
					r.at[splitName(rt.Topic, rp.Partition)] = rp.Offset
				}
			}
		}
	}
	return nil
}

// committed asks the group. What a transaction is about to commit is waited for.
// left are the splits that have nothing committed.
func (r *resolution) committed(ctx context.Context, splits []string) (left []string, err error) {
	if r.group == "" {
		return nil, fmt.Errorf("%w: kafka.AtCommitted needs a consumer group, and there is no name of a job to call it by: name it with kafka.Group", weir.ErrInput)
	}
	resp, err := r.a.adm.FetchOffsetsForTopics(kadm.RequireStable(ctx), r.group, r.topics...)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("consumer group %s: %w", r.group, err)
	}
	for _, split := range splits {
		topic, p, _ := parseSplit(split)
		o, ok := resp.Lookup(topic, p)
		switch {
		case ok && o.Err != nil:
			return nil, fmt.Errorf("consumer group %s, topic %s, partition %d: %w", r.group, topic, p, o.Err)
		case !ok || o.At < 0:
			left = append(left, split)
		default:
			r.at[split] = o.At
		}
	}
	return left, nil
}
