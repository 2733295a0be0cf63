package kafkatest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Produce writes records, each to the topic and partition that it names, in
// their order, and returns when all are there; their offsets are filled in. A
// record with a zero time gets the present one; time.UnixMilli(-1) is a record
// without a timestamp.
func Produce(t testing.TB, brokers []string, records ...*kgo.Record) {
	t.Helper()
	cl := open(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	produce(t, cl, records)
}

func produce(t testing.TB, cl *kgo.Client, records []*kgo.Record) {
	t.Helper()
	ctx, cancel := patient()
	defer cancel()
	for _, r := range cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			t.Fatalf("produce to %s-%d: %v", r.Record.Topic, r.Record.Partition, r.Err)
		}
	}
}

// ProduceIn writes records in a transaction of the transactional id, which is
// left open: end ends it, kgo.TryCommit or kgo.TryAbort, and may be called
// once. A transaction that is still open when t has ended is aborted.
func ProduceIn(t testing.TB, brokers []string, id string, records ...*kgo.Record) (end func(how kgo.TransactionEndTry)) {
	t.Helper()
	cl := open(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(id))
	ended := false
	t.Cleanup(func() {
		defer cl.Close()
		if !ended {
			ctx, cancel := patient()
			defer cancel()
			if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
				t.Logf("abort the transaction of %s that was left open: %v", id, err)
			}
		}
	})
	if err := cl.BeginTransaction(); err != nil {
		t.Fatalf("begin a transaction of %s: %v", id, err)
	}
	produce(t, cl, records)
	return func(how kgo.TransactionEndTry) {
		t.Helper()
		if ended {
			t.Fatalf("the transaction of %s has ended already", id)
		}
		ended = true
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := cl.EndTransaction(ctx, how); err != nil {
			t.Fatalf("end the transaction of %s: %v", id, err)
		}
	}
}
