package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
)

// participant is the transactional sinks on one cluster in one run. What an epoch
// writes goes to one of two producers at once, in a transaction that Commit ends
// together with a control record and the offsets that were read. Control makes
// every call but those of writers. After a commit that went wrong at any point it
// is dead: what became of it is for the next incarnation to find out, whose fence
// settles it.
type participant struct {
	*outputs

	mu      sync.Mutex // held during each of control's calls
	run     weir.JobID
	by      weir.Incarnation
	control *controlTopic          // nil: it doesn't exist, or wasn't looked for
	fenced  bool                   // the producers are this incarnation's
	last    *controlRecord         // that this incarnation has read or written
	seen    *controlRecord         // that a reader sees
	known   int64                  // number of the newest record, of any run, that this incarnation has read or written; -1: none
	other   *controlRecord         // the newest of another run, which isn't given up
	ledgers map[string]weir.Ledger // of this run; nil before Fence
	fresh   map[string]bool        // sinks that Adopt made the ledger of
	ready   map[string]bool        // sinks whose topics were looked at
	epoch   int64                  // committed last, or -1
	sealed  int64                  // the epoch that Prepare flushed, or -1
}

func newParticipant(o *outputs) *participant {
	return &participant{outputs: o, fresh: map[string]bool{}, ready: map[string]bool{}, epoch: -1, sealed: -1}
}

// attach adds a sink. It may come before Fence, which then sees to the topics.
func (p *participant) attach(ctx context.Context, t *target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.register(t); err != nil {
		return err
	}
	if !p.fenced {
		return nil
	}
	return p.prepareTarget(ctx, t)
}

// prepareTarget looks at a sink's topics, or makes them where nothing can have been
// committed there.
func (p *participant) prepareTarget(ctx context.Context, t *target) error {
	if p.ready[t.sink] || !p.ledgers[t.sink].Found {
		return nil // without a ledger Fence's caller is told, and won't go on
	}
	if err := p.compareTopics(ctx, t); err != nil {
		return err
	}
	if err := p.outputs.open(ctx, t); err != nil {
		return err
	}
	if err := p.refuseHanging(ctx, t.conf.topics()); err != nil {
		return err
	}
	p.ready[t.sink] = true
	return nil
}

// compareTopics refuses topics that aren't those any more to which the ledger says
// that output was committed.
func (p *participant) compareTopics(ctx context.Context, t *target) error {
	ledger := p.ledgers[t.sink]
	if ledger.ID.IsZero() || p.fresh[t.sink] || p.last == nil {
		return nil
	}
	found, err := p.describeAll(ctx, t.conf.topics())
	if err != nil {
		return err
	}
	for _, name := range t.conf.topics() {
		was, written := p.last.Topics[name]
		d, there := found[name]
		is := topicID(d.ID).String()
		if !written || there && is == was {
			continue
		}
		state := "is gone"
		if there {
			state = fmt.Sprintf("was made anew (its id was %s and is %s)", was, is)
		}
		return fmt.Errorf("%w: the topic %s on the kafka cluster %s %s, but the ledger says that output up to checkpoint %s was committed to it: "+
			"start over with --start-over (StartOver), or give the sink another id and topic", weir.ErrRefused, name, p.c, state, ledger.ID)
	}
	return nil
}

// Prepare waits until the brokers have everything that was written in the epoch.
func (p *participant) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	if p.epoch >= 0 && epoch != p.epoch+1 {
		return nil, p.fail(p.later(ctx, fmt.Errorf("kafka: epoch %d is prepared, and epoch %d was committed last", epoch, p.epoch)))
	}
	run := ctx
	ctx, cancel := p.within(ctx)
	defer cancel()
	if err := p.lane(p.next.Load()).flush(ctx); err != nil {
		if cause := context.Cause(run); cause != nil {
			return nil, cause // nothing is in doubt: Close may abort the transaction
		}
		return nil, p.fail(p.overtaken(ctx, p.c.explain(fmt.Sprintf("prepare epoch %d", epoch), err)))
	}
	p.sealed = epoch
	return nil, nil
}

// usable says why nothing can be committed.
func (p *participant) usable() error {
	if err := p.failure(); err != nil {
		return err
	}
	if !p.fenced || p.ledgers == nil {
		return fmt.Errorf("kafka: %s hasn't been fenced for this job", p.name)
	}
	return nil
}

// Flush has nothing to wait for: all that is written waits for a Commit.
func (p *participant) Flush(context.Context) error { return p.failure() }

// Close ends the clients. A transaction that is open, and about which there is no
// doubt, is aborted, so that readers needn't wait for its end; and what was committed
// can be read everywhere when a job has ended well.
func (p *participant) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp(p.failure() == nil)
	p.shut()
	return nil
}

// hangUp ends the producers.
func (p *participant) hangUp(politely bool) {
	p.outputs.mu.Lock()
	lanes := p.lanes
	p.lanes = nil
	p.outputs.mu.Unlock()
	if p.fenced {
		p.c.shared.carry(p.run.Name, -1)
		p.fenced = false
	}
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(func() {
			if politely {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), abortTimeout)
				defer cancel()
				l.abort(ctx, p.pause)
				p.awaitMarkers(ctx, l.txid)
			}
			l.cl.Close()
		})
	}
	all.Wait()
}

// awaitMarkers waits until the coordinator has told all partitions how the last
// transaction of an id ended: EndTxn's answer comes earlier. It is a courtesy, too: who
// can't be asked is not waited for.
func (p *participant) awaitMarkers(ctx context.Context, txid string) {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		all, err := p.adm.DescribeTransactions(ctx, txid)
		if err != nil {
			return
		}
		if state := all[txid].State; state != "PrepareCommit" && state != "PrepareAbort" {
			return
		}
		if p.pause(ctx, wait) != nil {
			return
		}
	}
}

// fencing are the codes of a broker that knows a newer producer of the same id, or
// whose coordinator has ended the transaction: which of the two, only the control
// topic tells.
var fencing = []error{
	kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState,
	kerr.UnknownProducerID, kerr.TransactionCoordinatorFenced, kerr.OperationNotAttempted, kerr.OutOfOrderSequenceNumber,
	kerr.TransactionAbortable,
}

// fences reports whether an error may be a fence.
func fences(err error) bool {
	return slices.ContainsFunc(fencing, func(f error) bool { return errors.Is(err, f) })
}

// overtaken finds out what an error that may be a fence is about: if a newer
// incarnation has claimed the control topic, it is a weir.ErrFenced.
func (p *participant) overtaken(ctx context.Context, err error) error {
	if !fences(err) {
		return err
	}
	if err := p.later(ctx, err); errors.Is(err, weir.ErrFenced) || errors.Is(err, errUnknown) {
		return err
	}
	return fmt.Errorf("%w: no newer incarnation has claimed %s, so the brokers have ended the transaction themselves, as they do after its timeout (%v): the epoch is read and written again",
		err, p.control.name, p.sending.timeout)
}

// errUnknown comes with an error that nobody could be asked about.
var errUnknown = errors.New("whether a newer incarnation runs isn't known")

// later makes err a weir.ErrFenced if a newer incarnation has claimed the control
// topic.
func (p *participant) later(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overtakenTimeout)
	defer cancel()
	last, read := p.lastControl(ctx, p.control, p.run.UUID)
	if read != nil {
		return fmt.Errorf("%w (%w: %w)", err, errUnknown, read)
	}
	n := last.newest
	switch {
	case n == nil || n.Number <= p.known || n.UUID == p.run.UUID && n.by() == p.by:
		return err
	case n.UUID == p.run.UUID && n.Incarnation < p.by.Number: // it is about to be told by its log
		return fmt.Errorf("%w (the older incarnation %d has gone on at the same moment)", err, n.Incarnation)
	}
	return fmt.Errorf("%w: %w", p.shutOut(n), err)
}

// shutOut says that a control record of somebody else ends this incarnation.
func (p *participant) shutOut(n *controlRecord) error {
	if n.UUID != p.run.UUID {
		return fmt.Errorf("%w: the results of this run (%s) were given up: the control topic %s names run %s, incarnation %d, now",
			weir.ErrFenced, p.run.UUID, p.control.name, n.UUID, n.Incarnation)
	}
	return fmt.Errorf("%w: incarnation %d (%s) can't write to the kafka cluster %s: the control topic %s names incarnation %d (%s)",
		weir.ErrFenced, p.by.Number, p.by.Nonce, p.c, p.control.name, n.Incarnation, n.Nonce)
}
