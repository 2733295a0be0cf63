package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/kafkalab"
)

// lab is brokers of the harness's own, on which nothing else runs, with a client
// to look at them.
type lab struct {
	*kafkalab.Cluster
	nodes int
	cl    *kgo.Client
	adm   *kadm.Client
}

// labSettings let transactions that have timed out be found within a second, not
// ten.
var labSettings = []string{"transaction.abort.timed.out.transaction.cleanup.interval.ms=500"}

// newLab starts brokers, on ports that are free.
func newLab(ctx context.Context, dir string, nodes int) (*lab, error) {
	c, err := kafkalab.Start(ctx, kafkalab.Options{Dir: dir, Nodes: nodes, Settings: labSettings})
	if err != nil {
		return nil, err
	}
	l := &lab{Cluster: c, nodes: nodes}
	l.cl, err = kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.ClientID("chaos"), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	l.adm = kadm.NewClient(l.cl)
	return l, nil
}

// whole waits until every partition has a leader and all its replicas.
func (l *lab) whole(ctx context.Context) error {
	return until(ctx, "until all partitions had all their replicas", 200*time.Millisecond, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		m, err := l.adm.Metadata(ctx)
		if err != nil {
			return false, nil // a node that starts answers later
		}
		ok := len(m.Brokers) == l.nodes
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			ok = ok && p.Err == nil && p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
		})
		return ok, nil
	})
}

// leader is the node that leads a partition.
func (l *lab) leader(ctx context.Context, topic string, partition int32) (int, error) {
	d, err := l.adm.ListTopics(ctx, topic)
	if err == nil {
		err = d.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("who leads %s/%d: %w", topic, partition, err)
	}
	return int(d[topic].Partitions[partition].Leader), nil
}

// create makes a topic and returns its id.
func (l *lab) create(ctx context.Context, topic string, partitions int32) (id [16]byte, err error) {
	r, err := l.adm.CreateTopic(ctx, partitions, -1, nil, topic)
	if err != nil {
		return id, fmt.Errorf("create topic %s: %w", topic, err)
	}
	return r.ID, l.whole(ctx)
}

// close ends the nodes, and removes what they had unless it is to be kept.
func (l *lab) close(keep bool) error {
	l.cl.Close()
	if err := l.Close(); err != nil || keep {
		return err
	}
	return os.RemoveAll(l.Dir())
}
