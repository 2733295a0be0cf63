package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
)

// How long the steps of a fence wait for brokers that are busy.
const (
	fenceTimeout     = 30 * time.Second       // for the coordinator to be done with what was there before
	settleTimeout    = 10 * time.Second       // for markers, once it is
	settleStep       = 2 * time.Millisecond   // between looks at them
	hangingAgain     = 300 * time.Millisecond // between two looks, before a transaction is called hanging
	overtakenTimeout = 5 * time.Second
	abortTimeout     = 2 * time.Second
)

// Fence shuts out every earlier incarnation: both producers are initialized, and a
// control record says whose they are now. Only between the two is the last record
// read that says what was committed.
//
// Fencing two producers isn't one step: of two incarnations that start at once, each
// can come to own one. The control record is numbered, and the number chooses the
// producer that writes it, so of the two only one can write the next record; the
// other one's fails, and it gives up.
func (p *participant) Fence(ctx context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.failure(); err != nil {
		return nil, err
	}
	p.hangUp(false)
	p.run, p.by, p.control, p.last, p.other, p.ledgers, p.epoch, p.sealed = f.Job, f.By, nil, nil, nil, nil, -1, -1
	if err := p.fence(ctx, f); err != nil {
		p.hangUp(false)
		return nil, fmt.Errorf("kafka: fence earlier incarnations: %w", err)
	}
	return p.answer(f.Former), nil
}

func (p *participant) fence(ctx context.Context, f weir.Fence) error {
	name, err := p.c.controlName(f.Job.Name)
	if err != nil {
		return err
	}
	if p.control, err = p.findControl(ctx, name, f.Create); err != nil {
		return err
	}
	// Looked at first, so that nothing is fenced that isn't ours to fence, and as long
	// as the coordinator still knows how the last transactions ended.
	before, err := p.claimable(ctx, f)
	if err != nil || p.other != nil {
		return err
	}
	if err := p.refuseHanging(ctx, before.newest.topicNames()); err != nil {
		return err
	}
	lanes, err := p.initProducers(ctx, f.Job.Name)
	if err != nil {
		return err
	}
	p.start(lanes)
	p.c.shared.carry(f.Job.Name, 1)
	p.fenced = true
	if err := p.settle(ctx, before.newest); err != nil {
		return err
	}
	last, err := p.claimable(ctx, f) // again: this is what counts, and somebody may have been quicker
	if err != nil || p.other != nil {
		return err
	}
	return p.claim(ctx, f, last)
}

// claimable reads the last control records and says why this incarnation can't go on
// from them. It sets p.other if there is nothing of this run to fence, and a new
// sink would get in another one's way.
func (p *participant) claimable(ctx context.Context, f weir.Fence) (lastRecords, error) {
	if p.control == nil {
		return lastRecords{}, nil
	}
	last, err := p.lastControl(ctx, p.control, f.Job.UUID)
	if err != nil || last.newest == nil {
		return last, err
	}
	own, newest := last.own, last.newest
	if err := p.moved(newest); err != nil {
		return last, err
	}
	switch {
	case own == nil && !f.Create:
		p.other = newest
	case own == nil && !f.StartOver:
		return last, fmt.Errorf("%w: the control topic %s on the kafka cluster %s already belongs to another run of the job %q (%s, checkpoint %q), and this run starts "+
			"from nothing: start with that run's state directory, or give the job another name or the cluster a Prefix, or give those results up with "+
			"--start-over (StartOver): what is in the topics stays there", weir.ErrRefused, p.control.name, p.c, newest.Job, newest.UUID, newest.Checkpoint)
	case own == nil:
	case newest.UUID != f.Job.UUID:
		return last, p.shutOut(newest)
	case own.Incarnation == f.By.Number && own.Nonce != f.By.Nonce:
		return last, fmt.Errorf("%w: this state directory is a copy or comes from a backup: the control topic %s names incarnation %d (%s), "+
			"which this directory's log doesn't have: start with the directory that has it, or start over with --start-over (StartOver) in an empty one",
			weir.ErrRefused, p.control.name, own.Incarnation, own.Nonce)
	case own.Incarnation > f.By.Number:
		return last, fmt.Errorf("%w; or, if no newer process runs, this state directory is a copy or comes from a backup", p.shutOut(own))
	}
	return last, nil
}

// moved refuses a control topic whose records were written to another one: it was
// copied, and what was committed together with them is elsewhere.
func (p *participant) moved(r *controlRecord) error {
	if r.Cluster == p.cluster && r.Topic == p.control.id.String() {
		return nil
	}
	return fmt.Errorf("%w: the control topic %s (id %s, on cluster %s) is a copy: its record at offset %d was written to topic id %s on cluster %s. "+
		"Start the job on that one, or start over with --start-over (StartOver) under another name or Prefix",
		weir.ErrRefused, p.control.name, p.control.id, p.cluster, r.offset, r.Topic, r.Cluster)
}

// initProducers makes the producers and initializes both: each earlier one of their
// ids is shut out, and its transaction has ended, when that is answered.
func (p *participant) initProducers(ctx context.Context, job string) ([]*lane, error) {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	var lanes []*lane
	answers := make(chan error)
	for _, txid := range p.c.txids(job) {
		cl, err := p.producer(txid)
		if err != nil {
			for _, l := range lanes {
				l.cl.Close()
				<-answers //nolint:errcheck // its client was closed
			}
			return nil, err
		}
		lanes = append(lanes, newLane(txid, cl))
		go func() { // waited for below
			_, _, err := cl.ProducerID(ctx)
			answers <- p.initError(txid, err)
		}()
	}
	if err := errors.Join(<-answers, <-answers); err != nil {
		for _, l := range lanes {
			l.cl.Close()
		}
		return nil, err
	}
	return lanes, nil
}

// initError says what an error of InitProducerId means.
func (p *participant) initError(txid string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return fmt.Errorf("%w: the kafka cluster %s doesn't allow transactions of %v (%s): give the sinks a shorter TransactionTimeout, or raise the brokers' transaction.max.timeout.ms",
			weir.ErrRefused, p.c, p.sending.timeout, txid)
	case errors.Is(err, kerr.ConcurrentTransactions), errors.Is(err, context.DeadlineExceeded):
		return waitable{fmt.Errorf("initialize the producer %s on the kafka cluster %s: the coordinator is still busy with what it did last, or doesn't answer: %w", txid, p.c, err)}
	}
	return p.c.explain("initialize the producer "+txid, err)
}

// refuseHanging refuses to go on where a transaction of the job is open in a
// partition although its coordinator is done with it: no marker will ever come, and
// readers wait at that place for good. Both looks must agree. A coordinator that calls
// a transaction of another epoch ongoing isn't done: so it does while it shuts a
// producer out, until that is in its log.
func (p *participant) refuseHanging(ctx context.Context, topics []string) error {
	first, err := p.ours(ctx, topics, hanging)
	if err != nil || len(first) == 0 {
		return err
	}
	if err := p.pause(ctx, hangingAgain); err != nil {
		return err
	}
	again, err := p.ours(ctx, topics, hanging)
	if err != nil {
		return err
	}
	for _, t := range again {
		if t.state != "Ongoing" && slices.ContainsFunc(first, func(f *openTxn) bool { return f.producer == t.producer && f.epoch == t.epoch }) {
			return p.hanging(t)
		}
	}
	return nil
}

func (p *participant) hanging(t *openTxn) error {
	says := "no coordinator knows the producer"
	if t.owner != "" {
		says = fmt.Sprintf("the coordinator of %s says %s", t.owner, t.state)
	}
	return fmt.Errorf("%w: a transaction of the job hangs on the kafka cluster %s: %v is open at %s, but %s: "+
		"a broker was killed before it had written how that transaction ended, and readers with isolation.level=read_committed see nothing behind it. "+
		"The job's verb doctor shows the evidence and can end it (or kafka-transactions.sh, by hand: an abort gives up what was committed)",
		weir.ErrRefused, p.c, t, t.heldAt(), says)
}

// ours lists transactions of this job that are open in the control topic and in
// topics, and that stand so.
func (p *participant) ours(ctx context.Context, topics []string, how ...standing) ([]*openTxn, error) {
	in := slices.Clone(topics)
	if p.control != nil {
		in = append(in, p.control.name)
	}
	if len(in) == 0 {
		return nil, nil
	}
	found, err := p.describe(ctx, in)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ids := p.c.txids(p.run.Name)
	var open []*openTxn
	err = p.lagging(ctx, "look for transactions that hang (which takes the right to Read all topics that the job writes)", func() (err error) {
		open, err = openIn(ctx, p.adm, set(found), ids[:]...)
		return err
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	producers, err := p.producersOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out []*openTxn
	for _, t := range open {
		mine := slices.Contains(ids[:], t.owner) || producers[t.producer] ||
			p.control != nil && slices.ContainsFunc(t.parts, func(part openPart) bool { return part.topic == p.control.name })
		if mine && slices.Contains(how, t.standing) {
			out = append(out, t)
		}
	}
	return out, nil
}

// producersOf are the ids of the job's producers: those that the coordinators know
// now, and those of the last control record.
func (p *participant) producersOf(ctx context.Context, ids [2]string) (map[int64]bool, error) {
	out := map[int64]bool{}
	told, err := p.adm.DescribeTransactions(ctx, ids[:]...)
	if err != nil {
		return nil, p.c.explain("describe the transactions of "+ids[0]+" and "+ids[1], err)
	}
	for _, id := range ids {
		d, ok := told[id]
		switch {
		case !ok, errors.Is(d.Err, kerr.TransactionalIDNotFound):
		case d.Err != nil:
			return nil, p.c.explain("describe the transactions of "+id, d.Err)
		default:
			out[d.ProducerID] = true
		}
	}
	if p.control != nil {
		last, err := p.lastControl(ctx, p.control, p.run.UUID)
		if err != nil {
			return nil, err
		}
		for _, r := range []*controlRecord{last.own, last.newest} {
			if r != nil {
				for _, s := range r.Producers {
					out[s.ID] = true
				}
			}
		}
	}
	return out, nil
}

// settle waits until nothing of the job is open any more: the coordinators have
// answered that all has ended, so what stays open hangs.
func (p *participant) settle(ctx context.Context, before *controlRecord) error {
	for began := p.clock.Now(); ; {
		open, err := p.ours(ctx, before.topicNames(), running, ending, hanging)
		if err != nil {
			return err
		}
		stable, err := p.stable(ctx)
		if err != nil || stable && len(open) == 0 {
			return err
		}
		if p.clock.Now().Sub(began) > settleTimeout {
			if len(open) > 0 {
				return p.unsettled(ctx, open)
			}
			return fmt.Errorf("%w: the control topic %s on the kafka cluster %s isn't stable to its end %v after the job's producers were fenced, "+
				"and no transaction is open in it: see what its leader says", weir.ErrRefused, p.control.name, p.c, settleTimeout)
		}
		if err := p.pause(ctx, settleStep); err != nil {
			return err
		}
	}
}

// unsettled says why transactions of the job are still open that were to have ended
// when its producers were fenced.
func (p *participant) unsettled(ctx context.Context, open []*openTxn) error {
	for _, t := range open {
		if t.standing == hanging {
			return p.hanging(t)
		}
	}
	t := open[0]
	err := waitable{fmt.Errorf("%v of %v is still open at %s %v after the job's producers were fenced, and the coordinator of %s says %s",
		t, t.partitions(), t.heldAt(), settleTimeout, t.owner, t.state)}
	if t.standing == running { // whoever runs it has fenced us
		return p.later(ctx, err)
	}
	return err
}

// stable reports whether the control topic's stable offset is its end.
func (p *participant) stable(ctx context.Context) (bool, error) {
	if p.control == nil {
		return true, nil
	}
	var behind map[string][]int32
	err := p.lagging(ctx, "list the offsets of "+p.control.name, func() (err error) {
		behind, err = heldBack(ctx, p.adm, p.control.name)
		return err
	})
	return len(behind) == 0, err
}
