package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
)

// chainFacts is a store with a start in slot 1, checkpoints of epochs 0 to 3 in
// slots 2 to 5, a crash, and an undecided checkpoint of epoch 3 again, in slot
// 7 behind the start in slot 6, whose parent is epoch 2.
func chainFacts() facts {
	f := facts{store: "state", job: "test", life: life{uuid: "u"}}
	f.changed = func(*log.Entry) (changes, error) { return changes{}, nil }
	incarnation := int64(0)
	add := func(slot, epoch, parent int64) {
		m := &log.Manifest{Job: "test", UUID: "u", Epoch: epoch, Incarnation: incarnation}
		if parent > 0 {
			m.Parent = at(parent)
		}
		f.life.entries = append(f.life.entries, log.Entry{Slot: slot, ID: at(slot), Checkpoint: m})
	}
	start := func(slot int64) {
		incarnation = slot
		f.life.entries = append(f.life.entries, log.Entry{Slot: slot, ID: at(slot), Start: &log.Start{Job: "test", UUID: "u", Decider: storeDecides}})
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

// with adds a participant with one sink for each ledger: a slot, or none. It has
// been in the job from the first start on.
func (f facts) with(name, kind string, ledgers ...int64) facts {
	return f.since(1, name, kind, ledgers...)
}

// since is with for a participant that the starts from a slot on have.
func (f facts) since(slot int64, name, kind string, ledgers ...int64) facts {
	p := party{Sinks: Sinks{Name: name, Kind: kind}, ledgers: map[string]Ledger{}}
	for i, slot := range ledgers {
		id := fmt.Sprintf("%s-%d", name, i)
		p.IDs = append(p.IDs, id)
		if slot != none {
			p.ledgers[id] = Ledger{Found: true, ID: at(slot)}
		}
	}
	f.parties = append(slices.Clone(f.parties), p)
	return f.had(slot, 99, p.Name, kind, p.IDs...)
}

// had adds sinks to what the starts from a slot to another one have. The first
// that commits in transactions decides.
func (f facts) had(from, to int64, name, kind string, ids ...string) facts {
	f.life.entries = slices.Clone(f.life.entries)
	for i, e := range f.life.entries {
		if e.Start == nil || e.Slot < from || e.Slot > to {
			continue
		}
		s := *e.Start
		for _, id := range ids {
			s.Graph.Nodes = append(slices.Clip(s.Graph.Nodes), plan.Node{Op: plan.Sink, ID: id, Sink: &plan.SinkNode{Kind: kind, Participant: name}})
		}
		s.Decider = s.Graph.Decider()
		f.life.entries[i].Start = &s
	}
	return f
}

// but has what was declared compared with the job as it is now.
func (f facts) but(c changes) facts {
	f.changed = func(*log.Entry) (changes, error) { return c, nil }
	return f
}

// settled adds a retire entry that says so of the checkpoint in a slot.
func (f facts) settled(slot int64) facts {
	f.life.entries = append(slices.Clone(f.life.entries), log.Entry{Slot: 50, Retire: &log.Retire{Settled: at(slot)}})
	return f
}

// ledger has a participant hold another one's ledger too.
func (f facts) ledger(name, sink string, slot int64) facts {
	f.parties = slices.Clone(f.parties)
	p := f.party(name)
	p.ledgers = maps.Clone(p.ledgers)
	p.ledgers[sink] = Ledger{Found: true, ID: at(slot)}
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
	adopts string   // PARTICIPANT@SLOT SINK<OLD ...
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
	for _, tt := range slices.Concat(storeDecided(all), participantDecided(all), severalDecided(all), sinksChanged(all), sinksGivenUp(all), deciderChanged(all)) {
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
			if got := adoptions(v.adopt); got != tt.adopts {
				t.Errorf("ledgers to be made: %q, want %q", got, tt.adopts)
			}
		})
	}
}

// severalDecided is the table of crashes with two databases besides the store,
// of which d decides.
func severalDecided(all facts) []resolved {
	d := func(f facts, slot int64) facts { return f.with("d", transactional, slot) }
	return []resolved{
		{name: "two: before or during prepare", facts: d(all.cut(4), 4).with("e", transactional, 4, 4), slot: 4},
		{name: "two: after the entry, before the decision", facts: d(all.cut(5), 4).with("e", transactional, 4, 4), slot: 4},
		{name: "two: after the decision, before the follower", facts: d(all.cut(5), 5).with("e", transactional, 4, 4), slot: 5, behind: []string{"e"}},
		{name: "two: after both", facts: d(all, 5).with("e", transactional, 5), slot: 5},
		{name: "two: the first of two followers", facts: d(all.cut(5), 5).with("e", transactional, 5).with("f", following, 4), slot: 5, behind: []string{"f"}},
		{name: "two: a follower's ledgers differ", facts: d(all.cut(5), 5).with("e", transactional, 5, 4), says: []string{"e-0", "e-1", "by hand"}},
		{name: "two: a follower ahead", facts: d(all.cut(5), 4).with("e", transactional, 5), says: []string{"e-0", "another time"}},
		{name: "two: a follower of another store", facts: d(all.cut(5), 5).with("e", transactional, 9), says: []string{at(9).String(), "another store"}},
		{name: "two: a follower was replaced", facts: d(all.cut(5), 5).with("e", transactional, none), says: []string{"e-0", "replaced", "--start-over"}},
		{name: "two: genesis before the follower", facts: d(all.cut(2), 2).with("e", transactional, 0), slot: 2, behind: []string{"e"}},
		{name: "two: genesis undecided", facts: d(all.cut(2), 0).with("e", transactional, 0), slot: 0},
	}
}

func sinksChanged(all facts) []resolved {
	added := changes{newSinks: []string{"n-0"}}
	renamed := changes{renamed: map[string]string{"e-0": "was"}}
	late := func(f facts) facts { return f.had(1, 99, "e", transactional, "was") }
	return []resolved{
		{name: "added, alone", facts: all.with("d", transactional, 5).since(98, "n", transactional, none).but(added), slot: 5, adopts: "n@5 n-0"},
		{name: "added, made before a crash", facts: all.with("d", transactional, 5).since(98, "n", transactional, 5).but(added), slot: 5, adopts: "n@5 n-0"},
		{name: "added, with an old ledger", facts: all.with("d", transactional, 5).since(98, "n", transactional, 3).but(added), says: []string{"n-0", "earlier time", "another id"}},
		{name: "added to one that is behind", facts: all.cut(5).with("d", transactional, 5).with("e", transactional, 4).also("e", "n-0", none).but(added), slot: 5, behind: []string{"e"}, adopts: "e@4 n-0"},
		{name: "added to one that isn't", facts: all.cut(5).with("d", transactional, 5).with("e", "idempotent", 5).also("e", "n-0", none).but(added), slot: 5, adopts: "e@5 n-0"},
		{name: "added where genesis isn't decided", facts: all.cut(2).with("d", transactional, 0).since(98, "n", "idempotent", none).but(added), adopts: "n@0 n-0"},
		{name: "added, at least once", facts: all.with("d", transactional, 5).since(98, "n", atLeastOnce, none).but(added), slot: 5},
		{name: "not added, but missing", facts: all.with("d", transactional, 5).since(98, "n", transactional, none), says: []string{"n-0", "no ledger"}},

		{name: "renamed", facts: late(all.with("d", transactional, 5).since(98, "e", transactional, none)).ledger("e", "was", 5).but(renamed), slot: 5, adopts: "e@5 e-0<was"},
		{name: "renamed, moved before a crash", facts: late(all.with("d", transactional, 5).since(98, "e", transactional, 5)).but(renamed), slot: 5, adopts: "e@5 e-0<was"},
		{name: "renamed, neither there", facts: late(all.with("d", transactional, 5).since(98, "e", transactional, none)).but(renamed), says: []string{"e-0", "no ledger"}},
		{name: "renamed, both there", facts: late(all.with("d", transactional, 5).since(98, "e", transactional, 3)).ledger("e", "was", 5).but(renamed), says: []string{"e-0", "was", "both"}},
		{name: "renamed, behind", facts: late(all.cut(5).with("d", transactional, 5).since(98, "e", transactional, none)).ledger("e", "was", 4).but(renamed), says: []string{"renamed", "as it was"}},
		{name: "renamed, behind, with nothing kept", facts: all.cut(5).with("d", transactional, 5).since(98, "e", "idempotent", none).had(1, 99, "e", "idempotent", "was").ledger("e", "was", 4).but(renamed),
			slot: 5, behind: []string{"e"}, adopts: "e@4 e-0<was"},
		{name: "of another kind", facts: all.cut(5).since(98, "e#eager", "idempotent", 5).had(1, 99, "e", transactional, "e#eager-0").but(changes{resited: []string{"e#eager-0"}}), slot: 5},
		{name: "of another kind, another one decides", facts: all.cut(5).with("d", transactional, 5).since(98, "e#eager", "idempotent", 5).had(1, 99, "e", transactional, "e#eager-0").but(changes{resited: []string{"e#eager-0"}}), slot: 5},
		{name: "of another kind, behind", facts: all.cut(5).with("d", transactional, 5).since(98, "e#eager", "idempotent", 4).had(1, 99, "e", transactional, "e#eager-0").but(changes{resited: []string{"e#eager-0"}}), says: []string{"e#eager", "another way", "as it was"}},
		{name: "moved, and not there", facts: all.since(98, "f", transactional, none).had(1, 99, "e", transactional, "f-0").but(changes{resited: []string{"f-0"}}), says: []string{"f-0", "no ledger in f"}},
		{name: "the decider renamed", facts: late(all.cut(5).since(98, "e", transactional, none)).ledger("e", "was", 4).but(renamed), slot: 4, adopts: "e@4 e-0<was"},
	}
}

func sinksGivenUp(all facts) []resolved {
	gone := changes{oldSinks: []string{"g"}}
	d := all.with("d", transactional, 5)
	return []resolved{
		{name: "given up, its participant says so", facts: d.had(1, 99, "d", transactional, "g").ledger("d", "g", 5).but(gone), slot: 5},
		{name: "given up, its participant says otherwise", facts: d.with("e", "idempotent", 5).had(1, 99, "e", "idempotent", "g").ledger("e", "g", 4).settled(5).but(gone), says: []string{"sink g", at(4).String(), "as it was"}},
		{name: "given up, its participant has lost it", facts: d.had(1, 99, "d", transactional, "g").but(gone), says: []string{"sink g", "only d can say", "as it was"}},
		{name: "given up and lost, the log says so", facts: d.had(1, 99, "d", transactional, "g").settled(5).but(gone), slot: 5},
		{name: "given up and not connected", facts: d.had(1, 99, "x", transactional, "g").but(gone), says: []string{"sink g", "only x can say", "as it was"}},
		{name: "given up and not connected, the log says so", facts: d.had(1, 99, "x", "idempotent", "g").settled(5).but(gone), slot: 5},
		{name: "given up and not connected, the log says it of another", facts: d.had(1, 99, "x", following, "g").settled(4).but(gone), says: []string{"sink g", "state"}},
		{name: "given up, at least once", facts: d.had(1, 99, "x", atLeastOnce, "g").but(gone), slot: 5},
		{name: "only starts without a checkpoint had it", facts: d.had(98, 99, "x", transactional, "g").but(gone), slot: 5},
	}
}

func deciderChanged(all facts) []resolved {
	first := changes{newSinks: []string{"n-0"}}
	gone := changes{oldSinks: []string{"g"}, newSinks: []string{"n-0"}}
	follows := func(f facts) facts { return f.had(6, 99, "n", transactional, "n-0").with("d", transactional, 4) }
	return []resolved{
		{name: "decider: one added before it", facts: all.cut(5).since(98, "n", transactional, none).with("d", transactional, 5).but(first), slot: 5, adopts: "n@5 n-0"},
		{name: "decider: one added, the old one hasn't decided", facts: all.cut(5).since(98, "n", transactional, none).with("d", transactional, 4).but(first), slot: 4, adopts: "n@4 n-0"},
		{name: "decider: the new one has entered, and hasn't decided", facts: follows(all.connected("n", transactional, "n-0", 4)).but(first), slot: 4, adopts: "n@4 n-0"},
		{name: "decider: the new one has decided", facts: follows(all.connected("n", transactional, "n-0", 7)), slot: 7, behind: []string{"d"}},
		{name: "decider: from the store to a sink", facts: all.cut(5).with("e", "idempotent", 5).since(98, "n", transactional, none).but(first), slot: 5, adopts: "n@5 n-0"},
		{name: "decider: follower becomes it, and is behind", facts: all.cut(5).connected("n", transactional, "n-0", 4).with("d", transactional, 5).had(1, 99, "n", transactional, "n-0"), slot: 5, behind: []string{"n"}},
		{name: "decider: gone, the log says nothing", facts: all.cut(5).had(1, 99, "x", transactional, "g").since(98, "n", transactional, none).but(gone), says: []string{"only x can say", "which decided the epochs", "epoch 3", "as it was"}},
		{name: "decider: gone, the log says that the newest is settled", facts: all.cut(5).had(1, 99, "x", transactional, "g").since(98, "n", transactional, none).settled(5).but(gone), slot: 5, adopts: "n@5 n-0"},
		{name: "decider: gone, the log says that an older one is settled", facts: all.cut(5).had(1, 99, "x", transactional, "g").since(98, "n", transactional, none).settled(4).but(gone), says: []string{"only x can say"}},
		{name: "decider: gone, only the store is left", facts: all.cut(5).had(1, 99, "x", transactional, "g").with("e", "idempotent", 5).settled(5).but(changes{oldSinks: []string{"g"}}), slot: 5},
	}
}

// connected adds a participant that no start has yet.
func (f facts) connected(name, kind, id string, slot int64) facts {
	f.parties = append(slices.Clone(f.parties), party{Sinks: Sinks{Name: name, Kind: kind, IDs: []string{id}}, ledgers: map[string]Ledger{id: {Found: true, ID: at(slot)}}})
	return f
}

// also adds a sink to a participant, now.
func (f facts) also(name, id string, slot int64) facts {
	f.parties = slices.Clone(f.parties)
	p := f.party(name)
	p.IDs = append(slices.Clip(p.IDs), id)
	if slot != none {
		return f.ledger(name, id, slot)
	}
	return f
}

func adoptions(all map[string]adoption) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, fmt.Sprintf("%s@%d", name, all[name].at.Slot))
		for _, s := range all[name].sinks {
			if s.Was != "" {
				s.Sink += "<" + s.Was
			}
			out = append(out, s.Sink)
		}
	}
	return strings.Join(out, " ")
}

func TestLifeOf(t *testing.T) {
	start := func(slot int64, uuid string) log.Entry {
		return log.Entry{Slot: slot, ID: at(slot), Start: &log.Start{UUID: uuid}}
	}
	check := func(slot int64) log.Entry { return log.Entry{Slot: slot, ID: at(slot), Checkpoint: &log.Manifest{}} }
	l := lifeOf([]log.Entry{start(1, "a"), check(2), start(3, "a"), check(4), start(5, "b"), start(6, "c"), check(7),
		{Slot: 8, Retire: &log.Retire{}}, start(9, "c")})
	if l.uuid != "c" || !slices.Equal(l.older, []string{"a", "b"}) || len(l.entries) != 4 {
		t.Errorf("life %q after %q with %d entries, want c after a and b with 4", l.uuid, l.older, len(l.entries))
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
