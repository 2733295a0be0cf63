// Package log is the store's one numbered sequence of entries (start,
// checkpoint, retire) and the segment files that checkpoints refer to. Slots
// are taken in order, each once, by whoever writes first: losing a slot is how
// an incarnation learns that a newer one has started.
package log

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/weirstream/weir/internal/sys"
)

// Log is the log of one store as it was last read, and what this Log has
// appended since. It belongs to one goroutine. Everything in it was verified,
// and has been durable since before it was in it.
type Log struct {
	blobs   sys.Blobs
	where   string
	entries []Entry
	swept   map[int64]bool // slots of retire entries whose blobs are deleted
	failed  error          // an append failed: what the log ends with isn't known
}

// Open lists, reads and verifies all entries. where is what errors call the
// store, such as the path of the state directory. A store that can't be
// vouched for gives a *CorruptError.
func Open(b sys.Blobs, where string) (*Log, error) {
	l := &Log{blobs: b, where: where}
	if err := l.Reload(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload reads the log again, as Open does. After an error the Log is as it
// was before.
func (l *Log) Reload() error {
	names, err := l.blobs.List(logPrefix)
	if err != nil {
		return fmt.Errorf("list the log in %s: %w", l.where, err)
	}
	next := &Log{blobs: l.blobs, where: l.where, swept: map[int64]bool{}}
	for _, name := range names {
		slot, ok := parseSlot(name)
		if !ok {
			return &CorruptError{File: l.file(name), Expected: fmt.Sprintf("only log entries, each named by %d digits", slotDigits),
				Found: "another file", Hint: hintForeign}
		}
		b, err := l.blobs.Get(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // swept since it was listed; if not, it is a gap that nothing explains
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", l.file(name), err)
		}
		e, err := decode(b, slot, l.file(name))
		if err != nil {
			return err
		}
		next.entries = append(next.entries, e)
	}
	slices.SortFunc(next.entries, func(a, b Entry) int { return cmp.Compare(a.Slot, b.Slot) })
	if err := next.verify(); err != nil {
		return err
	}
	*l = *next
	return nil
}

// verify checks how the entries stand to each other.
func (l *Log) verify() error {
	gone := retired(l.entries)
	last := int64(0)
	for i, e := range l.entries {
		if first := last + 1; e.Slot != first && !gone.cover(first, e.Slot-1) {
			for gone.cover(first, first) {
				first++
			}
			return &CorruptError{File: l.file(SlotName(first)), Expected: "a log entry, because no retire entry lists this one",
				Found: "no such file", Hint: hintRestore}
		}
		last = e.Slot
		if err := l.check(l.entries[:i], gone, e); err != nil {
			return &CorruptError{File: l.file(SlotName(e.Slot)), Expected: "an entry that fits the log",
				Found: err.Error(), Hint: hintRestore}
		}
	}
	return nil
}

// check says what is wrong with e behind the entries before it. gone is what
// all retire entries of the log list.
func (l *Log) check(before []Entry, gone spans, e Entry) error {
	if e.Start != nil {
		if gone.cover(e.Slot, e.Slot) {
			return errors.New("a start entry that a retire entry lists")
		}
		return nil
	}
	var start Entry
	for _, b := range slices.Backward(before) {
		if b.Start != nil {
			start = b
			break
		}
	}
	if start.Start == nil {
		return errors.New("no start entry before it")
	}
	if e.Retire != nil {
		if e.Retire.Incarnation != start.Slot {
			return fmt.Errorf("a retire entry of incarnation %d behind the start of incarnation %d", e.Retire.Incarnation, start.Slot)
		}
		return nil
	}
	m := e.Checkpoint
	if m.Incarnation != start.Slot {
		return fmt.Errorf("a checkpoint of incarnation %d behind the start of incarnation %d", m.Incarnation, start.Slot)
	}
	if m.Job != start.Start.Job || m.UUID != start.Start.UUID {
		return fmt.Errorf("a checkpoint of job %q (%s) behind the start of job %q (%s)", m.Job, m.UUID, start.Start.Job, start.Start.UUID)
	}
	if m.Parent.IsZero() {
		return nil
	}
	i, ok := slices.BinarySearchFunc(before, m.Parent.Slot, func(e Entry, slot int64) int { return cmp.Compare(e.Slot, slot) })
	switch {
	case ok && (before[i].ID != m.Parent || before[i].Checkpoint == nil):
		return fmt.Errorf("a checkpoint whose parent %s isn't what slot %d holds", m.Parent, m.Parent.Slot)
	case !ok && !gone.cover(m.Parent.Slot, m.Parent.Slot):
		return fmt.Errorf("a checkpoint whose parent %s isn't in the log", m.Parent)
	}
	return nil
}

// Entries returns the entries by slot. It lists a retired entry as long as its
// file hasn't been swept; Find and Chain don't see it.
func (l *Log) Entries() []Entry { return slices.Clone(l.entries) }

// Next returns the slot that the next Append writes.
func (l *Log) Next() int64 {
	if len(l.entries) == 0 {
		return 1
	}
	return l.entries[len(l.entries)-1].Slot + 1
}

// Append writes e into slot Next, and nowhere else; e.Slot must be 0 or that,
// and e.ID is ignored. The entry is durable when its ID is returned. ErrTaken
// means that somebody else has written the slot, *UncertainError that e may be
// in the log or not: either way, and after any other error of the store, this
// Log appends nothing more until it is reloaded. An entry that doesn't fit the
// log is refused before anything is written.
func (l *Log) Append(e Entry) (ID, error) {
	slot := l.Next()
	if l.failed != nil {
		return ID{}, fmt.Errorf("append log slot %d: an earlier append failed, reload the log first: %w", slot, l.failed)
	}
	if e.Slot != 0 && e.Slot != slot {
		return ID{}, fmt.Errorf("append log slot %d: the next slot is %d", e.Slot, slot)
	}
	e.Slot = slot
	b, err := encode(e)
	if err != nil {
		return ID{}, err
	}
	name := SlotName(slot)
	// What the log holds from now on is what a restart would read.
	if e, err = decode(b, slot, l.file(name)); err == nil {
		err = l.fits(e)
	}
	if err != nil {
		return ID{}, fmt.Errorf("append log slot %d: the entry doesn't fit: %v", slot, err) //nolint:errorlint // not ErrCorrupt: nothing was written
	}
	err = l.blobs.PutIfAbsent(name, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		err = l.settle(name, slot, b)
	} else if err != nil {
		err = &UncertainError{Slot: slot, Err: err}
	}
	if err != nil {
		l.failed = err
		return ID{}, err
	}
	l.entries = append(l.entries, e)
	return e.ID, nil
}

// fits says whether e may follow what the log holds.
func (l *Log) fits(e Entry) error {
	gone := retired(append(slices.Clone(l.entries), e))
	if err := l.check(l.entries, gone, e); err != nil {
		return err
	}
	if e.Retire == nil {
		return nil
	}
	needed := map[string]bool{}
	for _, b := range l.entries {
		if b.Start != nil && gone.cover(b.Slot, b.Slot) {
			return fmt.Errorf("it retires slot %d, a start entry", b.Slot)
		}
		if b.Checkpoint != nil && !gone.cover(b.Slot, b.Slot) {
			b.Checkpoint.segments(needed)
			if b.Slot > e.Retire.Settled.Slot { // a follower may have to be rolled forward to it
				b.Checkpoint.outputs(needed)
			}
		}
	}
	for _, name := range e.Retire.Blobs {
		if needed[name] {
			return fmt.Errorf("it retires %s, which a checkpoint that stays refers to", name)
		}
	}
	return nil
}

// settle finds out whose entry lies in a slot that the store calls taken. Ours
// lies there if it was written and the answer got lost. No two incarnations
// write equal bytes: an entry holds a nonce, or the slot of the one that does.
func (l *Log) settle(name string, slot int64, ours []byte) error {
	theirs, err := l.blobs.Get(name)
	if err != nil {
		return &UncertainError{Slot: slot, Err: fmt.Errorf("read back what is there: %w", err)}
	}
	if !bytes.Equal(theirs, ours) {
		return fmt.Errorf("append log slot %d in %s: %w", slot, l.where, ErrTaken)
	}
	// The put that succeeded may not have got as far as syncing the folder;
	// a listing does that before it answers.
	names, err := l.blobs.List(logPrefix)
	if err == nil && !slices.Contains(names, name) {
		err = errors.New("read back, but not listed")
	}
	if err != nil {
		return &UncertainError{Slot: slot, Err: err}
	}
	return nil
}

// Find returns the checkpoint that id names. The error says what the log holds
// instead; it isn't ErrCorrupt, because it is id that is out of place.
func (l *Log) Find(id ID) (*Manifest, error) {
	if id.IsZero() {
		return nil, errors.New("the id is empty: it names no checkpoint")
	}
	gone := retired(l.entries)
	for _, e := range l.entries {
		if e.ID == id && e.Checkpoint != nil && !gone.cover(id.Slot, id.Slot) {
			return e.Checkpoint, nil
		}
	}
	return nil, fmt.Errorf("checkpoint %s isn't in %s: %s", id, l.where, l.instead(id.Slot, gone))
}

// instead says what a slot holds in place of a checkpoint that was looked for.
func (l *Log) instead(slot int64, gone spans) string {
	if gone.cover(slot, slot) {
		return fmt.Sprintf("slot %d was retired", slot)
	}
	for _, e := range l.entries {
		if e.Slot != slot {
			continue
		}
		kind := "checkpoint"
		if e.Checkpoint == nil {
			kind = "another kind of entry,"
		}
		return fmt.Sprintf("slot %d holds %s %s", slot, kind, e.ID)
	}
	return fmt.Sprintf("the log ends at slot %d", l.Next()-1)
}

// Sweep deletes what retire entries list. It may be called at any time by any
// incarnation, also one that was fenced: the log has decided. After an error,
// or a crash, calling it again does the rest.
func (l *Log) Sweep() error {
	gone := retired(l.entries)
	// Manifests first, so that one that is there has its segments; retire
	// entries last, so that what they list isn't forgotten half-way.
	if err := l.sweepSlots(gone, func(e Entry) bool { return e.Retire == nil }); err != nil {
		return err
	}
	for _, e := range l.entries {
		if e.Retire == nil || l.swept[e.Slot] {
			continue
		}
		for _, name := range e.Retire.Blobs {
			if err := l.blobs.Delete(name); err != nil {
				return fmt.Errorf("delete retired %s: %w", l.file(name), err)
			}
		}
		l.swept[e.Slot] = true
	}
	return l.sweepSlots(gone, func(e Entry) bool { return e.Retire != nil })
}

func (l *Log) sweepSlots(gone spans, which func(Entry) bool) error {
	var failed error
	l.entries = slices.DeleteFunc(l.entries, func(e Entry) bool {
		if failed != nil || !gone.cover(e.Slot, e.Slot) || !which(e) {
			return false
		}
		name := SlotName(e.Slot)
		if err := l.blobs.Delete(name); err != nil {
			failed = fmt.Errorf("delete retired %s: %w", l.file(name), err)
		}
		return failed == nil
	})
	return failed
}

func (l *Log) file(name string) string { return fileName(l.where, name) }
