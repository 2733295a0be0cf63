package kafka

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// slabLen is how many records are taken from and given back to a writer at once.
const slabLen = 256

// slab is records on their way to a broker, with the bytes that they hold. A writer
// fills it; when the last of its records is answered it goes back to the writer.
// It is the context of its records: that is how an answer finds its transaction,
// and ends when the run does.
type slab struct {
	context.Context
	txn  *transaction
	home *slabs
	left atomic.Int64 // records not answered, and held while it is being filled

	n       int
	records [slabLen]kgo.Record
	keys    []byte
	values  []byte
	headers []kgo.RecordHeader
}

// held keeps a slab from going back before its writer is done with it.
const held = 1 << 40

// settled says that one record is answered.
func (s *slab) settled() {
	if s.left.Add(-1) == 0 {
		s.home.put(s)
	}
}

// release says that nothing is added any more.
func (s *slab) release() {
	if s.left.Add(int64(s.n)-held) == 0 {
		s.home.put(s)
	}
}

// slabs are those of a writer that are free.
type slabs struct {
	ctx  context.Context
	back chan struct{} // readable after the last one that was out has come back
	mu   sync.Mutex
	out  int
	free []*slab
}

// settle waits until no slab is out: all of their records are answered.
func (h *slabs) settle() error {
	for {
		h.mu.Lock()
		out := h.out
		h.mu.Unlock()
		if out == 0 {
			return nil
		}
		select {
		case <-h.back:
		case <-h.ctx.Done():
			return context.Cause(h.ctx)
		}
	}
}

// take returns a slab for records of a transaction, with room for at least so many
// bytes of keys and of values.
func (h *slabs) take(t *transaction, keys, values int) *slab {
	h.mu.Lock()
	h.out++
	var s *slab
	if n := len(h.free); n > 0 {
		s, h.free[n-1] = h.free[n-1], nil
		h.free = h.free[:n-1]
	}
	h.mu.Unlock()
	if s == nil {
		s = &slab{Context: h.ctx, home: h}
	}
	if cap(s.keys) < keys {
		s.keys = make([]byte, 0, keys)
	}
	if cap(s.values) < values {
		s.values = make([]byte, 0, values)
	}
	s.txn, s.n, s.keys, s.values, s.headers = t, 0, s.keys[:0], s.values[:0], s.headers[:0]
	s.left.Store(held)
	return s
}

func (h *slabs) put(s *slab) {
	clear(s.records[:s.n]) // long values and headers aren't kept
	clear(s.headers)
	if cap(s.keys)+cap(s.values) > 4*mostBytes {
		s.keys, s.values = nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free = append(h.free, s)
	if h.out--; h.out == 0 {
		select {
		case h.back <- struct{}{}:
		default: // it is readable already
		}
	}
}
