package control

import (
	"sync"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/data"
)

// inbox is what tasks, segment writers and the committer have to say to the
// loop. Posting never blocks, so that no task can wait for the loop while the
// loop waits for the task. It is bounded by what can be said: an acknowledgement
// and a probe a task, one wish, one answer for each thing asked.
type inbox struct {
	ready chan struct{} // holds a token while there may be something

	mu     sync.Mutex
	closed bool
	events []any
	wished *bool // the wish among events, and whether it holds the sources
}

var _ data.Control = (*inbox)(nil)

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// What the inbox holds besides events of package epoch.
type (
	probed struct{ n int64 }
	failed struct{ err error }
)

// Acked implements data.Control.
func (b *inbox) Acked(a data.Ack) {
	if !b.post(a) {
		release(a.Parts)
	}
}

// Wants implements data.Control. Wishes that haven't been read yet are one.
func (b *inbox) Wants(hold bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wished != nil && (*b.wished || !hold) {
		return
	}
	if b.add(epoch.Wants{Hold: hold}) {
		b.wished = &hold
	}
}

// Probed implements data.Control.
func (b *inbox) Probed(n int64) { b.post(probed{n}) }

// Ended implements data.Control.
func (b *inbox) Ended(task string) { b.post(epoch.Ended{Task: task}) }

// Rests implements data.Control.
func (b *inbox) Rests(task string) { b.post(epoch.Rests{Task: task}) }

// Failed implements data.Control.
func (b *inbox) Failed(err error) { b.post(failed{err}) }

// post reports whether the event will be read or released.
func (b *inbox) post(e any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(e)
}

func (b *inbox) add(e any) bool {
	if b.closed {
		return false
	}
	b.events = append(b.events, e)
	select {
	case b.ready <- struct{}{}:
	default:
	}
	return true
}

// take returns what is there, in order.
func (b *inbox) take() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	es := b.events
	b.events, b.wished = nil, nil
	return es
}

// close drops what is there and what still comes.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, e := range b.events {
		if a, ok := e.(data.Ack); ok {
			release(a.Parts)
		}
	}
	b.events = nil
}

func release(parts []data.Part) {
	for _, p := range parts {
		p.Release()
	}
}
