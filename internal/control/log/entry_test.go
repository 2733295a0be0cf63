package log

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 345678901, time.UTC)

func start(nonce string) *Start {
	return &Start{
		Job: "ad-clicks", UUID: "0b0e", Nonce: nonce, Decider: "sqlite clicks.db", Sinks: []string{"counts", "totals"}, At: noon,
		Graph: plan.Graph{Job: "ad-clicks", KeyGroups: 128, Nodes: []plan.Node{
			{Op: plan.Source, ID: "clicks", EventTime: true, Disorder: 30 * time.Second},
			{Op: plan.Sink, ID: "counts", Inputs: []int{0}, Sink: &plan.SinkNode{Kind: "transactional", Target: `table "ad_minute"`}},
		}},
	}
}

func manifest(incarnation, epoch int64, parent ID, segs ...Segment) *Manifest {
	m := &Manifest{
		Job: "ad-clicks", UUID: "0b0e", Incarnation: incarnation, Epoch: epoch, Parent: parent, KeyGroups: 128, At: noon,
		Splits: []data.SplitState{
			{Source: "clicks", Split: "a.jsonl", Position: []byte{0x13, 0x88}, Watermark: math.MinInt64, Records: 5000, Late: 3},
			{Source: "clicks", Split: "b.jsonl", Watermark: 1767355200345678901, Ended: true},
		},
		Segments: segs,
		Staged:   map[string][]byte{"z": {1}, "a": {}, "m": nil},
	}
	step := Step{ID: "seen", Key: "string", Value: "int64", Live: 12, Clocks: []data.Clock{{From: 0, To: 128, At: -5}}}
	for _, s := range segs {
		step.Parts = append(step.Parts, PartRef{Segment: s.Name, Off: segmentHead, Len: s.Size - segmentHead, Entries: 7})
	}
	m.Steps = []Step{step, {ID: "empty"}}
	return m
}

func segment(name string) Segment {
	return Segment{Name: name, Size: 100, SHA256: strings.Repeat("0f", 32)}
}

// TestEntryGolden pins the bytes: if it fails, every store in the world that
// was written before can't be read, and the version must change.
func TestEntryGolden(t *testing.T) {
	cases := map[string]Entry{
		"start": {Slot: 1, Start: start("n1")},
		"checkpoint": {Slot: 2, Checkpoint: manifest(1, 0, ID{Slot: 1, Sum: sha256.Sum256([]byte("parent"))},
			segment("seg/1-0-2-0-n1"))},
		"retire": {Slot: 300, Retire: &Retire{Incarnation: 298, Slots: []int64{7, 9}, Gone: []Span{{2, 6}}, Blobs: []string{"seg/1-0-2-0-n1"}}},
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := encode(e)
			must(t, err)
			want, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
			must(t, err)
			if dump := hex.Dump(got); dump != string(want) {
				t.Errorf("the bytes have changed (-want +got):\n%s", cmp.Diff(string(want), dump))
			}
		})
	}
}

// TestEntryLayout takes a file apart by the table in the documentation.
func TestEntryLayout(t *testing.T) {
	b, err := encode(Entry{Slot: 0x0102030405, Retire: &Retire{Incarnation: 9}})
	must(t, err)
	payload := `{"incarnation":9}`
	want := "WEIR-LOG" + "\x01\x00\x00\x00" + "\x03\x00\x00\x00" + "\x05\x04\x03\x02\x01\x00\x00\x00" +
		"\x11\x00\x00\x00\x00\x00\x00\x00" + payload
	sum := sha256.Sum256([]byte(want))
	if string(b) != want+string(sum[:]) {
		t.Fatalf("got  %q\nwant %q", b, want+string(sum[:]))
	}
	e, err := decode(b, 0x0102030405, "f")
	must(t, err)
	if e.ID.Slot != e.Slot || e.ID.Sum != sha256.Sum256(b) {
		t.Errorf("the id is %v, want slot %d and SHA-256 %x", e.ID, e.Slot, sha256.Sum256(b))
	}
}

func TestEntryRoundTrip(t *testing.T) {
	paris := time.FixedZone("", 3600)
	late := *start("n")
	late.At = noon.In(paris)
	cases := []struct {
		name     string
		in, want Entry
	}{
		{"start", Entry{Slot: 5, Start: start("n")}, Entry{Slot: 5, Start: start("n")}},
		{"time zone", Entry{Slot: 5, Start: &late}, Entry{Slot: 5, Start: start("n")}},
		{"checkpoint", Entry{Slot: 9, Checkpoint: manifest(5, 3, ID{}, segment("seg/1-2-3-4-x"))},
			Entry{Slot: 9, Checkpoint: manifest(5, 3, ID{}, segment("seg/1-2-3-4-x"))}},
		{"empty checkpoint", Entry{Slot: 9, Checkpoint: &Manifest{At: noon}}, Entry{Slot: 9, Checkpoint: &Manifest{At: noon}}},
		{"retire", Entry{Slot: maxSlot, Retire: &Retire{Incarnation: 1, Slots: []int64{2}}},
			Entry{Slot: maxSlot, Retire: &Retire{Incarnation: 1, Slots: []int64{2}}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, err := encode(c.in)
			must(t, err)
			got, err := decode(b, c.in.Slot, "f")
			must(t, err)
			got.ID = ID{}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	cases := []struct {
		name string
		e    Entry
		want string
	}{
		{"nothing", Entry{Slot: 1}, "not 0 of them"},
		{"two things", Entry{Slot: 1, Start: start("n"), Retire: &Retire{}}, "not 2 of them"},
		{"slot 0", Entry{Start: start("n")}, "outside 1 to"},
		{"slot too large", Entry{Slot: maxSlot + 1, Start: start("n")}, "outside 1 to"},
		{"a name that JSON can't hold", Entry{Slot: 2, Checkpoint: &Manifest{Splits: []data.SplitState{{Split: "\xff"}}}}, "UTF-8"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, err := encode(c.e)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q and error %v, want one that has %q", b, err, c.want)
			}
		})
	}
}

// seal builds an entry file around any header and payload; its checksum holds.
func seal(version, kind uint32, slot uint64, payload string) []byte {
	b := []byte(entryMagic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, slot)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(payload)))
	b = append(b, payload...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func TestDecodeRefusesSealed(t *testing.T) {
	seg := `{"name":"seg/1-0-0-0-n","size":100,"sha256":"` + strings.Repeat("0f", 32) + `"}`
	checkpoint := func(parts, segs string) string {
		return `{"job":"j","uuid":"u","incarnation":1,"epoch":1,"parent":"","keyGroups":1,"at":"2026-01-02T12:00:00Z",` +
			`"steps":[{"id":"s","live":1,"parts":[` + parts + `]}],"segments":[` + segs + `]}`
	}
	ref := func(name string, off, n, entries int64) string {
		return fmt.Sprintf(`{"segment":%q,"off":%d,"len":%d,"entries":%d}`, name, off, n, entries)
	}
	valid := seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-0-n", 16, 84, 1), seg))
	if _, err := decode(valid, 4, "f"); err != nil {
		t.Fatalf("what the cases are variants of is refused: %v", err)
	}
	cases := []struct {
		name   string
		b      []byte
		expect string // in the error
	}{
		{"version", seal(2, kindRetire, 4, `{"incarnation":1}`), "newer version"},
		{"kind", seal(1, 4, 4, `{}`), "newer version"},
		{"unknown field", seal(1, kindRetire, 4, `{"incarnation":1,"why":"because"}`), "newer version"},
		{"field twice", seal(1, kindRetire, 4, `{"incarnation":1,"incarnation":2}`), "duplicate"},
		{"not JSON", seal(1, kindRetire, 4, `incarnation`), "invalid character"},
		{"two values", seal(1, kindRetire, 4, `{}{}`), "after top-level value"},
		{"other slot", seal(1, kindRetire, 5, `{"incarnation":1}`), "slot 5 under its name"},
		{"retires itself", seal(1, kindRetire, 4, `{"incarnation":1,"slots":[4]}`), "isn't before slot 4"},
		{"retires slot 0", seal(1, kindRetire, 4, `{"incarnation":1,"slots":[0]}`), "isn't before slot 4"},
		{"span backwards", seal(1, kindRetire, 4, `{"incarnation":1,"gone":[{"first":3,"last":2}]}`), "aren't before slot 4"},
		{"span too far", seal(1, kindRetire, 4, `{"incarnation":1,"gone":[{"first":1,"last":4}]}`), "aren't before slot 4"},
		{"retires a log entry as a blob", seal(1, kindRetire, 4, `{"incarnation":1,"blobs":["log/000000000001"]}`), "neither segment nor output log"},
		{"retires outside", seal(1, kindRetire, 4, `{"incarnation":1,"blobs":["seg/1-../x"]}`), "neither segment nor output log"},
		{"start without nonce", seal(1, kindStart, 4, `{"job":"j","uuid":"u","at":"2026-01-02T12:00:00Z"}`), "without"},
		{"segment not listed", seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-1-n", 16, 84, 1), seg)), "isn't listed"},
		{"segment twice", seal(1, kindCheckpoint, 4, checkpoint("", seg+","+seg)), "listed twice"},
		{"step twice", seal(1, kindCheckpoint, 4, strings.Replace(checkpoint("", seg), `"steps":[`, `"steps":[{"id":"s"},`, 1)), `step "s" listed twice`},
		{"part in the header", seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-0-n", 15, 84, 1), seg)), "84 bytes at 15"},
		{"part past the end", seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-0-n", 17, 84, 1), seg)), "84 bytes at 17"},
		{"part overflows", seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-0-n", 17, math.MaxInt64, 1), seg)), "bytes at 17"},
		{"part without entries", seal(1, kindCheckpoint, 4, checkpoint(ref("seg/1-0-0-0-n", 16, 84, 0), seg)), "0 entries"},
		{"checksum too short", seal(1, kindCheckpoint, 4, checkpoint("", strings.Replace(seg, "0f", "", 1))), "no SHA-256"},
		{"parent not before", seal(1, kindCheckpoint, 4, strings.Replace(checkpoint("", ""), `"parent":""`,
			`"parent":"4-`+strings.Repeat("0f", 32)+`"`, 1)), "isn't before slot 4"},
		{"bytes behind", append(bytes.Clone(valid), 0), "as the header says"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode(c.b, 4, "f")
			wantCorrupt(t, err, "f")
			if !strings.Contains(err.Error(), c.expect) {
				t.Errorf("got error %v, want one that has %q", err, c.expect)
			}
		})
	}
}

func TestSlotNames(t *testing.T) {
	for slot, name := range map[int64]string{1: "log/000000000001", maxSlot: "log/999999999999"} {
		if got := SlotName(slot); got != name {
			t.Errorf("slot %d is in %s, want %s", slot, got, name)
		}
		if got, ok := parseSlot(name); !ok || got != slot {
			t.Errorf("%s holds slot %d, %v; want %d", name, got, ok, slot)
		}
	}
	for _, name := range []string{"log/1", "log/000000000000", "log/+00000000001", "log/-00000000001", "log/0000000000001",
		"log/00000000000a", "log/", "seg/000000000001", "log/000000000001.tmp", "log/0000_0000001"} {
		if slot, ok := parseSlot(name); ok {
			t.Errorf("%s is taken for slot %d", name, slot)
		}
	}
}

func TestID(t *testing.T) {
	id := ID{Slot: 42, Sum: sha256.Sum256(nil)}
	const text = "42-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if id.String() != text || (ID{}).String() != "" {
		t.Errorf("got %q and %q", id.String(), ID{}.String())
	}
	for s, want := range map[string]ID{text: id, "": {}} {
		if got, err := ParseID(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"42", "42-", text + "0", text[:len(text)-1], "042" + text[2:], "+" + text, "-" + text,
		strings.ToUpper(text), " " + text, "0" + text[2:], "1000000000000" + text[2:], strings.Replace(text, "e", "g", 1)} {
		if got, err := ParseID(s); err == nil {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
}

// FuzzDecode feeds the decoder any bytes, as they are and as a payload under a
// checksum that holds. What it accepts must survive a round trip.
func FuzzDecode(f *testing.F) {
	for _, e := range []Entry{{Slot: 1, Start: start("n")}, {Slot: 2, Checkpoint: manifest(1, 0, ID{}, segment("seg/1-0-2-0-n1"))},
		{Slot: 3, Retire: &Retire{Incarnation: 1, Slots: []int64{2}, Gone: []Span{{1, 1}}}}} {
		b, err := encode(e)
		must(f, err)
		f.Add(uint32(0), b)
		f.Add(binary.LittleEndian.Uint32(b[12:]), b[entryHead:len(b)-sha256.Size])
	}
	f.Fuzz(func(t *testing.T, kind uint32, b []byte) {
		const slot = 3
		if e, err := decode(b, slot, "f"); err != nil {
			wantCorrupt(t, err, "f")
		} else if sum := sha256.Sum256(b[:len(b)-sha256.Size]); !bytes.HasSuffix(b, sum[:]) || e.ID.Sum != sha256.Sum256(b) {
			t.Fatalf("accepted without a checksum that holds: %x", b)
		}
		e, err := decode(seal(1, kind, slot, string(b)), slot, "f")
		if err != nil {
			wantCorrupt(t, err, "f")
			return
		}
		again, err := encode(e)
		must(t, err)
		e2, err := decode(again, slot, "f")
		must(t, err)
		e.ID, e2.ID = ID{}, ID{}
		if diff := cmp.Diff(e, e2, cmpopts.EquateEmpty()); diff != "" { // plan's own tags drop what is empty
			t.Fatalf("a round trip changed it (-before +after):\n%s", diff)
		}
	})
}
