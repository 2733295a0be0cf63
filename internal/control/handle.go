package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrEnded reports that a Handle was asked for something that its run, which
// is over, can't do any more.
var ErrEnded = errors.New("the run has ended")

// Handle lets other goroutines ask for things while one Run works: before it
// has started they wait for it, and after it has ended they get ErrEnded. What an
// incarnation that fails hasn't answered, or was asked while none runs, is for the
// next one to answer. It is used for one Run. Safe for concurrent use.
type Handle struct {
	asked chan *request
	stop  context.Context // done once Stop was called
	halt  context.CancelFunc

	once sync.Once
	done chan struct{} // closed by End
	err  error         // of Run, once done is closed
}

// request is one call of a Handle on its way.
type request struct {
	settle bool // otherwise a checkpoint is wanted
	reply  chan reply
}

type reply struct {
	checkpoint Checkpoint
	err        error
}

// NewHandle returns a Handle to be given to Run.
func NewHandle() *Handle {
	stop, halt := context.WithCancel(context.Background())
	return &Handle{asked: make(chan *request), stop: stop, halt: halt, done: make(chan struct{})}
}

// Checkpoint takes a checkpoint whose barrier comes after the call, and returns
// once it is committed everywhere; after a recovery in place that is the first
// one of the new incarnation.
func (h *Handle) Checkpoint(ctx context.Context) (Checkpoint, error) {
	r, err := h.ask(ctx, false)
	return r.checkpoint, err
}

// Settle returns once everything that was read when it was called has passed
// every task and is confirmed by every sink as far as no Commit is needed.
func (h *Handle) Settle(ctx context.Context) error {
	_, err := h.ask(ctx, true)
	return err
}

// Stop is like cancelling Run's context: a last checkpoint, then Run returns
// nil. It doesn't wait, and may be called at any time and again.
func (h *Handle) Stop() { h.halt() }

func (h *Handle) ask(ctx context.Context, settle bool) (reply, error) {
	r := &request{settle: settle, reply: make(chan reply, 1)}
	select {
	case h.asked <- r:
	case <-h.done:
		return reply{}, h.ended()
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
	select {
	case a := <-r.reply:
		return a, a.err
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	case <-h.done:
	}
	select {
	case a := <-r.reply: // it was answered just before the end
		return a, a.err
	default:
		return reply{}, h.ended()
	}
}

func (h *Handle) ended() error {
	if h.err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, h.err)
	}
	return ErrEnded
}

// End says that the run is over, with what it returned. Run calls it; a caller
// does so only where there will be no Run. Later calls do nothing.
func (h *Handle) End(err error) {
	h.once.Do(func() {
		h.err = err
		close(h.done)
		h.halt()
	})
}
