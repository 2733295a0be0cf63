package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// examineOpen looks at what is open in the partitions that the job writes, or has
// written by sinks that it no longer has: a start refuses what hangs there, too.
func (e *exam) examineOpen(ctx context.Context, topics []string) {
	const subject = "open transactions"
	topics = slices.Concat(topics, e.last.newest.topicNames(), e.last.own.topicNames())
	in, err := e.ownPartitions(ctx, topics)
	if err != nil {
		e.unseen(subject, "list the partitions that the job writes", err)
		return
	}
	if len(in) == 0 {
		return // nothing was written yet
	}
	open, err := e.openTwice(ctx, in)
	if err != nil {
		e.unseen(subject, "look for open transactions", err)
		return
	}
	if len(open) == 0 {
		e.ok(subject, "none, in %s that the job writes", count(partitionCount(in), "partition"))
	}
	var log []transition
	var logErr error
	for _, t := range open {
		if t.standing == hanging && log == nil && logErr == nil {
			log, logErr = e.coordinatorLog(ctx, e.ids()...)
		}
		switch {
		case !e.ours(t, log):
			e.judgeForeign(t)
		case t.standing == hanging:
			e.judgeHanging(ctx, t, log, logErr)
		case t.standing == ending:
			e.ok("open transaction", "%s (%v) is being ended in %s", t.owner, t, t.partitions())
		default:
			e.judgeRunning(t)
		}
	}
}

// openTwice lists the transactions that are open in partitions, and looks again where
// one seems to hang: while a producer is being fenced, its coordinator's answers are
// for a moment the same.
func (e *exam) openTwice(ctx context.Context, in kadm.TopicsSet) ([]*openTxn, error) {
	first, err := openIn(ctx, e.adm, in, e.ids()...)
	if err != nil || !slices.ContainsFunc(first, func(t *openTxn) bool { return t.standing == hanging }) {
		return first, err
	}
	select {
	case <-sys.From(ctx).Clock.After(hangingAgain):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return openIn(ctx, e.adm, in, e.ids()...)
}

func partitionCount(s kadm.TopicsSet) (n int) {
	for _, ps := range s {
		n += len(ps)
	}
	return n
}

// ours reports whether the job has begun a transaction: its id says so or, where no
// coordinator knows the producer any more, that it is in the control topic or that
// the coordinator's log has it.
func (e *exam) ours(t *openTxn, log []transition) bool {
	if t.owner != "" {
		return e.owns(t.owner)
	}
	for _, p := range t.parts {
		if p.topic == e.control() {
			return true
		}
	}
	for _, h := range log {
		if h.producer == t.producer {
			return true
		}
	}
	return false
}

// judgeRunning judges a transaction of the job's that its coordinator has open, too.
func (e *exam) judgeRunning(t *openTxn) {
	age := max(0, e.clock().Sub(t.since))
	if limit := t.timeout + 30*time.Second; age > limit { // the brokers look every 10 s
		e.warn("open transaction", "see the log of the brokers", "%s (%v) is open for %s in %s, and its timeout of %s has passed: the brokers should have aborted it",
			t.owner, t, days(age.Truncate(time.Second)), t.partitions(), days(t.timeout))
		return
	}
	e.ok("open transaction", "%s (%v) is open for %s in %s: a worker runs, or has died; then the next start ends it, or the brokers after %s",
		t.owner, t, days(age.Truncate(time.Millisecond)), t.partitions(), days(t.timeout))
}

// judgeHanging says what a lost marker means, and how it can be mended.
func (e *exam) judgeHanging(ctx context.Context, t *openTxn, log []transition, logErr error) {
	all, against := fromHistory(t, log)
	all = append(all, fromState(t)...)
	note := ""
	switch {
	case against != "":
		note = against
	case logErr != nil:
		note = fmt.Sprintf("the coordinators' log couldn't be read (Read on %s): %v", txnStateTopic, logErr)
	}
	says, err := e.controlOf(ctx, t)
	if err != nil {
		note = fmt.Sprintf("the control topic couldn't be read: %v", err)
	}
	all = append(all, says.evidence(e.control())...)
	all = append(all, fromStore(says.id(), e.Checkpoints)...)
	as, texts, why := weigh(all)
	if against != "" {
		as, why = "", against
	}
	who := t.owner
	if who == "" {
		who = "a producer of this job"
	}
	text := fmt.Sprintf("%s (%v) has left one in %s: its coordinator is done with it, but these partitions never got its end, as when a broker is killed in that moment. Readers see nothing behind these offsets, and the job doesn't start",
		who, t, t.heldAt())
	if id := says.id(); !id.IsZero() {
		text += fmt.Sprintf(". Its control record is that of checkpoint %d (epoch %d)", id.Slot, says.record.Epoch)
	}
	if note != "" {
		text += ". " + note
	}
	f := e.add(weir.LevelProblem, "hanging transaction", "", "%s", text)
	if as != "" {
		f.Fix = fmt.Sprintf("run doctor with --repair: it writes the %s that is missing, because %s", as, texts[0])
		f.Repairs = []weir.Repair{e.end(t, as, texts)}
		return
	}
	f.Fix = "with --repair nothing is done, because " + why + "; --repair --as commit, or --as abort, does it on your responsibility: the wrong one loses an epoch's output, or shows it twice"
	f.Repairs = []weir.Repair{e.end(t, asCommit, nil), e.end(t, asAbort, nil)}
}

// end is how a hanging transaction is ended. It makes a client of its own, because
// it is called when the examination is over.
func (e *exam) end(t *openTxn, as string, because []string) weir.Repair {
	c, control, own := e.c, e.control(), e.ids()
	return weir.Repair{As: as, Evidence: because,
		Text: fmt.Sprintf("end the transaction of %v as %s: write a marker to %s", t, as, t.partitions()),
		Do: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, repairTimeout)
			defer cancel()
			a, err := newAsk(c)
			if err != nil {
				return err
			}
			defer a.close()
			return c.explain("end the hanging transaction of "+t.String(), a.endHanging(ctx, t, as, control, own))
		}}
}

// endHanging writes the markers that a hanging transaction lacks, and sees that
// they are there. The control topic's comes last: as long as it is missing, the job
// doesn't start, and this can be done again.
func (a *ask) endHanging(ctx context.Context, t *openTxn, as, control string, own []string) error {
	in := kadm.TopicsSet{}
	for _, p := range t.parts {
		in.Add(p.topic, p.partition)
	}
	now, err := openIn(ctx, a.adm, in, own...)
	if err != nil {
		return err
	}
	same := false
	for _, o := range now {
		same = same || o.producer == t.producer && o.epoch == t.epoch && o.standing == hanging && len(o.parts) == len(t.parts)
	}
	if !same {
		return errors.New("it isn't as it was when it was examined: examine it again")
	}
	for _, last := range []bool{false, true} {
		for _, p := range t.parts {
			if (p.topic == control) == last {
				if err := a.mark(ctx, t, p, as); err != nil {
					return fmt.Errorf("%v, offset %d: %w", p, p.start, err)
				}
			}
		}
	}
	return nil
}

// mark writes one marker, under the coordinator's epoch that the partition knows,
// and reads it back.
func (a *ask) mark(ctx context.Context, t *openTxn, p openPart, as string) error {
	resp, err := a.adm.WriteTxnMarkers(ctx, kadm.TxnMarkers{ProducerID: t.producer, ProducerEpoch: t.epoch, Commit: as == asCommit,
		CoordinatorEpoch: p.coordinator, Topics: kadm.TopicsSet{p.topic: {p.partition: {}}}})
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return fmt.Errorf("write the marker: %w: that takes the right Alter on the cluster, which the job itself doesn't need: run doctor as a user who has it", err)
	}
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	var failed error
	resp.EachPartition(func(r kadm.TxnMarkersPartitionResponse) { failed = errors.Join(failed, r.Err) })
	if failed != nil {
		return fmt.Errorf("write the marker: %w", failed)
	}
	open, err := openAtLeaders(ctx, a.adm, kadm.TopicsSet{p.topic: {p.partition: {}}})
	if err != nil {
		return fmt.Errorf("see whether the marker is there: %w", err)
	}
	if open[txnKey{t.producer, t.epoch}] != nil {
		return errors.New("the marker was written, and the transaction is still open")
	}
	return nil
}
