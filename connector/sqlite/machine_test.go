package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// machine is an environment whose clock moves only while somebody waits.
type machine struct {
	mu      sync.Mutex
	now     time.Time
	waits   int
	said    []string
	onWait  func(n int)                              // before the n-th wait
	onSQL   func(name string)                        // before a call
	perform func(name string, do func() error) error // instead of a call
}

func (m *machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *machine) After(d time.Duration) <-chan time.Time {
	m.mu.Lock()
	m.waits++
	n := m.waits
	m.now = m.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- m.now
	m.mu.Unlock()
	if m.onWait != nil {
		m.onWait(n)
	}
	return ch
}

func (m *machine) context(t *testing.T) context.Context {
	env := *sys.From(t.Context())
	env.Clock = m
	env.Waiting = func(what string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.said = append(m.said, what)
	}
	env.SQL = func(name string, do func() error) error {
		if m.onSQL != nil {
			m.onSQL(name)
		}
		if m.perform != nil {
			return m.perform(name, do)
		}
		return do()
	}
	return sys.With(t.Context(), &env)
}

// other is another program's connection to the database. It never waits for a
// lock.
func other(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(0)")
	check(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

func exec(t *testing.T, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// list runs a query and returns its rows, each as one text.
func list(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.Query(query)
	check(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	check(t, err)
	var out []string
	for rows.Next() {
		values := make([]any, len(names))
		to := make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		check(t, rows.Scan(to...))
		out = append(out, strings.TrimSpace(fmt.Sprintln(values...)))
	}
	check(t, rows.Err())
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run is one incarnation of a job with one sink and one task.
type run[R any] struct {
	p      weir.Participant
	w      weir.Writer[R]
	parent weir.CheckpointID
	epoch  int64
}

var job = weir.JobID{Name: "job", UUID: "uuid"}

// begin starts incarnation n of a job, from nothing if n is 1.
func begin[R any](ctx context.Context, t *testing.T, s Sink[R], n int64) *run[R] {
	t.Helper()
	r, err := tryBegin(ctx, s, n, "out")
	check(t, err)
	t.Cleanup(func() { check(t, r.p.Close()) })
	return r
}

func tryBegin[R any](ctx context.Context, s Sink[R], n int64, id string) (*run[R], error) {
	p, err := s.Connect(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	ledgers, err := p.Fence(ctx, weir.Fence{Job: job, By: weir.Incarnation{Number: n, Nonce: "nonce"}, Create: n == 1})
	if err != nil {
		return nil, err
	}
	o, err := s.Open(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return &run[R]{p: p, w: o.Writer(0), parent: ledgers[id].ID, epoch: ledgers[id].ID.Slot}, nil
}

// commit writes rows as one epoch.
func (r *run[R]) commit(ctx context.Context, rows ...R) error {
	if err := r.w.Write(rows, make([]int64, len(rows))); err != nil {
		return err
	}
	r.epoch++
	if err := r.w.Seal(r.epoch); err != nil {
		return err
	}
	staged, err := r.p.Prepare(ctx, r.epoch)
	if err != nil {
		return err
	}
	c := weir.Commit{Epoch: r.epoch, ID: weir.CheckpointID{Slot: r.epoch}, Parent: r.parent, Staged: staged}
	r.parent = c.ID
	return r.p.Commit(ctx, c)
}

func database(t *testing.T) string { return filepath.Join(t.TempDir(), "test.db") }

type count struct {
	Ad     string
	Clicks int64
}

func counts(path string) Sink[count] { return Upsert[count](path, "counts", "ad") }
