package log

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// history is a store with two incarnations, three checkpoints of which one was
// never decided, and the ids by slot.
func history(t testing.TB) (*mem, map[int64]ID) {
	t.Helper()
	b := newMem()
	l := mustOpen(t, b)
	ids := map[int64]ID{}
	ids[1] = mustAppend(t, l, Entry{Start: start("n1")})
	ids[2] = mustAppend(t, l, Entry{Checkpoint: manifest(1, 0, ID{}, segment("seg/1-0-0-0-n1"))})
	ids[3] = mustAppend(t, l, Entry{Checkpoint: manifest(1, 1, ids[2], segment("seg/1-1-0-0-n1"))})
	ids[4] = mustAppend(t, l, Entry{Start: start("n4")})
	ids[5] = mustAppend(t, l, Entry{Checkpoint: manifest(4, 1, ids[2], segment("seg/4-1-0-0-n4"))})
	for slot, id := range ids {
		if id.Slot != slot {
			t.Fatalf("slot %d got id %v", slot, id)
		}
	}
	return b, ids
}

func TestOpenReadsWhatWasAppended(t *testing.T) {
	b, ids := history(t)
	l := mustOpen(t, b)
	entries := l.Entries()
	if len(entries) != 5 || l.Next() != 6 {
		t.Fatalf("got %d entries and next slot %d, want 5 and 6", len(entries), l.Next())
	}
	for i, e := range entries {
		if e.Slot != int64(i+1) || e.ID != ids[e.Slot] {
			t.Errorf("entry %d has slot %d and id %v", i, e.Slot, e.ID)
		}
	}
	if diff := cmp.Diff(start("n4"), entries[3].Start); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got, err := l.Find(ids[5])
	must(t, err)
	if diff := cmp.Diff(manifest(4, 1, ids[2], segment("seg/4-1-0-0-n4")), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]ID{ids[5], ids[2]}, Chain(entries, ids[5])); diff != "" {
		t.Errorf("the chain: -want +got:\n%s", diff)
	}
	if empty := mustOpen(t, newMem()); len(empty.Entries()) != 0 || empty.Next() != 1 {
		t.Errorf("an empty store has %d entries and next slot %d", len(empty.Entries()), empty.Next())
	}
}

// TestOpenRefusesEveryFlippedBit also covers the header, whose bits decide
// which check looks first.
func TestOpenRefusesEveryFlippedBit(t *testing.T) {
	b, ids := history(t)
	flipped := 0
	for slot := range ids {
		name := SlotName(slot)
		whole := b.files[name]
		for bit := range len(whole) * 8 {
			damaged := bytes.Clone(whole)
			damaged[bit/8] ^= 1 << (bit % 8)
			b.files[name] = damaged
			_, err := Open(b, "/state")
			if err == nil {
				t.Fatalf("%s opens with bit %d flipped", name, bit)
			}
			wantCorrupt(t, err, "/state/"+name)
			flipped++
		}
		b.files[name] = whole
	}
	if flipped < 5*8*(entryHead+32) {
		t.Errorf("only %d bits were tried", flipped)
	}
	mustOpen(t, b)
}

func TestOpenRefusesEveryTruncation(t *testing.T) {
	b, ids := history(t)
	for slot := range ids {
		name := SlotName(slot)
		whole := b.files[name]
		for n := range whole {
			b.files[name] = whole[:n]
			_, err := Open(b, "/state")
			wantCorrupt(t, err, "/state/"+name)
		}
		b.files[name] = append(bytes.Clone(whole), 0)
		_, err := Open(b, "/state")
		wantCorrupt(t, err, "/state/"+name)
		b.files[name] = whole
	}
}

func TestOpenRefuses(t *testing.T) {
	const where = "/state/log/"
	cases := []struct {
		name   string
		damage func(b *mem, ids map[int64]ID)
		file   string
		want   string // in the error
	}{
		{"missing first", func(b *mem, _ map[int64]ID) { delete(b.files, SlotName(1)) }, "000000000001", "no such file"},
		{"missing in between", func(b *mem, _ map[int64]ID) { delete(b.files, SlotName(3)) }, "000000000003", "no such file"},
		{"missing start", func(b *mem, _ map[int64]ID) { delete(b.files, SlotName(4)) }, "000000000004", "no such file"},
		{"swapped", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(2)], b.files[SlotName(3)] = b.files[SlotName(3)], b.files[SlotName(2)]
		}, "000000000002", "that of slot 3"},
		{"from another store", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(2)] = mustEncode(t, Entry{Slot: 2, Checkpoint: manifest(1, 0, ID{})})
		}, "000000000003", "isn't what slot 2 holds"},
		{"parent is no checkpoint", func(b *mem, ids map[int64]ID) {
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Checkpoint: manifest(4, 2, ids[4])})
		}, "000000000006", "isn't what slot 4 holds"},
		{"another file", func(b *mem, _ map[int64]ID) { b.files["log/readme.txt"] = nil }, "readme.txt", "another file"},
		{"newer version", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(6)] = seal(2, kindRetire, 6, `{"incarnation":4}`)
		}, "000000000006", "version 2; it was written by a newer version"},
		{"another format", func(b *mem, _ map[int64]ID) { b.files[SlotName(6)] = bytes.Repeat([]byte("x"), 99) }, "000000000006", `"xxxxxxxx"`},
		{"no start first", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(1)] = mustEncode(t, Entry{Slot: 1, Checkpoint: manifest(1, 0, ID{})})
		}, "000000000001", "no start entry before it"},
		{"an older incarnation writes on", func(b *mem, ids map[int64]ID) {
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Checkpoint: manifest(1, 2, ids[3])})
		}, "000000000006", "behind the start of incarnation 4"},
		{"an older incarnation retires", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Retire: &Retire{Incarnation: 1, Slots: []int64{2}}})
		}, "000000000006", "behind the start of incarnation 4"},
		{"another job's checkpoint", func(b *mem, _ map[int64]ID) {
			m := manifest(4, 0, ID{})
			m.Job = "other"
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Checkpoint: m})
		}, "000000000006", `behind the start of job "ad-clicks"`},
		{"a retired start", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Retire: &Retire{Incarnation: 4, Slots: []int64{4}}})
		}, "000000000004", "a start entry that a retire entry lists"},
		{"a gap larger than what was retired", func(b *mem, _ map[int64]ID) {
			b.files[SlotName(6)] = mustEncode(t, Entry{Slot: 6, Retire: &Retire{Incarnation: 4, Slots: []int64{2}}})
			delete(b.files, SlotName(2))
			delete(b.files, SlotName(3))
		}, "000000000003", "no such file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, ids := history(t)
			c.damage(b, ids)
			_, err := Open(b, "/state")
			wantCorrupt(t, err, where+c.file)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that has %q", err, c.want)
			}
		})
	}
}

func mustEncode(t testing.TB, e Entry) []byte {
	t.Helper()
	b, err := encode(e)
	must(t, err)
	return b
}

func TestOpenPassesStoreErrorsOn(t *testing.T) {
	for _, call := range []string{"list", "get"} {
		t.Run(call, func(t *testing.T) {
			b, _ := history(t)
			b.fail = func(c, _ string) error {
				if c == call {
					return errDisk
				}
				return nil
			}
			if _, err := Open(b, "/state"); !errors.Is(err, errDisk) || errors.Is(err, ErrCorrupt) {
				t.Errorf("got error %v, want the store's, and not ErrCorrupt", err)
			}
		})
	}
}

func TestReloadKeepsTheLogOnError(t *testing.T) {
	b, _ := history(t)
	l := mustOpen(t, b)
	before := l.Entries()
	b.files[SlotName(6)] = nil
	if err := l.Reload(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got error %v, want ErrCorrupt", err)
	}
	if diff := cmp.Diff(before, l.Entries()); diff != "" {
		t.Errorf("the entries changed: -want +got:\n%s", diff)
	}
}

func TestFindSaysWhatIsThere(t *testing.T) {
	b, ids := history(t)
	l := mustOpen(t, b)
	retired := Retire{Incarnation: 4, Slots: []int64{3}, Blobs: []string{"seg/1-1-0-0-n1"}}
	mustAppend(t, l, Entry{Retire: &retired})
	other := ids[5]
	other.Sum[0]++
	cases := []struct {
		name string
		id   ID
		want string
	}{
		{"zero", ID{}, "empty"},
		{"another store's", other, "slot 5 holds checkpoint " + ids[5].String()},
		{"a start's", ids[4], "slot 4 holds another kind of entry"},
		{"newer than the store", ID{Slot: 42}, "the log ends at slot 6"},
		{"retired, not yet swept", ids[3], "slot 3 was retired"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, err := l.Find(c.id)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v and error %v, want one that has %q", m, err, c.want)
			}
			if chain := Chain(l.Entries(), c.id); chain != nil {
				t.Errorf("it has the chain %v", chain)
			}
		})
	}
	must(t, l.Sweep())
	if _, err := l.Find(ids[3]); err == nil || !strings.Contains(err.Error(), "slot 3 was retired") {
		t.Errorf("after the sweep: %v", err)
	}
}

// TestSweepCrash ends a sweep at each of its deletions, and opens what is
// left: nothing is missed, and the next sweep does the rest.
func TestSweepCrash(t *testing.T) {
	for crash := 0; ; crash++ {
		b, ids := history(t)
		for _, name := range []string{"seg/1-0-0-0-n1", "seg/1-1-0-0-n1", "seg/4-1-0-0-n4", "seg/1-9-0-0-orphan", "seg/4-9-0-0-ours"} {
			must(t, b.PutIfAbsent(name, func(io.Writer) error { return nil }))
		}
		l := mustOpen(t, b)
		retire := func() {
			segs, err := b.List(SegmentPrefix)
			must(t, err)
			r := Retirement(l.Entries(), []ID{ids[5]}, 1, 4, segs)
			mustAppend(t, l, Entry{Retire: &r})
		}
		retire()
		deletions := 0
		b.fail = func(call, _ string) error {
			if call == "delete" {
				if deletions == crash {
					return errDisk
				}
				deletions++
			}
			return nil
		}
		err := l.Sweep()
		b.fail = nil
		done := err == nil
		if !done && !errors.Is(err, errDisk) {
			t.Fatalf("crash %d: %v", crash, err)
		}
		if fresh := mustOpen(t, b); !cmp.Equal(fresh.Entries(), l.Entries()) {
			t.Errorf("crash %d: the log and the store differ: %s", crash, cmp.Diff(fresh.Entries(), l.Entries()))
		}
		l = mustOpen(t, b)
		if !done {
			retire() // as a restart may do before it sweeps
		}
		must(t, l.Sweep())
		want := []string{SlotName(1), SlotName(4), SlotName(5), SlotName(6), "seg/4-1-0-0-n4", "seg/4-9-0-0-ours"}
		if slices.Contains(b.names(), SlotName(7)) {
			want[3] = SlotName(7)
		}
		if diff := cmp.Diff(want, b.names()); diff != "" {
			t.Errorf("crash %d: -want +got:\n%s", crash, diff)
		}
		mustOpen(t, b)
		if done {
			if deletions < 5 {
				t.Errorf("only %d deletions were made", deletions)
			}
			return
		}
	}
}

// TestSweptWhileOpening has a fenced process delete a retired entry between
// the listing and the reading of another that opens.
func TestSweptWhileOpening(t *testing.T) {
	b, _ := history(t)
	l := mustOpen(t, b)
	mustAppend(t, l, Entry{Retire: &Retire{Incarnation: 4, Slots: []int64{3}}})
	b.fail = func(call, name string) error {
		if call == "get" && name == SlotName(3) {
			delete(b.files, name)
		}
		return nil
	}
	if got := len(mustOpen(t, b).Entries()); got != 5 {
		t.Errorf("%d entries, want 5", got)
	}
	b.fail = func(call, name string) error {
		if call == "get" && name == SlotName(2) { // nothing retired this one
			delete(b.files, name)
		}
		return nil
	}
	_, err := Open(b, "/state")
	wantCorrupt(t, err, "/state/"+SlotName(2))
}
