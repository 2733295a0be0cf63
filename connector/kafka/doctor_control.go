package kafka

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// controlSays is what the control topic holds about one transaction, read with all
// that isn't committed.
type controlSays struct {
	record *controlRecord // its own; nil: there is none
	// marker is its end there, asCommit or asAbort; "": there is none.
	marker   string
	markerAt int64
	after    []*controlRecord // of later transactions of the same life of the job
}

// id is the checkpoint that the transaction commits; zero where it commits none.
func (s *controlSays) id() weir.CheckpointID {
	if s.record == nil || s.record.Checkpoint == s.record.Parent {
		return weir.CheckpointID{}
	}
	id, err := ledgerID(s.record.Checkpoint)
	if err != nil {
		return weir.CheckpointID{}
	}
	return id
}

// evidence is what follows from it. A worker writes the control record of an epoch
// only when it has seen the one before it committed, so that a later record tells,
// even one that wasn't committed itself.
func (s *controlSays) evidence(topic string) (out []evidence) {
	if s.marker != "" {
		out = append(out, evidence{s.marker, fmt.Sprintf("in %s it was ended as %s, at offset %d", topic, s.marker, s.markerAt)})
	}
	if s.id().IsZero() {
		return out
	}
	for _, r := range s.after {
		switch r.Parent {
		case s.record.Checkpoint:
			return append(out, evidence{asCommit, fmt.Sprintf("a later record in %s, at offset %d, goes on from the checkpoint that it commits", topic, r.offset)})
		case s.record.Parent:
			if r.Incarnation > s.record.Incarnation {
				return append(out, evidence{asAbort, fmt.Sprintf("a later start of the job went on from the checkpoint before it: that says the record in %s at offset %d", topic, r.offset)})
			}
		}
	}
	return out
}

// controlOf looks for a transaction's record in the control topic, for its end, and
// for what came later.
func (e *exam) controlOf(ctx context.Context, t *openTxn) (says controlSays, err error) {
	name := e.control()
	meta, err := e.adm.Metadata(ctx, name)
	if err != nil {
		return says, err
	}
	topic := meta.Topics[name]
	if topic.Err != nil {
		return says, topic.Err
	}
	un := decompressor{max: 16 << 20}
	defer un.close()
	another := false // the producer's next transaction has begun
	err = e.eachBatch(ctx, part{name, topicID(topic.ID), 0, topic.Partitions[0].Leader}, 0, func(b *batch) error {
		own := b.producer == t.producer
		if b.attrs&control != 0 {
			if own && says.record != nil && says.marker == "" && !another && endsWith(t.epoch, b.producerEpoch(), b.aborts()) {
				says.marker, says.markerAt = asCommit, b.first
				if b.aborts() {
					says.marker = asAbort
				}
			}
			return nil
		}
		another = another || own && says.record != nil && b.producerEpoch() != t.epoch
		return eachRecord(b, &un, func(m *Message) {
			r, err := parseControl(m.Key, m.Value)
			switch {
			case err != nil || r.Job != e.Job: // nothing that could tell
			case own && b.producerEpoch() == t.epoch:
				r.offset = m.Offset
				says.record = r
			case says.record != nil && r.UUID == says.record.UUID:
				r.offset = m.Offset
				says.after = append(says.after, r)
			}
		})
	})
	return says, err
}

// endsWith reports whether a marker may be the end of a transaction, by their epochs:
// it has the same one before transaction.version 2, or where it was written by hand,
// and one more since; brokers of 4.0.0 and before add two for some aborts.
func endsWith(open, marker int16, aborts bool) bool {
	more := int(marker) - int(open)
	return more == 0 || more == 1 || more == 2 && aborts
}

// eachRecord goes through the records of a batch.
func eachRecord(b *batch, un *decompressor, do func(m *Message)) error {
	raw, err := un.Decompress(b.raw[recordsAt:], b.codec())
	if err != nil {
		return err
	}
	rs := b.records(raw)
	var m Message
	for {
		ok, err := rs.next(&m, nil)
		if !ok || err != nil {
			return err
		}
		do(&m)
	}
}
