package kafkatest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Client returns a client of its own for the test, closed when t has ended. It
// waits only briefly before it asks again, as tests want it.
func Client(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := open(t, brokers, opts...)
	t.Cleanup(cl.Close)
	return cl
}

// open returns a client that the caller closes.
func open(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("kafkatest"),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.ConcurrentTransactionsBackoff(2 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatalf("make a client of %s: %v", strings.Join(brokers, ","), err)
	}
	return cl
}

// patient is a context for one helper's work. It doesn't end with t's own
// context, so that a helper works in a cleanup too.
func patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Patience)
}

// Name returns a name that no other test, run or process uses, for a topic, a
// group or a transactional id: from the test's name and a random end.
func Name(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, t.Name())
	return name[:min(len(name), 100)] + "-" + strings.ToLower(rand.Text()[:8])
}

// Topic makes a topic with a name of its own, and returns that name. Its
// replication is the cluster's default; configs are "key=value". It can be
// produced to when Topic returns, and is deleted when t has ended.
func Topic(t testing.TB, brokers []string, partitions int, configs ...string) string {
	t.Helper()
	name := Name(t)
	CreateTopic(t, brokers, name, partitions, configs...)
	return name
}

// CreateTopic is [Topic] with a name that the test chooses. Deleting it may be
// the test's own doing: that it is gone at the end is no error.
func CreateTopic(t testing.TB, brokers []string, name string, partitions int, configs ...string) {
	t.Helper()
	set := map[string]*string{}
	for _, c := range configs {
		key, value, ok := strings.Cut(c, "=")
		if !ok {
			t.Fatalf("topic %s: config %q is not key=value", name, c)
		}
		set[key] = &value
	}
	cl := open(t, brokers)
	defer cl.Close()
	ctx, cancel := patient()
	defer cancel()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, int32(partitions), -1, set, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() { deleteTopic(t, brokers, name) })
	led := func() error {
		topics, err := adm.ListTopics(ctx, name)
		if err != nil {
			return err
		}
		td := topics[name]
		if td.Err != nil || len(td.Partitions) != partitions {
			return fmt.Errorf("%d of %d partitions known: %w", len(td.Partitions), partitions, td.Err)
		}
		for _, p := range td.Partitions {
			if p.Err != nil || p.Leader < 0 {
				return fmt.Errorf("partition %d has no leader: %w", p.Partition, p.Err)
			}
		}
		return nil
	}
	if err := until(ctx, led); err != nil {
		t.Fatalf("topic %s was created, but can't be used: %v", name, err)
	}
}

func deleteTopic(t testing.TB, brokers []string, name string) {
	cl := open(t, brokers)
	defer cl.Close()
	ctx, cancel := patient()
	defer cancel()
	deleted, err := kadm.NewClient(cl).DeleteTopics(ctx, name)
	if err == nil {
		err = deleted[name].Err
	}
	if err != nil {
		t.Logf("topic %s stays behind: %v", name, err)
	}
}

// until calls f until it returns nil, or ctx ends: then it returns both errors.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}
