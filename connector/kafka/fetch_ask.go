package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// ask is a client that asks the cluster about topics.
type ask struct {
	c   *Cluster
	cl  *kgo.Client
	adm *kadm.Client
}

func newAsk(c *Cluster) (*ask, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	return &ask{c, cl, kadm.NewClient(cl)}, nil
}

func (a *ask) close() { a.cl.Close() }

// patiently repeats what fails only for now, and says what it waits for. Where
// nobody would hear it, nothing is waited for: it isn't a job that asks, but
// somebody who looks at it.
func (a *ask) patiently(ctx context.Context, what string, call func() error) error {
	env := sys.From(ctx)
	said := ""
	for wait := firstRetry; ; wait = min(2*wait, longestRetry) {
		err := a.c.explain(what, call())
		if err == nil || ctx.Err() != nil || env.Waiting == nil || !temporary(err) {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			env.Waiting(text)
		}
		select {
		case <-env.Clock.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// metadata asks about topics, all of them if names is nil. It comes from the
// cluster and never from what the client remembers.
func (a *ask) metadata(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	return req.RequestWith(ctx, a.cl)
}

// found is a topic that exists.
type found struct {
	name       string
	partitions []int32
}

// topics looks for the topics of a source, sorted by name.
func (a *ask) topics(ctx context.Context, which Topics, own string) ([]found, error) {
	resp, err := a.metadata(ctx, which.names)
	if err != nil {
		return nil, err
	}
	var out []found
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := ""
		if t.Topic != nil {
			name = *t.Topic
		}
		if which.match != nil && (t.IsInternal || name == own || !which.match.MatchString(name)) {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition) && which.match != nil:
			continue // it was deleted just now
		case errors.Is(err, kerr.UnknownTopicOrPartition) && which.create != nil:
			out = append(out, which.create.found(name))
			continue
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("%w: topic %s doesn't exist on kafka cluster %s: create it, or correct its name; a topic that the job may not see (ACL Describe) looks the same",
				weir.ErrInput, name, a.c)
		case errors.Is(err, kerr.InvalidTopicException):
			return nil, fmt.Errorf("%w: topic %q: that is no name for a topic", weir.ErrInput, name)
		case err != nil:
			return nil, a.c.explain("look for topic "+name, err)
		case len(t.Partitions) == 0:
			return nil, fmt.Errorf("%w: topic %s on kafka cluster %s has no partitions", weir.ErrInput, name, a.c)
		}
		f := found{name: name}
		for _, p := range t.Partitions {
			f.partitions = append(f.partitions, p.Partition)
		}
		slices.Sort(f.partitions)
		out = append(out, f)
	}
	slices.SortFunc(out, func(x, y found) int { return strings.Compare(x.name, y.name) })
	return out, nil
}

// bounds is what there is of a partition.
type bounds struct {
	cluster string
	id      topicID
	start   int64 // of the log
	end     int64 // behind its last record, whether or not that is committed
	stable  int64 // the same, but for open transactions and what is behind them
}

// bounds asks for all partitions of topics, by their names as splits. A topic
// that doesn't exist is left out.
func (a *ask) bounds(ctx context.Context, topics []string) (map[string]bounds, error) {
	out, bad, err := a.look(ctx, topics)
	if err != nil {
		return nil, err
	}
	for _, split := range slices.Sorted(maps.Keys(bad)) { // so that the same is found first each time
		return nil, bad[split]
	}
	return out, nil
}

// look is bounds for who can go on with some of the partitions: bad says why others
// aren't told of, those that the cluster doesn't even name by "".
func (a *ask) look(ctx context.Context, topics []string) (out map[string]bounds, bad map[string]error, err error) {
	resp, err := a.metadata(ctx, topics)
	if err != nil {
		return nil, nil, err
	}
	cluster := ""
	if resp.ClusterID != nil {
		cluster = *resp.ClusterID
	}
	ids := map[string]topicID{}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil:
			return nil, nil, fmt.Errorf("topic %s: %w", deref(t.Topic), err)
		default:
			ids[deref(t.Topic)] = t.TopicID
		}
	}
	topics = slices.DeleteFunc(slices.Clone(topics), func(t string) bool { _, ok := ids[t]; return !ok })
	out, bad = map[string]bounds{}, map[string]error{}
	if len(topics) == 0 {
		return out, bad, nil
	}
	told := map[string]int{}
	lists := []boundsList{
		{a.adm.ListStartOffsets, func(b *bounds, at int64) { b.start = at }},
		{a.adm.ListCommittedOffsets, func(b *bounds, at int64) { b.stable = at }},
		{a.adm.ListEndOffsets, func(b *bounds, at int64) { b.end = at }},
	}
	for _, list := range lists {
		listed, err := list.of(ctx, topics...)
		if some, ok := errors.AsType[*kadm.ShardErrors](err); ok && !some.AllFailed {
			bad[""], err = err, nil
		}
		if err != nil {
			return nil, nil, err
		}
		listed.Each(func(o kadm.ListedOffset) {
			name := splitName(o.Topic, o.Partition)
			if o.Err != nil {
				bad[name] = fmt.Errorf("topic %s, partition %d: %w", o.Topic, o.Partition, o.Err)
				return
			}
			b := out[name]
			b.cluster, b.id = cluster, ids[o.Topic]
			list.set(&b, o.Offset)
			out[name] = b
			told[name]++
		})
	}
	maps.DeleteFunc(out, func(name string, _ bounds) bool { return told[name] < len(lists) })
	return out, bad, nil
}

// boundsList asks for one of the bounds.
type boundsList struct {
	of  func(context.Context, ...string) (kadm.ListedOffsets, error)
	set func(b *bounds, at int64)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// sorted has a listing in the order of topics and partitions, so that the same
// error is found first each time.
func sorted(l kadm.ListedOffsets) (out []kadm.ListedOffset) {
	l.Each(func(o kadm.ListedOffset) { out = append(out, o) })
	slices.SortFunc(out, func(a, b kadm.ListedOffset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out
}
