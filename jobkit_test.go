package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
)

// event is the record of most tests. At is in milliseconds since 1970.
type event struct {
	Key string
	N   int64
	At  int64
}

func eventTime(e event) time.Time { return time.UnixMilli(e.At) }

// noon is an hour that tests count from, so that no event time is the zero time.
const noon = int64(1_772_366_400_000) // 2026-03-01T12:00:00Z

// sec is an event of key k, n seconds after noon.
func sec(k string, n int64) event { return event{Key: k, N: n, At: noon + 1000*n} }

func keyOf(e event) string { return e.Key }

// errCrash stands in for a crash: the run ends at once, and nothing of the open
// epoch is committed.
var errCrash = errors.New("crash of the test")

// crashAt fails at the n-th record that it sees, from 1, and passes others on.
// It counts across tasks; 0 never fails.
func crashAt[T any](n int) func(T) (T, error) {
	var mu sync.Mutex
	seen := 0
	return func(rec T) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen == n {
			return rec, errCrash
		}
		return rec, nil
	}
}

// crashCommitted fails at the n-th record that it sees, from 1, once the option
// has seen the given epoch committed.
func crashCommitted[T any](n int, epoch int64) (func(T) (T, error), weir.RunOption) {
	committed := make(chan struct{})
	crash := crashAt[T](n)
	f := func(rec T) (T, error) {
		rec, err := crash(rec)
		if err != nil {
			<-committed
		}
		return rec, err
	}
	return f, weir.OnCheckpoint(func(c weir.Checkpoint) {
		if c.Epoch == epoch {
			close(committed)
		}
	})
}

// mustRun runs a job to its end.
func mustRun(t *testing.T, job *weir.Job, opts ...weir.RunOption) {
	t.Helper()
	if err := job.Run(t.Context(), opts...); err != nil {
		t.Fatal(err)
	}
}

// mustCrash runs a job that has a crash built in.
func mustCrash(t *testing.T, job *weir.Job, opts ...weir.RunOption) {
	t.Helper()
	if err := job.Run(t.Context(), opts...); !errors.Is(err, errCrash) {
		t.Fatalf("the run ended with %v, want the crash that the test built in", err)
	}
}

// eachShape runs f at several parallelisms and batch sizes.
func eachShape(t *testing.T, f func(t *testing.T, opts ...weir.RunOption)) {
	for _, p := range []int{1, 2, 7} {
		for _, batch := range []int{1, 5, 1024} {
			t.Run(fmt.Sprintf("parallelism %d, batch %d", p, batch), func(t *testing.T) {
				f(t, weir.Parallelism(p), weir.BatchSize(batch))
			})
		}
	}
}

// sorted returns what a sink has got, each printed, in order of the text.
func sorted[T any](recs []T) []string {
	out := make([]string, len(recs))
	for i, r := range recs {
		out[i] = fmt.Sprintf("%+v", r)
	}
	slices.Sort(out)
	return out
}

// wantSame compares two lists of texts.
func wantSame(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("output (-want +got):\n%s", diff)
	}
}

// all returns what the sink has got so far.
func (g *gathered[T]) all() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.recs)
}

// take is all, and forgets it.
func (g *gathered[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	recs := g.recs
	g.recs = nil
	return recs
}

// vault is a transactional sink in memory. It outlives runs, as a database
// does, and a run that fails leaves nothing of its open epoch in it.
type vault[T any] struct {
	mu     sync.Mutex
	rows   []T
	epochs [][]T // the rows of each epoch, genesis first
	ledger weir.Ledger
}

func (v *vault[T]) all() []T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.rows)
}

func (v *vault[T]) Spec() weir.SinkSpec {
	return weir.SinkSpec{Kind: weir.Transactional, Target: "a vault", Participant: "vault", Readers: "Each row is there once.", Needs: []string{"memory"}}
}

func (v *vault[T]) Connect(_ context.Context, sinks []string) (weir.Participant, error) {
	return &vaultRun[T]{v: v, sinks: sinks, sealed: map[int64][]T{}}, nil
}

func (v *vault[T]) Open(_ context.Context, p weir.Participant, _ string) (weir.Outlet[T], error) {
	return p.(*vaultRun[T]), nil
}

// vaultRun is a vault in one run.
type vaultRun[T any] struct {
	v      *vault[T]
	sinks  []string
	mu     sync.Mutex
	sealed map[int64][]T
}

func (r *vaultRun[T]) Writer(int) weir.Writer[T] { return &vaultWriter[T]{r: r} }

func (r *vaultRun[T]) Fence(_ context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	r.v.mu.Lock()
	defer r.v.mu.Unlock()
	r.v.ledger.Found = r.v.ledger.Found || f.Create
	out := map[string]weir.Ledger{}
	for _, s := range r.sinks {
		out[s] = r.v.ledger
	}
	return out, nil
}

func (r *vaultRun[T]) Commit(_ context.Context, c weir.Commit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.v.mu.Lock()
	defer r.v.mu.Unlock()
	if r.v.ledger.ID == c.ID {
		return nil
	}
	if r.v.ledger.ID != c.Parent {
		return fmt.Errorf("the vault's ledger names %s, and the epoch's parent is %s", r.v.ledger.ID, c.Parent)
	}
	r.v.rows = append(r.v.rows, r.sealed[c.Epoch]...)
	r.v.epochs = append(r.v.epochs, r.sealed[c.Epoch])
	r.v.ledger.ID = c.ID
	delete(r.sealed, c.Epoch)
	return nil
}

func (r *vaultRun[T]) Prepare(context.Context, int64) ([]byte, error) { return nil, nil }
func (r *vaultRun[T]) Flush(context.Context) error                    { return nil }
func (r *vaultRun[T]) Close() error                                   { return nil }

type vaultWriter[T any] struct {
	r    *vaultRun[T]
	rows []T
}

func (w *vaultWriter[T]) Write(recs []T, _ []int64) error {
	w.rows = append(w.rows, recs...)
	return nil
}

func (w *vaultWriter[T]) Seal(epoch int64) error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.sealed[epoch] = append(w.r.sealed[epoch], w.rows...)
	w.rows = nil
	return nil
}
