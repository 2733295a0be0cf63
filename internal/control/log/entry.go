package log

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// An entry file, log/SLOT with SLOT in 12 decimal digits. Integers are little
// endian.
//
//	offset  size  field
//	0       8     magic "WEIR-LOG"
//	8       4     version, 1
//	12      4     kind: 1 start, 2 checkpoint, 3 retire
//	16      8     slot, the same as in the name
//	24      8     n, length of the payload
//	32      n     payload: JSON of Start, Manifest or Retire
//	32+n    32    SHA-256 of everything before
//
// The file ends there. An ID's Sum is the SHA-256 of the whole file.
const (
	entryMagic   = "WEIR-LOG"
	entryVersion = 1
	entryHead    = 32
	logPrefix    = "log/"
	slotDigits   = 12
	maxSlot      = 999_999_999_999
)

const (
	kindStart      = 1
	kindCheckpoint = 2
	kindRetire     = 3
)

// Entry is one slot of the log. Exactly one of the pointers is set; what they
// point at is shared, and never modified.
type Entry struct {
	Slot       int64
	ID         ID
	Start      *Start
	Checkpoint *Manifest
	Retire     *Retire
}

// Start is one incarnation; its number is the entry's slot. Start entries are
// never deleted.
type Start struct {
	Job     string     `json:"job"`
	UUID    string     `json:"uuid"`  // drawn when the job first started here, or started over
	Nonce   string     `json:"nonce"` // drawn for this start; no two starts share one
	Graph   plan.Graph `json:"graph"`
	Decider string     `json:"decider"` // a participant's name, or "store"
	Sinks   []string   `json:"sinks"`
	At      time.Time  `json:"at"`
}

// Manifest is one checkpoint: everything that a restore needs, by the names of
// steps and splits and never of tasks.
type Manifest struct {
	Job         string `json:"job"`
	UUID        string `json:"uuid"`
	Incarnation int64  `json:"incarnation"` // slot of the start entry it was made under
	Epoch       int64  `json:"epoch"`
	Parent      ID     `json:"parent"` // zero for the checkpoint before the first record
	Finished    bool   `json:"finished"`
	Empty       bool   `json:"empty"` // it notes where splits begin, or is a rollback: nothing was prepared for it
	KeyGroups   int    `json:"keyGroups"`
	// Content is set after a rollback: the checkpoint whose splits and steps these
	// are. Zero otherwise.
	Content ID `json:"content"`

	Splits   []data.SplitState `json:"splits"`
	Steps    []Step            `json:"steps"`
	Segments []Segment         `json:"segments"` // every one that Steps refers to
	// What participants want to have kept, by their names: small pieces here,
	// and large ones in a file each.
	Staged  map[string][]byte  `json:"staged"`
	Outputs map[string]Segment `json:"outputs"`
	At      time.Time          `json:"at"`
}

// Step is the state of one step.
type Step struct {
	ID     string       `json:"id"`
	Key    string       `json:"key"`   // schema that all parts were written with
	Value  string       `json:"value"` // likewise
	Live   int64        `json:"live"`  // entries that exist, deletes excluded
	Clocks []data.Clock `json:"clocks"`
	Parts  []PartRef    `json:"parts"` // base, then deltas, oldest first
}

// PartRef is one section of a segment. The zero PartRef stands for a part
// without entries, which isn't written and isn't listed in a manifest.
type PartRef struct {
	Segment string `json:"segment"`
	Off     int64  `json:"off"` // bytes from the start of the file
	Len     int64  `json:"len"` // bytes
	Entries int64  `json:"entries"`
}

// Segment is a segment file, or an output log.
type Segment struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`   // bytes, of the whole file
	SHA256 string `json:"sha256"` // of the whole file, 64 hexadecimal digits
}

// Retire lists deletions before they are made. What is listed counts as gone
// from then on, whether or not its file is still there.
type Retire struct {
	Incarnation int64 `json:"incarnation"` // slot of the start entry it was made under
	// Slots are checkpoint entries and older retire entries, never starts.
	Slots []int64 `json:"slots"`
	// Gone are the slots that retire entries among Slots explained: this entry
	// takes that over.
	Gone  []Span   `json:"gone"`
	Blobs []string `json:"blobs"` // segments and output logs
	// Settled is a checkpoint that every ledger had come to when the entry was
	// written: those of the sinks of the start that it was made under, and
	// those of the sinks of this incarnation.
	Settled ID `json:"settled"`
	// Cut are removed checkpoints whose ancestors stay: the chain goes on there.
	Cut []Cut `json:"cut"`
}

// IsZero reports whether there is nothing to delete.
func (r Retire) IsZero() bool { return len(r.Slots) == 0 && len(r.Blobs) == 0 }

// Span is the slots from First to Last, both included.
type Span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// SlotName returns the name of a slot's file in the store.
func SlotName(slot int64) string { return fmt.Sprintf("%s%0*d", logPrefix, slotDigits, slot) }

// parseSlot is the inverse of SlotName.
func parseSlot(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, logPrefix)
	if !ok || len(digits) != slotDigits {
		return 0, false
	}
	slot, err := strconv.ParseUint(digits, 10, 63) // takes no sign
	return int64(slot), err == nil && slot >= 1
}

// jsonOptions make one value have one form, have nil survive, and leave zero
// fields out, so that a field added later changes no entry that doesn't use it.
func jsonOptions() json.Options {
	return json.JoinOptions(
		json.Deterministic(true),
		json.OmitZeroStructFields(true),
		json.FormatNilSliceAsNull(true),
		json.RejectUnknownMembers(true), // a field of a newer version is never dropped silently
		jsonv1.FormatDurationAsNano(true),
	)
}

// encode returns the bytes of an entry's file.
func encode(e Entry) ([]byte, error) {
	var kind uint32
	var payload any
	set := 0
	if e.Start != nil {
		s := *e.Start
		s.At = s.At.UTC()
		kind, payload, set = kindStart, &s, set+1
	}
	if e.Checkpoint != nil {
		m := *e.Checkpoint
		m.At = m.At.UTC()
		kind, payload, set = kindCheckpoint, &m, set+1
	}
	if e.Retire != nil {
		kind, payload, set = kindRetire, e.Retire, set+1
	}
	if set != 1 {
		return nil, fmt.Errorf("a log entry is one of start, checkpoint and retire, not %d of them", set)
	}
	if e.Slot < 1 || e.Slot > maxSlot {
		return nil, fmt.Errorf("log slot %d is outside 1 to %d", e.Slot, int64(maxSlot))
	}
	body, err := json.Marshal(payload, jsonOptions())
	if err != nil {
		return nil, fmt.Errorf("encode log slot %d: %w", e.Slot, err)
	}
	b := make([]byte, 0, entryHead+len(body)+sha256.Size)
	b = append(b, entryMagic...)
	b = binary.LittleEndian.AppendUint32(b, entryVersion)
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Slot))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	b = append(b, body...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// decode verifies and reads the bytes of the entry file that holds slot. file
// is what errors call it. Errors are *CorruptError.
func decode(b []byte, slot int64, file string) (Entry, error) {
	bad := func(hint, expected, found string, args ...any) (Entry, error) {
		return Entry{}, &CorruptError{File: file, Expected: expected, Found: fmt.Sprintf(found, args...), Hint: hint}
	}
	if len(b) < entryHead+sha256.Size {
		return bad(hintRestore, fmt.Sprintf("at least %d bytes", entryHead+sha256.Size), "%d", len(b))
	}
	if !bytes.HasPrefix(b, []byte(entryMagic)) {
		return bad(hintNewer, fmt.Sprintf("a log entry, which begins with %q", entryMagic), "%q", b[:len(entryMagic)])
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != entryVersion {
		return bad(hintNewer, fmt.Sprintf("format version %d", entryVersion), "version %d", v)
	}
	if n, have := binary.LittleEndian.Uint64(b[24:]), len(b)-entryHead-sha256.Size; n != uint64(have) {
		return bad(hintRestore, fmt.Sprintf("%d bytes of payload, as the header says", n), "%d", have)
	}
	body, want := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], want) {
		return bad(hintRestore, fmt.Sprintf("SHA-256 %x", want), "%x", got)
	}
	if s := binary.LittleEndian.Uint64(b[16:]); s != uint64(slot) {
		return bad(hintRestore, fmt.Sprintf("the entry of slot %d", slot), "that of slot %d under its name", s)
	}
	e := Entry{Slot: slot, ID: ID{Slot: slot, Sum: sha256.Sum256(b)}}
	var err error
	switch kind, payload := binary.LittleEndian.Uint32(b[12:]), body[entryHead:]; kind {
	case kindStart:
		e.Start = new(Start)
		err = json.Unmarshal(payload, e.Start, jsonOptions())
	case kindCheckpoint:
		e.Checkpoint = new(Manifest)
		err = json.Unmarshal(payload, e.Checkpoint, jsonOptions())
	case kindRetire:
		e.Retire = new(Retire)
		err = json.Unmarshal(payload, e.Retire, jsonOptions())
	default:
		err = fmt.Errorf("kind %d", kind)
	}
	if err != nil {
		return bad(hintNewer, fmt.Sprintf("a start, checkpoint or retire entry of format version %d", entryVersion), "%v", err)
	}
	if err := e.check(); err != nil {
		return bad(hintRestore, "an entry that agrees with itself", "%v", err)
	}
	return e, nil
}

// check looks at what an entry says by itself; Log.check at how it stands to
// the others.
func (e Entry) check() error {
	switch {
	case e.Start != nil:
		if e.Start.Job == "" || e.Start.UUID == "" || e.Start.Nonce == "" {
			return errors.New("a start entry without a job, a uuid or a nonce")
		}
	case e.Checkpoint != nil:
		return e.Checkpoint.check(e.Slot)
	case e.Retire != nil:
		return e.Retire.check(e.Slot)
	}
	return nil
}

func (m *Manifest) check(slot int64) error {
	if !m.Parent.IsZero() && m.Parent.Slot >= slot {
		return fmt.Errorf("a parent in slot %d, which isn't before slot %d", m.Parent.Slot, slot)
	}
	for party, o := range m.Outputs {
		if err := o.check(OutputPrefix); err != nil {
			return fmt.Errorf("what is kept for %s: %w", party, err)
		}
	}
	size := make(map[string]int64, len(m.Segments))
	for _, s := range m.Segments {
		if err := s.check(SegmentPrefix); err != nil {
			return err
		}
		if _, ok := size[s.Name]; ok {
			return fmt.Errorf("segment %s listed twice", s.Name)
		}
		size[s.Name] = s.Size
	}
	steps := make(map[string]bool, len(m.Steps))
	for _, s := range m.Steps {
		if steps[s.ID] {
			return fmt.Errorf("step %q listed twice", s.ID)
		}
		steps[s.ID] = true
		for _, p := range s.Parts {
			n, ok := size[p.Segment]
			if !ok {
				return fmt.Errorf("step %q refers to segment %q, which isn't listed", s.ID, p.Segment)
			}
			if p.Off < segmentHead || p.Len < 1 || p.Entries < 1 || p.Off > n || p.Len > n-p.Off {
				return fmt.Errorf("step %q refers to %d bytes at %d with %d entries in segment %s of %d bytes",
					s.ID, p.Len, p.Off, p.Entries, p.Segment, n)
			}
		}
	}
	return nil
}

func (r *Retire) check(slot int64) error {
	for _, s := range r.Slots {
		if s < 1 || s >= slot {
			return fmt.Errorf("a retire entry that lists slot %d, which isn't before slot %d", s, slot)
		}
	}
	for _, g := range r.Gone {
		if g.First < 1 || g.First > g.Last || g.Last >= slot {
			return fmt.Errorf("a retire entry that lists slots %d to %d, which aren't before slot %d", g.First, g.Last, slot)
		}
	}
	for _, name := range r.Blobs {
		if _, ok := blobIncarnation(name); !ok {
			return fmt.Errorf("a retire entry that lists %q, which is neither segment nor output log", name)
		}
	}
	for _, c := range r.Cut {
		if c.ID.Slot >= slot || c.Parent.Slot >= c.ID.Slot || c.Parent.IsZero() {
			return fmt.Errorf("a retire entry of slot %d that cuts slot %d out behind slot %d", slot, c.ID.Slot, c.Parent.Slot)
		}
	}
	if r.Settled.Slot >= slot {
		return fmt.Errorf("a retire entry that calls slot %d settled, which isn't before slot %d", r.Settled.Slot, slot)
	}
	return nil
}
