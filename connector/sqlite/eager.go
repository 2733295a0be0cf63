package sqlite

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirstream/weir/internal/sys"
)

const (
	linger = 20 * time.Millisecond // from the first row to its transaction
	enough = 4096                  // rows of one task that don't wait for it
)

// A courier is the goroutine that writes the rows of a database's eager sinks.
// It is started by Fence and ended by Close. Writers keep rows by key until it
// comes for them; it takes all that there is in one transaction, so the more
// is written the fewer transactions there are.
type courier struct {
	p      *participant
	ctx    context.Context // that of Connect: it ends with the run, or by stop
	cancel context.CancelCauseFunc
	wake   chan struct{} // there are rows
	hurry  chan struct{} // don't linger
	ended  chan struct{} // the goroutine has; nil before start

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, at progress; closed for good at the end
	asked   int64         // flushes asked for
	done    int64         // of these, confirmed
	writers []*eagerCore
	err     error
}

func newCourier(ctx context.Context, p *participant) *courier {
	c := &courier{p: p, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// eagerCore is an eager writer without its type.
type eagerCore struct {
	t *table

	mu sync.Mutex // the task's, except while the courier takes the rows
	b  *batch
}

func (t *table) addEager() *eagerCore {
	w := &eagerCore{t: t, b: t.fresh()}
	t.courier.mu.Lock()
	defer t.courier.mu.Unlock()
	t.courier.writers = append(t.courier.writers, w)
	return w
}

type eagerWriter[R any] struct{ *eagerCore }

// Write hands rows over. It waits while the task's buffer is full, and ends
// with the courier's error.
func (w eagerWriter[R]) Write(recs []R, _ []int64) error {
	if err := w.room(); err != nil {
		return err
	}
	w.mu.Lock()
	err := putAll(w.b, recs)
	many := w.b.rows() >= enough
	w.mu.Unlock()
	c := w.t.courier
	signal(c.wake)
	if many {
		signal(c.hurry)
	}
	return err
}

// room waits until the buffer isn't full.
func (w *eagerCore) room() error {
	c := w.t.courier
	for {
		c.mu.Lock()
		changed, err := c.changed, c.err
		c.mu.Unlock()
		if err != nil {
			return err
		}
		w.mu.Lock()
		full := w.b.full(w.t.limit)
		w.mu.Unlock()
		if !full {
			return nil
		}
		signal(c.wake)
		signal(c.hurry)
		<-changed
	}
}

// Seal does nothing: every row is already the courier's.
func (w eagerWriter[R]) Seal(int64) error { return nil }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (c *courier) start() {
	if c.ended == nil {
		c.ended = make(chan struct{})
		go c.run()
	}
}

// stop ends the goroutine, also out of a wait for another process's lock, and
// lets nobody wait any longer.
func (c *courier) stop() {
	c.cancel(errClosed)
	if c.ended != nil {
		<-c.ended
	}
	c.finish(errClosed)
}

func (c *courier) run() {
	defer close(c.ended)
	clock := sys.From(c.ctx).Clock
	for {
		select {
		case <-c.ctx.Done():
			c.finish(context.Cause(c.ctx)) // a task may be waiting for room
			return
		case <-c.wake:
		}
		select {
		case <-c.ctx.Done():
			c.finish(context.Cause(c.ctx))
			return
		case <-c.hurry:
		case <-clock.After(linger):
		}
		if err := c.deliver(); err != nil {
			c.finish(err)
			return
		}
	}
}

// finish makes err the courier's last word.
func (c *courier) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.changed)
	}
}

// load is the rows of one sink in one transaction.
type load struct {
	t       *table
	batches []*batch
}

// deliver writes everything that was handed over before it began.
func (c *courier) deliver() error {
	c.mu.Lock()
	asked := c.asked
	writers := c.writers
	c.mu.Unlock()
	var loads []load
	at := map[*table]int{}
	for _, w := range writers {
		fresh := w.t.fresh()
		w.mu.Lock()
		b := w.b
		taken := b.rows() > 0
		if taken {
			w.b = fresh
		}
		w.mu.Unlock()
		if !taken {
			// The batch stays the task's, which may be filling it by now: asking
			// it again would take rows that aren't ours.
			w.t.recycle(fresh)
			continue
		}
		i, ok := at[w.t]
		if !ok {
			i = len(loads)
			at[w.t] = i
			loads = append(loads, load{t: w.t})
		}
		loads[i].batches = append(loads[i].batches, b)
	}
	c.progress(0) // there is room again
	if len(loads) > 0 {
		if err := c.p.writeEager(c.ctx, loads); err != nil {
			return err
		}
	}
	for _, l := range loads {
		for _, b := range l.batches {
			l.t.recycle(b)
		}
	}
	c.progress(asked)
	return nil
}

// progress wakes everybody who waits; flushes up to done are confirmed.
func (c *courier) progress(done int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = max(c.done, done)
	if c.err == nil {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// writeEager writes rows if every sink's ledger still names this incarnation.
func (p *participant) writeEager(ctx context.Context, loads []load) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	err := p.c.txn(ctx, func() error {
		for _, l := range loads {
			if err := p.own(ctx, l.t.sink); err != nil {
				return err
			}
			if err := p.writeBatches(ctx, l.t, l.batches); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return p.fail(fmt.Errorf("sqlite: write rows: %w", err))
	}
	return nil
}

// flush returns when everything handed over before the call is confirmed.
func (c *courier) flush(ctx context.Context) error {
	if c.ended == nil {
		return fmt.Errorf("sqlite: %s hasn't been fenced for this job", c.p.path)
	}
	c.mu.Lock()
	c.asked++
	target := c.asked
	c.mu.Unlock()
	signal(c.wake)
	signal(c.hurry)
	for {
		c.mu.Lock()
		changed, done, err := c.changed, c.done, c.err
		c.mu.Unlock()
		switch {
		case err != nil:
			return err
		case done >= target:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
