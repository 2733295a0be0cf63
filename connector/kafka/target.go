package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
)

// target is one sink of a participant.
type target struct {
	sink   string
	conf   sinkConfig
	topics map[string]*topic // filled once the sink is open, and read by its writers
}

// topic is what is known of a topic that a sink writes, as of when it was opened.
type topic struct {
	name          string
	id            topicID
	partitions    int32
	maxBatch      int // bytes
	compacted     bool
	appendTime    bool          // the brokers set timestamps
	ahead, behind time.Duration // how far timestamps may be from now
}

// defaultMaxBatch is the brokers' max.message.bytes unless it is set.
const defaultMaxBatch = 1048588

// open looks at the topics of a sink, and makes those that may be made.
func (o *outputs) open(ctx context.Context, t *target) error {
	names := t.conf.topics()
	look := o.describe
	if t.conf.create == nil {
		look = o.describeAll
	}
	found, err := look(ctx, names)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if strings.HasPrefix(name, "__") {
			return fmt.Errorf("%w: the topic %s is Kafka's own", weir.ErrRefused, name)
		}
		if _, ok := found[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		if t.conf.create == nil {
			return fmt.Errorf("%w: there is no topic %s on the kafka cluster %s (one that may not be seen looks the same): "+
				"make it, or let the sink make it, by the option CreateTopics", weir.ErrRefused, strings.Join(missing, ", "), o.c)
		}
		if err := o.create(ctx, *t.conf.create, missing...); err != nil {
			return err
		}
		made, err := o.await(ctx, missing)
		if err != nil {
			return err
		}
		sayMade(ctx, o.c, made)
		for name, d := range made {
			found[name] = d
		}
	}
	return o.learn(ctx, t, found)
}

// describe returns those of the topics that exist, from the cluster and never from
// what the client remembers.
func (o *outputs) describe(ctx context.Context, names []string) (map[string]kadm.TopicDetail, error) {
	all, err := o.adm.ListTopics(ctx, names...)
	if err != nil {
		return nil, o.c.explain("look at topics "+some(names), err)
	}
	out := map[string]kadm.TopicDetail{}
	for _, name := range names {
		d := all[name]
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition), errors.Is(d.Err, kerr.UnknownTopicID):
		case d.Err != nil:
			return nil, o.c.explain("look at topic "+name, d.Err)
		case len(d.Partitions) > 0:
			out[name] = d
		}
	}
	return out, nil
}

// How long a topic is looked for that is expected, before it is called missing: a
// broker may not have heard of it yet.
const (
	missingTries = 6
	missingStep  = 50 * time.Millisecond
)

// describeAll is describe, of topics that should exist.
func (o *outputs) describeAll(ctx context.Context, names []string) (found map[string]kadm.TopicDetail, err error) {
	for range missingTries {
		if found, err = o.describe(ctx, names); err != nil || len(found) == len(names) {
			return found, err
		}
		if err := o.pause(ctx, missingStep); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// create makes topics. That somebody else was quicker is no error.
func (o *outputs) create(ctx context.Context, c creation, names ...string) error {
	made, err := o.adm.CreateTopics(ctx, c.partitions, c.replication, c.settings, names...)
	if err != nil {
		return o.c.explain("create topic "+some(names), err)
	}
	for _, name := range names {
		switch err := made[name].Err; {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		case errors.Is(err, kerr.InvalidReplicationFactor), errors.Is(err, kerr.PolicyViolation), errors.Is(err, kerr.InvalidConfig), errors.Is(err, kerr.InvalidPartitions):
			return fmt.Errorf("%w: create topic %s on the kafka cluster %s: %w: %s", weir.ErrRefused, name, o.c, err, made[name].ErrMessage)
		default:
			return o.c.explain("create topic "+name, err)
		}
	}
	return nil
}

// How long a new topic is waited for: until all brokers know of it.
const (
	awaitTopic = 30 * time.Second
	laggingFor = 3 * time.Second
	awaitStep  = 5 * time.Millisecond
)

// await waits until topics that were made have leaders.
func (o *outputs) await(ctx context.Context, names []string) (map[string]kadm.TopicDetail, error) {
	for began := o.clock.Now(); ; {
		found, err := o.describe(ctx, names)
		if err != nil {
			return nil, err
		}
		var waits []string
		for _, name := range names {
			d, ok := found[name]
			if !ok {
				waits = append(waits, name)
				continue
			}
			for _, p := range d.Partitions {
				if p.Err != nil || p.Leader < 0 {
					waits = append(waits, splitName(name, p.Partition))
				}
			}
		}
		if len(waits) == 0 {
			return found, nil
		}
		if o.clock.Now().Sub(began) > awaitTopic {
			return nil, waitable{fmt.Errorf("%s on the kafka cluster %s: nobody leads it yet, %v after it was made", some(waits), o.c, awaitTopic)}
		}
		if err := o.pause(ctx, awaitStep); err != nil {
			return nil, err
		}
	}
}

// lagging repeats a question about topics that another broker has told of, as long as
// the one that is asked doesn't know them, or not that it leads them: it may hear of
// that a moment later.
func (o *outputs) lagging(ctx context.Context, what string, ask func() error) error {
	for began := o.clock.Now(); ; {
		err := ask()
		if !unknown(err) && !moving(err) || o.clock.Now().Sub(began) > laggingFor {
			return o.c.explainKnown(what, err)
		}
		if err := o.pause(ctx, awaitStep); err != nil {
			return err
		}
	}
}

// unknown reports whether a broker says that it doesn't know a topic.
func unknown(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// moving reports whether a broker says that another one leads a partition, or will.
func moving(err error) bool {
	return slices.ContainsFunc([]error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch},
		func(code error) bool { return errors.Is(err, code) })
}

// pause waits, unless ctx ends.
func (o *outputs) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-o.clock.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// learn takes in what writers must know of the topics.
func (o *outputs) learn(ctx context.Context, t *target, found map[string]kadm.TopicDetail) error {
	names := t.conf.topics()
	settings, err := o.settings(ctx, names)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		d, set := found[name], settings[name]
		to := &topic{name: name, id: topicID(d.ID), partitions: int32(len(d.Partitions)), maxBatch: defaultMaxBatch,
			ahead: math.MaxInt64, behind: math.MaxInt64}
		for i := range to.partitions {
			if _, ok := d.Partitions[i]; !ok {
				return fmt.Errorf("topic %s: its partition %d isn't known to the cluster", name, i)
			}
		}
		if n, err := strconv.Atoi(set["max.message.bytes"]); err == nil {
			to.maxBatch = min(n, maxBufferedBytes)
		}
		to.compacted = slices.Contains(policies(set["cleanup.policy"]), "compact")
		to.appendTime = set["message.timestamp.type"] == "LogAppendTime"
		to.ahead = millis(set["message.timestamp.after.max.ms"])
		to.behind = millis(set["message.timestamp.before.max.ms"])
		t.topics[name] = to
	}
	return nil
}

// settings reads the settings of topics.
func (o *outputs) settings(ctx context.Context, names []string) (map[string]map[string]string, error) {
	for began := o.clock.Now(); ; {
		out, err := o.readSettings(ctx, names)
		// Callers have seen the topics: the broker that was asked is behind with what
		// the cluster knows, as for some milliseconds after a topic was made.
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || o.clock.Now().Sub(began) > awaitTopic {
			return out, err
		}
		if err := o.pause(ctx, awaitStep); err != nil {
			return nil, err
		}
	}
}

func (o *outputs) readSettings(ctx context.Context, names []string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	err := o.lagging(ctx, "read the settings of topic "+some(names), func() error {
		all, err := o.adm.DescribeTopicConfigs(ctx, names...)
		for _, r := range all {
			if r.Err != nil {
				return fmt.Errorf("%s: %w", r.Name, r.Err)
			}
			out[r.Name] = map[string]string{}
			for _, c := range r.Configs {
				out[r.Name][c.Key] = c.MaybeValue()
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if out[name] == nil {
			return nil, fmt.Errorf("the kafka cluster %s doesn't tell the settings of topic %s", o.c, name)
		}
	}
	return out, nil
}

// policies are what cleans a topic up: delete, compact, or both.
func policies(setting string) []string {
	var out []string
	for p := range strings.SplitSeq(setting, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// millis is a setting in milliseconds; without one, or with one that is too large
// for a Duration, it is no bound.
func millis(setting string) time.Duration {
	n, err := strconv.ParseInt(setting, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}
