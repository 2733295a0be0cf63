package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/control/log"
)

// chainFacts is a store with a start in slot 1, checkpoints of epochs 0 to 3 in
// slots 2 to 5, a crash, and an undecided checkpoint of epoch 3 again, in slot
// 7 behind the start in slot 6, whose parent is epoch 2.
func chainFacts() facts {
	f := facts{store: "state", job: "test", life: life{uuid: "u"}}
	add := func(slot, epoch, parent int64) {
		m := &log.Manifest{Job: "test", UUID: "u", Epoch: epoch, Incarnation: 1}
		if parent > 0 {
			m.Parent = at(parent)
		}
		f.life.entries = append(f.life.entries, log.Entry{Slot: slot, ID: at(slot), Checkpoint: m})
	}
	start := func(slot int64) {
		f.life.entries = append(f.life.entries, log.Entry{Slot: slot, ID: at(slot), Start: &log.Start{Job: "test", UUID: "u"}})
	}
	start(1)
	add(2, 0, 0)
	add(3, 1, 2)
	add(4, 2, 3)
	add(5, 3, 4)
	start(6)
	add(7, 3, 4)
	return f
}

// at is the id of the entry in a slot; the zero id for slot 0.
func at(slot int64) log.ID {
	if slot == 0 {
		return log.ID{}
	}
	return log.ID{Slot: slot, Sum: [32]byte{byte(slot), 0xab}}
}

// cut returns the facts with entries up to a slot only.
func (f facts) cut(slot int64) facts {
	f.life.entries = slices.DeleteFunc(slices.Clone(f.life.entries), func(e log.Entry) bool { return e.Slot > slot })
	return f
}

// with adds a participant with one sink for each ledger: a slot, or none.
func (f facts) with(name, kind string, ledgers ...int64) facts {
	p := party{Sinks: Sinks{Name: name, Kind: kind}, ledgers: map[string]Ledger{}}
	for i, slot := range ledgers {
		id := fmt.Sprintf("%s-%d", name, i)
		p.IDs = append(p.IDs, id)
		if slot != none {
			p.ledgers[id] = Ledger{Found: true, ID: at(slot)}
		}
	}
	f.parties = append(slices.Clone(f.parties), p)
	f.decider = storeDecides
	for _, p := range f.parties {
		if p.Kind == transactional {
			f.decider = p.Name
		}
	}
	return f
}

const none = -1

func (f facts) lookUp(id log.ID) (*log.Manifest, error) {
	for _, e := range f.life.entries {
		if e.ID == id && e.Checkpoint != nil {
			return e.Checkpoint, nil
		}
	}
	return nil, fmt.Errorf("checkpoint %s isn't in %s", id, f.store)
}

// resolved is one row: what was found, and what must follow from it.
type resolved struct {
	name   string
	facts  facts
	slot   int64    // to be restored; 0: genesis
	behind []string // to be rolled forward
	says   []string // of the refusal
}

func storeDecided(all facts) []resolved {
	return []resolved{
		{name: "nothing at all", facts: all.cut(1).with("f", atLeastOnce), slot: 0},
		{name: "store decides by its newest entry", facts: all.with("f", atLeastOnce, none), slot: 7},
		{name: "store decides: genesis is complete with its entry", facts: all.cut(2).with("e", "idempotent", 0), slot: 2, behind: []string{"e"}},
		{name: "store decides: follower at it", facts: all.cut(5).with("e", "idempotent", 5), slot: 5},
		{name: "store decides: follower one behind", facts: all.cut(5).with("e", "idempotent", 4), slot: 5, behind: []string{"e"}},
		{name: "store decides: follower one behind on the parent's side", facts: all.with("e", "idempotent", 4), slot: 7, behind: []string{"e"}},
		{name: "store decides: follower two behind", facts: all.cut(5).with("e", "idempotent", 3), says: []string{"e-0", at(3).String(), at(5).String(), at(4).String()}},
		{name: "store decides: follower on a dead branch", facts: all.with("e", "following", 5), says: []string{"e-0", at(5).String()}},
		{name: "store decides: follower lost its ledger", facts: all.with("e", "idempotent", none), says: []string{"e-0", "no ledger", "state", "epoch 3", "--start-over"}},
		{name: "store decides: follower is from before the first", facts: all.with("e", "idempotent", 0), says: []string{"e-0", "no checkpoint yet"}},
	}
}

func participantDecided(all facts) []resolved {
	foreign := func(f facts, party, sink int, id log.ID) facts {
		p := &f.parties[party]
		p.ledgers[p.IDs[sink]] = Ledger{Found: true, ID: id}
		return f
	}
	return []resolved{
		{name: "before or during prepare: no entry n", facts: all.cut(4).with("d", transactional, 4), slot: 4},
		{name: "after the entry, before the decision", facts: all.cut(5).with("d", transactional, 4), slot: 4},
		{name: "decision sent and made", facts: all.cut(5).with("d", transactional, 5), slot: 5},
		{name: "an undecided entry behind it", facts: all.with("d", transactional, 5), slot: 5},
		{name: "after the decision, before the followers", facts: all.cut(5).with("d", transactional, 5).with("e", "idempotent", 4).with("f", "following", 5), slot: 5, behind: []string{"e"}},
		{name: "a follower ahead of the decider", facts: all.cut(5).with("d", transactional, 4).with("e", "idempotent", 5), says: []string{"e-0", "another time"}},
		{name: "a follower two behind", facts: all.cut(5).with("d", transactional, 5).with("e", "idempotent", 3), says: []string{"e-0"}},
		{name: "follower lost its ledger", facts: all.cut(5).with("d", transactional, 5).with("e", "following", none), says: []string{"e-0", "replaced"}},
		{name: "at least once says nothing", facts: all.cut(5).with("d", transactional, 5).with("g", atLeastOnce, none), slot: 5},

		// Genesis.
		{name: "first start", facts: all.cut(1).with("d", transactional, 0, 0).with("e", "idempotent", 0), slot: 0},
		{name: "genesis was entered and not decided", facts: all.cut(2).with("d", transactional, 0).with("e", "idempotent", 0), slot: 0},
		{name: "genesis was decided and not followed", facts: all.cut(2).with("d", transactional, 2).with("e", "idempotent", 0), slot: 2, behind: []string{"e"}},
		{name: "a ledger couldn't be made", facts: all.cut(1).with("d", transactional, none), says: []string{"d-0", "no ledger"}},
		{name: "a ledger without a store", facts: all.cut(1).with("d", transactional, 4), says: []string{"d-0", at(4).String(), "none"}},
		{name: "decider replaced behind a follower's back", facts: all.cut(2).with("d", transactional, 0).with("e", "idempotent", 2), says: []string{"e-0", at(2).String()}},

		// Sink and store don't belong together.
		{name: "decider is older than the store", facts: all.with("d", transactional, 0), says: []string{"d-0", "epoch 3", "older copy"}},
		{name: "decider lost its ledger", facts: all.with("d", transactional, none), says: []string{"d-0", "no ledger", "state", "--start-over"}},
		{name: "decider lost one ledger", facts: all.with("d", transactional, 5, none), says: []string{"d-1", "no ledger"}},
		{name: "decider's ledgers differ", facts: all.with("d", transactional, 5, 4), says: []string{"d-0", "d-1", at(5).String(), at(4).String()}},
		{name: "decider names a later slot", facts: all.with("d", transactional, 9), says: []string{at(9).String(), "state", "--start-over"}},
		{name: "decider names the same slot of another store", facts: foreign(all.with("d", transactional, 5), 0, 0, log.ID{Slot: 5, Sum: [32]byte{1}}), says: []string{"5-01", "copied"}},
	}
}

// TestResolve goes through the table of what a crash leaves behind, row by row.
func TestResolve(t *testing.T) {
	all := chainFacts()
	for _, tt := range append(storeDecided(all), participantDecided(all)...) {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.facts
			f.find = f.lookUp
			v, err := resolve(f)
			if len(tt.says) > 0 {
				if !errors.Is(err, ErrRefused) {
					t.Fatalf("resolved to %+v (%v), want it refused", v, err)
				}
				for _, w := range tt.says {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("refusal %q doesn't say %q", err, w)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.id != at(tt.slot) || (v.m == nil) != (tt.slot == 0) || !slices.Equal(v.behind, tt.behind) {
				t.Errorf("resolved to %v, rolling %q forward; want slot %d and %q", v.id, v.behind, tt.slot, tt.behind)
			}
		})
	}
}

func TestLifeOf(t *testing.T) {
	start := func(slot int64, uuid string) log.Entry {
		return log.Entry{Slot: slot, ID: at(slot), Start: &log.Start{UUID: uuid}}
	}
	check := func(slot int64) log.Entry { return log.Entry{Slot: slot, ID: at(slot), Checkpoint: &log.Manifest{}} }
	l := lifeOf([]log.Entry{start(1, "a"), check(2), start(3, "a"), check(4), start(5, "b"), start(6, "c"), check(7),
		{Slot: 8, Retire: &log.Retire{}}, start(9, "c")})
	if l.uuid != "c" || !slices.Equal(l.older, []string{"a", "b"}) || len(l.entries) != 3 {
		t.Errorf("life %q after %q with %d entries, want c after a and b with 3", l.uuid, l.older, len(l.entries))
	}
	if n := l.newest(); n == nil || n.Slot != 7 {
		t.Errorf("newest checkpoint %v, want that in slot 7", n)
	}
	if l.start(6) == nil || l.start(1) != nil || l.start(7) != nil {
		t.Error("starts 6, 1 and 7: want only 6 to be one of this life")
	}
	if l := lifeOf([]log.Entry{start(1, "a"), check(2), start(3, "b")}); l.newest() != nil {
		t.Error("a new life has no checkpoint of an older one")
	}
}
