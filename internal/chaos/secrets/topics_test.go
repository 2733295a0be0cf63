package secrets_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/process"
)

// outsider looks at a cluster with a client of its own.
type outsider struct {
	t  *testing.T
	cl *kgo.Client
}

func newOutsider(t *testing.T, brokers []string, opts ...kgo.Opt) *outsider {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.AlwaysRetryEOF(), kgo.RetryTimeout(process.Deadline), kgo.UnknownTopicRetries(-1), kgo.KeepControlRecords()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &outsider{t, cl}
}

func (o *outsider) within() context.Context {
	ctx, cancel := context.WithTimeout(o.t.Context(), process.Deadline)
	o.t.Cleanup(cancel)
	return ctx
}

func (o *outsider) create(topic string) {
	o.t.Helper()
	if _, err := kadm.NewClient(o.cl).CreateTopic(o.within(), 2, -1, nil, topic); err != nil {
		o.t.Fatal(err)
	}
}

// clicks produces one click of each of some ads.
func (o *outsider) clicks(topic string, ads ...string) {
	o.t.Helper()
	var all []*kgo.Record
	for i, ad := range ads {
		all = append(all, &kgo.Record{Topic: topic, Key: []byte(ad), Value: fmt.Appendf(nil,
			`{"click_id":"c%d-%s","ad_id":"%s","user_id":"u","ts":"2026-03-01T11:59:46.200Z"}`, i, ad, ad)})
	}
	if err := o.cl.ProduceSync(o.within(), all...).FirstErr(); err != nil {
		o.t.Fatal(err)
	}
}

// end is how many offsets a topic's partitions have, together; -1 while that
// can't be said.
func (o *outsider) end(topic string) (n int64) {
	ctx, cancel := context.WithTimeout(o.t.Context(), process.Deadline)
	defer cancel()
	ends, err := kadm.NewClient(o.cl).ListCommittedOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		return -1
	}
	ends.Each(func(e kadm.ListedOffset) { n += e.Offset })
	return n
}

// everything returns all that the cluster holds for its users: records of all
// topics, transactions open or not, and what was committed for groups.
func (o *outsider) everything() []byte {
	o.t.Helper()
	var all bytes.Buffer
	adm := kadm.NewClient(o.cl)
	topics, err := adm.ListTopics(o.within())
	if err != nil {
		o.t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(o.within(), topics.Names()...)
	if err != nil {
		o.t.Fatal(err)
	}
	from := map[string]map[int32]kgo.Offset{}
	left := map[string]int64{}
	ends.Each(func(e kadm.ListedOffset) {
		if e.Offset > 0 {
			if from[e.Topic] == nil {
				from[e.Topic] = map[int32]kgo.Offset{}
			}
			from[e.Topic][e.Partition] = kgo.NewOffset().At(0)
			left[fmt.Sprint(e.Topic, e.Partition)] = e.Offset
		}
	})
	o.cl.AddConsumePartitions(from)
	for ctx := o.within(); len(left) > 0; {
		fetches := o.cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			o.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			fmt.Fprintf(&all, "%s/%d/%d %s=%s %q\n", r.Topic, r.Partition, r.Offset, r.Key, r.Value, r.Headers)
			if r.Offset+1 >= left[fmt.Sprint(r.Topic, r.Partition)] {
				delete(left, fmt.Sprint(r.Topic, r.Partition))
			}
		})
	}
	for _, r := range adm.FetchManyOffsets(o.within(), o.groups(adm)...) {
		fmt.Fprintf(&all, "%s %+v %v\n", r.Group, r.Fetched, r.Err)
	}
	return all.Bytes()
}

func (o *outsider) groups(adm *kadm.Client) []string {
	o.t.Helper()
	groups, err := adm.ListGroups(o.within())
	if err != nil {
		o.t.Fatal(err)
	}
	return groups.Groups()
}
