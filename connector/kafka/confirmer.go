package kafka

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// confirmer is the at-least-once sinks on one cluster in one run. They send outside
// of transactions, and an epoch is prepared when the brokers have confirmed all of
// it. There is no ledger: a commit is nothing to them.
type confirmer struct{ *outputs }

func newConfirmer(o *outputs) (*confirmer, error) {
	cl, err := o.producer("")
	if err != nil {
		o.cl.Close()
		return nil, err
	}
	l := newLane("", cl)
	l.unbound()
	o.start([]*lane{l})
	return &confirmer{o}, nil
}

// attach adds a sink.
func (c *confirmer) attach(ctx context.Context, t *target) error {
	if err := c.register(t); err != nil {
		return err
	}
	return c.open(ctx, t)
}

// Fence shuts nobody out: an older incarnation may still send what it has.
func (c *confirmer) Fence(context.Context, weir.Fence) (map[string]weir.Ledger, error) {
	return nil, c.failure()
}

// Prepare waits until everything that was sent is confirmed.
func (c *confirmer) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	if err := c.Flush(ctx); err != nil {
		return nil, c.fail(fmt.Errorf("kafka: prepare epoch %d: %w", epoch, err))
	}
	return nil, nil
}

// Commit does nothing.
func (c *confirmer) Commit(context.Context, weir.Commit) error { return c.failure() }

// Flush waits until everything that was sent is confirmed.
func (c *confirmer) Flush(ctx context.Context) error {
	if err := c.failure(); err != nil {
		return err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	if err := c.lane(0).flush(ctx); err != nil {
		return c.fail(err)
	}
	return nil
}

// Close ends the clients. What wasn't confirmed is sent again by a replay.
func (c *confirmer) Close() error {
	c.shut()
	return nil
}
