package weirtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// Committed is a transactional sink in memory: what it shows is committed, each
// record once, together with the checkpoint that it belongs to. It outlives
// crashes, as a database does, and what wasn't committed before one is gone. One
// job writes to it; it can be started over, and then shows what it showed before,
// too. A job may have several.
type Committed[T any] struct {
	mu struct {
		sync.Mutex
		recs    []T
		taken   int
		ledgers map[string]ledger // by the job's uuid and the sink's id
		staged  map[string][]T    // epochs that wait for another sink's decision
	}
}

// ledger is what the sink knows of one life of a job.
type ledger struct {
	by weir.Incarnation
	at weir.CheckpointID
}

// NewCommitted returns an empty output.
func NewCommitted[T any]() *Committed[T] {
	c := &Committed[T]{}
	c.mu.ledgers, c.mu.staged = map[string]ledger{}, map[string][]T{}
	return c
}

// Take returns what was committed since the last Take, epoch by epoch; within an
// epoch, records of one key are in their order.
func (c *Committed[T]) Take() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	recs := slices.Clone(c.mu.recs[c.mu.taken:])
	c.mu.taken = len(c.mu.recs)
	return recs
}

// All returns everything that was committed so far.
func (c *Committed[T]) All() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.recs)
}

// Spec implements weir.Sink.
func (c *Committed[T]) Spec() weir.SinkSpec {
	return weir.SinkSpec{Kind: weir.Transactional, Target: "memory of the test", Readers: "Each record is there once, with its checkpoint."}
}

// Connect implements weir.Sink.
func (c *Committed[T]) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	return &party[T]{to: c, env: sys.From(ctx), sink: sinks[0], sealed: map[int64]map[int][]T{}}, nil
}

// Open implements weir.Sink.
func (c *Committed[T]) Open(_ context.Context, p weir.Participant, _ string) (weir.Outlet[T], error) {
	return p.(*party[T]), nil
}

// party is a Committed in one incarnation of a job.
type party[T any] struct {
	to      *Committed[T]
	env     *sys.Env
	sink    string
	follows bool
	uuid    string
	by      weir.Incarnation

	mu     sync.Mutex
	sealed map[int64]map[int][]T // by epoch and task
}

// Fence implements weir.Participant.
func (p *party[T]) Fence(_ context.Context, f weir.Fence) (found map[string]weir.Ledger, err error) {
	p.uuid, p.by = f.Job.UUID, f.By
	found = map[string]weir.Ledger{}
	err = p.change("fence", func() error {
		for _, sink := range append([]string{p.sink}, f.Former...) {
			l, ok := p.to.mu.ledgers[p.key(sink)]
			switch {
			case !ok && (!f.Create || sink != p.sink):
				continue
			case l.by.Number > f.By.Number:
				return p.fenced(l)
			}
			l.by = f.By
			p.to.mu.ledgers[p.key(sink)] = l
			found[sink] = weir.Ledger{Found: true, ID: l.at}
		}
		return nil
	})
	return found, err
}

func (p *party[T]) fenced(l ledger) error {
	return fmt.Errorf("%w: the ledger of sink %s names incarnation %d, this one is %d", weir.ErrFenced, p.sink, l.by.Number, p.by.Number)
}

func (p *party[T]) key(sink string) string { return p.uuid + "/" + sink }

// change is one call to what outlives the process.
func (p *party[T]) change(call string, do func() error) error {
	return p.env.SQL("weirtest "+call, func() error {
		p.to.mu.Lock()
		defer p.to.mu.Unlock()
		return do()
	})
}

// Follow implements weir.Follower.
func (p *party[T]) Follow() { p.follows = true }

// Adopt implements weir.Adopter.
func (p *party[T]) Adopt(_ context.Context, at weir.CheckpointID, _ []weir.Adopted) error {
	return p.change("adopt", func() error {
		p.to.mu.ledgers[p.key(p.sink)] = ledger{p.by, at}
		return nil
	})
}

// Prepare implements weir.Participant. A follower's rows are kept where a later
// incarnation finds them, by a name that is kept with the checkpoint.
func (p *party[T]) Prepare(_ context.Context, epoch int64) (staged []byte, err error) {
	if !p.follows {
		return nil, nil
	}
	name := fmt.Sprintf("%s/%d/%s/%d", p.uuid, p.by.Number, p.by.Nonce, epoch)
	err = p.change("stage", func() error {
		p.to.mu.staged[name] = p.rows(epoch)
		return nil
	})
	return []byte(name), err
}

// rows takes what the tasks have sealed, in the order of the tasks.
func (p *party[T]) rows(epoch int64) (rows []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, task := range slices.Sorted(maps.Keys(p.sealed[epoch])) {
		rows = append(rows, p.sealed[epoch][task]...)
	}
	delete(p.sealed, epoch)
	return rows
}

// Commit implements weir.Participant.
func (p *party[T]) Commit(_ context.Context, e weir.Commit) error {
	return p.change("commit epoch "+strconv.FormatInt(e.Epoch, 10), func() error {
		l := p.to.mu.ledgers[p.key(p.sink)]
		switch {
		case l.by != p.by:
			return p.fenced(l)
		case l.at == e.ID:
			return nil
		case l.at != e.Parent:
			return fmt.Errorf("%w: the ledger of sink %s names checkpoint %q, and %q is to follow %q", weir.ErrRefused, p.sink, l.at, e.ID, e.Parent)
		}
		rows := p.rows(e.Epoch)
		if p.follows {
			rows = p.to.mu.staged[string(e.Staged)]
			clear(p.to.mu.staged) // what else is there was never decided
		}
		p.to.mu.recs = append(p.to.mu.recs, rows...)
		l.at = e.ID
		p.to.mu.ledgers[p.key(p.sink)] = l
		return nil
	})
}

// Flush implements weir.Participant.
func (p *party[T]) Flush(context.Context) error { return nil }

// Close implements weir.Participant.
func (p *party[T]) Close() error { return nil }

// Writer implements weir.Outlet.
func (p *party[T]) Writer(task int) weir.Writer[T] { return &partyWriter[T]{p: p, task: task} }

type partyWriter[T any] struct {
	p    *party[T]
	task int
	rows []T
}

// Write implements weir.Writer.
func (w *partyWriter[T]) Write(recs []T, _ []int64) error {
	w.rows = append(w.rows, recs...)
	return nil
}

// Seal implements weir.Writer.
func (w *partyWriter[T]) Seal(epoch int64) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.p.sealed[epoch] == nil {
		w.p.sealed[epoch] = map[int][]T{}
	}
	w.p.sealed[epoch][w.task] = w.rows
	w.rows = nil
	return nil
}
