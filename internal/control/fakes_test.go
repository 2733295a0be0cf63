package control

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/sys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what outlives a run: a store, databases, and a journal of effects.
type world struct {
	store *store
	files sys.Files // what runs see of the store; nil: all of it
	dbs   map[string]*database

	mu      sync.Mutex
	journal []string
	fail    func(call string) error // before an effect; nil: never
	lose    func(call string) error // after it: the answer is lost
}

func newWorld() *world {
	w := &world{dbs: map[string]*database{}}
	w.store = &store{Files: sys.NewMemFiles(), w: w}
	return w
}

// effect performs a call, or fails before or after it.
func (w *world) effect(call string, do func() error) error {
	w.mu.Lock()
	w.journal = append(w.journal, call)
	fail, lose := w.fail, w.lose
	w.mu.Unlock()
	if fail != nil {
		if err := fail(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if lose != nil {
		return lose(call)
	}
	return nil
}

// calls returns and forgets the journal.
func (w *world) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.journal
	w.journal = nil
	return j
}

// store is a folder that outlives runs, and tells of what becomes visible in it.
type store struct {
	sys.Files
	w *world
}

func (s *store) Close() error { return nil }

func (s *store) Link(from, to string) error {
	kind, _, _ := strings.Cut(to, "/")
	return s.w.effect("link "+kind, func() error { return s.Files.Link(from, to) })
}

func (s *store) Remove(name string) error {
	if strings.HasPrefix(name, "tmp/") {
		return s.Files.Remove(name)
	}
	return s.w.effect("remove", func() error { return s.Files.Remove(name) })
}

func (s *store) names(t testing.TB, prefix string) []string {
	t.Helper()
	names, err := sys.NewBlobs(s.Files).List(prefix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

func (s *store) entries(t testing.TB) []log.Entry {
	t.Helper()
	l, err := log.Open(sys.NewBlobs(s.Files), "test")
	if err != nil {
		t.Fatal(err)
	}
	return l.Entries()
}

// database holds, for each uuid and sink, a ledger and one number: how many
// records have been counted. The contract's rules are written down here once
// more, by the letter.
type database struct {
	w       *world
	name    string
	kind    string
	sinks   []string
	ledgers map[string]*row
	busy    int  // calls that fail with a temporary error first
	hidden  int  // times that a reader doesn't see a commit yet
	bulk    int  // bytes that are staged besides the number
	proud   bool // can't follow
}

type row struct {
	id          log.ID
	incarnation int64
	nonce       string
	value       int64
}

func (w *world) database(name, kind string, sinks ...string) *database {
	if db := w.dbs[name]; db != nil {
		return db
	}
	w.dbs[name] = &database{w: w, name: name, kind: kind, sinks: sinks, ledgers: map[string]*row{}}
	return w.dbs[name]
}

// connection is one run's participant.
type connection struct {
	db      *database
	sinks   []string
	follows bool
	fence   Fence
	ask     func() // for a barrier
	mu      sync.Mutex
	sealed  map[int64]int64 // counts by epoch
	closed  bool
}

type busyError struct{}

func (busyError) Error() string   { return "database is busy" }
func (busyError) Temporary() bool { return true }

func (db *database) connect(context.Context) (Participant, error) {
	c := &connection{db: db, sinks: slices.Clone(db.sinks), sealed: map[int64]int64{}}
	err := db.w.effect("connect "+db.name, func() error {
		if db.busy > 0 {
			db.busy--
			return busyError{}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (db *database) key(uuid, sink string) string { return uuid + "/" + sink }

func (c *connection) Fence(_ context.Context, f Fence) (map[string]Ledger, error) {
	out := map[string]Ledger{}
	err := c.db.w.effect("fence "+c.db.name, func() error {
		if c.db.kind == atLeastOnce {
			return nil
		}
		for i, sink := range slices.Concat(c.sinks, f.Former) {
			k := c.db.key(f.UUID, sink)
			r := c.db.ledgers[k]
			if r == nil {
				if !f.Create || i >= len(c.sinks) {
					out[sink] = Ledger{}
					continue
				}
				r = &row{}
				c.db.ledgers[k] = r
			}
			if r.incarnation > f.Incarnation || r.incarnation == f.Incarnation && r.nonce != f.Nonce {
				return fmt.Errorf("%w: ledger of %s belongs to incarnation %d", ErrFenced, sink, r.incarnation)
			}
			r.incarnation, r.nonce = f.Incarnation, f.Nonce
			out[sink] = Ledger{Found: true, ID: r.id}
		}
		return nil
	})
	c.fence = f
	return out, err
}

func (c *connection) seal(epoch, value int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed[epoch] = value
}

func (c *connection) Prepare(_ context.Context, epoch int64) ([]byte, error) {
	var staged []byte
	err := c.db.w.effect("prepare "+c.db.name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		v, ok := c.sealed[epoch]
		if !ok {
			return fmt.Errorf("epoch %d isn't sealed", epoch)
		}
		if c.db.kind == transactional && !c.follows {
			return nil // its rows stay in memory
		}
		staged = append(binary.LittleEndian.AppendUint64(nil, uint64(v)), make([]byte, c.db.bulk)...)
		return nil
	})
	return staged, err
}

func (c *connection) Follow() bool {
	c.follows = !c.db.proud
	return c.follows
}

func (c *connection) Adopt(_ context.Context, at log.ID, sinks []Adopted) error {
	return c.db.w.effect("adopt "+c.db.name, func() error {
		for _, s := range sinks {
			if !slices.Contains(c.sinks, s.Sink) {
				return fmt.Errorf("sink %s isn't of %s", s.Sink, c.db.name)
			}
			to, from := c.db.key(c.fence.UUID, s.Sink), c.db.key(c.fence.UUID, s.Was)
			r, was := c.db.ledgers[to], c.db.ledgers[from]
			switch {
			case r != nil && (r.id != at || r.nonce != c.fence.Nonce):
				return fmt.Errorf("ledger of %s names %v", s.Sink, r.id)
			case r != nil:
			case s.Was == "":
				c.db.ledgers[to] = &row{id: at, incarnation: c.fence.Incarnation, nonce: c.fence.Nonce}
			case was == nil || was.id != at || was.nonce != c.fence.Nonce:
				return fmt.Errorf("ledger of %s is %+v, to be renamed at %v", s.Was, was, at)
			default:
				c.db.ledgers[to] = was
				delete(c.db.ledgers, from)
			}
		}
		return nil
	})
}

func (c *connection) Visible(_ context.Context, id log.ID) error {
	if c.db.hidden > 0 {
		c.db.hidden--
		return busyError{}
	}
	for _, sink := range c.sinks {
		if r := c.db.ledgers[c.db.key(c.fence.UUID, sink)]; r.id != id {
			return fmt.Errorf("%s names %v, not %v", sink, r.id, id)
		}
	}
	return nil
}

func (c *connection) Commit(_ context.Context, e Commit) error {
	return c.db.w.effect(fmt.Sprintf("commit %s %d", c.db.name, e.Epoch), func() error {
		if c.db.busy > 0 {
			c.db.busy--
			return busyError{}
		}
		if c.db.kind == atLeastOnce {
			return nil
		}
		for _, sink := range c.sinks {
			r := c.db.ledgers[c.db.key(c.fence.UUID, sink)]
			if r == nil || r.incarnation != c.fence.Incarnation || r.nonce != c.fence.Nonce {
				return fmt.Errorf("ledger of %s isn't ours any more", sink)
			}
			if r.id == e.ID {
				return nil
			}
			if r.id != e.Parent {
				return fmt.Errorf("ledger of %s names %v, not %v", sink, r.id, e.Parent)
			}
		}
		value, has, err := c.rows(e)
		for _, sink := range c.sinks {
			if r := c.db.ledgers[c.db.key(c.fence.UUID, sink)]; err == nil {
				if r.id = e.ID; has {
					r.value = value
				}
			}
		}
		return err
	})
}

// rows returns what is to be committed: from memory, or what was kept.
func (c *connection) rows(e Commit) (value int64, has bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.sealed[e.Epoch]; ok {
		return v, true, nil
	}
	switch {
	case len(e.Staged) == 8+c.db.bulk:
		return int64(binary.LittleEndian.Uint64(e.Staged)), true, nil
	case e.Staged == nil && (e.Empty || e.Parent.IsZero()):
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("the rows of epoch %d aren't in memory, and %d bytes were kept of them", e.Epoch, len(e.Staged))
}

func (c *connection) Press(ask func()) { c.ask = ask }

func (c *connection) Flush(context.Context) error {
	return c.db.w.effect("flush "+c.db.name, func() error { return nil })
}

func (c *connection) Close() error {
	if c.closed {
		return errors.New("closed twice")
	}
	c.closed = true
	return nil
}

// graph is the flow's declaration, with the databases' sinks.
func (w *world) graph(dbs []*database) plan.Graph {
	g := plan.Graph{Job: "test", KeyGroups: 8, Nodes: []plan.Node{
		{Op: plan.Source, ID: "in"},
		{Op: plan.Count, ID: "count", Inputs: []int{0}, Key: "string", Value: "int64"},
	}}
	for _, db := range dbs {
		for _, s := range db.sinks {
			g.Nodes = append(g.Nodes, plan.Node{Op: plan.Sink, ID: s, Inputs: []int{1}, Sink: &plan.SinkNode{Kind: db.kind, Participant: db.name}})
		}
	}
	return g
}

// running is one Run in the background.
type running struct {
	t      testing.TB
	w      *world
	h      *Handle
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	flow   *flow // the last one built
	events []Event
}

// run starts a job that writes to the databases. Changes are made to its Config.
func (w *world) run(t testing.TB, dbs []*database, changes ...func(*Config)) *running {
	t.Helper()
	r := &running{t: t, w: w, h: NewHandle(), done: make(chan error, 1)}
	c := Config{Graph: w.graph(dbs), StateDir: "state", Observe: func(e Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}}
	for _, db := range dbs {
		c.Sinks = append(c.Sinks, Sinks{Name: db.name, Kind: db.kind, IDs: db.sinks, Connect: db.connect})
	}
	c.Build = func(_ context.Context, connected []Participant) (Flow, error) {
		f := &flow{w: w, splits: []string{"s"}, schema: "int64"}
		for _, p := range connected {
			f.conns = append(f.conns, p.(*connection))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.flow = f
		return f, nil
	}
	for _, change := range changes {
		change(&c)
	}
	ctx, cancel := context.WithCancel(sys.With(t.Context(), &sys.Env{
		Files: func(string) (sys.Files, error) {
			if w.files != nil {
				return w.files, nil
			}
			return w.store, nil
		}, Clock: sys.WallClock{},
	}))
	r.cancel = cancel
	go func() { r.done <- Run(ctx, c, r.h) }()
	return r
}

// checkpoint takes one and returns it.
func (r *running) checkpoint() Checkpoint {
	r.t.Helper()
	c, err := r.h.Checkpoint(r.t.Context())
	if err != nil {
		r.t.Fatalf("checkpoint: %v", err)
	}
	return c
}

// started waits until the flow runs.
func (r *running) started() *flow {
	r.t.Helper()
	if err := r.h.Settle(r.t.Context()); err != nil {
		r.t.Fatalf("the job didn't start: %v", err)
	}
	return r.built()
}

func (r *running) built() *flow {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flow
}

// stop ends the run as SIGTERM does.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Fatalf("stop: %v", err)
	}
}

// wait returns what Run returned.
func (r *running) wait() error {
	err := <-r.done
	r.cancel()
	return err
}

func (r *running) last() (s Started) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Started != nil {
			s = *e.Started
		}
	}
	return s
}

func (r *running) saw(is func(Event) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if is(e) {
			n++
		}
	}
	return n
}

// value is what a database shows, of whichever life has the newest ledger.
func (db *database) value() int64 {
	var newest *row
	for _, r := range db.ledgers {
		if newest == nil || r.incarnation > newest.incarnation {
			newest = r
		}
	}
	if newest == nil {
		return 0
	}
	return newest.value
}
