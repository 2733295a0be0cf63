package control

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// TestBehind says for each checkpoint of a log whether a job can go back to it.
func TestBehind(t *testing.T) {
	at := func(slot int64) log.ID {
		if slot == 0 {
			return log.ID{}
		}
		return log.ID{Slot: slot, Sum: [32]byte{byte(slot)}}
	}
	point := func(slot, parent, content int64, records ...int64) log.Entry {
		m := &log.Manifest{Parent: at(parent), Content: at(content)}
		for i, n := range records {
			m.Splits = append(m.Splits, data.SplitState{Source: "in", Split: string(rune('a' + i)), Records: n})
		}
		return log.Entry{Slot: slot, ID: at(slot), Checkpoint: m}
	}
	start := func(slot int64) log.Entry { return log.Entry{Slot: slot, ID: at(slot), Start: &log.Start{}} }
	retire := func(slot int64, r log.Retire) log.Entry { return log.Entry{Slot: slot, ID: at(slot), Retire: &r} }
	// A life with a checkpoint that was never committed (4), and a new split (6).
	life := []log.Entry{start(1), point(2, 0, 0, 0), point(3, 2, 0, 10), point(4, 3, 0, 20), start(5), point(6, 3, 0, 20, 0), point(7, 6, 0, 30, 5)}
	back := append(life, start(8), point(9, 7, 3, 10)) // to 10 records
	again := append(back, point(10, 9, 0, 15, 0))      // and read on from there
	twice := append(again, start(11), point(12, 10, 2, 0))
	for _, c := range []struct {
		name          string
		entries       []log.Entry
		current, slot int64
		says          string // why it can't; empty: it can
	}{
		{"to the one before", life, 7, 6, ""},
		{"to the first", life, 7, 2, ""},
		{"to itself", life, 7, 7, "stands there already"},
		{"to one that isn't there", life, 7, 77, "no such checkpoint"},
		{"to a start", life, 7, 5, "no such checkpoint"},
		{"to one that was never committed", life, 7, 4, "never committed"},
		{"to a newer one", life, 6, 7, "never committed"},
		{"to one that was retired", append(life, retire(8, log.Retire{Slots: []int64{3}})), 7, 3, "no such checkpoint"},
		{"past one that was removed", append(life, retire(8, log.Retire{Slots: []int64{6}, Cut: []log.Cut{{ID: at(6), Parent: at(3)}}})), 7, 3, ""},
		{"forth again, when nothing was read since", back, 9, 7, ""},
		{"between, when nothing was read since", back, 9, 6, ""},
		{"further back", back, 9, 2, ""},
		{"forth, when some was read since", again, 10, 7, "read further in split a of source in than checkpoint 10"},
		{"between, when some was read since", again, 10, 6, "read further"},
		{"to the rollback", again, 10, 9, ""},
		{"to what it went back to", again, 10, 3, ""},
		{"forth after two rollbacks", twice, 12, 7, "read further"},
		{"forth to where the second began", twice, 12, 10, ""},
		{"a split that the sinks know nothing of", append(again, point(11, 10, 0, 40)), 11, 7, "split b"},
		{"a split of which nothing was read", append(again, point(11, 10, 0, 40)), 11, 6, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Behind(c.entries, at(c.current), c.slot)
			switch {
			case c.says == "" && (err != nil || e.Slot != c.slot):
				t.Errorf("slot %d, %v", e.Slot, err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v: want an error that says %q", err, c.says)
			}
		})
	}
}
