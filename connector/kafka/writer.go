package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
)

// writer is a task's side of a sink: it makes messages of records and sends them
// at once, to the producer whose turn the epoch is.
type writer[T any] struct {
	*sender
	encode   Encoder[T]
	encoding bool // it is in a function of the user's
}

// Write sends the records. It waits while too much is on its way.
func (w *writer[T]) Write(recs []T, at []int64) (err error) {
	if err := w.turn(); err != nil {
		return err
	}
	i := 0
	defer func() {
		if !w.encoding {
			return
		}
		w.encoding = false
		if p := recover(); p != nil {
			err = w.reject(i, &weir.PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	for ; i < len(recs); i++ {
		w.blank(at[i])
		w.encoding = true
		err := w.encode(&recs[i], &w.m)
		to := w.to
		if err == nil {
			to, err = w.address()
		}
		w.encoding = false
		if err == nil {
			err = w.send(to)
		}
		if err != nil {
			return w.reject(i, err)
		}
	}
	return w.failed()
}

// sender is a writer without its encoder.
type sender struct {
	o  *outputs
	t  *target
	to *topic // the sink's own

	lane    *lane // nil before the epoch's first record
	txn     *transaction
	noted   *topic // that was written to last in the transaction
	number  int64  // of the transaction; -1 before the first call
	epoch   int64  // sealed last, or -1
	slabs   slabs
	slab    *slab
	m       Message
	headers []Header
	now     time.Time // of the call
	keys    int       // bytes to give a slab
	values  int
}

// What a slab has room for at first, and at most: it grows with the messages.
const (
	firstKeys, firstValues = 4 << 10, 16 << 10
	mostBytes              = 1 << 20
)

func newSender(o *outputs, t *target) *sender {
	return &sender{o: o, t: t, number: -1, epoch: -1, slabs: slabs{ctx: o.ctx, back: make(chan struct{}, 1)}, keys: firstKeys, values: firstValues}
}

// turn gets ready for records of the transaction at hand.
func (s *sender) turn() error {
	if s.lane == nil {
		if err := s.join(); err != nil {
			return err
		}
	}
	if err := s.failed(); err != nil {
		return err
	}
	s.now = s.o.clock.Now()
	s.txn.touch(s.now)
	return nil
}

// failed returns the first error of the run, or of the transaction.
func (s *sender) failed() error {
	if err := s.o.ctx.Err(); err != nil {
		return s.o.failureOr(context.Cause(s.o.ctx))
	}
	return s.txn.err()
}

// count makes sure that the writer knows which transaction it is in. The first one
// is that which is committed next when the tasks have started.
func (s *sender) count() {
	if s.number < 0 {
		s.number = s.o.next.Load()
	}
}

// join goes to the producer whose turn the transaction is, once all that the writer
// has sent in the epoch before is answered. That went to the other producer, which
// this one could overtake on the way to a partition: its readers would find a count
// behind a newer one. The wait is that of one message, once an epoch.
func (s *sender) join() error {
	s.count()
	l := s.o.lane(s.number)
	if l == nil {
		return s.o.failureOr(errors.New("kafka: a sink is written to before it was fenced"))
	}
	if err := s.slabs.settle(); err != nil {
		return s.o.failureOr(err)
	}
	t := l.now.Load()
	if t.producer >= 0 && t.number != s.number {
		return fmt.Errorf("kafka: a sink is written to in transaction %d, but %s is in transaction %d", s.number, l.txid, t.number)
	}
	if s.to == nil { // a writer may be made before the topics were looked at
		if s.to = s.t.topics[s.t.conf.topic]; s.to == nil {
			return fmt.Errorf("kafka: sink %q is written to, and its topics weren't looked at", s.t.sink)
		}
	}
	s.lane, s.txn = l, t
	return nil
}

// Seal ends the epoch: what comes next belongs to the next transaction.
func (s *sender) Seal(epoch int64) error {
	s.count()
	if s.epoch >= 0 && epoch != s.epoch+1 {
		return fmt.Errorf("kafka: sink %q: epoch %d is sealed behind epoch %d", s.t.sink, epoch, s.epoch)
	}
	if s.slab != nil {
		s.slab.release()
		s.slab = nil
	}
	s.epoch, s.lane, s.txn, s.noted = epoch, nil, nil, nil
	s.number++
	return nil
}

// blank prepares the message for the encoder. Its key and value have the slab's
// room to be appended to.
func (s *sender) blank(at int64) {
	if s.slab == nil || s.slab.n == slabLen || cap(s.slab.keys)-len(s.slab.keys) == 0 || cap(s.slab.values)-len(s.slab.values) == 0 {
		s.fresh(0, 0)
	}
	b := s.slab
	s.m = Message{Partition: -1, Key: b.keys[len(b.keys):], Value: b.values[len(b.values):], Headers: s.headers[:0], Time: s.now}
	if s.t.conf.eventTime {
		s.m.Time = time.Time{}
		if at > 0 {
			s.m.Time = time.Unix(0, at)
		}
	}
}

// fresh takes a slab with room for so many bytes at least. One whose bytes ran out
// before its records did has a successor with more.
func (s *sender) fresh(keys, values int) {
	if b := s.slab; b != nil {
		if b.n < slabLen {
			if cap(b.keys)-len(b.keys) <= keys {
				s.keys = min(2*s.keys, mostBytes)
			}
			if cap(b.values)-len(b.values) <= values {
				s.values = min(2*s.values, mostBytes)
			}
		}
	}
	old := s.slab
	s.slab = s.slabs.take(s.txn, max(s.keys, keys), max(s.values, values))
	if old != nil {
		old.release() // not before: the message may still lie in it
	}
}

// lies returns where v begins in the memory of buf, if it lies in what is free there.
func lies(v, buf []byte) (at int, ok bool) {
	at = int(uintptr(unsafe.Pointer(unsafe.SliceData(v))) - uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	return at, cap(v) > 0 && cap(buf) > 0 && at >= 0 && at+len(v) <= cap(buf)
}

// address returns the topic that the message goes to, and completes its partition.
func (s *sender) address() (*topic, error) {
	m, to := &s.m, s.to
	if m.Topic != "" && m.Topic != to.name {
		if to = s.t.topics[m.Topic]; to == nil {
			return nil, fmt.Errorf("it names the topic %q, to which the sink doesn't write: declare it with AlsoTo", m.Topic)
		}
	}
	if _, ours := lies(m.Key, s.slab.keys); ours && len(m.Key) == 0 {
		m.Key = nil // left as it was
	}
	if m.Partition < 0 && s.t.conf.choose != nil {
		m.Partition = s.t.conf.choose(m, to.partitions)
	}
	return to, nil
}

// send sends the message.
func (s *sender) send(to *topic) error {
	if cut := s.t.conf.cut; cut != nil {
		if over := batchOf(&s.m) - to.maxBatch; over > 0 {
			cut(&s.m, over)
		}
	}
	if err := s.admit(to); err != nil {
		return err
	}
	r, m := s.place(), &s.m
	r.Topic, r.Partition, r.Timestamp, r.Context = to.name, max(m.Partition, -1), m.Time, s.slab
	if m.Time.IsZero() {
		r.Timestamp = noTime
	}
	s.slab.n++
	if to != s.noted {
		s.lane.note(to.name)
		s.noted = to
	}
	s.lane.cl.Produce(s.slab, r, s.lane.done)
	return nil
}

// noTime is the timestamp of a message that has none.
var noTime = time.UnixMilli(-1)

// place puts the message into the slab and returns the record that holds it, which
// isn't part of the slab yet. What lies in the slab's room stays where it is, as
// other parts of the message may be slices of it; the rest is copied behind.
func (s *sender) place() *kgo.Record {
	m, b := &s.m, s.slab
	keys, values := b.keys, b.values
	keys, moreKeys := reach(keys, m.Key)
	values, moreValues := reach(values, m.Value)
	for i := range m.Headers {
		var more int
		values, more = reach(values, m.Headers[i].Value)
		moreValues += more
	}
	if cap(keys)-len(keys) < moreKeys || cap(values)-len(values) < moreValues {
		s.fresh(len(m.Key), len(m.Value)+headerBytes(m.Headers))
		b = s.slab
		keys, values = b.keys, b.values
	}
	r := &b.records[b.n]
	*r = kgo.Record{}
	r.Key, b.keys = hold(keys, m.Key)
	r.Value, b.values = hold(values, m.Value)
	first := len(b.headers)
	for _, h := range m.Headers {
		kept := kgo.RecordHeader{Key: h.Key}
		kept.Value, b.values = hold(b.values, h.Value)
		b.headers = append(b.headers, kept)
	}
	if len(m.Headers) > 0 {
		r.Headers = b.headers[first:len(b.headers):len(b.headers)]
	}
	if len(m.Headers) > cap(s.headers) {
		s.headers = make([]Header, 0, 2*len(m.Headers))
	}
	return r
}

func headerBytes(headers []Header) (n int) {
	for _, h := range headers {
		n += len(h.Value)
	}
	return n
}

// reach makes buf reach to the end of v, if that lies in its room, and tells how much
// is to be copied otherwise.
func reach(buf, v []byte) (grown []byte, more int) {
	if at, ok := lies(v, buf); ok {
		return buf[:max(len(buf), at+len(v))], 0
	}
	return buf, len(v)
}

// hold returns v as it lies in buf, to which it is appended unless it does already.
func hold(buf, v []byte) (kept, grown []byte) {
	if v == nil {
		return nil, buf
	}
	if _, ok := lies(v, buf); ok {
		return v[:len(v):len(v)], buf
	}
	grown = append(buf, v...)
	return grown[len(buf):len(grown):len(grown)], grown
}

// admit says why the topic wouldn't take the message. What isn't found here fails
// the whole epoch, and again when that is repeated.
func (s *sender) admit(to *topic) error {
	m := &s.m
	switch {
	case m.Partition >= to.partitions:
		return fmt.Errorf("it names partition %d, and topic %s had %d when the sink was opened", m.Partition, to.name, to.partitions)
	case m.Key == nil && to.compacted:
		return fmt.Errorf("it has no key, and topic %s is compacted (cleanup.policy): only messages with a key can be in it", to.name)
	}
	if size := batchOf(m); size > to.maxBatch {
		return fmt.Errorf("%w: alone in a batch it has %d bytes, and topic %s takes %d (max.message.bytes)", weir.ErrOversized, size, to.name, to.maxBatch)
	}
	if m.Time.IsZero() || to.appendTime {
		return nil
	}
	at, now := m.Time.UnixMilli(), s.now.UnixMilli()
	switch {
	case at < 0:
		return fmt.Errorf("its time %s is before 1970, which a message can't have; without one it has the zero time", m.Time.UTC().Format(time.RFC3339Nano))
	case at-now > to.ahead.Milliseconds():
		return fmt.Errorf("its time %s is more than %v from now, which topic %s doesn't take (message.timestamp.after.max.ms)", m.Time.UTC().Format(time.RFC3339Nano), to.ahead, to.name)
	case now-at > to.behind.Milliseconds():
		return fmt.Errorf("its time %s is more than %v ago, which topic %s doesn't take (message.timestamp.before.max.ms)", m.Time.UTC().Format(time.RFC3339Nano), to.behind, to.name)
	}
	return nil
}

// batchOf is how long a batch with the message alone is, uncompressed, as the client
// counts it.
func batchOf(m *Message) int {
	const head, slack = 61, 5 // of a batch, and what the client adds to be safe
	n := 1 + 1 + 1 + varint(len(m.Key)) + len(m.Key) + varint(len(m.Value)) + len(m.Value) + varint(len(m.Headers))
	for _, h := range m.Headers {
		n += varint(len(h.Key)) + len(h.Key) + varint(len(h.Value)) + len(h.Value)
	}
	if n > math.MaxInt32 {
		return n
	}
	return head + slack + varint(n) + n
}

// varint is how many bytes a length takes, zigzag and in groups of 7 bits.
func varint(n int) int { return max(1, (bits.Len64(uint64(n)<<1)+6)/7) }

func (s *sender) reject(i int, err error) error { return &rejection{s.t.sink, i, err} }

// rejection is a record that can't be a message of its topic.
type rejection struct {
	sink string
	at   int
	err  error
}

func (r *rejection) Error() string {
	return fmt.Sprintf("kafka: sink %q: the record can't be written: %v", r.sink, r.err)
}

func (r *rejection) Unwrap() []error { return []error{weir.ErrInput, r.err} }

// Rejected is the record's place in what was given to Write.
func (r *rejection) Rejected() int { return r.at }
