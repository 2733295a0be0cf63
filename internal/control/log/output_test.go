package log

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

func TestOutput(t *testing.T) {
	for _, n := range []int{0, 1, InlineOutput, 3 << 20} {
		b := sys.NewBlobs(sys.NewMemFiles())
		in := bytes.Repeat([]byte{7}, n)
		name := OutputName(3, 9, 1, "nonce")
		s, err := WriteOutput(b, name, in)
		must(t, err)
		if name != "out/3-9-1-nonce" || s.Name != name || s.Size != int64(n)+16 {
			t.Errorf("wrote %+v as %s", s, name)
		}
		file, err := b.Get(name)
		must(t, err)
		if want := "WEIR-OUT\x01\x00\x00\x00\x00\x00\x00\x00" + string(in); string(file) != want {
			t.Errorf("%d bytes: the file isn't header and bytes", n)
		}
		got, err := ReadOutput(b, "/state", s)
		must(t, err)
		if !bytes.Equal(got, in) {
			t.Errorf("%d bytes came back as %d others", n, len(got))
		}
	}
}

func TestOutputTwice(t *testing.T) {
	b := newMem()
	s, err := WriteOutput(b, "out/1-1-0-n", []byte("rows"))
	must(t, err)
	// As if the answer to the first put had been lost.
	again, err := WriteOutput(b, "out/1-1-0-n", []byte("rows"))
	if err != nil || again != s {
		t.Errorf("our own file under the name: %+v, %v", again, err)
	}
	if _, err := WriteOutput(b, "out/1-1-0-n", []byte("others")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another file under the name: %v", err)
	}
	if _, err := WriteOutput(b, "out/x", nil); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("a name without an incarnation: %v", err)
	}
}

func TestOutputDamaged(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(file []byte) []byte
		says string
	}{
		{"gone", func([]byte) []byte { return nil }, "no such file"},
		{"a bit", func(f []byte) []byte { f[20] ^= 1; return f }, "SHA-256"},
		{"in the header", func(f []byte) []byte { f[8] ^= 1; return f }, "SHA-256"},
		{"cut", func(f []byte) []byte { return f[:len(f)-1] }, "bytes"},
		{"longer", func(f []byte) []byte { return append(f, 0) }, "bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := sys.NewMemFiles()
			b := sys.NewBlobs(files)
			s, err := WriteOutput(b, "out/1-1-0-n", []byte("all the rows"))
			must(t, err)
			file, err := b.Get(s.Name)
			must(t, err)
			must(t, b.Delete(s.Name))
			if f := c.harm(bytes.Clone(file)); f != nil {
				must(t, b.PutIfAbsent(s.Name, func(w io.Writer) error { _, err := w.Write(f); return err }))
			}
			_, err = ReadOutput(b, "/state", s)
			wantCorrupt(t, err, "/state/out/1-1-0-n")
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v doesn't say %q", err, c.says)
			}
		})
	}
}

func TestAs(t *testing.T) {
	m := &Manifest{Job: "j", Epoch: 4, Splits: []data.SplitState{{Source: "in", Split: "a"}, {Source: "old", Split: "b"}, {Source: "x", Split: "c"}},
		Segments: []Segment{segment("seg/1-a"), segment("seg/1-b"), segment("seg/1-c")},
		Steps: []Step{{ID: "count", Parts: []PartRef{{Segment: "seg/1-a"}, {Segment: "seg/1-b"}}},
			{ID: "seen", Parts: []PartRef{{Segment: "seg/1-b"}, {Segment: "seg/1-c"}}}, {ID: "kept"}},
		Staged: map[string][]byte{"db": []byte("x")}}
	before := *m
	got := m.As(map[string]string{"total": "count", "new": "old", "out": "sink"}, []string{"seen", "x"})
	want := &Manifest{Job: "j", Epoch: 4, Splits: []data.SplitState{{Source: "in", Split: "a"}, {Source: "new", Split: "b"}},
		Segments: []Segment{segment("seg/1-a"), segment("seg/1-b")},
		Steps:    []Step{{ID: "total", Parts: []PartRef{{Segment: "seg/1-a"}, {Segment: "seg/1-b"}}}, {ID: "kept"}},
		Staged:   map[string][]byte{"db": []byte("x")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(&before, m); diff != "" || m.Steps[0].ID != "count" || m.Splits[1].Source != "old" {
		t.Errorf("the manifest itself was changed:\n%s", diff)
	}
	if diff := cmp.Diff(m, m.As(nil, nil)); diff != "" {
		t.Errorf("without a change (-want +got):\n%s", diff)
	}
}

// kept is a checkpoint with an output log.
func kept(e Entry, output string) Entry {
	m := *e.Checkpoint
	m.Outputs = map[string]Segment{"db": segment(output)}
	e.Checkpoint = &m
	return e
}

func TestRetirementOutputs(t *testing.T) {
	entries := []Entry{started(1), kept(point(2, 1, 0), "out/1-a"), kept(point(3, 1, 2), "out/1-b"), kept(point(4, 1, 2), "out/1-x"),
		started(5), kept(point(6, 5, 3), "out/5-c"), kept(point(7, 5, 6), "out/5-d"), kept(point(8, 5, 7), "out/5-e")}
	all := []string{"out/1-a", "out/1-b", "out/1-x", "out/5-c", "out/5-d", "out/5-e", "out/5-f", "out/4-orphan", "out/6-later"}
	for _, c := range []struct {
		name  string
		named []ID
		files []string
		slots []int64
		blobs []string
	}{
		{"all have confirmed", ids(7), all, []int64{4}, []string{"out/1-a", "out/1-b", "out/1-x", "out/4-orphan", "out/5-c", "out/5-d"}},
		{"a follower is one behind", ids(7, 6), all, []int64{4}, []string{"out/1-a", "out/1-b", "out/1-x", "out/4-orphan", "out/5-c"}},
		{"it is two behind", ids(7, 3), all, []int64{4}, []string{"out/1-a", "out/1-b", "out/1-x", "out/4-orphan"}},
		{"what is gone isn't listed again", ids(7), all[5:7], []int64{4}, nil},
		{"the one on its way stays", ids(6), all[4:7], []int64{4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Retirement(entries, c.named, 10, 5, c.files)
			if diff := cmp.Diff(Retire{Incarnation: 5, Slots: c.slots, Blobs: c.blobs}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestAppendKeepsOutputs: an entry that would take a follower its output log is
// refused, whoever computed it.
func TestAppendKeepsOutputs(t *testing.T) {
	b := newMem()
	l := mustOpen(t, b)
	inc := mustAppend(t, l, Entry{Start: start("n")}).Slot
	var ids []ID
	for epoch := range int64(2) {
		s, err := WriteOutput(b, OutputName(inc, epoch, 0, "n"), []byte("rows"))
		must(t, err)
		m := manifest(inc, epoch, ID{})
		m.Outputs = map[string]Segment{"db": s}
		if epoch > 0 {
			m.Parent = ids[0]
		}
		ids = append(ids, mustAppend(t, l, Entry{Checkpoint: m}))
	}
	retire := func(epoch int64, settled ID) error {
		_, err := l.Append(Entry{Retire: &Retire{Incarnation: inc, Blobs: []string{OutputName(inc, epoch, 0, "n")}, Settled: settled}})
		return err
	}
	for _, settled := range []ID{{}, ids[0]} {
		if err := retire(1, settled); err == nil || !strings.Contains(err.Error(), "out/1-1-0-n") {
			t.Errorf("the output log of a checkpoint behind %v: %v", settled, err)
		}
	}
	must(t, retire(0, ids[0]))
	again := mustOpen(t, b)
	if !Settled(again.Entries(), ids[0]) || Settled(again.Entries(), ids[1]) || Settled(again.Entries(), ID{}) {
		t.Error("settled: want the first checkpoint only")
	}
	must(t, again.Sweep())
	if names, err := b.List(OutputPrefix); err != nil || len(names) != 1 {
		t.Errorf("left are %q, %v", names, err)
	}
	if n := len(Standing([]Entry{started(1), point(2, 1, 0), point(3, 1, 2), retires(4, Retire{Slots: []int64{2}})})); n != 3 {
		t.Errorf("%d entries stand, want 3", n)
	}
}
