package rig

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/connector/kafka"
)

// What both sides ask of the client, besides the linger.
const (
	fetchPartition = 1 << 20 // bytes of a partition in one answer
	buffered       = 25_000  // records that wait to be produced
	pollAtMost     = 10_000  // records taken at once
	transaction    = time.Minute
)

// loop is what a good engineer writes by hand with franz-go's session: poll,
// decode, count, and whenever the interval has passed end the transaction with
// the output and the offsets.
type loop struct {
	spec    Spec
	m       *meter
	session *kgo.GroupTransactSession
	worker  worker
	left    map[int32]int64 // the ends of partitions that are still to be reached; nil: none has one
	records int64
	failed  atomic.Pointer[error] // of a record that was produced
	promise func(*kgo.Record, error)
}

// worker is what a loop does with records.
type worker interface {
	// take handles a record, which is its own from now on.
	take(r *kgo.Record) error
	// flush produces what the transaction is to hold besides.
	flush()
	// done: the transaction has ended, and with it all that was produced.
	done()
}

// runLoop runs one lap by hand.
func runLoop(ctx context.Context, s Spec, m *meter) (err error) {
	l := &loop{spec: s, m: m}
	l.promise = l.produced
	if !s.Follow {
		if l.left, err = inputEnds(ctx, s); err != nil {
			return err
		}
	}
	l.session, err = kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.Brokers...), kgo.ConsumerGroup(s.Name), kgo.ConsumeTopics(s.Input), kgo.TransactionalID(s.Name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(fetchPartition), kgo.WithPools(&pool{}),
		kgo.DefaultProduceTopic(s.Output), kgo.ProducerBatchCompression(kgo.Lz4Compression()),
		kgo.MaxBufferedRecords(buffered), kgo.ProducerLinger(kafka.DefaultLinger), kgo.TransactionTimeout(transaction))
	if err != nil {
		return err
	}
	defer l.session.Close()
	switch s.Work {
	case Copy:
		l.worker = &copier{l: l}
	case Count:
		l.worker = newCounter(l, nil)
	case Dedup:
		l.worker = newCounter(l, &ids{})
	default:
		return fmt.Errorf("there is no work named %q", s.Work)
	}
	m.begin()
	return l.run(ctx)
}

// inputEnds are the ends of the input's partitions that hold something.
func inputEnds(ctx context.Context, s Spec) (map[int32]int64, error) {
	t, err := NewTopics(s.Brokers)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	ends, err := t.ends(ctx, s.Input)
	for p, end := range ends {
		if end == 0 {
			delete(ends, p)
		}
	}
	return ends, err
}

func (l *loop) run(ctx context.Context) error {
	for l.left == nil || len(l.left) > 0 {
		if err := l.session.Begin(); err != nil {
			return err
		}
		if err := l.fill(ctx, time.Now().Add(l.spec.Interval)); err != nil {
			if errors.Is(err, errStopped) {
				return l.end(context.WithoutCancel(ctx))
			}
			return err
		}
		if err := l.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill takes records until the interval is over, or the input.
func (l *loop) fill(ctx context.Context, until time.Time) error {
	poll, stop := context.WithDeadline(ctx, until)
	defer stop()
	for poll.Err() == nil && (l.left == nil || len(l.left) > 0) {
		fetches := l.session.PollRecords(poll, pollAtMost)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			partition, offset := r.Partition, r.Offset
			if l.left != nil && offset+1 >= l.left[partition] {
				delete(l.left, partition)
			}
			l.records++
			if err := l.worker.take(r); err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", partition, offset, err)
			}
		}
	}
	return nil
}

// end ends the transaction. A lap by hand isn't there to recover: what it can't
// commit ends it.
func (l *loop) end(ctx context.Context) error {
	l.worker.flush()
	committed, err := l.session.End(ctx, kgo.TryCommit)
	if e := l.failed.Load(); e != nil {
		err = errors.Join(err, *e)
	}
	if err == nil && !committed {
		err = errors.New("the transaction was aborted: the group has rebalanced")
	}
	if err != nil {
		return err
	}
	l.worker.done()
	if l.records > 0 {
		l.m.commit(l.records)
	}
	return nil
}

// produced is the promise of all records. It is made a function value once.
func (l *loop) produced(r *kgo.Record, err error) {
	if err != nil {
		l.fail(err) // not here: err would be on the heap, each time
	}
	r.Recycle()
}

func (l *loop) fail(err error) { l.failed.CompareAndSwap(nil, &err) }

// copier produces each record as it is.
type copier struct{ l *loop }

func (c *copier) take(r *kgo.Record) error {
	r.Topic = c.l.spec.Output
	c.l.session.Produce(context.Background(), r, c.l.promise)
	return nil
}

func (c *copier) flush() {}
func (c *copier) done()  {}
