package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batches reads the messages of what was fetched, batch by batch. Only one batch
// at a time is unpacked, when its turn comes.
type batches struct {
	topic     string
	partition int32
	spare     *spare

	rest    []byte // batches that were not begun
	abort   aborter
	visible bool // of the messages, those that a reader of committed ones sees
	open    bool // a batch is being read
	cur     batch
	rs      records
	old     []*kgo.Record // instead of rs, of a format before 2
	buf     []byte        // that rs reads; nil: it reads what was fetched
}

// begin reads what a parcel holds, next. committed leaves out what was aborted.
func (b *batches) begin(p *parcel, committed bool) {
	b.rest, b.visible, b.abort = p.raw, committed, aborter{}
	if committed {
		b.abort = newAborter(p.aborted)
	}
}

// next reads one message, whose bytes are valid until the next call. ok is false
// when all of the parcel was read. names is as in records.next.
func (b *batches) next(m *Message, names *interner) (ok bool, err error) {
	for {
		if b.open {
			if ok, err = b.one(m, names); ok || err != nil {
				return ok, err
			}
			b.leave()
		}
		cur, rest, ok := cutBatch(b.rest)
		if !ok {
			return false, nil
		}
		b.cur, b.rest = cur, rest
		if err := b.enter(); err != nil {
			return false, err
		}
	}
}

// one reads one message of the open batch.
func (b *batches) one(m *Message, names *interner) (bool, error) {
	if b.cur.format == 2 {
		ok, err := b.rs.next(m, names)
		return ok, b.damaged(err)
	}
	if len(b.old) == 0 {
		return false, nil
	}
	r := b.old[0]
	b.old = b.old[1:]
	m.Offset, m.Key, m.Value, m.Headers = r.Offset, r.Key, r.Value, nil
	b.rs.time = r.Timestamp.UnixMilli()
	if r.Attrs.TimestampType() < 0 {
		b.rs.time = -1
	}
	return true, nil
}

// enter opens the current batch, or leaves it again if nothing of it is to be seen.
func (b *batches) enter() error {
	switch {
	case b.cur.format == 0 || b.cur.format == 1:
		return b.enterOld()
	case b.cur.format != 2:
		return b.damaged(fmt.Errorf("its format %d isn't known", b.cur.format))
	}
	if err := b.cur.check(); err != nil {
		return b.damaged(err)
	}
	if b.visible && b.abort.drops(&b.cur) || b.cur.attrs&control != 0 {
		b.leave()
		return nil
	}
	in := b.cur.raw[recordsAt:]
	if codec := b.cur.codec(); codec != kgo.CodecNone {
		d := b.spare.decompressor()
		out, err := d.into(b.spare.buffer(), in, codec)
		b.spare.giveBack(d)
		if err != nil {
			b.spare.giveBuffer(out)
			return b.unpacked(err)
		}
		in, b.buf = out, out
	}
	b.rs, b.open = b.cur.records(in), true
	return nil
}

// enterOld opens a message set of format 0 or 1, which brokers before 0.11 wrote.
func (b *batches) enterOld() error {
	d := b.spare.decompressor()
	defer b.spare.giveBack(d)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition, rp.RecordBatches = b.partition, b.cur.raw
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: b.topic, Partition: b.partition}, &rp, d, nil)
	if got.Err != nil {
		return b.unpacked(got.Err)
	}
	b.old, b.open = got.Records, true
	return nil
}

// leave ends the current batch.
func (b *batches) leave() {
	b.open, b.old = false, nil
	if b.buf != nil {
		b.spare.giveBuffer(b.buf)
		b.buf = nil
	}
}

// close gives back what it has.
func (b *batches) close() {
	if b.open {
		b.leave()
	}
	b.rest = nil
}

// newest is the timestamp of the batch that the next message is in; -1 for none.
func (b *batches) newest() int64 {
	if b.open && (b.rs.left > 0 || len(b.old) > 0) {
		return b.cur.newest
	}
	if next, _, ok := cutBatch(b.rest); ok {
		return next.newest
	}
	return -1
}

// where names the current batch.
func (b *batches) where() string {
	return fmt.Sprintf("topic %s, partition %d, offsets %d to %d", b.topic, b.partition, b.cur.first, b.cur.last)
}

func (b *batches) unpacked(err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%s: the batch of these messages has %d bytes and becomes more than %d when it is decompressed (kafka.MaxBatch): raise that if such batches are meant to be, or delete the messages",
			b.where(), len(b.cur.raw), b.spare.max)
	}
	return b.damaged(fmt.Errorf("it can't be decompressed: %w", err))
}

// damaged says which batch isn't what it should be. It may be whole when it is
// fetched again.
func (b *batches) damaged(err error) error {
	if err == nil {
		return nil
	}
	return waitable{fmt.Errorf("%s: the batch is damaged: %w", b.where(), err)}
}
