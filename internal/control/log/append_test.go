package log

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTwoLogs has two processes on one store: the second one's start takes the
// slot that the first is about to write.
func TestTwoLogs(t *testing.T) {
	b, ids := history(t)
	first, second := mustOpen(t, b), mustOpen(t, b)
	started := mustAppend(t, second, Entry{Start: start("n6")})
	if started.Slot != 6 {
		t.Fatalf("the second start is in slot %d", started.Slot)
	}
	_, err := first.Append(Entry{Checkpoint: manifest(4, 2, ids[5])})
	if !errors.Is(err, ErrTaken) {
		t.Fatalf("got error %v, want ErrTaken", err)
	}
	names := b.names()
	if _, err := first.Append(Entry{Checkpoint: manifest(4, 2, ids[5])}); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "reload") {
		t.Errorf("a further append gives %v, want a demand to reload", err)
	}
	must(t, first.Reload())
	if got := first.Entries()[5].ID; got != started || first.Next() != 7 {
		t.Errorf("after Reload slot 6 is %v and next %d, want %v and 7", got, first.Next(), started)
	}
	// Now it would find a free slot; but its incarnation isn't the newest.
	if _, err := first.Append(Entry{Checkpoint: manifest(4, 2, ids[5])}); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("got error %v, want a refusal that isn't ErrCorrupt", err)
	}
	if diff := cmp.Diff(names, b.names()); diff != "" {
		t.Errorf("the fenced log wrote: -before +after:\n%s", diff)
	}
}

// TestPausedWriter pauses a writer before its append, and lets a successor
// retire as much as it can: the slot must not become free again.
func TestPausedWriter(t *testing.T) {
	b, ids := history(t)
	paused, successor := mustOpen(t, b), mustOpen(t, b)
	mustAppend(t, successor, Entry{Start: start("n6")})
	tip := ids[5]
	for epoch := range int64(5) {
		tip = mustAppend(t, successor, Entry{Checkpoint: manifest(6, epoch+2, tip)})
		segs, err := b.List(SegmentPrefix)
		must(t, err)
		if r := Retirement(successor.Entries(), []ID{tip}, 1, 6, segs); !r.IsZero() {
			mustAppend(t, successor, Entry{Retire: &r})
		}
		must(t, successor.Sweep())
	}
	if n := len(successor.Entries()); n > 5 {
		t.Fatalf("%d entries are left, so the test retires too little", n)
	}
	if _, err := paused.Append(Entry{Checkpoint: manifest(4, 2, ids[5])}); !errors.Is(err, ErrTaken) {
		t.Fatalf("the paused writer gets %v, want ErrTaken", err)
	}
	if diff := cmp.Diff(successor.Entries(), mustOpen(t, b).Entries()); diff != "" {
		t.Errorf("the store and the successor's log differ (-log +store):\n%s", diff)
	}
}

// TestAppendAfterLostAnswer has a store that tried twice, and found on the
// second try what the first one had written.
func TestAppendAfterLostAnswer(t *testing.T) {
	b, ids := history(t)
	l := mustOpen(t, b)
	b.fail = func(call, _ string) error {
		return map[string]error{"put done": fmt.Errorf("second try: %w", fs.ErrExist)}[call]
	}
	id := mustAppend(t, l, Entry{Checkpoint: manifest(4, 2, ids[5])})
	if got := mustOpen(t, b).Entries()[5].ID; got != id || l.Next() != 7 {
		t.Errorf("the store holds %v, Append said %v, next is %d", got, id, l.Next())
	}
}

// wantUncertain requires an *UncertainError about slot 6 and the disk.
func wantUncertain(t *testing.T, err error) {
	t.Helper()
	var in *UncertainError
	if !errors.As(err, &in) || in.Slot != 6 || !errors.Is(err, errDisk) || errors.Is(err, ErrTaken) {
		t.Fatalf("got error %v, want an *UncertainError about slot 6 and the disk", err)
	}
}

func TestAppendUncertain(t *testing.T) {
	for failing, next := range map[string]int64{"put": 6, "put done": 7} {
		t.Run(failing, func(t *testing.T) {
			b, ids := history(t)
			l := mustOpen(t, b)
			b.fail = func(call, _ string) error { return map[string]error{failing: errDisk}[call] }
			_, err := l.Append(Entry{Checkpoint: manifest(4, 2, ids[5])})
			wantUncertain(t, err)
			if _, again := l.Append(Entry{Start: start("n6")}); again == nil || !strings.Contains(again.Error(), "reload") {
				t.Errorf("a further append gives %v, want a demand to reload", again)
			}
			b.fail = nil
			must(t, l.Reload())
			if id := mustAppend(t, l, Entry{Start: start("n7")}); id.Slot != next {
				t.Errorf("the next start is in slot %d, want %d", id.Slot, next)
			}
		})
	}
}

func TestAppendExistsButCannotBeReadBack(t *testing.T) {
	for _, failing := range []string{"get", "list"} {
		t.Run(failing, func(t *testing.T) {
			b, _ := history(t)
			l := mustOpen(t, b)
			b.fail = func(call, _ string) error {
				return map[string]error{"put done": fs.ErrExist, failing: errDisk}[call]
			}
			_, err := l.Append(Entry{Start: start("n6")})
			wantUncertain(t, err)
		})
	}
}

func TestAppendRefuses(t *testing.T) {
	b, ids := history(t)
	l := mustOpen(t, b)
	names := b.names()
	other := manifest(4, 2, ids[5])
	other.UUID = "another"
	cases := map[string]Entry{
		"a slot that isn't next":       {Slot: 7, Start: start("n")},
		"a slot that is taken":         {Slot: 5, Start: start("n")},
		"nothing":                      {},
		"an older incarnation":         {Checkpoint: manifest(1, 2, ids[5])},
		"a start that doesn't exist":   {Checkpoint: manifest(6, 2, ids[5])},
		"another uuid":                 {Checkpoint: other},
		"a parent of another store":    {Checkpoint: manifest(4, 2, ID{Slot: 5, Sum: [32]byte{1}})},
		"a parent that is a start":     {Checkpoint: manifest(4, 2, ids[4])},
		"a retired start":              {Retire: &Retire{Incarnation: 4, Slots: []int64{1}}},
		"a start in a span":            {Retire: &Retire{Incarnation: 4, Gone: []Span{{2, 4}}}},
		"a segment that is still used": {Retire: &Retire{Incarnation: 4, Slots: []int64{2}, Blobs: []string{"seg/1-1-0-0-n1"}}},
		"retired by another":           {Retire: &Retire{Incarnation: 1, Slots: []int64{2}}},
		"a part without a segment":     {Checkpoint: &Manifest{Job: "ad-clicks", UUID: "0b0e", Incarnation: 4, Steps: []Step{{ID: "s", Parts: []PartRef{{}}}}}},
		"a start without a nonce":      {Start: start("")},
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			if id, err := l.Append(e); err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTaken) {
				t.Errorf("got %v and error %v, want a refusal", id, err)
			}
		})
	}
	if diff := cmp.Diff(names, b.names()); diff != "" {
		t.Errorf("something was written: -before +after:\n%s", diff)
	}
	mustAppend(t, l, Entry{Slot: 6, Checkpoint: manifest(4, 2, ids[5])}) // a refusal harms nothing
}

// TestAppendKeepsItsOwnCopy changes an entry after it was appended.
func TestAppendKeepsItsOwnCopy(t *testing.T) {
	b, ids := history(t)
	l := mustOpen(t, b)
	m := manifest(4, 2, ids[5])
	id := mustAppend(t, l, Entry{Checkpoint: m})
	m.Staged["a"] = []byte("changed")
	m.Splits[0].Records = 0
	got, err := l.Find(id)
	must(t, err)
	if diff := cmp.Diff(manifest(4, 2, ids[5]), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
