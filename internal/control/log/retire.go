package log

import (
	"cmp"
	"maps"
	"slices"
)

// Chain walks from the checkpoint id to its parents and returns their ids,
// newest first, as far as they are in the log and not retired. It steps over those
// that were removed by hand. It is nil where
// id itself isn't: then the ledger that named it belongs to another store, or
// to another state of this one.
func Chain(entries []Entry, id ID) []ID {
	at := make(map[ID]*Manifest)
	gone := retired(entries)
	for _, e := range entries {
		if e.Checkpoint != nil && !gone.cover(e.Slot, e.Slot) {
			at[e.ID] = e.Checkpoint
		}
	}
	var chain []ID
	removed := cuts(entries)
	for m := at[id]; m != nil; m = at[id] {
		chain = append(chain, id)
		if m.Parent.Slot >= id.Slot {
			break // no such log opens; but this must end
		}
		// A cut leads to an older slot: no other entry can be read.
		for id = m.Parent; at[id] == nil && !removed[id].IsZero(); id = removed[id] {
		}
	}
	return chain
}

// Retirement says what may be deleted, and decides it from its arguments
// alone: the log's entries, what the ledgers name (read after fencing), how
// many checkpoints to keep, our own incarnation, and the segments and output
// logs that the store lists. The result is appended as an entry and only then
// swept.
//
// It keeps
//   - of the chain that ends at the newest checkpoint that a ledger names: the
//     newest keep ones, at least one, and everything down to the oldest that a
//     ledger names, so that the chain between two ledgers stays whole,
//   - every checkpoint off that chain of our own incarnation (it may be about
//     to be decided) or of a newer one (it isn't ours to judge),
//   - every segment that one of these refers to,
//   - the output logs of these that are newer than a checkpoint that a ledger
//     names: its participant is to be rolled forward. Once every ledger has
//     confirmed a checkpoint, the output logs up to it go, kept or not,
//   - every file that no manifest has named yet unless its incarnation is lower
//     than ours: it may belong to a checkpoint on its way,
//   - every start entry.
//
// It gives nothing away when it can't tell the chain: no ledger names a
// checkpoint, one is still before the first, or they aren't all on one chain.
//
// Deleting a slot's file never frees its number for a writer that was paused
// before it. Such a writer holds a Next that it computed earlier. The only
// others who write are later incarnations, and the first entry of each is its
// start, in the first free slot: so the slot that a paused writer is about to
// take is free, or holds a start entry, and start entries stay. Nor does Next
// ever go back: a retire entry lies above all that it lists, and is listed
// only by a later one.
//
// A retire entry costs a synced write. A caller that lets a few checkpoints
// more than keep gather before it asks again loses nothing by it.
func Retirement(entries []Entry, named []ID, keep int, incarnation int64, files []string) Retire {
	chain := chainOf(entries, named)
	if chain == nil {
		return Retire{}
	}
	oldest := 0 // that a ledger names, by its place in the chain
	for _, id := range named {
		oldest = max(oldest, slices.Index(chain, id))
	}
	kept := max(keep, oldest+1, 1)
	gone := retired(entries)
	r := Retire{Incarnation: incarnation}
	needed, freed := map[string]bool{}, map[string]bool{}
	done := map[string]bool{} // files that go if they are still there
	for _, e := range entries {
		if e.Retire != nil {
			for _, name := range e.Retire.Blobs {
				done[name] = true
			}
		}
		m := e.Checkpoint
		if m == nil {
			continue
		}
		keeps, confirmed := m.Incarnation >= incarnation, false
		if i := slices.Index(chain, e.ID); i >= 0 {
			keeps, confirmed = i < kept, i >= oldest
		}
		keeps = keeps && !gone.cover(e.Slot, e.Slot)
		if keeps && !confirmed {
			m.outputs(needed)
		} else {
			m.outputs(done)
		}
		if keeps {
			m.segments(needed)
			continue
		}
		r.Slots = append(r.Slots, e.Slot)
		m.segments(freed)
	}
	for _, name := range files {
		// An output log of a checkpoint that stays is listed as long as it is there.
		if n, ok := blobIncarnation(name); ok && (n < incarnation || done[name]) {
			freed[name] = true
		}
	}
	maps.DeleteFunc(freed, func(name string, _ bool) bool { return needed[name] })
	r.Blobs = slices.Sorted(maps.Keys(freed))
	if r.IsZero() {
		return Retire{} // older retire entries alone aren't worth a new one
	}
	for _, e := range entries {
		if e.Retire != nil {
			// What it listed and what is still there is listed again above.
			r.Slots = append(r.Slots, e.Slot)
		}
	}
	slices.Sort(r.Slots)
	r.Gone = gone
	r.Cut = keepCuts(entries, func(e Entry) bool { return !slices.Contains(r.Slots, e.Slot) })
	return r
}

// chainOf returns the chain that all of named are on, from the newest of them
// down, or nil.
func chainOf(entries []Entry, named []ID) []ID {
	if len(named) == 0 {
		return nil
	}
	chain := Chain(entries, slices.MaxFunc(named, func(a, b ID) int { return cmp.Compare(a.Slot, b.Slot) }))
	for _, id := range named {
		if !slices.Contains(chain, id) {
			return nil
		}
	}
	return chain
}

// segments adds the names of all segments that m refers to.
func (m *Manifest) segments(to map[string]bool) {
	for _, s := range m.Segments {
		to[s.Name] = true
	}
	for _, s := range m.Steps {
		for _, p := range s.Parts {
			to[p.Segment] = true
		}
	}
}

// outputs adds the names of all output logs that m refers to.
func (m *Manifest) outputs(to map[string]bool) {
	for _, o := range m.Outputs {
		to[o.Name] = true
	}
}

// Settled reports whether a retire entry says that every ledger of the sinks
// under whose start a checkpoint was made names it.
func Settled(entries []Entry, id ID) bool {
	return !id.IsZero() && slices.ContainsFunc(entries, func(e Entry) bool { return e.Retire != nil && e.Retire.Settled == id })
}

// Standing returns the entries without those that a retire entry among them lists,
// although their files may still be there.
func Standing(entries []Entry) []Entry {
	gone := retired(entries)
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return gone.cover(e.Slot, e.Slot) })
}

// spans is a set of slots: sorted, and neither overlapping nor touching.
type spans []Span

// retired returns the slots that the retire entries among entries list. They
// are gone, even where a crash left their files behind.
func retired(entries []Entry) spans {
	var all []Span
	for _, e := range entries {
		if e.Retire == nil {
			continue
		}
		all = append(all, e.Retire.Gone...)
		for _, s := range e.Retire.Slots {
			all = append(all, Span{s, s})
		}
	}
	slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	var merged spans
	for _, s := range all {
		if n := len(merged); n > 0 && s.First <= merged[n-1].Last+1 {
			merged[n-1].Last = max(merged[n-1].Last, s.Last)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// cover reports whether all slots from first to last are in the set.
func (s spans) cover(first, last int64) bool {
	i, _ := slices.BinarySearchFunc(s, first, func(s Span, first int64) int { return cmp.Compare(s.Last, first) })
	return i < len(s) && s[i].First <= first && last <= s[i].Last
}
