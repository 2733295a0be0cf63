package control

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

func TestClassOf(t *testing.T) {
	wrapped := func(err error) error {
		return fmt.Errorf("save the state: %w", &fs.PathError{Op: "write", Path: "state/seg/1", Err: err})
	}
	tests := []struct {
		name   string
		err    error
		want   class
		reason Reason
	}{
		{"input", &data.RecordError{Step: "a", Err: errors.New("bad")}, fatal, TaskFailed},
		{"input that may be there later", &data.RecordError{Step: "a", Err: busyError{}}, passing, TaskFailed},
		{"input on a broken disk", &data.RecordError{Step: "a", Err: wrapped(syscall.EIO)}, disk, DiskBroken},
		{"refused", refused("no"), fatal, TaskFailed},
		{"refused because of what a disk said", fmt.Errorf("%w: %w", ErrRefused, syscall.EIO), fatal, DiskBroken},
		{"grown", data.ErrGrown, fatal, TaskFailed},
		{"corrupt", &log.CorruptError{File: "x"}, fatal, TaskFailed},
		{"fenced", blame(SinkFailed, fmt.Errorf("commit: %w", ErrFenced)), fatal, SinkFailed},
		{"locked", blame(StoreFailed, sys.ErrLocked), fatal, StoreFailed},
		{"a budget", fmt.Errorf("task a: %w", data.ErrStateMemory), fatal, TaskFailed},
		{"full", blame(StoreFailed, wrapped(syscall.ENOSPC)), disk, DiskFull},
		{"over quota", wrapped(syscall.EDQUOT), disk, DiskFull},
		{"read-only", wrapped(syscall.EROFS), disk, DiskReadOnly},
		{"broken", wrapped(syscall.EIO), disk, DiskBroken},
		{"in an append that may have happened", &log.UncertainError{Slot: 3, Err: wrapped(syscall.EIO)}, disk, DiskBroken},
		{"one of several", errors.Join(errors.New("closed"), wrapped(syscall.ENOSPC)), disk, DiskFull},
		{"anything else in a sink", blame(SinkFailed, errors.New("connection reset")), passing, SinkFailed},
		{"anything else in the store", blame(StoreFailed, wrapped(syscall.EACCES)), passing, StoreFailed},
		{"anything else", errors.New("broken"), passing, TaskFailed},
		{"the first to blame is blamed", blame(SinkFailed, fmt.Errorf("x: %w", blame(StoreFailed, errors.New("y")))), passing, StoreFailed},
	}
	for _, tt := range tests {
		if got, reason := classOf(tt.err), reasonOf(tt.err); got != tt.want || reason != tt.reason {
			t.Errorf("%s: class %d because of %q, want %d and %q", tt.name, got, reason, tt.want, tt.reason)
		}
	}
}

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for attempt := range 9 {
		got = append(got, backoff(attempt+1)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("waits of %v seconds, want %v", got, want)
	}
	if got := backoff(1 << 40); got != longestBackoff {
		t.Errorf("after very many, %v", got)
	}
}

// TestSeries walks through errors and lives of incarnations.
func TestSeries(t *testing.T) {
	passes, full, bad := errors.New("passes"), syscall.ENOSPC, data.ErrInput
	type step struct {
		ran       time.Duration // 0: the start failed
		committed bool
		err       error
		attempt   int // 0: no restart
	}
	tests := []struct {
		name  string
		limit int
		steps []step
	}{
		{"none allowed", 0, []step{{time.Hour, true, passes, 0}}},
		{"none allowed, also not for a disk", 0, []step{{time.Hour, true, full, 0}}},
		{"in a row", 2, []step{{1, true, passes, 1}, {1, true, passes, 2}, {1, true, passes, 0}}},
		{"a start that fails counts too", 2, []step{{1, true, passes, 1}, {0, false, passes, 2}, {0, false, passes, 0}}},
		{"a minute with a checkpoint begins a new row", 1, []step{{1, true, passes, 1}, {newRow, true, passes, 1}, {newRow - 1, true, passes, 0}}},
		{"a minute without one doesn't", 1, []step{{1, true, passes, 1}, {time.Hour, false, passes, 0}}},
		{"the very first start", 5, []step{{0, false, passes, 0}}},
		{"the very first start, that may be repeated", 5, []step{{0, false, busyError{}, 1}, {0, false, passes, 0}}},
		{"the very first start, on a full disk", 5, []step{{0, false, full, 1}, {0, false, passes, 0}}},
		{"fatal", 5, []step{{1, true, passes, 1}, {1, true, bad, 0}}},
		{"a disk has no limit", 1, []step{{1, true, full, 1}, {0, false, full, 2}, {0, false, full, 3}, {1, true, passes, 1}, {1, true, full, 4},
			{time.Hour, true, full, 1}}},
	}
	for _, tt := range tests {
		s := series{limit: tt.limit}
		for i, st := range tt.steps {
			if st.ran > 0 {
				s.ran(st.ran, st.committed)
			}
			attempt, again := s.next(st.err)
			if attempt != st.attempt || again != (st.attempt > 0) {
				t.Errorf("%s, error %d: attempt %d, again %v, want %d", tt.name, i+1, attempt, again, st.attempt)
			}
		}
	}
}
