package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirstream/weir"
)

var errClosed = errors.New("sqlite: the sink is closed")

// participant is the sinks of one database in one run: one connection, and
// one transaction an epoch. After an error it has closed the connection and
// answers with that error: recovery is a new participant of a newer
// incarnation.
type participant struct {
	path, name string
	eager      bool
	sinks      []string // ids, sorted
	courier    *courier // of eager sinks, from Fence to Close

	mu        sync.Mutex // held by whoever uses the database
	c         *conn      // nil while the database doesn't exist, and after an error
	err       error      // the first one
	tables    []*table
	job       weir.JobID
	by        weir.Incarnation
	create    bool // the ledger table
	genesis   bool
	startOver bool
	ledgers   map[string]weir.Ledger // what Fence found, and Adopt made; nil before
	fresh     map[string]bool        // sinks that Adopt made the ledger of
	follows   bool
	refs      []ref // scratch
}

func connect(ctx context.Context, path, name string, eager bool, sinks []string) (*participant, error) {
	p := &participant{path: path, name: name, eager: eager, sinks: slices.Sorted(slices.Values(sinks)), fresh: map[string]bool{}}
	there, err := exists(path)
	if err == nil && there {
		p.c, err = dial(ctx, path, false)
	}
	if err != nil {
		return nil, err
	}
	if eager {
		p.courier = newCourier(ctx, p)
	}
	return p, nil
}

// attach adds a sink. It may come before Fence, which then sees to the table,
// or after it.
func (p *participant) attach(ctx context.Context, sink string, l *layout, limit limit) (*table, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return nil, p.err
	case !slices.Contains(p.sinks, sink):
		return nil, fmt.Errorf("%s was connected for %v only", p.name, p.sinks)
	case slices.ContainsFunc(p.tables, func(t *table) bool { return t.sink == sink }):
		return nil, errors.New("opened twice")
	}
	t := &table{sink: sink, layout: l, limit: limit, courier: p.courier, sealed: map[int64][]share{}}
	if p.ledgers[sink].Found {
		err := p.c.txn(ctx, func() error {
			if err := p.own(ctx, sink); err != nil {
				return err
			}
			return p.ensure(ctx, t)
		})
		if err != nil {
			return nil, p.fail(err)
		}
	}
	p.tables = append(p.tables, t)
	return t, nil
}

// ensure looks at a sink's table, or creates it where nothing of it can have
// been committed. It runs in a transaction.
func (p *participant) ensure(ctx context.Context, t *table) error {
	if t.layout.statement != nil {
		return p.ensureStatement(ctx, t)
	}
	there, err := p.c.checkTable(ctx, t.layout)
	ledger := p.ledgers[t.sink]
	if err != nil || !ledger.Found {
		return err // without a ledger Fence's caller is told, and won't go on
	}
	if err := p.claimTable(ctx, t); err != nil || there {
		return err
	}
	if !ledger.ID.IsZero() && !p.fresh[t.sink] {
		return fmt.Errorf("%w: the table %q is gone from %s, but its ledger says that rows up to checkpoint %s were "+
			"committed: restore the database from a backup, or start over with --start-over (StartOver)", weir.ErrRefused, t.layout.table, p.path, ledger.ID)
	}
	return p.c.run(ctx, "create table", t.layout.create())
}

// ensureStatement sets up what a statement needs, where nothing of it can have
// been committed, and checks that it fits. It runs in a transaction.
func (p *participant) ensureStatement(ctx context.Context, t *table) error {
	ledger := p.ledgers[t.sink]
	if !ledger.Found {
		return nil
	}
	if setup := t.layout.statement.setup; setup != "" && (ledger.ID.IsZero() || p.fresh[t.sink]) {
		if err := p.c.run(ctx, "set up", setup); err != nil {
			return fmt.Errorf("%w: set up what the statement of sink %q needs in %s: %w", weir.ErrRefused, t.sink, p.path, err)
		}
	}
	return p.c.checkStatement(ctx, t.layout.statement)
}

// Fence claims the ledgers of all sinks in one transaction.
func (p *participant) Fence(ctx context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.job, p.by, p.create, p.genesis, p.startOver = f.Job, f.By, f.Create, f.Create, f.StartOver
	if p.c == nil && f.Create {
		var err error
		if p.c, err = dial(ctx, p.path, true); err != nil {
			return nil, p.fail(err)
		}
	}
	if p.c == nil { // missing, and not to be created
		return make(map[string]weir.Ledger), nil
	}
	err := p.c.txn(ctx, func() error {
		p.ledgers = map[string]weir.Ledger{}
		if there, err := p.ledgerTable(ctx); err != nil || !there {
			return err
		}
		for _, sink := range p.sinks {
			ledger, err := p.fenceSink(ctx, sink, f.Create)
			if err != nil {
				return err
			}
			p.ledgers[sink] = ledger
		}
		for _, sink := range f.Former {
			ledger, err := p.fenceSink(ctx, sink, false)
			if err != nil {
				return err
			}
			p.ledgers[sink] = ledger
		}
		for _, t := range p.tables {
			if err := p.ensure(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, p.fail(fmt.Errorf("sqlite: fence earlier incarnations: %w", err))
	}
	if p.courier != nil {
		p.courier.start()
	}
	answer := make(map[string]weir.Ledger, len(p.ledgers))
	for sink, l := range p.ledgers {
		answer[sink] = l
	}
	return answer, nil
}

// Follow tells a transactional participant that another one decides the
// epochs: what Prepare returns then holds the epoch's rows, so that a later
// incarnation can commit them after a crash. Call it before the first Prepare.
func (p *participant) Follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follows = true
}

// Probe implements weir.Prober.
func (p *participant) Probe(ctx context.Context) error {
	if err := probe(ctx, p.path); err != nil {
		return fmt.Errorf("sqlite: the disk of %s: %w", p.path, err)
	}
	return nil
}

// Prepare confirms eager rows; transactional ones stay sealed in memory.
func (p *participant) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	if p.courier != nil {
		return nil, p.courier.flush(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	for _, t := range p.tables {
		t.prepare(epoch)
	}
	if !p.follows {
		return nil, nil
	}
	return p.stage(epoch), nil
}

// Commit writes the epoch's rows and moves the ledgers, in one transaction.
func (p *participant) Commit(ctx context.Context, c weir.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	err := p.c.txn(ctx, func() error {
		if err := p.move(ctx, c); err != nil || p.eager {
			return err
		}
		return p.writeEpoch(ctx, c)
	})
	if err != nil {
		return p.fail(fmt.Errorf("sqlite: commit epoch %d: %w", c.Epoch, err))
	}
	for _, t := range p.tables {
		t.release(c.Epoch)
	}
	return nil
}

// usable says why the database can't be written to.
func (p *participant) usable() error {
	switch {
	case p.err != nil:
		return p.err
	case p.ledgers == nil || p.c == nil:
		return fmt.Errorf("sqlite: %s hasn't been fenced for this job", p.path)
	}
	return nil
}

// writeEpoch writes the rows of an epoch: those in memory, or what an earlier
// incarnation staged.
func (p *participant) writeEpoch(ctx context.Context, c weir.Commit) error {
	held := false
	for _, t := range p.tables {
		batches, ok := t.epoch(c.Epoch)
		held = held || ok
		if err := p.writeBatches(ctx, t, batches); err != nil {
			return err
		}
	}
	switch {
	case held:
		return nil
	case len(c.Staged) > 0:
		return p.writeStaged(ctx, c.Staged)
	case c.Empty, c.Parent.IsZero():
		return nil
	}
	return fmt.Errorf("%w: the rows of checkpoint %s aren't in memory and weren't kept with it: "+
		"restore the checkpoint that the ledger names, %s", weir.ErrRefused, c.ID, c.Parent)
}

func (p *participant) writeBatches(ctx context.Context, t *table, batches []*batch) error {
	p.refs = sorted(batches, p.refs)
	return p.c.write(ctx, t.layout, batchRows{batches, p.refs})
}

// Flush waits for eager rows.
func (p *participant) Flush(ctx context.Context) error {
	if p.courier != nil {
		return p.courier.flush(ctx)
	}
	return nil
}

// Close ends the goroutine and the connection. An open transaction is rolled
// back; eager rows that weren't confirmed are lost, to be written by a replay.
func (p *participant) Close() error {
	if p.courier != nil {
		p.courier.stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = errClosed
	}
	return p.hangUp()
}

// fail makes err the participant's last word: nothing is written after it.
func (p *participant) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return errors.Join(err, p.hangUp())
}

func (p *participant) hangUp() error {
	c := p.c
	p.c = nil
	return c.close()
}

// ledgerTable reports whether there is a ledger, which is made at genesis.
func (p *participant) ledgerTable(ctx context.Context) (bool, error) {
	columns, err := p.c.columns(ctx, ledgerTable)
	if err != nil {
		return false, err
	}
	if len(columns) == 0 {
		if !p.create {
			return false, nil
		}
		return true, p.c.run(ctx, "create ledger", createLedger)
	}
	for _, want := range []string{"job_uuid", "sink", "worker", "job", "tbl", "incarnation", "nonce", "checkpoint", "updated_at"} {
		if _, ok := columns[want]; !ok {
			return false, fmt.Errorf("%w: the table %s in %s has no column %q, so it isn't a ledger of this version of weir: "+
				"rename it, or name another database", weir.ErrRefused, ledgerTable, p.path, want)
		}
	}
	return true, nil
}
