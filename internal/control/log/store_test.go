package log

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/sys"
)

// TestOnFiles runs a life on the store that production uses, on a file system
// in memory.
func TestOnFiles(t *testing.T) {
	b := sys.NewBlobs(sys.NewMemFiles())
	l, err := Open(b, "/state")
	must(t, err)
	inc := mustAppend(t, l, Entry{Start: start("n1")}).Slot
	var tip ID
	for epoch := range int64(4) {
		p := &part{step: "s", bytes: []byte{byte(epoch)}, entries: 1}
		seg, refs, err := WriteSegment(b, SegmentName(inc, epoch, "0/0", "n1"), parts(p))
		must(t, err)
		m := manifest(inc, epoch, tip, seg)
		m.Steps = []Step{{ID: "s", Parts: refs}}
		tip = mustAppend(t, l, Entry{Checkpoint: m})
		segs, err := b.List(SegmentPrefix)
		must(t, err)
		if r := Retirement(l.Entries(), []ID{tip}, 2, inc, segs); !r.IsZero() {
			mustAppend(t, l, Entry{Retire: &r})
		}
		must(t, l.Sweep())
	}
	again, err := Open(b, "/state")
	must(t, err)
	if diff := cmp.Diff(l.Entries(), again.Entries()); diff != "" {
		t.Errorf("-in memory +read again:\n%s", diff)
	}
	m, err := again.Find(tip)
	must(t, err)
	sections, err := m.Restore(b, "/state").Sections("s")
	must(t, err)
	if len(sections) != 1 || string(sections[0].Bytes) != "\x03" {
		t.Errorf("restored %v", sections)
	}
	names, err := b.List("log/")
	must(t, err)
	segs, err := b.List(SegmentPrefix)
	must(t, err)
	// start, checkpoints 2 and 3, and the retire entry that took 1 and the one before.
	want := []string{SlotName(1), SlotName(4), SlotName(6), SlotName(7), "seg/1-2-0-0-n1", "seg/1-3-0-0-n1"}
	if diff := cmp.Diff(want, append(names, segs...)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
