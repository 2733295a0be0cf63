package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

var errSinkClosed = errors.New("kafka: the sink is closed")

// How much an epoch may have on its way to the brokers; Write waits for room. More
// records than some batches for each partition bring no speed: they lie in memory
// that the collector has to look through, and the epoch's end waits for them.
const (
	maxBufferedRecords = 25_000
	maxBufferedBytes   = 64 << 20
)

// newTopics is how soon a client asks again about topics: a producer about one that
// it hasn't written to before, and all others about one that was made just now. The
// first start and the first epoch wait for that.
const newTopics = 10 * time.Millisecond

// unknownTries is how often a leader may not know of a topic that other brokers know
// of: it may take a moment after the topic was made.
const unknownTries = 10

// outputs is what all sinks on one cluster share in one run, whatever they
// promise: the clients, the topics, and the first error, after which nothing is
// sent any more. Recovery is a new one.
type outputs struct {
	c       *Cluster
	job     string   // its name
	name    string   // of the participant
	sinks   []string // ids, sorted
	sending sending
	cluster string // its id
	clock   sys.Clock
	ctx     context.Context // ends with the run, and with the first error
	cancel  context.CancelCauseFunc

	next atomic.Int64 // number of the transaction that is committed next

	cl  *kgo.Client // for everything but producing
	adm *kadm.Client

	mu      sync.Mutex
	err     error
	closed  bool
	targets []*target
	lanes   []*lane // nil before there are producers
	ask     func()  // for an early barrier; may be nil

	watched  bool // watch runs
	watching sync.WaitGroup
	stop     chan struct{} // ends watch
}

// newOutputs reaches the cluster.
func newOutputs(ctx context.Context, c *Cluster, sinks []string, transactional bool) (*outputs, error) {
	o := &outputs{c: c, job: weir.JobName(ctx), name: c.participant(), sinks: slices.Sorted(slices.Values(sinks)),
		sending: c.shared.agreed(), clock: sys.From(ctx).Clock, stop: make(chan struct{})}
	if !transactional {
		o.name += "#at-least-once"
	}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	var err error
	if o.cl, err = c.client(kgo.MetadataMinAge(newTopics)); err != nil {
		return nil, fmt.Errorf("%w: %w", weir.ErrRefused, err)
	}
	o.adm = kadm.NewClient(o.cl)
	if err := o.look(ctx, transactional); err != nil {
		o.cancel(err)
		o.cl.Close()
		return nil, err
	}
	return o, nil
}

// look reads the cluster's id, and what it has finalized.
func (o *outputs) look(ctx context.Context, transactional bool) error {
	meta, err := o.adm.BrokerMetadata(ctx)
	if err != nil {
		return o.c.explain("reach the brokers", err)
	}
	o.cluster = meta.Cluster
	if !transactional {
		return nil
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "sink"
	resp, err := req.RequestWith(ctx, o.cl)
	if err != nil {
		return o.c.explain("ask which features are finalized", err)
	}
	level := int16(-1)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == transactionFeature {
			level = f.MaxVersionLevel
		}
	}
	if level >= transactionLevel {
		return nil
	}
	found := fmt.Sprintf("is finalized at %d", level)
	if level < 0 {
		found = "isn't finalized"
	}
	return fmt.Errorf("%w: exactly-once needs %s %d, and on the kafka cluster %s it %s: below that a delayed answer can end the wrong transaction. "+
		"With all brokers at 4.0 or newer run kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature %[2]s=%[3]d; or declare the sink AtLeastOnce",
		weir.ErrRefused, transactionFeature, transactionLevel, o.c, found)
}

func (o *outputs) core() *outputs { return o }

// producer makes a client that produces: in transactions of an id, or outside of
// any if that is empty.
func (o *outputs) producer(txid string) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.ProducerLinger(*o.sending.linger),
		kgo.ProducerBatchCompression(codecs[o.sending.codec](), kgo.NoCompression()),
		kgo.RecordPartitioner(partitioner{kgo.UniformBytesPartitioner(64<<10, true, true, nil)}),
		kgo.ProducerBatchMaxBytesFn(o.batchMax),
		kgo.MaxBufferedRecords(maxBufferedRecords),
		kgo.MaxBufferedBytes(maxBufferedBytes),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MetadataMinAge(newTopics),
		kgo.UnknownTopicRetries(unknownTries),
	}
	if txid != "" {
		opts = append(opts, kgo.TransactionalID(txid), kgo.TransactionTimeout(o.sending.timeout),
			kgo.ConcurrentTransactionsBackoff(2*time.Millisecond))
	}
	return o.c.client(opts...)
}

// batchMax is how long a batch for a topic may be: as long as the topic takes, and
// never longer than the client takes.
func (o *outputs) batchMax(name string) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.targets {
		if topic := t.topics[name]; topic != nil {
			return int32(max(512, topic.maxBatch))
		}
	}
	return defaultMaxBatch
}

// failure returns the first error, or nil.
func (o *outputs) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// failureOr returns the first error, or what is known instead.
func (o *outputs) failureOr(err error) error {
	if first := o.failure(); first != nil {
		return first
	}
	return err
}

// fail makes err the last word, if nothing went wrong before: who waits for a
// broker stops waiting, and nothing more is sent. It returns the first error.
func (o *outputs) fail(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = final{err}
		o.cancel(o.err)
	}
	return o.err
}

// final is an error behind which nothing can be repeated, whatever its cause says
// about itself.
type final struct{ error }

func (f final) Unwrap() error   { return f.error }
func (f final) Temporary() bool { return false }

// within returns a context that ends with the call, with the run, and with the
// first error.
func (o *outputs) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.ctx, func() { cancel(context.Cause(o.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// register adds a sink whose topics aren't looked at yet.
func (o *outputs) register(t *target) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case !slices.Contains(o.sinks, t.sink):
		return fmt.Errorf("the participant was connected for %v only", o.sinks)
	case slices.ContainsFunc(o.targets, func(other *target) bool { return other.sink == t.sink }):
		return errors.New("it is opened twice")
	}
	o.targets = append(o.targets, t)
	return nil
}

func (o *outputs) registered() []*target {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.targets)
}

// Press implements weir.Pressed.
func (o *outputs) Press(ask func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ask = ask
}

// start makes producers the ones that writers use, and begins to watch them.
func (o *outputs) start(lanes []*lane) {
	o.mu.Lock()
	first := !o.watched
	o.lanes, o.watched = lanes, true
	o.mu.Unlock()
	if first {
		o.watching.Go(o.watch)
	}
}

// lane returns the producer whose turn is a transaction; nil before there are any.
func (o *outputs) lane(number int64) *lane {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lanes) == 0 {
		return nil
	}
	return o.lanes[number%int64(len(o.lanes))]
}

// watchesPer is how often transactions are looked at within their timeout.
const watchesPer = 20

// watch asks for a barrier when the transaction of an epoch comes of age, and gives
// up one that the brokers have given up by then. It ends with the run.
func (o *outputs) watch() {
	for {
		select {
		case <-o.stop:
			return
		case <-o.clock.After(o.sending.timeout / watchesPer):
		}
		o.mu.Lock()
		lanes, ask := o.lanes, o.ask
		o.mu.Unlock()
		for _, l := range lanes {
			err := l.overdue(o.clock.Now(), o.sending.timeout, ask)
			if err != nil {
				_ = o.fail(err) // whoever writes or prepares next is told
				return
			}
		}
	}
}

// shut ends the goroutine and the clients. It may be called again.
func (o *outputs) shut() {
	o.mu.Lock()
	closed := o.closed
	o.closed = true
	lanes := o.lanes
	if o.err == nil {
		o.err = errSinkClosed
	}
	o.mu.Unlock()
	if closed {
		return
	}
	o.c.shared.over(o.job)
	o.cancel(errSinkClosed)
	close(o.stop)
	o.watching.Wait()
	for _, l := range lanes {
		l.cl.Close()
	}
	o.cl.Close()
}
