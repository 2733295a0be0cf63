package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
)

// Another program that writes briefly at each commit delays it, and nothing
// is lost on either side.
func TestBusyEveryCommit(t *testing.T) {
	for _, s := range []Sink[count]{counts(database(t)), counts(database(t)).Eager()} {
		db := other(t, s.path)
		exec(t, db, "CREATE TABLE theirs (n INTEGER PRIMARY KEY)")
		var mu sync.Mutex
		held, taken := false, 0
		m := &machine{}
		m.onSQL = func(name string) {
			mu.Lock()
			defer mu.Unlock()
			// Every transaction finds the lock taken when it begins first.
			if name == "sqlite begin" && !held && taken%2 == 0 {
				exec(t, db, "BEGIN IMMEDIATE", "INSERT INTO theirs DEFAULT VALUES")
				held = true
			}
			if name == "sqlite begin" {
				taken++
			}
		}
		m.onWait = func(int) {
			mu.Lock()
			defer mu.Unlock()
			if held {
				exec(t, db, "COMMIT")
				held = false
			}
		}
		r := begin(m.context(t), t, s, 1)
		const epochs = 8
		var want []string
		for i := range int64(epochs) {
			check(t, r.commit(m.context(t), count{"a", i}, count{fmt.Sprintf("b%d", i), i}))
			want = append(want, fmt.Sprintf("b%d %d", i, i))
		}
		want = append([]string{fmt.Sprint("a ", epochs-1)}, want...)
		check(t, r.p.Close())
		if diff := cmp.Diff(want, list(t, db, "SELECT * FROM counts ORDER BY 1")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if theirs := list(t, db, "SELECT count(*) FROM theirs"); theirs[0] == fmt.Sprint(0) || m.waits < epochs {
			t.Errorf("%v rows of the other program and %d waits: the locks never met", theirs, m.waits)
		}
	}
}

// A transaction has the write lock from its first call on: nobody can write
// between what it reads and what it writes.
func TestLockFromTheStart(t *testing.T) {
	s := counts(database(t))
	var refused, passed []string
	m := &machine{}
	r := begin(m.context(t), t, s, 1)
	db := other(t, s.path)
	exec(t, db, "CREATE TABLE theirs (n INTEGER PRIMARY KEY)")
	m.onSQL = func(name string) {
		if _, err := db.Exec("INSERT INTO theirs DEFAULT VALUES"); err != nil {
			refused = append(refused, name)
			return
		}
		passed = append(passed, name)
	}
	check(t, r.commit(m.context(t), count{"a", 1}))
	if diff := cmp.Diff([]string{"sqlite begin"}, passed); diff != "" {
		t.Errorf("another program wrote before these calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sqlite move ledger", "sqlite rows", "sqlite commit"}, refused); diff != "" {
		t.Errorf("another program was kept out before these calls (-want +got):\n%s", diff)
	}
}

// A lock that stays is waited for until it goes or the job ends, and is said.
func TestWaiting(t *testing.T) {
	s := counts(database(t))
	m := &machine{}
	r := begin(m.context(t), t, s, 1)
	check(t, r.commit(m.context(t), count{"a", 1}))
	db := other(t, s.path)
	exec(t, db, "BEGIN IMMEDIATE")
	from := m.Now()
	ctx, cancel := context.WithCancel(m.context(t))
	defer cancel()
	m.onWait = func(int) {
		if m.Now().Sub(from) > 10*time.Second {
			cancel()
		}
	}
	err := r.commit(ctx, count{"a", 2})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("got %v, want the context's error and what it waited for", err)
	}
	if len(m.said) != 1 || !strings.Contains(m.said[0], "a stopped process may hold the lock") {
		t.Errorf("it said %q in 10 s, want one sentence about the lock", m.said)
	}
	exec(t, db, "ROLLBACK")
	if err := r.commit(m.context(t), count{"a", 3}); err == nil {
		t.Error("a commit after a failed one succeeded")
	}
	m.onWait = nil
	again := begin(m.context(t), t, s, 2)
	if got := list(t, db, "SELECT * FROM counts"); got[0] != "a 1" {
		t.Errorf("rows are %q, want those of the epoch that was committed", got)
	}
	check(t, again.commit(m.context(t), count{"a", 4}))
	if got := list(t, db, "SELECT * FROM counts"); got[0] != "a 4" {
		t.Errorf("rows are %q, want those of the new incarnation", got)
	}
}

// An eager and a transactional sink of one database are two participants that
// take turns.
func TestEagerBesideTransactional(t *testing.T) {
	path := database(t)
	eager, err := tryBegin(t.Context(), Upsert[count](path, "early", "ad").Eager(), 1, "early")
	check(t, err)
	defer func() { check(t, eager.p.Close()) }()
	late, err := tryBegin(t.Context(), Upsert[count](path, "late", "ad"), 1, "late")
	check(t, err)
	defer func() { check(t, late.p.Close()) }()
	done := make(chan error)
	go func() {
		for i := range int64(50) {
			if err := eager.w.Write([]count{{"a", i}}, []int64{0}); err != nil {
				done <- err
				return
			}
			if i%10 == 0 {
				if err := eager.p.Flush(t.Context()); err != nil {
					done <- err
					return
				}
			}
		}
		done <- eager.p.Flush(t.Context())
	}()
	for i := range int64(20) {
		check(t, late.commit(t.Context(), count{"a", i}))
	}
	check(t, <-done)
	db := other(t, path)
	if got := list(t, db, "SELECT early.clicks, late.clicks FROM early, late"); got[0] != "49 19" {
		t.Errorf("counts are %q, want the last ones", got)
	}
}

// Eager rows become visible with nobody asking for it.
func TestEagerByItself(t *testing.T) {
	s := counts(database(t)).Eager()
	committed := make(chan struct{}, 10)
	m := &machine{}
	m.perform = func(name string, do func() error) error {
		err := do()
		if name == "sqlite commit" {
			committed <- struct{}{}
		}
		return err
	}
	r := begin(m.context(t), t, s, 1)
	for len(committed) > 0 { // Fence and Open
		<-committed
	}
	check(t, r.w.Write([]count{{"a", 1}}, []int64{0}))
	<-committed
	if got := list(t, other(t, s.path), "SELECT * FROM counts"); len(got) != 1 || got[0] != "a 1" {
		t.Errorf("rows are %q", got)
	}
}

// While the database is locked an eager writer's task waits, with a bounded
// number of rows; Close lets it go.
func TestEagerBackPressure(t *testing.T) {
	s := counts(database(t)).Eager().Buffer(4, 1<<20)
	r := begin(t.Context(), t, s, 1)
	db := other(t, s.path)
	exec(t, db, "BEGIN IMMEDIATE")
	ended := make(chan error)
	wrote := 0
	go func() {
		for {
			if err := r.w.Write([]count{{fmt.Sprint(wrote), 1}}, []int64{0}); err != nil {
				ended <- err
				return
			}
			wrote++
		}
	}()
	check(t, waitFull(r))
	check(t, r.p.Close())
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("the waiting writer got %v, want that the sink is closed", err)
	}
	if wrote > 8 { // one buffer underway, one filling
		t.Errorf("%d rows were taken while nothing could be written", wrote)
	}
	exec(t, db, "ROLLBACK")
	if got := list(t, db, "SELECT count(*) FROM counts"); got[0] != "0" {
		t.Errorf("%s rows were written", got)
	}
	if err := r.p.Flush(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Flush after Close: %v", err)
	}
}

// waitFull returns when the buffer that the courier hasn't come for is full.
func waitFull(r *run[count]) error {
	core := r.w.(eagerWriter[count]).eagerCore
	for {
		core.mu.Lock()
		full := core.b.full(core.t.limit)
		core.mu.Unlock()
		core.t.courier.mu.Lock()
		err := core.t.courier.err
		core.t.courier.mu.Unlock()
		if full || err != nil {
			return err
		}
		runtime.Gosched()
	}
}

// An eager sink's failure is told to whoever comes next.
func TestEagerFailure(t *testing.T) {
	s := counts(database(t)).Eager()
	r := begin(t.Context(), t, s, 1)
	newer := begin(t.Context(), t, s, 2)
	check(t, r.w.Write([]count{{"a", 1}}, []int64{0}))
	flush := r.p.Flush(t.Context())
	for name, err := range map[string]error{
		"flush":  flush,
		"write":  r.w.Write([]count{{"a", 2}}, []int64{0}),
		"commit": r.p.Commit(t.Context(), weir.Commit{Epoch: 1, ID: weir.CheckpointID{Slot: 1}}),
	} {
		if !errors.Is(err, weir.ErrFenced) {
			t.Errorf("%s: got %v, want weir.ErrFenced", name, err)
		}
	}
	check(t, newer.commit(t.Context(), count{"a", 3}))
	if got := list(t, other(t, s.path), "SELECT * FROM counts"); got[0] != "a 3" {
		t.Errorf("rows are %q", got)
	}
}

// A task fills the batch that the courier, finding it empty, leaves to it: the
// courier mustn't look at it again, take it or recycle it.
func TestEagerFlushWhileWriting(t *testing.T) {
	const n = 2000
	s := counts(database(t)).Eager()
	m := &machine{} // the courier never lingers
	r := begin(m.context(t), t, s, 1)
	for range 500 { // tasks without rows, so that a round takes its time
		r.w.(eagerWriter[count]).t.addEager()
	}
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = r.w.Write([]count{{fmt.Sprint(i), int64(i)}}, []int64{0})
			runtime.Gosched()
		}
		ended <- err
	}()
	for writing := true; writing; {
		select {
		case err := <-ended:
			check(t, err)
			writing = false
		default:
			check(t, r.p.Flush(t.Context()))
		}
	}
	check(t, r.p.Flush(t.Context()))
	if got := list(t, other(t, s.path), "SELECT count(*), sum(clicks), sum(ad = clicks) FROM counts"); got[0] != fmt.Sprint(n, n*(n-1)/2, n) {
		t.Errorf("count, sum and whole rows are %q", got)
	}
}
