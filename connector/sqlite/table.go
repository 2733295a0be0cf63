package sqlite

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/weirstream/weir"
)

// table is a sink in one run.
type table struct {
	sink    string
	layout  *layout
	limit   limit
	courier *courier // nil: transactional

	mu       sync.Mutex
	sealed   map[int64][]share // epoch -> what the tasks sealed
	prepared []int64           // epochs that were prepared and aren't committed
	spare    []*batch
}

// share is one task's rows of an epoch.
type share struct {
	task int
	b    *batch
}

func (t *table) fresh() *batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.spare); n > 0 {
		b := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return b
	}
	return newBatch(t.layout)
}

// seal gives a task's rows to an epoch.
func (t *table) seal(epoch int64, task int, b *batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed[epoch] = append(t.sealed[epoch], share{task, b})
}

func (t *table) prepare(epoch int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prepared = append(t.prepared, epoch)
}

// epoch returns what was sealed, in the order of tasks; ok says that this run
// has had the epoch.
func (t *table) epoch(epoch int64) (batches []*batch, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shares := t.sealed[epoch]
	slices.SortStableFunc(shares, func(x, y share) int { return cmp.Compare(x.task, y.task) })
	for _, s := range shares {
		batches = append(batches, s.b)
	}
	return batches, len(shares) > 0 || slices.Contains(t.prepared, epoch)
}

// release forgets an epoch that is committed.
func (t *table) release(epoch int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sealed[epoch] {
		s.b.reset()
		t.spare = append(t.spare, s.b)
	}
	delete(t.sealed, epoch)
	t.prepared = slices.DeleteFunc(t.prepared, func(e int64) bool { return e == epoch })
}

// recycle takes back a batch whose rows are confirmed.
func (t *table) recycle(b *batch) {
	b.reset()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare = append(t.spare, b)
}

// outlet gives tasks their writers.
type outlet[R any] struct{ t *table }

// Writer returns the writer of a task.
func (o outlet[R]) Writer(task int) weir.Writer[R] {
	if o.t.courier != nil {
		return eagerWriter[R]{o.t.addEager()}
	}
	return &writer[R]{t: o.t, task: task, b: o.t.fresh()}
}

// writer keeps a task's rows in memory until their epoch commits.
type writer[R any] struct {
	t    *table
	task int
	b    *batch
}

// Write adds rows; the last one of a key stays. A row that can't be kept as it
// is is rejected.
func (w *writer[R]) Write(recs []R, _ []int64) error { return putAll(w.b, recs) }

// putAll adds rows up to the first that the batch doesn't take.
func putAll[R any](b *batch, recs []R) error {
	for i := range recs {
		if err := b.put(unsafe.Pointer(&recs[i])); err != nil {
			if errors.Is(err, errTooMuch) {
				return err // of all rows together
			}
			return rejection{err, i}
		}
	}
	return nil
}

// rejection is the error of one row of a Write.
type rejection struct {
	error
	row int
}

// Rejected is the row's index.
func (r rejection) Rejected() int { return r.row }
func (r rejection) Unwrap() error { return r.error }

var _ weir.Rejection = rejection{}

// Seal gives the rows to the epoch.
func (w *writer[R]) Seal(epoch int64) error {
	w.t.seal(epoch, w.task, w.b)
	w.b = w.t.fresh()
	return nil
}

// Full reports that the epoch should end.
func (w *writer[R]) Full() bool { return w.b.full(w.t.limit) }
