package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lane is a producer and what it has in hand. Transactions go to the lanes in
// turn, by their number, so that one is filled while the one before it commits.
type lane struct {
	txid string // "": no transactions
	cl   *kgo.Client
	now  atomic.Pointer[transaction] // what writers add to; nil before the first

	mu    sync.Mutex
	wrote map[string]bool // topics, by whether the client is known to have their partitions

	done      func(*kgo.Record, error) // promise, made once
	confirmed atomic.Int64             // of records outside of transactions

	// Of the goroutine that watches.
	asked *transaction // a barrier was asked for because of it
	count int64        // confirmed, when that last changed
	since time.Time
}

func newLane(txid string, cl *kgo.Client) *lane {
	l := &lane{txid: txid, cl: cl, wrote: map[string]bool{}}
	l.done = l.promise
	return l
}

// transaction is one transaction of a lane, from its beginning to its end; or all
// that a lane without transactions ever sends.
type transaction struct {
	number   int64
	producer int64 // id and epoch, which is its own: -1 outside of transactions
	epoch    int16
	first    atomic.Int64 // when the first record was sent: nanoseconds since 1970; 0: none was
	failed   atomic.Pointer[error]
}

// begin begins a transaction. The broker hears of it with the first record.
func (l *lane) begin(ctx context.Context, number int64) error {
	if err := l.cl.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction of %s: %w", l.txid, err)
	}
	t := &transaction{number: number}
	var err error
	if t.producer, t.epoch, err = l.cl.ProducerID(ctx); err != nil {
		return fmt.Errorf("begin a transaction of %s: %w", l.txid, err)
	}
	l.now.Store(t)
	return nil
}

// unbound is what a lane without transactions sends.
func (l *lane) unbound() { l.now.Store(&transaction{producer: -1, epoch: -1}) }

// touch notes when the first record is sent.
func (t *transaction) touch(now time.Time) {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, now.UnixNano())
	}
}

// fail keeps the first error.
func (t *transaction) fail(err error) { t.failed.CompareAndSwap(nil, &err) }

// err is the first error of a record that was sent; nil as long as there is none.
func (t *transaction) err() error {
	if e := t.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// promise takes a broker's answer about one record that a writer has sent. The
// client makes these calls one at a time.
//
// A record that was written under another epoch than the transaction's isn't part
// of it: a client that was given a new epoch in the middle has lost what it wrote
// before, and would commit the rest.
func (l *lane) promise(r *kgo.Record, err error) {
	s := r.Context.(*slab)
	t := s.txn
	switch {
	case err != nil:
		t.fail(fmt.Errorf("write to topic %s, partition %d: %w", r.Topic, r.Partition, err))
	case t.producer < 0:
		l.confirmed.Add(1)
	case r.ProducerID != t.producer || r.ProducerEpoch != t.epoch:
		t.fail(t.torn(r.ProducerID, r.ProducerEpoch))
	}
	s.settled()
}

func (t *transaction) torn(producer int64, epoch int16) error {
	return fmt.Errorf("the transaction began with producer %d, epoch %d, and goes on with producer %d, epoch %d: what was written before isn't part of it",
		t.producer, t.epoch, producer, epoch)
}

// flush waits until every record that was sent is answered, and returns the first
// error among the answers.
func (l *lane) flush(ctx context.Context) error {
	t := l.now.Load()
	if err := l.cl.Flush(ctx); err != nil {
		if failed := t.err(); failed != nil {
			return failed
		}
		return fmt.Errorf("wait until the brokers have everything: %w", because(ctx, err))
	}
	return t.err()
}

// note takes down that a topic is written to, before it is.
func (l *lane) note(topic string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.wrote[topic]; !ok {
		l.wrote[topic] = false
	}
}

// learned waits until the client has the partitions of all topics that it has written
// to where EndTransaction looks for them. The first records to a topic can be answered
// before it has: EndTransaction then takes a transaction with nothing else in it for
// an empty one, aborts it and returns no error, and sequence numbers aren't begun
// anew.
func (l *lane) learned(ctx context.Context, pause func(context.Context, time.Duration) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, known := range l.wrote {
		for !known {
			leader, _, err := l.cl.PartitionLeader(topic, 0)
			if known = leader >= 0 || err != nil; known {
				l.wrote[topic] = true
				break
			}
			if err := pause(ctx, learnStep); err != nil {
				return fmt.Errorf("wait for the partitions of topic %s to be known: %w", topic, err)
			}
		}
	}
	return nil
}

// learnStep is how often a client is asked for what it is about to learn.
const learnStep = 200 * time.Microsecond

// errStalled and errAged end an epoch that no broker will take any more.
var (
	errStalled = errors.New("no broker has confirmed a message for too long")
	errAged    = errors.New("the transaction is as old as its timeout, and the brokers abort it")
)

// overdue asks for a barrier once a transaction is half as old as it may become,
// and returns an error once it is that old. Outside of transactions it does so
// when nothing is confirmed for that long.
func (l *lane) overdue(now time.Time, timeout time.Duration, ask func()) error {
	t := l.now.Load()
	if t == nil {
		return nil
	}
	if t.producer < 0 {
		return l.stalled(now, timeout)
	}
	first := t.first.Load()
	if first == 0 {
		return nil
	}
	switch age := now.Sub(time.Unix(0, first)); {
	case age >= timeout:
		return fmt.Errorf("%w (%v): the epoch is read and written again; if this happens often, give the sink a longer TransactionTimeout or take checkpoints more often",
			errAged, timeout)
	case age >= timeout/2 && l.asked != t && ask != nil:
		l.asked = t
		ask()
	}
	return nil
}

func (l *lane) stalled(now time.Time, timeout time.Duration) error {
	n := l.confirmed.Load()
	if n != l.count || l.since.IsZero() || l.cl.BufferedProduceRecords() == 0 {
		l.count, l.since = n, now
		return nil
	}
	if now.Sub(l.since) >= timeout {
		return fmt.Errorf("%w (%v)", errStalled, timeout)
	}
	return nil
}

// abort ends a transaction that is given up, as a courtesy to readers, who would
// wait for the next start, or for the timeout.
func (l *lane) abort(ctx context.Context, pause func(context.Context, time.Duration) error) {
	t := l.now.Load()
	if t == nil || t.producer < 0 || t.first.Load() == 0 {
		return
	}
	if err := t.err(); err != nil && !errors.Is(err, context.Canceled) { // with the run: others may be there
		return
	}
	if l.cl.AbortBufferedRecords(ctx) == nil && l.learned(ctx, pause) == nil {
		_ = l.cl.EndTransaction(ctx, kgo.TryAbort) // whoever starts next does it in any case
	}
}

// partitioner leaves a message where its writer has put it, and all others to what
// Kafka's own clients do.
type partitioner struct{ kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.Partitioner.ForTopic(topic).(kgo.TopicBackupPartitioner)}
}

type topicPartitioner struct{ kgo.TopicBackupPartitioner }

func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicBackupPartitioner.RequiresConsistency(r)
}

func (p topicPartitioner) PartitionByBackup(r *kgo.Record, n int, backup kgo.TopicBackupIter) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicBackupPartitioner.PartitionByBackup(r, n, backup)
}
