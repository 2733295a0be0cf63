package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/sys"
)

// TopicOption is an option of sources and of sinks.
type TopicOption struct {
	create *creation
	err    error
}

// CreateTopics makes topics that don't exist, with so many partitions and copies; 0
// is the brokers' default. settings are those of the topics, each as "name=value",
// such as "cleanup.policy=compact". Topics that exist are left as they are.
//
// A sink makes them at any start of the job. A source makes those that it has by
// name, and only when the job starts for the first time: one that is missing later
// was lost.
func CreateTopics(partitions, replication int, settings ...string) TopicOption {
	if partitions < 0 || partitions > 1<<20 || replication < 0 || replication > 1<<10 {
		return TopicOption{err: fmt.Errorf("CreateTopics(%d, %d): give numbers from 1, or 0 for the brokers' defaults", partitions, replication)}
	}
	set, err := topicSettings(settings)
	return TopicOption{&creation{cmp.Or(int32(partitions), -1), cmp.Or(int16(replication), -1), set}, err}
}

func (o TopicOption) sink(c *sinkConfig) {
	c.create = o.create
	c.fail(o.err)
}

func (o TopicOption) source(c *sourceConfig) {
	c.topics.create = o.create
	if c.topics.err == nil {
		c.topics.err = o.err
	}
}

// found is a topic that doesn't exist yet: of the partitions that it will have, those
// that are known.
func (c *creation) found(name string) found {
	f := found{name: name, partitions: []int32{0}}
	for p := int32(1); p < c.partitions; p++ {
		f.partitions = append(f.partitions, p)
	}
	return f
}

// create makes those topics of a source that don't exist.
func (a *ask) create(ctx context.Context, c *creation, names []string) error {
	o := &outputs{c: a.c, adm: a.adm, clock: sys.From(ctx).Clock}
	there, err := o.describe(ctx, names)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := there[name]
		return ok
	})
	if len(missing) == 0 {
		return nil
	}
	if err := o.create(ctx, *c, missing...); err != nil {
		return err
	}
	made, err := o.await(ctx, missing)
	if err != nil {
		return err
	}
	sayMade(ctx, a.c, made)
	return nil
}

// sayMade tells an operator which topics were made: a name may have been mistyped.
func sayMade(ctx context.Context, c *Cluster, made map[string]kadm.TopicDetail) {
	for _, name := range slices.Sorted(maps.Keys(made)) {
		partitions := "1 partition"
		if n := len(made[name].Partitions); n != 1 {
			partitions = fmt.Sprintf("%d partitions", n)
		}
		warn(ctx, fmt.Sprintf("topic %s didn't exist on kafka cluster %s: made with %s", name, c, partitions))
	}
}
