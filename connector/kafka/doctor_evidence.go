package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// The two ways in which a transaction ends.
const (
	asCommit = "commit"
	asAbort  = "abort"
)

// evidence is one thing that tells how a hanging transaction ended.
type evidence struct {
	as   string
	text string
}

// transition is what a coordinator wrote into its log about a transactional id.
type transition struct {
	id        string
	partition int32 // of __transaction_state
	offset    int64
	producer  int64
	epoch     int16
	state     kmsg.TransactionState
	parts     map[string][]int32
	tv2       bool // under transaction.version 2: each decision has an epoch of its own
}

// The states of a transaction in a coordinator's log that decide it.
const (
	ongoing        = 1
	prepareCommit  = 2
	prepareAbort   = 3
	completeCommit = 4
	completeAbort  = 5
)

var stateNames = map[kmsg.TransactionState]string{
	prepareCommit: "PrepareCommit", prepareAbort: "PrepareAbort", completeCommit: "CompleteCommit", completeAbort: "CompleteAbort",
}

func (t transition) String() string {
	return fmt.Sprintf("%s/%d, offset %d", txnStateTopic, t.partition, t.offset)
}

// decides says how the entry ended a transaction; "" where it didn't.
func (t transition) decides() string {
	switch t.state {
	case prepareCommit, completeCommit:
		return asCommit
	case prepareAbort, completeAbort:
		return asAbort
	}
	return ""
}

// fromHistory looks for the entry that ended a transaction: under
// transaction.version 2 that is the one with its producer and the epoch behind its
// own, whatever has happened since. Brokers of 4.0.0 and before skip an epoch where
// they abort because the producer is initialized anew. That is told from the abort of
// the producer's next transaction only where the log still has it right behind the
// entry that says that this one is open.
func fromHistory(t *openTxn, log []transition) (out []evidence, against string) {
	open := false // what the log has said last of this producer
	for _, h := range log {
		if h.producer != t.producer {
			continue
		}
		skipped := open && h.state == prepareAbort && int(h.epoch) == int(t.epoch)+2
		open = h.state == ongoing && h.epoch == t.epoch
		if !h.tv2 || h.decides() == "" || int(h.epoch) != int(t.epoch)+1 && !skipped {
			continue
		}
		if h.state == prepareCommit || h.state == prepareAbort {
			for _, p := range t.parts {
				if !slices.Contains(h.parts[p.topic], p.partition) {
					return nil, fmt.Sprintf("the coordinator's log (%v) has an end of it, but doesn't know that it wrote to %v", h, p)
				}
			}
		}
		// Of one transaction there are two entries, prepared and complete; one will do.
		if !slices.ContainsFunc(out, func(e evidence) bool { return e.as == h.decides() }) {
			out = append(out, evidence{h.decides(), fmt.Sprintf("the coordinator's log (%v) has %s for producer %d with epoch %d, which is how epoch %d ended",
				h, stateNames[h.state], h.producer, h.epoch, t.epoch)})
		}
	}
	return out, ""
}

// fromState takes what the coordinator says now, which is about this transaction as
// long as nothing has happened since.
func fromState(t *openTxn) []evidence {
	as := map[string]string{"CompleteCommit": asCommit, "CompleteAbort": asAbort}[t.state]
	if as == "" || t.ownerEpoch != t.epoch+1 {
		return nil
	}
	return []evidence{{as, fmt.Sprintf("the coordinator says %s for producer %d with epoch %d, which is how epoch %d ended", t.state, t.producer, t.ownerEpoch, t.epoch)}}
}

// fromStore judges by what the job did after the checkpoint that the transaction
// holds: it goes on from one only when it has seen its decision.
func fromStore(id weir.CheckpointID, all []weir.StoredCheckpoint) []evidence {
	if id.IsZero() {
		return nil
	}
	i := slices.IndexFunc(all, func(c weir.StoredCheckpoint) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	for _, c := range all {
		if c.Parent == id {
			return []evidence{{asCommit, fmt.Sprintf("its record in the control topic names checkpoint %d, and the job has seen that one committed: it built checkpoint %d on it", id.Slot, c.ID.Slot)}}
		}
	}
	for _, c := range all {
		if c.ID.Slot > id.Slot && c.Parent == all[i].Parent {
			return []evidence{{asAbort, fmt.Sprintf("its record in the control topic names checkpoint %d, and the job has gone on without that one: it built checkpoint %d on the one before", id.Slot, c.ID.Slot)}}
		}
	}
	return nil
}

// verdict weighs the evidence: what it says together, or that it says nothing, or
// that it contradicts itself.
func weigh(all []evidence) (as string, texts []string, why string) {
	for _, e := range all {
		if as != "" && as != e.as {
			return "", nil, fmt.Sprintf("the evidence contradicts itself: %s; but %s", texts[0], e.text)
		}
		as = e.as
		texts = append(texts, e.text)
	}
	if as == "" {
		why = "nothing tells how it ended"
	}
	return as, texts, why
}

const txnStateTopic = "__transaction_state"

// coordinatorLog reads what coordinators have written about transactional ids. It
// reads the whole partition of each, which is done where a transaction hangs.
func (e *exam) coordinatorLog(ctx context.Context, ids ...string) ([]transition, error) {
	meta, err := e.adm.Metadata(ctx, txnStateTopic)
	if err != nil {
		return nil, err
	}
	t := meta.Topics[txnStateTopic]
	if t.Err != nil {
		return nil, t.Err
	}
	n := int32(len(t.Partitions))
	if n == 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	wanted := map[int32][]string{}
	for _, id := range ids {
		p := homeOf(id, n)
		wanted[p] = append(wanted[p], id)
	}
	un := decompressor{max: 64 << 20}
	defer un.close()
	var out []transition
	for p, names := range wanted {
		if err := e.eachBatch(ctx, part{t.Topic, topicID(t.ID), p, t.Partitions[p].Leader}, 0, func(b *batch) error {
			return transitions(b, &un, names, p, &out)
		}); err != nil {
			return nil, fmt.Errorf("read %s: %w", splitName(txnStateTopic, p), err)
		}
	}
	slices.SortStableFunc(out, func(a, b transition) int { return int(min(1, max(-1, a.offset-b.offset))) })
	return out, nil
}

// homeOf is where Kafka keeps what belongs to a transactional id or a group.
func homeOf(name string, partitions int32) int32 {
	var h int32 // Java's String.hashCode of ASCII
	for i := range len(name) {
		h = 31*h + int32(name[i])
	}
	if h == -1<<31 {
		return 0
	}
	return max(h, -h) % partitions
}

// transitions reads the entries about some transactional ids in a batch.
func transitions(b *batch, un *decompressor, ids []string, partition int32, out *[]transition) error {
	return eachRecord(b, un, func(m *Message) {
		var k kmsg.TxnMetadataKey
		if len(m.Key) < 2 || binary.BigEndian.Uint16(m.Key) != 0 || k.ReadFrom(m.Key) != nil || !slices.Contains(ids, k.TransactionalID) || m.Value == nil {
			return // another kind of entry, another id, a tombstone
		}
		var v kmsg.TxnMetadataValue
		if err := v.ReadFrom(m.Value); err != nil {
			return // a format that isn't known: no evidence
		}
		t := transition{id: k.TransactionalID, partition: partition, offset: m.Offset, producer: v.ProducerID, epoch: v.ProducerEpoch,
			state: v.State, tv2: v.ClientTransactionVersion >= 2, parts: map[string][]int32{}}
		for _, p := range v.Topics {
			t.parts[p.Topic] = p.Partitions
		}
		*out = append(*out, t)
	})
}

// part is a partition to be read.
type part struct {
	topic     string
	id        topicID
	partition int32
	leader    int32
}

// fetch asks the partition's leader once, for all that is there: also what isn't
// committed.
func (e *exam) fetch(ctx context.Context, p part, at int64, size int32) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MaxWaitMillis, req.SessionEpoch = size, 0, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = p.topic, p.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p.partition, at, size, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	raw, err := e.cl.Broker(int(p.leader)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the broker's answer isn't about the partition that was asked for")
	}
	return &resp.Topics[0].Partitions[0], kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// eachBatch reads a partition's batches from an offset, or from its start if that is
// later, to the end that it has now.
func (e *exam) eachBatch(ctx context.Context, p part, from int64, do func(b *batch) error) error {
	end := int64(-1)
	for end < 0 || from < end {
		resp, err := e.fetch(ctx, p, from, 4<<20)
		if errors.Is(err, kerr.OffsetOutOfRange) && end < 0 && resp.LogStartOffset > from {
			from = resp.LogStartOffset
			continue
		}
		if err != nil {
			return err
		}
		if end < 0 {
			end = resp.HighWatermark
		}
		next := from
		for rest := resp.RecordBatches; ; {
			b, more, ok := cutBatch(rest)
			if !ok {
				break
			}
			rest = more
			if b.last < from { // a fetch begins with the batch that holds the offset
				continue
			}
			if b.format == 2 {
				if err := do(&b); err != nil {
					return err
				}
			}
			next = b.last + 1
		}
		if next == from {
			if from < end {
				return fmt.Errorf("nothing comes at offset %d, though it ends at %d", from, end)
			}
			return nil
		}
		from = next
	}
	return nil
}

// producerEpoch is the epoch of the producer that wrote the batch.
func (b *batch) producerEpoch() int16 { return int16(binary.BigEndian.Uint16(b.raw[producerAt+8:])) }

// repairTimeout is how long a repair may take, and the reading of its evidence.
const repairTimeout = time.Minute
