package connectortest

import (
	"errors"
	"sync"
	"testing"
)

// testOverlap: each task writes the next epoch in a goroutine of its own, while
// the epoch before it is flushed, prepared and committed. Only the race detector
// sees all that may go wrong.
func testOverlap(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	l := w.start(t)
	must(t, l.write(1))
	for n := int64(1); n <= int64(len(scenario)); n++ {
		var all sync.WaitGroup
		errs := make([]error, tasks)
		if n < int64(len(scenario)) {
			for task := range tasks {
				all.Go(func() { errs[task] = l.writeTask(task, n+1) })
			}
		}
		flushed := l.p.Flush(t.Context())
		staged, err := l.p.Prepare(t.Context(), n)
		if err == nil {
			err = l.p.Commit(t.Context(), w.next(n, l.by, staged))
		}
		all.Wait()
		must(t, errors.Join(flushed, err, errors.Join(errs...)))
	}
	w.check(t, len(scenario))
}

// writeTask hands over what one task has in an epoch, row by row, and seals it.
func (l *life) writeTask(task int, epoch int64) error {
	for _, writers := range l.writers {
		for _, row := range scenario[epoch-1][task] {
			if err := writers[task].Write([]Row{row}, []int64{0}); err != nil {
				return err
			}
		}
		if err := writers[task].Seal(epoch); err != nil {
			return err
		}
	}
	return nil
}
