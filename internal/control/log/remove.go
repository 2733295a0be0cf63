package log

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Cut is a checkpoint that was removed from the middle of a chain: what is older
// stays, and hangs on what is newer through it.
type Cut struct {
	ID     ID `json:"id"`
	Parent ID `json:"parent"`
}

// cuts are what the retire entries among entries say of removed checkpoints.
func cuts(entries []Entry) map[ID]ID {
	all := map[ID]ID{}
	for _, e := range entries {
		if e.Retire != nil {
			for _, c := range e.Retire.Cut {
				all[c.ID] = c.Parent
			}
		}
	}
	return all
}

// keepCuts returns what is still needed of older retire entries that a new one
// takes over: cuts below which some of the checkpoints that are kept lie.
func keepCuts(entries []Entry, keeps func(Entry) bool) []Cut {
	oldest := int64(maxSlot)
	for _, e := range entries {
		if e.Checkpoint != nil && keeps(e) {
			oldest = min(oldest, e.Slot)
		}
	}
	var kept []Cut
	for id, parent := range cuts(entries) {
		if parent.Slot >= oldest {
			kept = append(kept, Cut{id, parent})
		}
	}
	slices.SortFunc(kept, func(a, b Cut) int { return int(a.ID.Slot - b.ID.Slot) })
	return kept
}

// Removal is the retire entry for checkpoints that somebody wants to be rid of, by
// their slots. It is decided from the log alone, whose newest incarnation isn't at
// work, so it refuses whatever a ledger may name: the newest checkpoint and, unless
// the log says that every ledger has come to that one, its parent.
// Nothing else needs a checkpoint: each names all files that it needs.
func Removal(entries []Entry, slots []int64) (Retire, error) {
	standing := Standing(entries)
	incarnation, uuid := int64(0), ""
	var newest Entry
	for _, e := range standing {
		switch {
		case e.Start != nil:
			incarnation, uuid = e.Slot, e.Start.UUID
		case e.Checkpoint != nil && e.Checkpoint.UUID == uuid:
			newest = e
		}
	}
	if newest.Checkpoint != nil && newest.Checkpoint.UUID != uuid {
		newest = Entry{} // of a life that was given up
	}
	r := Retire{Incarnation: incarnation}
	needed, freed := map[string]bool{}, map[string]bool{}
	var errs []error
	for _, e := range standing {
		m := e.Checkpoint
		if m == nil {
			continue
		}
		if !slices.Contains(slots, e.Slot) {
			m.segments(needed)
			m.outputs(needed)
			continue
		}
		if why := namable(standing, newest, e); why != "" {
			errs = append(errs, fmt.Errorf("checkpoint %d can't be removed: %s", e.Slot, why))
		}
		r.Slots = append(r.Slots, e.Slot)
		if !m.Parent.IsZero() {
			r.Cut = append(r.Cut, Cut{e.ID, m.Parent})
		}
		m.segments(freed)
		m.outputs(freed)
	}
	maps.DeleteFunc(freed, func(name string, _ bool) bool { return needed[name] })
	r.Blobs = slices.Sorted(maps.Keys(freed))
	return r, errors.Join(errs...)
}

// namable says why a ledger may name a checkpoint; empty: none can.
func namable(entries []Entry, newest, e Entry) string {
	if newest.Checkpoint == nil {
		return ""
	}
	settled := Settled(entries, newest.ID)
	switch {
	case e.ID == newest.ID && settled:
		return "the sinks' ledgers name it, and the job goes on from it"
	case e.ID == newest.ID:
		return "it is the newest one, which the sinks' ledgers name unless they name the one before it; the job goes on from one of the two"
	case e.ID == newest.Checkpoint.Parent && !settled:
		return fmt.Sprintf("the sinks' ledgers may name it, and not yet %d, the newest one, whose parent it is", newest.Slot)
	}
	return ""
}

// WrittenFor reports whether a segment's name is one that was given when the
// checkpoint was made.
func WrittenFor(name string, m *Manifest) bool {
	return strings.HasPrefix(name, fmt.Sprintf("%s%d-%d-", SegmentPrefix, m.Incarnation, m.Epoch))
}
