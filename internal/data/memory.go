package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrStateMemory reports that state has reached its budget of memory. The
// wrapping error says what each step holds and what helps.
var ErrStateMemory = errors.New("state has reached its memory budget")

// budgetError is terminal: a restart would come to the same end.
type budgetError struct{ text string }

func (e budgetError) Error() string  { return e.text }
func (e budgetError) Unwrap() error  { return ErrStateMemory }
func (e budgetError) Terminal() bool { return true }

// room reports whether so many bytes more fit into the budget, and fails the
// task otherwise. A step asks before its table takes much at once.
func (t *Task) room(bytes int64) bool {
	r := t.run
	if bytes == 0 || r.StateMemory == 0 || r.state.Load()+bytes <= r.StateMemory {
		return true
	}
	t.Fail(r.outOfMemory(bytes))
	return false
}

// loading is room while the task's state is restored: also what has been
// restored so far must fit.
func (t *Task) loading(more int64) error {
	t.measure()
	if t.err == nil {
		t.room(more)
	}
	return t.err
}

// grow takes into account that a step's state has grown, or shrunk.
func (t *Task) grow(bytes int64) {
	r := t.run
	if all := r.state.Add(bytes); bytes > 0 && r.StateMemory > 0 && all > r.StateMemory {
		t.Fail(r.outOfMemory(0))
	}
}

// holder is a step with state and what its tasks hold together.
type holder struct {
	id   string
	step measured // of one of them
	Size
}

// holders returns the steps with state, the largest first.
func (r *Run) holders() []holder {
	var steps []holder
	for _, m := range r.meters.steps {
		i := slices.IndexFunc(steps, func(h holder) bool { return h.id == m.id })
		if i < 0 {
			i, steps = len(steps), append(steps, holder{id: m.id, step: m.step})
		}
		steps[i].Keys += int(m.keys.Load())
		steps[i].Bytes += m.bytes.Load()
		steps[i].Copies += m.copies.Load()
	}
	slices.SortStableFunc(steps, func(a, b holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return steps
}

// outOfMemory says which steps hold how much, and what helps against it.
func (r *Run) outOfMemory(more int64) error {
	what := bytesText(r.state.Load())
	if more > 0 {
		what += fmt.Sprintf(", and %s more at once to grow", bytesText(more))
	}
	var parts, help []string
	for i, h := range r.holders() {
		part := fmt.Sprintf("step %s holds %s for %d keys", h.id, bytesText(h.Bytes), h.Keys)
		if h.Copies > 0 {
			part += fmt.Sprintf(" (%s of it in copies for checkpoints)", bytesText(h.Copies))
		}
		parts = append(parts, part)
		if advised, ok := h.step.(interface{ advice() string }); ok && i == 0 {
			help = append(help, advised.advice()+" at step "+h.id)
		}
	}
	help = append(help, "a larger budget (--state-memory, StateMemory), if the machine has the memory: the next start goes on from the last checkpoint")
	return budgetError{fmt.Sprintf("%v of %s: it takes %s; %s; what helps: %s",
		ErrStateMemory, bytesText(r.StateMemory), what, strings.Join(parts, ", "), strings.Join(help, "; or "))}
}

func (f *Fold[K, T, A, R]) advice() string {
	return "keys with fewer different values, or a window instead of a result that is kept for ever,"
}

func (d *Distinct[K, T]) advice() string { return "a shorter time-to-live, or a smaller Admit," }

func (w *Window[K, T, A, R]) advice() string {
	return "smaller windows, less lateness, or keys with fewer different values,"
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// Size implements measured.
func (f *Fold[K, T, A, R]) Size() Size {
	copies := f.pool.Bytes()
	return Size{Keys: f.tab.Len(), Bytes: f.tab.Bytes() + copies, Copies: copies}
}

// Size implements measured.
func (d *Distinct[K, T]) Size() Size {
	copies := d.pools[0].Bytes() + d.pools[1].Bytes()
	return Size{Keys: d.tab.Len() + d.older.Len(), Bytes: d.tab.Bytes() + d.older.Bytes() + copies, Copies: copies}
}

// Size implements measured. A step may have many windows, and a batch touches
// few: their sum is kept, and made anew after a change to all of them.
func (w *Window[K, T, A, R]) Size() Size {
	if w.stale {
		w.stale, w.size = false, Size{}
		for _, p := range w.open {
			w.size.Keys += p.tab.Len()
			w.size.Bytes += p.tab.Bytes()
		}
		for _, tab := range w.spare {
			w.size.Bytes += tab.Bytes()
		}
	}
	s := w.size
	s.Copies = w.pool.Bytes()
	s.Bytes += s.Copies
	return s
}
