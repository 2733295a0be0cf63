package kafka

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/weirstream/weir"
)

// reader decodes the messages of one partition.
type reader[T any] struct {
	s    *source[T]
	t    *tap
	done func()

	in    batches
	open  *parcel // that in reads
	pos   position
	from  int64 // Done counts from here
	stop  int64 // where StopAtEnd stops, or noEnd
	names *interner

	msg      Message
	marks    []int64
	rejected []weir.Rejected
	aside    bool
	begun    bool
	again    bool // decode stopped for a message that was set aside
	ended    bool
	err      error
}

// Open goes on at a position, or begins with the partition's oldest message.
func (s *source[T]) Open(ctx context.Context, split string, at []byte) (weir.Reader[T], error) {
	if s.err != nil {
		return nil, s.err
	}
	topic, partition, err := parseSplit(split)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", weir.ErrRefused, err)
	}
	f, release, err := s.acquire(ctx, true)
	if err != nil {
		return nil, err
	}
	r, err := s.open(ctx, f, topic, partition, at)
	if err != nil {
		release()
		return nil, err
	}
	r.done = release
	return r, nil
}

func (s *source[T]) open(ctx context.Context, f *feed, topic string, partition int32, at []byte) (*reader[T], error) {
	b, err := s.boundsOf(ctx, f, topic, partition)
	if err != nil {
		return nil, err
	}
	r := &reader[T]{s: s, stop: noEnd}
	r.pos = position{cluster: b.cluster, topic: b.id, offset: b.start, end: noEnd, epoch: noEpoch}
	if at != nil {
		if r.pos, err = parsePosition(at); err != nil {
			return nil, fmt.Errorf("%w: %w; the checkpoint is of another source, or was changed", weir.ErrRefused, err)
		}
	}
	if !s.conf.bounded {
		r.pos.end = noEnd
	}
	if l, lost := lossOf(topic, partition, r.pos, b); lost {
		if !s.conf.acceptLoss {
			return nil, l.err()
		}
		l.accept(ctx)
		r.goOn(l, b.id)
		r.pos.cluster = b.cluster
	}
	switch end := max(b.end, r.pos.offset); {
	case s.conf.bounded && r.pos.end == noEnd:
		r.pos.end = end
	case s.conf.stopAtEnd:
		r.stop = end
	}
	r.from = min(b.start, r.pos.offset)
	r.t = f.newTap(topic, partition, b, r.pos)
	r.in = batches{topic: topic, partition: partition, spare: &f.spare}
	r.msg = Message{Topic: topic, Partition: partition}
	if s.whole {
		r.names = &interner{}
	}
	return r, nil
}

// boundsOf asks what there is of a partition: of all of the source's at once, so
// that a job with many needn't ask for each, and never twice with one answer.
func (s *source[T]) boundsOf(ctx context.Context, f *feed, topic string, partition int32) (bounds, error) {
	split := splitName(topic, partition)
	if b, ok := f.takeBounds(split); ok {
		return b, nil
	}
	s.mu.Lock()
	topics := slices.Clone(s.topics)
	s.mu.Unlock()
	if !slices.Contains(topics, topic) {
		topics = append(topics, topic)
	}
	err := f.patiently(ctx, "look at what there is of "+s.conf.topics.String(), func() error {
		all, err := f.ask.bounds(ctx, topics)
		if err == nil {
			f.keepBounds(all)
		}
		return err
	})
	if err != nil {
		return bounds{}, err
	}
	b, ok := f.takeBounds(split)
	if !ok {
		return bounds{}, fmt.Errorf("%w: split %s: the topic has no such partition on kafka cluster %s, or doesn't exist any more; bring it back, what was read of it couldn't be told from what wasn't",
			weir.ErrRefused, split, s.c)
	}
	return b, nil
}

func (f *feed) takeBounds(split string) (bounds, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.mu.bounds[split]
	delete(f.mu.bounds, split)
	return b, ok
}

func (f *feed) keepBounds(all map[string]bounds) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.bounds = all
}

// goOn moves the reader behind what is lost.
func (r *reader[T]) goOn(l loss, id topicID) {
	r.pos.offset, r.pos.topic, r.pos.epoch = l.goOn(), id, noEpoch
	if r.pos.end != noEnd {
		r.pos.end = max(r.pos.offset, min(r.pos.end, l.end))
		if l.kind == recreated || l.kind == elsewhere {
			r.pos.end = l.end
		}
	}
	if r.stop != noEnd {
		r.stop = max(r.pos.offset, min(r.stop, l.end))
		if l.kind == recreated {
			r.stop = l.end
		}
	}
}

// Read decodes what was fetched. It never waits.
func (r *reader[T]) Read(dst []T, limit int) ([]T, bool, error) {
	r.marks, r.rejected = r.marks[:0], nil
	if !r.begun {
		r.begun = true
		r.t.begin()
	}
	if r.err != nil || r.ended {
		return dst, r.ended, r.err
	}
	for r.again = true; r.again; {
		r.again = false
		dst = r.some(dst, limit)
	}
	return dst, r.ended, r.err
}

// some appends records until it has enough, or there is no more for now. It
// catches the decoder's panics: only here is it known which message caused one.
func (r *reader[T]) some(dst []T, limit int) (recs []T) {
	recs = dst
	decoding := false
	defer func() {
		if !decoding {
			return
		}
		if p := recover(); p != nil {
			recs = recs[:len(recs)-1]
			r.refuse(fmt.Errorf("the decoder panicked: %v", p), debug.Stack())
			r.again = r.err == nil
		}
	}()
	var zero T
	for len(r.marks)+len(r.rejected) < limit {
		if !r.message() {
			return recs
		}
		if err := r.poison(); err != nil {
			if r.refuse(err, nil); r.err != nil {
				return recs
			}
			continue
		}
		recs = append(recs, zero)
		decoding = true
		err := r.s.decode(&r.msg, &recs[len(recs)-1])
		decoding = false
		if err != nil {
			recs = recs[:len(recs)-1]
			if r.refuse(err, nil); r.err != nil {
				return recs
			}
			continue
		}
		r.marks = append(r.marks, r.msg.Offset)
		r.pos.offset, r.pos.epoch = r.msg.Offset+1, r.in.cur.epoch
	}
	r.arrive()
	return recs
}

// message reads the next message that is to be read, into r.msg. It returns false
// where there is none for now, at the end, and after an error.
func (r *reader[T]) message() bool {
	for !r.arrive() {
		if r.open == nil && !r.receive() {
			return false
		}
		if r.open == nil {
			continue
		}
		ok, err := r.in.next(&r.msg, r.names)
		if err != nil {
			r.err = err
			return false
		}
		if !ok {
			r.pass(r.open.next)
			r.pos.epoch = max(r.pos.epoch, r.in.cur.epoch)
			r.t.done(r.open)
			r.open = nil
			continue
		}
		if r.msg.Offset < r.pos.offset {
			continue // the batch begins before the position
		}
		if last := r.last(); last != noEnd && r.msg.Offset >= last {
			r.pass(last)
			continue
		}
		return true
	}
	return false
}

// receive takes what was fetched next. It returns false if there is nothing.
func (r *reader[T]) receive() bool {
	p := r.t.take()
	switch {
	case p == nil:
		return false
	case p.err != nil:
		r.err = p.err
		return false
	case p.lost != nil:
		r.goOn(*p.lost, p.id)
	case len(p.raw) == 0: // a hole: who wrote what was in it isn't known
		r.pass(p.next)
		r.pos.epoch = noEpoch
	default:
		r.in.begin(p, !r.s.conf.uncommitted)
		r.open = p
	}
	return true
}

// pass moves the position over what holds no message: markers, aborted ones,
// holes. It never goes beyond the end of the split.
func (r *reader[T]) pass(to int64) {
	if last := r.last(); last != noEnd {
		to = min(to, last)
	}
	r.pos.offset = max(r.pos.offset, to)
}

// last is where the split ends or the run stops, or noEnd.
func (r *reader[T]) last() int64 {
	if r.pos.end != noEnd {
		return r.pos.end
	}
	return r.stop
}

// arrive reports whether the reader is where it ends or stops.
func (r *reader[T]) arrive() bool {
	last := r.last()
	if last == noEnd || r.pos.offset < last {
		return false
	}
	r.ended = r.pos.end != noEnd
	return true
}

// AtStop reports whether the reader has come to where the run is to stop.
func (r *reader[T]) AtStop() bool { return r.stop != noEnd && r.pos.offset >= r.stop }

// poison says what is wrong with the message before it is decoded.
func (r *reader[T]) poison() error {
	m := &r.msg
	if n := len(m.Key) + len(m.Value); n > r.s.conf.maxMessage {
		return fmt.Errorf("the message has %d bytes, and %d are taken (kafka.MaxMessage): %w", n, r.s.conf.maxMessage, weir.ErrOversized)
	}
	if r.s.whole || r.s.conf.require&Timestamp != 0 {
		m.Time = timeOf(r.in.rs.time)
	}
	if gone := r.s.conf.require.missing(m); gone != 0 {
		return errMissing(gone)
	}
	return nil
}

// refuse sets a message aside that can't be taken, or stops reading.
func (r *reader[T]) refuse(err error, stack []byte) {
	m := &r.msg
	if r.aside {
		raw := append([]byte{}, m.Value[:min(len(m.Value), weir.MaxRejected)]...)
		r.rejected = append(r.rejected, weir.Rejected{Mark: m.Offset, Raw: raw, Err: err})
		r.pos.offset, r.pos.epoch = m.Offset+1, r.in.cur.epoch
		return
	}
	e := &MessageError{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Err: err, Stack: stack,
		Hint: "give the job a sink for dead letters, or correct what the messages are decoded with"}
	r.err = e
}

// Ready is readable when Read may find more.
func (r *reader[T]) Ready() <-chan struct{} { return r.t.ready }

// Position is the offset of the next message, with the ids of cluster and topic,
// the epoch of the leader that wrote what was read last and, of a bounded source,
// where the split ends.
func (r *reader[T]) Position() []byte {
	r.t.mark(r.pos.offset, r.in.newest())
	return r.pos.append(nil)
}

// Marks are the offsets of the messages.
func (r *reader[T]) Marks() []int64 { return r.marks }

// SetAside makes Read pass over messages that it can't take.
func (r *reader[T]) SetAside() { r.aside = true }

// Rejected returns the messages that the last Read has passed over.
func (r *reader[T]) Rejected() []weir.Rejected { return r.rejected }

// Status counts offsets, which is records where none was compacted away and
// nobody writes in transactions, and more otherwise.
func (r *reader[T]) Status() weir.Status {
	empty, end, idled := r.t.drained()
	last := r.last()
	if last == noEnd {
		last = max(end, r.pos.offset)
	}
	drained := r.pos.offset >= last && (r.arrive() || empty && r.open == nil)
	return weir.Status{Done: r.pos.offset - r.from, Total: last - r.from, Lag: last - r.pos.offset,
		Idle: drained || idled && empty && r.open == nil, Expires: r.t.expires()}
}

// Close may be repeated.
func (r *reader[T]) Close() error {
	r.in.close()
	r.t.close()
	r.done()
	return nil
}
