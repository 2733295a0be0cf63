package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// Commit ends the epoch's transaction, with the checkpoint's id and the offsets in
// it. From when the first of them is sent, an error leaves open whether it was
// committed, and the participant is dead.
func (p *participant) Commit(ctx context.Context, c weir.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	done, err := p.committed(c)
	if done || err != nil {
		return err
	}
	if !c.Empty && !c.Parent.IsZero() && p.sealed != c.Epoch {
		return fmt.Errorf("%w: the messages of checkpoint %s weren't written by this incarnation: restore the checkpoint that the ledger names, %s",
			weir.ErrRefused, c.ID, c.Parent)
	}
	ledgers := maps.Clone(p.ledgers)
	for _, sink := range p.sinks {
		ledgers[sink] = weir.Ledger{Found: true, ID: c.ID}
	}
	r := p.record(ledgers, c.ID, c.Parent, c.Epoch)
	if err := p.transact(ctx, r, c.Positions, nil); err != nil {
		return p.fail(p.overtaken(ctx, p.c.explain(fmt.Sprintf("commit epoch %d", c.Epoch), err)))
	}
	p.ledgers, p.epoch, p.sealed = ledgers, c.Epoch, -1
	return nil
}

// committed compares the ledgers with a commit: whether they name it already, and
// what is wrong if they don't name its parent either.
func (p *participant) committed(c weir.Commit) (done bool, err error) {
	n := 0
	for _, sink := range p.sinks {
		switch l := p.ledgers[sink]; {
		case !l.Found:
			return false, fmt.Errorf("%w: sink %q has no ledger in the control topic %s", weir.ErrRefused, sink, p.control.name)
		case l.ID == c.ID:
			n++
		case l.ID != c.Parent:
			return false, fmt.Errorf("%w: the ledger of sink %q in the control topic %s names checkpoint %q, where %q was to follow %q: "+
				"the cluster's topics or the state directory were replaced", weir.ErrRefused, sink, p.control.name, l.ID, c.ID, c.Parent)
		}
	}
	if n > 0 && n < len(p.sinks) {
		return false, fmt.Errorf("%w: some ledgers in the control topic %s name checkpoint %q and some don't", weir.ErrRefused, p.control.name, c.ID)
	}
	return n > 0, nil
}

// record makes the control record that says what ledgers name.
func (p *participant) record(ledgers map[string]weir.Ledger, id, parent weir.CheckpointID, epoch int64) *controlRecord {
	r := &controlRecord{Version: controlVersion, Job: p.run.Name, UUID: p.run.UUID, Incarnation: p.by.Number, Nonce: p.by.Nonce,
		Checkpoint: id.String(), Parent: parent.String(), Epoch: epoch, Sinks: map[string]string{}, Topics: map[string]string{},
		Cluster: p.cluster, Topic: p.control.id.String(), ids: map[string]weir.CheckpointID{}}
	for sink, l := range ledgers {
		r.Sinks[sink], r.ids[sink] = l.ID.String(), l.ID
	}
	if p.last != nil {
		maps.Copy(r.Topics, p.last.Topics)
	}
	for _, t := range p.registered() {
		for name, topic := range t.topics {
			r.Topics[name] = topic.id.String()
		}
	}
	return r
}

// transact completes the transaction whose turn it is, with a control record and
// offsets, and begins the next one of that producer. Nothing that is said about it
// here is a decision before EndTransaction has returned. check is asked before that,
// when the control record has its place; nil: nothing is asked.
func (p *participant) transact(ctx context.Context, r *controlRecord, positions []weir.Position, check func(context.Context) error) (err error) {
	ctx, cancel := p.within(ctx)
	defer cancel()
	defer func() { err = because(ctx, err) }()
	number := p.next.Load()
	l := p.lane(number)
	t := l.now.Load()
	if t.number != number {
		return fmt.Errorf("%s is in transaction %d, and the turn is that of %d", l.txid, t.number, number)
	}
	r.Number = number
	for i := range int64(2) {
		other := p.lane(i).now.Load()
		r.Producers = append(r.Producers, producerState{other.producer, other.epoch})
	}
	t.touch(p.clock.Now())
	if err := p.sendControl(ctx, l, t, r); err != nil {
		return fmt.Errorf("write the control record to %s: %w", p.control.name, err)
	}
	if err := p.sendOffsets(ctx, l, t, positions, r.Checkpoint); err != nil {
		return err
	}
	if check != nil {
		if err := check(ctx); err != nil {
			return err
		}
	}
	if err := t.err(); err != nil {
		return err
	}
	id, epoch, err := l.cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	if id != t.producer || epoch != t.epoch {
		return t.torn(id, epoch)
	}
	if err := l.learned(ctx, p.pause); err != nil {
		return err
	}
	if err := l.cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("end the transaction of %s: %w", l.txid, err)
	}
	p.last, p.known = r, number
	p.next.Store(number + 1)
	if err := l.begin(ctx, number+2); err != nil {
		_ = p.fail(err) // this one is committed; the next call is told
	}
	return nil
}

// because adds why a context has ended to an error that only says that it has.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// sendControl writes the control record into the transaction.
func (p *participant) sendControl(ctx context.Context, l *lane, t *transaction, r *controlRecord) error {
	value, err := r.encode()
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	l.note(p.control.name)
	record := &kgo.Record{Topic: p.control.name, Key: controlKey(r.UUID), Value: value, Timestamp: p.clock.Now()}
	l.cl.Produce(ctx, record, func(got *kgo.Record, err error) {
		if err == nil && (got.ProducerID != t.producer || got.ProducerEpoch != t.epoch) {
			err = t.torn(got.ProducerID, got.ProducerEpoch)
		}
		r.offset = got.Offset
		answer <- err
	})
	if err := l.cl.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// offsets are where the job stands in partitions of this cluster, by the group that
// is told.
func (p *participant) offsets(positions []weir.Position) (map[string][]kmsg.TxnOffsetCommitRequestTopic, error) {
	out := map[string][]kmsg.TxnOffsetCommitRequestTopic{}
	for _, at := range positions {
		if !isPosition(at.At) {
			continue // of another kind of source
		}
		pos, err := parsePosition(at.At)
		if err != nil {
			return nil, fmt.Errorf("split %s of source %s: %w", at.Split, at.Source, err)
		}
		if pos.cluster != p.cluster {
			continue
		}
		name, partition, err := parseSplit(at.Split)
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", at.Source, err)
		}
		group := p.c.shared.groupOf(name, p.c.prefix+p.run.Name)
		topics := out[group]
		i := slices.IndexFunc(topics, func(t kmsg.TxnOffsetCommitRequestTopic) bool { return t.Topic == name })
		if i < 0 {
			i = len(topics)
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = name, pos.topic // brokers go by the one or the other
			topics = append(topics, rt)
		}
		if slices.ContainsFunc(topics[i].Partitions, func(rp kmsg.TxnOffsetCommitRequestTopicPartition) bool { return rp.Partition == partition }) {
			continue // two sources read it; one group can hold one offset
		}
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = partition, pos.offset, -1
		topics[i].Partitions = append(topics[i].Partitions, rp)
		out[group] = topics
	}
	return out, nil
}

// maxMetadata is how many UTF-16 units a broker takes as the metadata of an offset.
const maxMetadata = 4096

// sendOffsets commits offsets in the transaction. They are for the tools that show
// a job's lag, and for people; the job itself goes by its checkpoint.
func (p *participant) sendOffsets(ctx context.Context, l *lane, t *transaction, positions []weir.Position, id string) error {
	groups, err := p.offsets(positions)
	if err != nil {
		return err
	}
	if n := len(utf16.Encode([]rune(id))); n > maxMetadata {
		return fmt.Errorf("the checkpoint's id has %d characters, and an offset's metadata can have %d", n, maxMetadata)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		// No member: nobody joins the group, whose offsets no reader starts from.
		req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = l.txid, group, t.producer, t.epoch, -1
		req.Topics = groups[group]
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				req.Topics[i].Partitions[j].Metadata = &id
			}
		}
		if err := p.commitOffsets(ctx, l, req); err != nil {
			return fmt.Errorf("commit offsets to group %s: %w", group, err)
		}
	}
	return nil
}

// offsetsPause is how long is waited before offsets are committed again, which a
// coordinator that is busy asks for. The client repeats no request of this kind.
const offsetsPause = 5 * time.Millisecond

// commitOffsets sends one commit of offsets until each partition has it, or one says
// that it never will.
func (p *participant) commitOffsets(ctx context.Context, l *lane, req *kmsg.TxnOffsetCommitRequest) error {
	began := p.clock.Now()
	for {
		resp, err := req.RequestWith(ctx, l.cl)
		if err == nil {
			err = offsetsError(req, resp)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.StaleMemberEpoch):
			return fmt.Errorf("%w: somebody else is a member of the group: the job needs one of its own (kafka.Group)", err)
		case unknown(err) && p.clock.Now().Sub(began) <= laggingFor: // the coordinator may not have heard of it yet
		case !temporary(err), p.clock.Now().Sub(began) > p.sending.timeout:
			return err
		}
		if err := p.pause(ctx, offsetsPause); err != nil {
			return err
		}
	}
}

// offsetsError is the first error among the partitions' codes. A partition that
// isn't in the answer is one as well.
func offsetsError(req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) error {
	answered := map[string]map[int32]bool{}
	var again error
	for _, t := range resp.Topics {
		name := t.Topic
		if i := slices.IndexFunc(req.Topics, func(rt kmsg.TxnOffsetCommitRequestTopic) bool { return name == "" && rt.TopicID == t.TopicID }); i >= 0 {
			name = req.Topics[i].Topic
		}
		if answered[name] == nil {
			answered[name] = map[int32]bool{}
		}
		for _, rp := range t.Partitions {
			answered[name][rp.Partition] = true
			err := kerr.ErrorForCode(rp.ErrorCode)
			if err == nil {
				continue
			}
			err = fmt.Errorf("%s: %w", splitName(name, rp.Partition), err)
			if !temporary(err) && !unknown(err) {
				return err
			}
			again = err
		}
	}
	for _, t := range req.Topics {
		for _, rp := range t.Partitions {
			if !answered[t.Topic][rp.Partition] {
				return fmt.Errorf("%s: the coordinator's answer leaves it out", splitName(t.Topic, rp.Partition))
			}
		}
	}
	return again
}

// Visible returns once a reader sees the control record of a commit: the coordinator
// writes the markers after it has answered, and a broker that is killed in between
// can lose them.
func (p *participant) Visible(ctx context.Context, id weir.CheckpointID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	if p.last == nil || p.last.Checkpoint != id.String() || p.seen == p.last {
		return nil // it was read, when this incarnation began
	}
	return p.see(ctx, p.last)
}

// see waits until a control record that was committed can be read. It really reads
// it, so that a commit that was none is found out: that its end is stable can also
// mean that it was aborted.
func (p *participant) see(ctx context.Context, r *controlRecord) error {
	ctx, cancel := p.within(ctx)
	defer cancel()
	// A short timeout says how long a transaction may be open, not how soon a busy
	// broker writes that it has ended.
	limit := max(p.sending.timeout, settleTimeout)
	for began, wait := p.clock.Now(), time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		there, err := p.shows(ctx, r)
		switch {
		case err != nil && errors.Is(err, errAborted):
			return p.fail(p.later(ctx, err))
		case err != nil && !temporary(err):
			return p.c.explain("read the control record of a commit", err)
		case there:
			p.seen = r
			return nil
		case p.clock.Now().Sub(began) > limit:
			text := fmt.Sprintf("kafka: checkpoint %s was committed, but its record at offset %d of %s can't be read after %v: a broker was killed before it "+
				"had written how the transaction ended, or none can be reached; the next start looks for what hangs", r.Checkpoint, r.offset, p.control.name, limit)
			if err != nil {
				return p.fail(fmt.Errorf("%s: %w", text, err))
			}
			return p.fail(errors.New(text))
		}
		if err := p.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// errAborted is found where a transaction was to be committed.
var errAborted = errors.New("the transaction was aborted, although its commit was confirmed")

// shows reports whether a control record can be read.
func (p *participant) shows(ctx context.Context, r *controlRecord) (bool, error) {
	if r.offset < 0 { // a broker has answered that it has it already, and not where
		last, err := p.lastControl(ctx, p.control, r.UUID)
		return err == nil && last.own != nil && last.own.Number == r.Number && last.own.by() == r.by(), err
	}
	rp, err := p.fetchControl(ctx, p.control, r.offset)
	if err != nil {
		return false, err
	}
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: r.offset, IsolationLevel: kgo.ReadCommitted(), Topic: p.control.name},
		rp, kgo.DefaultDecompressor(), nil)
	if got.Err != nil {
		return false, got.Err
	}
	if len(got.Records) > 0 && got.Records[0].Offset == r.offset {
		return true, nil
	}
	if next > r.offset || len(got.Records) > 0 {
		return false, fmt.Errorf("kafka: commit of checkpoint %s: %w: its record at offset %d of %s isn't to be seen", r.Checkpoint, errAborted, r.offset, p.control.name)
	}
	return false, nil
}
