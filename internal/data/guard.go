package data

import (
	"bytes"
	"fmt"

	"github.com/weirstream/weir/internal/table"
)

// Guards stand around the call of a user function and nothing else: a panic in
// a step further down isn't this step's, and a stream that forks goes on in its
// other branches. They are there only where a job has a sink for dead letters;
// without one the same panic ends the task, and costs nothing before it.
// Goexit isn't a panic: it passes every guard and ends the task.

// caught, deferred, turns a panic into *err.
func caught(err *error) {
	if p := recover(); p != nil { //nolint:revive // caught is what is deferred
		*err = &PanicError{Value: p, at: panicFrame()} // a stack for each of many would cost more than it tells
	}
}

// guarded is f with its panics as errors.
func guarded[T, R any](f func(T) R) func(T) (R, error) {
	return func(rec T) (out R, err error) {
		defer caught(&err)
		return f(rec), nil
	}
}

// guardedTry is f with its panics as errors, too.
func guardedTry[T, R any](f func(T) (R, error)) func(T) (R, error) {
	return func(rec T) (out R, err error) {
		defer caught(&err)
		return f(rec)
	}
}

// folding adds records to accumulators so that one whose function panics leaves
// no trace.
type folding[T, A any] struct {
	first func(T) A
	zero  func() A
	add   func(A, T) A
	value table.Value
	deep  bool // a copy of a value shares memory with it
	kept  bytes.Buffer
}

func newFolding[T, A any](value table.Value, first func(T) A, zero func() A, add func(A, T) A) *folding[T, A] {
	return &folding[T, A]{first: first, zero: zero, add: add, value: value, deep: value.Shares()}
}

// apply adds rec to *acc and calls result, if there is one, which makes what is
// emitted of it. After an error *acc is what it was.
func (f *folding[T, A]) apply(acc *A, rec T, fresh bool, result func()) (err error) {
	old := *acc
	deep := f.deep && !fresh
	if deep {
		if err := f.value.Save(acc, &f.kept); err != nil {
			return err
		}
	}
	done := false
	defer func() {
		if done {
			return
		}
		if p := recover(); p != nil {
			err = &PanicError{Value: p, at: panicFrame()}
		}
		if !deep {
			*acc = old
			return
		}
		var blank A // decoding into a map adds to what is there
		*acc = blank
		if e := f.value.Load(f.kept.Bytes(), acc); e != nil {
			panic(e) // what Save wrote can't be read: the table's own tests rule it out
		}
	}()
	if fresh && f.first != nil {
		*acc = f.first(rec)
	} else {
		if fresh {
			*acc = f.zero()
		}
		*acc = f.add(*acc, rec)
	}
	if result != nil {
		result()
	}
	done = true
	return nil
}

// unmake takes back the entry that Locate made for a record of a batch, which
// was rejected. A later record of the batch with the same key makes it anew.
func unmake[K comparable, V any](tab *table.Table[K, V], ids []uint32, i int) {
	id := ids[i] &^ table.Fresh
	for j := i + 1; j < len(ids); j++ {
		if ids[j] == id {
			ids[j] |= table.Fresh
			return
		}
	}
	tab.Drop(id)
}

// keyGuard computes a record's key in front of its keyer, so that a record whose
// key can't be had is rejected before anything of it is in a batch.
type keyGuard[K comparable, T any] struct {
	At
	kind table.Key
	try  func(T) (K, error)
	key  K
	to   *Keyer[K, T]
}

// guardKey makes a guard where records are set aside; *key then gives the keyer
// what the guard has computed.
func guardKey[K comparable, T any](t *Task, step int, kind table.Key, key *func(T) K) *keyGuard[K, T] {
	if !t.careful() {
		return nil
	}
	g := &keyGuard[K, T]{At: At{t, int32(step)}, kind: kind, try: guarded(*key)}
	*key = func(T) K { return g.key }
	return g
}

// before puts the guard in front of its keyer; without one that stands alone.
func (g *keyGuard[K, T]) before(k *Keyer[K, T]) Out[T] {
	if g == nil {
		return k
	}
	g.to = k
	return g
}

// Push passes a record with a key on.
func (g *keyGuard[K, T]) Push(p *T, at int64) {
	t := g.Task
	if t.err != nil {
		return
	}
	t.Step = g.Step
	key, err := g.try(*p)
	if err == nil {
		if n := table.Size(g.kind, &key); n > table.MaxKey {
			err = fmt.Errorf("its key has %d bytes, and at most %d can be saved: use a hash or a prefix as key", n, table.MaxKey)
		}
	}
	if err != nil {
		t.reject(g.Step, t.Origin, at, nil, err)
		return
	}
	g.key = key
	g.to.Push(p, at)
}

// Mark passes on.
func (g *keyGuard[K, T]) Mark(m Mark) { g.to.Mark(m) }
