package log

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// at is an id for tables: that of a slot.
func at(slot int64) ID {
	if slot == 0 {
		return ID{}
	}
	return ID{Slot: slot, Sum: [32]byte{byte(slot)}}
}

func ids(slots ...int64) (out []ID) {
	for _, s := range slots {
		out = append(out, at(s))
	}
	return out
}

func started(slot int64) Entry { return Entry{Slot: slot, ID: at(slot), Start: start("n")} }

// point is a checkpoint whose only step is in segs, oldest first.
func point(slot, incarnation, parent int64, segs ...string) Entry {
	m := &Manifest{Incarnation: incarnation, Parent: at(parent)}
	for _, s := range segs {
		m.Segments = append(m.Segments, segment(s))
	}
	return Entry{Slot: slot, ID: at(slot), Checkpoint: m}
}

func retires(slot int64, r Retire) Entry { return Entry{Slot: slot, ID: at(slot), Retire: &r} }

func TestChain(t *testing.T) {
	entries := []Entry{started(1), point(2, 1, 0), point(3, 1, 2), started(4), point(5, 4, 2), point(6, 4, 5),
		retires(7, Retire{Incarnation: 4, Slots: []int64{3}})}
	cases := []struct {
		name    string
		entries []Entry
		id      ID
		want    []ID
	}{
		{"to the first", entries, at(6), ids(6, 5, 2)},
		{"from in between", entries, at(5), ids(5, 2)},
		{"to a retired parent", []Entry{point(9, 4, 6), point(10, 4, 9)}, at(10), ids(10, 9)},
		{"zero", entries, ID{}, nil},
		{"retired", entries, at(3), nil},
		{"a start", entries, at(4), nil},
		{"same slot, another entry", entries, ID{Slot: 6, Sum: [32]byte{99}}, nil},
		{"its own parent", []Entry{point(2, 1, 2)}, at(2), ids(2)},
		{"a ring", []Entry{point(2, 1, 3), point(3, 1, 2)}, at(3), ids(3, 2)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Chain(c.entries, c.id)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRetirement(t *testing.T) {
	for _, c := range retirementCases() {
		t.Run(c.name, func(t *testing.T) {
			got := Retirement(c.entries, c.named, c.keep, c.incarnation, c.segs)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

type retirementCase struct {
	name        string
	entries     []Entry
	named       []ID
	keep        int
	incarnation int64
	segs        []string
	want        Retire
}

func retirementCases() []retirementCase {
	// Two checkpoints of incarnation 1, one of them never decided; then four
	// of incarnation 4, the last one on its way.
	base := []Entry{
		started(1), point(2, 1, 0, "seg/1-a"), point(3, 1, 2, "seg/1-a", "seg/1-b"),
		started(4), point(5, 4, 2, "seg/1-a", "seg/4-c"), point(6, 4, 5, "seg/4-d"), point(7, 4, 6, "seg/4-d", "seg/4-e"), point(8, 4, 7, "seg/4-f"),
	}
	all := []string{"seg/1-a", "seg/1-b", "seg/4-c", "seg/4-d", "seg/4-e", "seg/4-f"}
	return []retirementCase{
		{"keep 1", base, ids(7), 1, 4, all, Retire{Incarnation: 4, Slots: []int64{2, 3, 5, 6}, Blobs: []string{"seg/1-a", "seg/1-b", "seg/4-c"}}},
		{"keep 2", base, ids(7), 2, 4, all, Retire{Incarnation: 4, Slots: []int64{2, 3, 5}, Blobs: []string{"seg/1-a", "seg/1-b", "seg/4-c"}}},
		{"a kept one shares a segment with one that goes", base, ids(7), 3, 4, all,
			Retire{Incarnation: 4, Slots: []int64{2, 3}, Blobs: []string{"seg/1-b"}}},
		{"keep all of the chain", base, ids(7), 10, 4, all, Retire{Incarnation: 4, Slots: []int64{3}, Blobs: []string{"seg/1-b"}}},
		{"at least one is kept", base, ids(7), -5, 4, all, Retire{Incarnation: 4, Slots: []int64{2, 3, 5, 6}, Blobs: []string{"seg/1-a", "seg/1-b", "seg/4-c"}}},
		{"a ledger that lags", base, ids(7, 5), 1, 4, all, Retire{Incarnation: 4, Slots: []int64{2, 3}, Blobs: []string{"seg/1-b"}}},
		{"without a listing", base, ids(7), 1, 4, nil, Retire{Incarnation: 4, Slots: []int64{2, 3, 5, 6}, Blobs: []string{"seg/1-a", "seg/1-b", "seg/4-c"}}},
		{"a newer incarnation's are not ours to judge", base, ids(2), 1, 1, all, Retire{}},
		{"after a restart the one on its way is a leftover", append(slices.Clone(base), started(9)), ids(7), 10, 9, all,
			Retire{Incarnation: 9, Slots: []int64{3, 8}, Blobs: []string{"seg/1-b", "seg/4-f"}}},
		{"orphans of lower incarnations only", base[:2], ids(2), 1, 4, []string{"seg/1-a", "seg/1-x", "seg/3-y", "seg/4-z", "seg/5-z"},
			Retire{Incarnation: 4, Blobs: []string{"seg/1-x", "seg/3-y"}}},
		{"what isn't a segment stays", base[:2], ids(2), 1, 4, []string{"seg/readme", "seg/", "other/1-x", "seg/1-sub/x"}, Retire{}},
		{"nothing to do", base[:2], ids(2), 1, 4, []string{"seg/1-a"}, Retire{}},
		{"no ledger", base, nil, 1, 4, all, Retire{}},
		{"a ledger before the first checkpoint", base, ids(7, 0), 1, 4, all, Retire{}},
		{"a ledger off the chain", base, ids(7, 3), 1, 4, all, Retire{}},
		{"a ledger of another store", base, []ID{at(7), {Slot: 6, Sum: [32]byte{99}}}, 1, 4, all, Retire{}},
		{"newest ledger of another store", base, ids(7, 99), 1, 4, all, Retire{}},
		{"a ledger names what was retired", append(slices.Clone(base), retires(9, Retire{Incarnation: 4, Slots: []int64{2}})), ids(7, 2), 1, 4, all, Retire{}},
		{"an older retire entry goes, and what it explained is taken over",
			[]Entry{started(1), started(4), point(6, 4, 5, "seg/4-d"), point(7, 4, 6, "seg/4-e"), retires(8, Retire{Slots: []int64{3, 5}, Gone: []Span{{2, 2}}})},
			ids(7), 1, 4, nil, Retire{Incarnation: 4, Slots: []int64{6, 8}, Gone: []Span{{2, 3}, {5, 5}}, Blobs: []string{"seg/4-d"}}},
		{"an older retire entry alone is no reason",
			[]Entry{started(1), point(3, 1, 2, "seg/1-a"), retires(4, Retire{Slots: []int64{2}, Blobs: []string{"seg/1-x"}})}, ids(3), 1, 1, []string{"seg/1-a"}, Retire{}},
		{"what a crash left of an older retire entry is listed again",
			[]Entry{started(1), point(2, 1, 0, "seg/1-x"), point(3, 1, 2, "seg/1-a"), retires(4, Retire{Slots: []int64{2}, Blobs: []string{"seg/1-x"}})},
			ids(3), 5, 1, []string{"seg/1-a", "seg/1-x"}, Retire{Incarnation: 1, Slots: []int64{2, 4}, Gone: []Span{{2, 2}}, Blobs: []string{"seg/1-x"}}},
		{"even where only a segment was left",
			[]Entry{started(1), point(3, 1, 2, "seg/1-a"), retires(4, Retire{Slots: []int64{2}, Blobs: []string{"seg/1-x"}})},
			ids(3), 5, 1, []string{"seg/1-a", "seg/1-x"}, Retire{Incarnation: 1, Slots: []int64{4}, Gone: []Span{{2, 2}}, Blobs: []string{"seg/1-x"}}},
		{"a job that started over leaves its old chain", []Entry{started(1), point(2, 1, 0, "seg/1-a"), started(3), point(4, 3, 0, "seg/3-b")},
			ids(4), 9, 3, nil, Retire{Incarnation: 3, Slots: []int64{2}, Blobs: []string{"seg/1-a"}}},
	}
}

func TestSpans(t *testing.T) {
	const top = 40
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		in := map[int64]bool{}
		var entries []Entry
		for range rng.IntN(6) {
			var r Retire
			for range rng.IntN(4) {
				s := rng.Int64N(top) + 1
				r.Slots, in[s] = append(r.Slots, s), true
			}
			for range rng.IntN(3) {
				first := rng.Int64N(top) + 1
				last := first + rng.Int64N(5)
				r.Gone = append(r.Gone, Span{first, last})
				for s := first; s <= last; s++ {
					in[s] = true
				}
			}
			entries = append(entries, retires(99, r))
		}
		got := retired(entries)
		for first := int64(1); first < top+6; first++ {
			want := true
			for last := first; last < top+6; last++ {
				want = want && in[last]
				if got.cover(first, last) != want {
					t.Fatalf("seed %d: %v covers %d to %d: %v, want %v", seed, got, first, last, !want, want)
				}
			}
		}
		for i := 1; i < len(got); i++ {
			if got[i].First <= got[i-1].Last+1 {
				t.Fatalf("seed %d: %v overlaps or touches", seed, got)
			}
		}
	}
}

// TestRetirementKeepsWhatIsReachable throws arbitrary entries at it: parents,
// incarnations, shared segments and ledgers at random.
func TestRetirementKeepsWhatIsReachable(t *testing.T) {
	retiring := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		entries, segs := anyEntries(rng)
		var named []ID
		for range rng.IntN(3) {
			named = append(named, at(1+rng.Int64N(int64(len(entries)))))
		}
		keep := 1 + rng.IntN(4)
		r := Retirement(entries, named, keep, 1+rng.Int64N(20), segs)
		if !r.IsZero() {
			retiring++
		}
		for slot := range reachable(entries, named, keep) {
			if slices.Contains(r.Slots, slot) {
				t.Fatalf("seed %d: slot %d is retired: %+v", seed, slot, r)
			}
			m := entries[slot-1].Checkpoint
			if m == nil {
				continue
			}
			for _, s := range m.Segments {
				if slices.Contains(r.Blobs, s.Name) {
					t.Fatalf("seed %d: %s of slot %d is retired: %+v", seed, s.Name, slot, r)
				}
			}
		}
	}
	if retiring < 300 {
		t.Errorf("only %d of the cases retired anything", retiring)
	}
}

// anyEntries fills slots 1 to n, each with anything.
func anyEntries(rng *rand.Rand) (entries []Entry, segs []string) {
	segs = make([]string, 1+rng.IntN(12))
	for i := range segs {
		segs[i] = fmt.Sprintf("seg/%d-%d", 1+rng.IntN(20), i)
	}
	n := 2 + rng.Int64N(18)
	for slot := int64(1); slot <= n; slot++ {
		switch {
		case slot == 1 || rng.IntN(6) == 0:
			entries = append(entries, started(slot))
		case rng.IntN(8) == 0:
			entries = append(entries, retires(slot, Retire{Slots: []int64{1 + rng.Int64N(slot)}}))
		default:
			var refs []string
			for range rng.IntN(4) {
				refs = append(refs, segs[rng.IntN(len(segs))])
			}
			entries = append(entries, point(slot, 1+rng.Int64N(slot), rng.Int64N(slot), refs...))
		}
	}
	return entries, segs
}

// reachable walks from what the ledgers name, by slots alone: entries[i] is in
// slot i+1.
func reachable(entries []Entry, named []ID, keep int) map[int64]bool {
	lost := map[int64]bool{} // by an earlier retire entry
	slots := map[int64]bool{}
	for _, e := range entries {
		if e.Retire != nil {
			lost[e.Retire.Slots[0]] = true
		}
		if e.Start != nil {
			slots[e.Slot] = true
		}
	}
	var top int64
	for _, id := range named {
		top = max(top, id.Slot)
		if !lost[id.Slot] {
			slots[id.Slot] = true
		}
	}
	for s, i := top, 0; s > 0 && i < keep && !lost[s]; i++ {
		m := entries[s-1].Checkpoint
		if m == nil {
			break
		}
		slots[s] = true
		s = m.Parent.Slot
	}
	return slots
}

// world is a job's life as an oracle keeps it: by slots and names, without a
// look at the log.
type world struct {
	parent   map[int64]int64
	segs     map[int64][]string
	inc      map[int64]int64
	chain    []int64 // decided checkpoints, oldest first
	starts   []int64
	inFlight []string // segments that no manifest names yet, by this incarnation
}

// keeps returns the checkpoints and segments that must survive.
func (w *world) keeps(keep int) (slots map[int64]bool, segs map[string]bool) {
	slots, segs = map[int64]bool{}, map[string]bool{}
	for _, s := range w.chain[max(0, len(w.chain)-keep):] {
		slots[s] = true
	}
	decided := map[int64]bool{}
	for _, s := range w.chain {
		decided[s] = true
	}
	for s, inc := range w.inc {
		if !decided[s] && inc == w.starts[len(w.starts)-1] {
			slots[s] = true
		}
	}
	for s := range slots {
		for _, name := range w.segs[s] {
			segs[name] = true
		}
	}
	for _, name := range w.inFlight {
		segs[name] = true
	}
	return slots, segs
}

// TestLives runs random lives of a job (crashes at any time, undecided
// checkpoints, sweeps that don't finish) and requires after each retirement
// that exactly what must be kept is there, and all of it.
func TestLives(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3))
			keep := 1 + rng.IntN(4)
			b := newMem()
			w := &world{parent: map[int64]int64{}, segs: map[int64][]string{}, inc: map[int64]int64{}}
			byslot := map[int64]ID{}
			files := 0
			for life := range 6 {
				l := mustOpen(t, b)
				inc := mustAppend(t, l, Entry{Start: start(fmt.Sprint("n", life))}).Slot
				w.starts, w.inFlight = append(w.starts, inc), nil
				for range 1 + rng.IntN(12) {
					var tip int64
					if n := len(w.chain); n > 0 {
						tip = w.chain[n-1]
					}
					files++
					name := SegmentName(inc, int64(files), "0/0", "n")
					seg, refs, err := WriteSegment(b, name, parts(&part{step: "s", bytes: []byte(name), entries: 1}))
					must(t, err)
					w.inFlight = append(w.inFlight, name)
					if rng.IntN(6) == 0 {
						continue // its epoch fails
					}
					m := manifest(inc, int64(files), byslot[tip], seg)
					m.Steps = []Step{{ID: "s", Parts: refs}}
					if rng.IntN(3) > 0 && tip != 0 { // a delta on what the parent has
						p, err := l.Find(byslot[tip])
						must(t, err)
						m.Segments = append(slices.Clone(p.Segments), seg)
						m.Steps = []Step{{ID: "s", Parts: append(slices.Clone(p.Steps[0].Parts), refs...)}}
					}
					id := mustAppend(t, l, Entry{Checkpoint: m})
					byslot[id.Slot], w.parent[id.Slot], w.inc[id.Slot] = id, tip, inc
					for _, s := range m.Segments {
						w.segs[id.Slot] = append(w.segs[id.Slot], s.Name)
					}
					w.inFlight = w.inFlight[:len(w.inFlight)-1]
					if rng.IntN(6) == 0 {
						break // a crash before the decision
					}
					w.chain = append(w.chain, id.Slot)
					if rng.IntN(3) > 0 {
						retireAndCheck(t, rng, b, l, w, byslot, keep)
					}
				}
			}
		})
	}
}

func retireAndCheck(t *testing.T, rng *rand.Rand, b *mem, l *Log, w *world, byslot map[int64]ID, keep int) {
	t.Helper()
	listed, err := b.List(SegmentPrefix)
	must(t, err)
	r := Retirement(l.Entries(), []ID{byslot[w.chain[len(w.chain)-1]]}, keep, w.starts[len(w.starts)-1], listed)
	slots, segs := w.keeps(keep)
	if !r.IsZero() {
		mustAppend(t, l, Entry{Retire: &r})
	}
	if left := rng.IntN(4); left > 0 { // the sweep ends early
		b.fail = func(call, _ string) error {
			if call == "delete" {
				if left--; left < 0 {
					return errDisk
				}
			}
			return nil
		}
	}
	err = l.Sweep()
	b.fail = nil
	there := map[int64]bool{}
	for _, e := range mustOpen(t, b).Entries() {
		if e.Checkpoint != nil {
			there[e.Slot] = true
		}
	}
	has := map[string]bool{}
	now, lerr := b.List(SegmentPrefix)
	must(t, lerr)
	for _, name := range now {
		has[name] = true
	}
	if err != nil { // then more may be there, but never less
		maps.DeleteFunc(there, func(s int64, _ bool) bool { return !slots[s] })
		maps.DeleteFunc(has, func(s string, _ bool) bool { return !segs[s] })
	}
	if diff := cmp.Diff(slots, there); diff != "" {
		t.Fatalf("checkpoints by slot (-must be there +are there), sweep %v:\n%s", err, diff)
	}
	if diff := cmp.Diff(segs, has); diff != "" {
		t.Fatalf("segments (-must be there +are there), sweep %v:\n%s", err, diff)
	}
	for _, s := range w.starts {
		if _, ok := b.files[SlotName(s)]; !ok {
			t.Fatalf("the start in slot %d is gone", s)
		}
	}
	for s := range slots {
		m, err := l.Find(byslot[s])
		must(t, err)
		_, err = m.Restore(b, "").Sections("s")
		must(t, err)
	}
}
