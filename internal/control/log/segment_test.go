package log

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/data"
)

const segName = "seg/1-2-3-0-n1"

func parts(ps ...*part) []data.Part {
	out := make([]data.Part, len(ps))
	for i, p := range ps {
		out[i] = p
	}
	return out
}

// wantReleased requires that each part was released exactly once.
func wantReleased(t *testing.T, ps ...*part) {
	t.Helper()
	for _, p := range ps {
		if p.released != 1 {
			t.Errorf("part %q was released %d times", p.step, p.released)
		}
	}
}

func TestWriteSegment(t *testing.T) {
	b := newMem()
	a := &part{step: "a", bytes: []byte("aaa"), entries: 3}
	none := &part{step: "none", bytes: []byte("never"), entries: 0}
	large := &part{step: "large", bytes: bytes.Repeat([]byte("0123456789"), 100_000), entries: 9}
	z := &part{step: "z", bytes: []byte("zz"), entries: 1}
	seg, refs, err := WriteSegment(b, segName, parts(a, none, large, z))
	must(t, err)
	wantReleased(t, a, none, large, z)
	if none.encoded != 0 || large.encoded != 1 {
		t.Errorf("parts were encoded %d and %d times, want 0 and 1", none.encoded, large.encoded)
	}
	// The file by its table, put together by hand.
	want := "WEIR-SEG" + "\x01\x00\x00\x00" + "\x00\x00\x00\x00" + "aaa" + strings.Repeat("0123456789", 100_000) + "zz"
	if got := string(b.files[segName]); got != want {
		t.Errorf("the file has %d bytes beginning with %q, want %d", len(got), got[:min(len(got), 24)], len(want))
	}
	sum := sha256.Sum256([]byte(want))
	if diff := cmp.Diff(Segment{Name: segName, Size: 16 + 3 + 1_000_000 + 2, SHA256: hex.EncodeToString(sum[:])}, seg); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantRefs := []PartRef{
		{Segment: segName, Off: 16, Len: 3, Entries: 3},
		{},
		{Segment: segName, Off: 19, Len: 1_000_000, Entries: 9},
		{Segment: segName, Off: 1_000_019, Len: 2, Entries: 1},
	}
	if diff := cmp.Diff(wantRefs, refs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	m := &Manifest{Segments: []Segment{seg}, Steps: []Step{{ID: "z", Key: "k", Value: "v", Parts: []PartRef{refs[3], refs[0]}}}}
	sections, err := m.Restore(b, "").Sections("z")
	must(t, err)
	if diff := cmp.Diff([]data.Section{{Bytes: []byte("zz"), Key: "k", Value: "v"}, {Bytes: []byte("aaa"), Key: "k", Value: "v"}}, sections); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWriteSegmentOfNothing(t *testing.T) {
	b := newMem()
	p := &part{step: "a"}
	seg, refs, err := WriteSegment(b, segName, parts(p))
	must(t, err)
	wantReleased(t, p)
	if seg != (Segment{}) || len(refs) != 1 || refs[0] != (PartRef{}) || len(b.files) != 0 {
		t.Errorf("got %v and %v, and files %v", seg, refs, b.names())
	}
	_, refs, err = WriteSegment(b, segName, nil)
	must(t, err)
	if len(refs) != 0 || len(b.files) != 0 {
		t.Errorf("got %v, and files %v", refs, b.names())
	}
}

func TestWriteSegmentFails(t *testing.T) {
	errEncode := errors.New("can't be encoded")
	cases := []struct {
		name string
		file string
		fail func(call, name string) error
		bad  *part
		want error
	}{
		{"disk before", segName, func(call, _ string) error { return map[string]error{"put": errDisk}[call] }, nil, errDisk},
		{"disk after", segName, func(call, _ string) error { return map[string]error{"put done": errDisk}[call] }, nil, errDisk},
		{"encode", segName, nil, &part{step: "bad", bytes: []byte("x"), entries: 1, err: errEncode}, errEncode},
		{"entries without bytes", segName, nil, &part{step: "bad", entries: 1}, nil},
		{"no segment's name", "log/000000000001", nil, nil, nil},
		{"taken by another's", "seg/1-2-3-0-taken", nil, nil, fs.ErrExist},
		{"taken before a byte was asked for", segName, func(call, _ string) error { return map[string]error{"put": fs.ErrExist}[call] }, nil, fs.ErrExist},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newMem()
			b.files["seg/1-2-3-0-taken"] = append(segmentHeader(), "somebody else's"...)
			before := bytes.Clone(b.files["seg/1-2-3-0-taken"])
			b.fail = c.fail
			first, last := &part{step: "first", bytes: []byte("f"), entries: 1}, &part{step: "last", bytes: []byte("l"), entries: 1}
			all := []*part{first, last}
			if c.bad != nil {
				all = []*part{first, c.bad, last}
			}
			seg, refs, err := WriteSegment(b, c.file, parts(all...))
			if err == nil || seg != (Segment{}) || refs != nil {
				t.Fatalf("got %v, %v and error %v, want an error alone", seg, refs, err)
			}
			if c.want != nil && !errors.Is(err, c.want) || errors.Is(err, ErrCorrupt) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.file) {
				t.Errorf("the error doesn't name %s: %v", c.file, err)
			}
			wantReleased(t, all...)
			if !bytes.Equal(before, b.files["seg/1-2-3-0-taken"]) {
				t.Error("another's file was changed")
			}
		})
	}
}

// twice is a store that asks for the bytes again after a failure of its own.
type twice struct{ *mem }

func (s twice) PutIfAbsent(name string, write func(io.Writer) error) error {
	if err := write(io.Discard); err != nil {
		return err
	}
	return s.mem.PutIfAbsent(name, write)
}

// lazy is a store that calls an object written without writing it.
type lazy struct{ *mem }

func (lazy) PutIfAbsent(string, func(io.Writer) error) error { return nil }

func TestWriteSegmentToOddStores(t *testing.T) {
	t.Run("its own, behind a lost answer", func(t *testing.T) {
		b := newMem()
		b.fail = func(call, _ string) error { return map[string]error{"put done": fs.ErrExist}[call] }
		p := &part{step: "a", bytes: []byte("aaa"), entries: 3}
		seg, refs, err := WriteSegment(b, segName, parts(p))
		must(t, err)
		if seg.Size != 19 || refs[0].Len != 3 || len(b.files[segName]) != 19 {
			t.Errorf("got %v and %v", seg, refs)
		}
	})
	t.Run("asks twice", func(t *testing.T) {
		b := newMem()
		p := &part{step: "a", bytes: []byte("aaa"), entries: 3}
		if _, _, err := WriteSegment(twice{b}, segName, parts(p)); err == nil || p.encoded != 1 || len(b.files) != 0 {
			t.Errorf("got error %v after %d encodings, and files %v", err, p.encoded, b.names())
		}
		wantReleased(t, p)
	})
	t.Run("never asks", func(t *testing.T) {
		p := &part{step: "a", bytes: []byte("aaa"), entries: 3}
		if seg, _, err := WriteSegment(lazy{newMem()}, segName, parts(p)); err == nil {
			t.Errorf("got %v, want an error", seg)
		}
		wantReleased(t, p)
	})
}

// written is a checkpoint of two segments and what its sections hold.
func written(t testing.TB) (*mem, *Manifest, map[string]string) {
	t.Helper()
	b := newMem()
	s1, r1, err := WriteSegment(b, "seg/1-0-0-0-n1", parts(&part{step: "a", bytes: []byte("base of a"), entries: 5}, &part{step: "b", bytes: []byte("b"), entries: 1}))
	must(t, err)
	s2, r2, err := WriteSegment(b, "seg/1-1-0-0-n1", parts(&part{step: "a", bytes: []byte("delta of a"), entries: 2}))
	must(t, err)
	m := manifest(1, 1, ID{}, s1, s2)
	m.Steps = []Step{
		{ID: "a", Key: "string", Value: "int64", Parts: []PartRef{r1[0], r2[0]}, Clocks: []data.Clock{{From: 0, To: 128, At: 9}}},
		{ID: "b", Key: "int32", Value: "bool", Parts: []PartRef{r1[1]}},
	}
	return b, m, map[string]string{"a": "base of a|delta of a", "b": "b"}
}

func TestRestored(t *testing.T) {
	b, m, want := written(t)
	var r data.Restorer = m.Restore(b, "/state")
	if n := len(b.gets); n != 0 {
		t.Errorf("%d segments were read before they were asked for", n)
	}
	var wg sync.WaitGroup
	for range 8 { // as many tasks ask at once
		wg.Go(func() {
			for step, bytes := range want {
				sections, err := r.Sections(step)
				if err != nil {
					t.Errorf("step %s: %v", step, err)
				}
				var got []string
				for _, s := range sections {
					got = append(got, string(s.Bytes))
					if cap(s.Bytes) != len(s.Bytes) {
						t.Errorf("step %s: an append to its section would overwrite the next one", step)
					}
				}
				if strings.Join(got, "|") != bytes {
					t.Errorf("step %s: got sections %q, want %q", step, got, bytes)
				}
			}
		})
	}
	wg.Wait()
	for name, n := range b.gets {
		if n != 1 {
			t.Errorf("%s was read %d times", name, n)
		}
	}
	if s, ok := r.Split("clicks", "b.jsonl"); !ok || !s.Ended {
		t.Errorf("split b.jsonl: %v, %v", s, ok)
	}
	for _, name := range [][2]string{{"clicks", "c.jsonl"}, {"other", "a.jsonl"}} {
		if s, ok := r.Split(name[0], name[1]); ok {
			t.Errorf("split %v: %v", name, s)
		}
	}
	if diff := cmp.Diff(m.Splits, r.Splits("clicks")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := r.Splits("other"); len(got) != 0 {
		t.Errorf("another source has the splits %v", got)
	}
	if diff := cmp.Diff(m.Steps[0].Clocks, r.Clocks("a")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s, err := r.Sections("new"); len(s) != 0 || err != nil || r.Clocks("new") != nil {
		t.Errorf("a step that isn't in the checkpoint has %v, %v and %v", s, err, r.Clocks("new"))
	}
}

func TestRestoredOfNothing(t *testing.T) {
	r := (*Manifest)(nil).Restore(nil, "")
	s, err := r.Sections("a")
	if _, ok := r.Split("clicks", "a.jsonl"); ok || len(s) != 0 || err != nil || r.Splits("clicks") != nil || r.Clocks("a") != nil {
		t.Errorf("it holds something: %v, %v", s, err)
	}
}

// TestRestoredOfUncheckedManifest has references that no log would accept.
func TestRestoredOfUncheckedManifest(t *testing.T) {
	b, m, _ := written(t)
	size := m.Segments[0].Size
	for _, p := range []PartRef{
		{Segment: "seg/9-9-9-9-x", Off: 16, Len: 1}, {Segment: m.Segments[0].Name, Off: size, Len: 1}, {Segment: m.Segments[0].Name, Off: size + 1},
		{Segment: m.Segments[0].Name, Off: 0, Len: 1}, {Segment: m.Segments[0].Name, Off: 16, Len: -1}, {Segment: m.Segments[0].Name, Off: 17, Len: 1<<63 - 1},
	} {
		m.Steps[0].Parts = []PartRef{p}
		if s, err := m.Restore(b, "").Sections("a"); err == nil {
			t.Errorf("%v: got %v", p, s)
		}
	}
}

// refuses requires that no section of a damaged segment is given away.
func refuses(t *testing.T, b *mem, m *Manifest, name, what string) *CorruptError {
	t.Helper()
	r := m.Restore(b, "/state")
	for range 2 { // the second answer is no better than the first
		s, err := r.Sections("a")
		if err == nil || s != nil {
			t.Fatalf("%s: got %v and error %v", what, s, err)
		}
		c := wantCorrupt(t, err, "/state/"+name)
		if !strings.Contains(c.Hint, "backup") {
			t.Fatalf("%s: the hint doesn't help: %s", what, c.Hint)
		}
	}
	_, err := r.Sections("a")
	var c *CorruptError
	errors.As(err, &c)
	return c
}

func TestRestoreRefusesEveryFlippedBitAndTruncation(t *testing.T) {
	b, m, _ := written(t)
	for _, seg := range m.Segments {
		whole := b.files[seg.Name]
		for bit := range len(whole) * 8 {
			damaged := bytes.Clone(whole)
			damaged[bit/8] ^= 1 << (bit % 8)
			b.files[seg.Name] = damaged
			c := refuses(t, b, m, seg.Name, fmt.Sprintf("bit %d flipped", bit))
			found := sha256.Sum256(damaged)
			if !strings.Contains(c.Expected, seg.SHA256) || !strings.Contains(c.Found, hex.EncodeToString(found[:])) {
				t.Fatalf("the error lacks the checksums: %v", c)
			}
		}
		for n := range whole {
			b.files[seg.Name] = whole[:n]
			refuses(t, b, m, seg.Name, fmt.Sprintf("cut to %d bytes", n))
		}
		b.files[seg.Name] = append(bytes.Clone(whole), 0)
		refuses(t, b, m, seg.Name, "one byte more")
		delete(b.files, seg.Name)
		if c := refuses(t, b, m, seg.Name, "missing"); c.Found != "no such file" {
			t.Errorf("a missing file is called %q", c.Found)
		}
		b.files[seg.Name] = whole
	}
	one, two := m.Segments[0].Name, m.Segments[1].Name
	b.files[one], b.files[two] = b.files[two], b.files[one]
	refuses(t, b, m, one, "swapped")
}

func TestRestoreRefusesAnotherVersion(t *testing.T) {
	b, m, _ := written(t)
	for at, what := range map[int]string{8: "version 2", 12: "flags of a newer version", 0: "another magic"} {
		file := bytes.Clone(b.files[m.Segments[0].Name])
		file[at]++
		sum := sha256.Sum256(file) // a manifest that goes with it
		seg := Segment{Name: "seg/1-7-0-0-n1", Size: int64(len(file)), SHA256: hex.EncodeToString(sum[:])}
		b.files[seg.Name] = file
		if _, err := ReadSegment(b, "/state", seg); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: %v", what, err)
		} else {
			wantCorrupt(t, err, "/state/"+seg.Name)
		}
	}
}

func TestRestorePassesStoreErrorsOn(t *testing.T) {
	b, m, _ := written(t)
	b.fail = func(string, string) error { return errDisk }
	if _, err := m.Restore(b, "/state").Sections("a"); !errors.Is(err, errDisk) || errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "/state/"+m.Segments[0].Name) {
		t.Errorf("got error %v, want the store's, and the file", err)
	}
}

func TestSegmentName(t *testing.T) {
	name := SegmentName(17, 3, "2/11", "c0ffee")
	if name != "seg/17-3-2-11-c0ffee" {
		t.Errorf("got %s", name)
	}
	for s, want := range map[string]int64{name: 17, "seg/1-": 1} {
		if n, ok := blobIncarnation(s); !ok || n != want {
			t.Errorf("%q: got %d, %v, want %d", s, n, ok, want)
		}
	}
	for _, s := range []string{"", "seg/", "seg/x-1", "seg/17", "seg/-1-2", "seg/+1-2", "seg/0-1", "seg/1-2/3", "seg/1-\x00", "log/1-2",
		"seg/99999999999999999999-1", SegmentName(1, 2, "a b/0", "n")} {
		if n, ok := blobIncarnation(s); ok {
			t.Errorf("%q is taken for incarnation %d", s, n)
		}
	}
}
