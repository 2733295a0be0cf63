package log

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRemoval(t *testing.T) {
	// 3 was never committed; 2, 5, 6, 7 and 8 are one chain.
	entries := []Entry{started(1), point(2, 1, 0, "a"), point(3, 1, 2, "a", "x"), started(4), point(5, 4, 2, "a", "b"),
		point(6, 4, 5, "a", "b", "c"), point(7, 4, 6, "c", "d"), point(8, 4, 7, "c", "d", "e")}
	settled := append(entries, retires(9, Retire{Incarnation: 4, Settled: at(8)}))
	other := func(e Entry) Entry { s := *e.Start; s.UUID = "another life"; e.Start = &s; return e }
	cases := []struct {
		name    string
		entries []Entry
		slots   []int64
		want    Retire
		says    string // of the error; empty: there is none
	}{
		{"the oldest", entries, []int64{2}, Retire{Incarnation: 4, Slots: []int64{2}}, ""},
		{"in between", entries, []int64{6}, Retire{Incarnation: 4, Slots: []int64{6}, Cut: []Cut{{at(6), at(5)}}}, ""},
		{"two of one file", entries, []int64{6, 5}, Retire{Incarnation: 4, Slots: []int64{5, 6}, Blobs: []string{"b"},
			Cut: []Cut{{at(5), at(2)}, {at(6), at(5)}}}, ""},
		{"abandoned", entries, []int64{3}, Retire{Incarnation: 4, Slots: []int64{3}, Blobs: []string{"x"}, Cut: []Cut{{at(3), at(2)}}}, ""},
		{"the newest", entries, []int64{8}, Retire{}, "8 can't be removed"},
		{"its parent", entries, []int64{7}, Retire{}, "7 can't be removed"},
		{"both and another", entries, []int64{2, 7, 8}, Retire{}, "8 can't be removed"},
		{"the newest, settled", settled, []int64{8}, Retire{}, "8 can't be removed"},
		{"its parent, settled", settled, []int64{7}, Retire{Incarnation: 4, Slots: []int64{7}, Cut: []Cut{{at(7), at(6)}}}, ""},
		{"settled at another one", append(entries, retires(9, Retire{Incarnation: 4, Settled: at(7)})), []int64{7}, Retire{}, "7 can't be removed"},
		{"of a life before", append(entries, other(started(9))), []int64{8, 7}, Retire{Incarnation: 9, Slots: []int64{7, 8}, Blobs: []string{"d", "e"},
			Cut: []Cut{{at(7), at(6)}, {at(8), at(7)}}}, ""},
		{"retired already", append(entries, retires(9, Retire{Incarnation: 4, Slots: []int64{2}})), []int64{2}, Retire{Incarnation: 4}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for i, e := range c.entries { // they belong to one life unless the case says otherwise
				if e.Checkpoint != nil {
					m := *e.Checkpoint
					m.UUID = start("n").UUID
					c.entries[i].Checkpoint = &m
				}
			}
			got, err := Removal(c.entries, c.slots)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%+v, %v: want an error that says %q", got, err, c.says)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, diff)
			}
		})
	}
}

// TestChainGoesOnBehindACut removes checkpoints from the middle of a chain, and
// then retires until the entries that tell of it are taken over by others.
func TestChainGoesOnBehindACut(t *testing.T) {
	b := newMem()
	l := mustOpen(t, b)
	mustAppend(t, l, Entry{Start: start("n1")})
	var tip ID
	var chain []ID
	for epoch := range int64(7) {
		tip = mustAppend(t, l, Entry{Checkpoint: manifest(1, epoch, tip)})
		chain = append([]ID{tip}, chain...)
	}
	remove := func(slots ...int64) {
		t.Helper()
		r, err := Removal(l.Entries(), slots)
		must(t, err)
		mustAppend(t, l, Entry{Retire: &r})
		must(t, l.Sweep())
	}
	wants := func(want ...ID) {
		t.Helper()
		for _, again := range []*Log{l, mustOpen(t, b)} {
			if diff := cmp.Diff(want, Chain(again.Entries(), tip)); diff != "" {
				t.Fatalf("the chain: -want +got:\n%s", diff)
			}
		}
	}
	remove(4)
	wants(chain[0], chain[1], chain[2], chain[3], chain[5], chain[6])
	remove(5, 6)
	wants(chain[0], chain[1], chain[5], chain[6])
	mustAppend(t, l, Entry{Start: start("n2")})
	if r := Retirement(l.Entries(), []ID{tip}, 10, l.Next()-1, nil); !r.IsZero() {
		t.Fatalf("a start retires %+v", r)
	}
	r := Retirement(l.Entries(), []ID{tip}, 3, l.Next()-1, nil)
	if diff := cmp.Diff([]Cut{{chain[4], chain[5]}, {chain[3], chain[4]}, {chain[2], chain[3]}}, r.Cut); diff != "" {
		t.Errorf("the cuts that are taken over: -want +got:\n%s", diff)
	}
	mustAppend(t, l, Entry{Retire: &r})
	must(t, l.Sweep())
	wants(chain[0], chain[1], chain[5])
	r = Retirement(l.Entries(), []ID{tip}, 2, r.Incarnation, nil)
	if len(r.Cut) != 0 {
		t.Errorf("cuts below which nothing lies are taken over: %v", r.Cut)
	}
	if _, err := l.Find(chain[3]); err == nil {
		t.Error("a removed checkpoint is found")
	}
}

func TestRetireEntryWithACutThatCantBe(t *testing.T) {
	for _, c := range []Cut{{at(9), at(2)}, {at(3), at(3)}, {at(3), at(4)}, {at(3), ID{}}} {
		e := Entry{Slot: 5, Retire: &Retire{Incarnation: 1, Cut: []Cut{c}}}
		if err := e.check(); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
