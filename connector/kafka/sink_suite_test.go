package kafka

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// suite is the sink as the conformance suite sees it. A folder of the suite's is a
// job's prefix on one cluster.
func suite(t *testing.T) connectortest.SinkUnderTest {
	brokers := kafkatest.Brokers(t)
	run := kafkatest.Name(t)
	prefix := func(dir string) string {
		h := fnv.New64a()
		h.Write([]byte(dir))
		return fmt.Sprintf("%s-%x-", run, h.Sum64())
	}
	cluster := func(dir string) *Cluster { return NewCluster(brokers, Prefix(prefix(dir)), Name(prefix(dir))) }
	return connectortest.SinkUnderTest{
		New: func(dir, target string) weir.Sink[connectortest.Row] {
			return rows{c: cluster(dir), topic: prefix(dir) + target, at: func() *Cluster { return cluster(dir) }}
		},
		Rows: func(ctx context.Context, dir, target string) ([]connectortest.Row, error) {
			cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...)) // for once: the suite looks for what is left behind
			if err != nil {
				return nil, err
			}
			defer cl.Close()
			adm := kadm.NewClient(cl)
			topics, err := adm.ListTopics(ctx)
			if err != nil || !topics.Has(prefix(dir)+target) {
				return nil, err
			}
			if err := decided(ctx, adm, prefix(dir)+"conformance-0-a", prefix(dir)+"conformance-0-b"); err != nil {
				return nil, err
			}
			records, err := seen(t, brokers, prefix(dir)+target)
			var out []connectortest.Row
			for _, r := range records {
				var row connectortest.Row
				if err := json.Unmarshal(r.Value, &row); err != nil {
					return nil, err
				}
				out = append(out, row)
			}
			return out, err
		},
		Rejected: []connectortest.Row{{Key: "k", Note: "can't be encoded"}, {Key: "k", Note: string(make([]byte, 1<<20))}},
	}
}

// decided waits until the markers of transactions that have ended are written.
func decided(ctx context.Context, adm *kadm.Client, ids ...string) error {
	for {
		told, err := adm.DescribeTransactions(ctx, ids...)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(told.Sorted(), func(d kadm.DescribedTransaction) bool {
			return d.State == "PrepareCommit" || d.State == "PrepareAbort" || d.State == "PrepareEpochFence"
		}) {
			return nil
		}
	}
}

func TestSink(t *testing.T) { connectortest.Sink(t, suite(t)) }
