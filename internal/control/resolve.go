package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
)

// facts is all that recovery knows once everybody else is fenced.
type facts struct {
	store   string // in words
	job     string
	life    life
	parties []party // as declared now, with the ledgers that were found
	find    func(log.ID) (*log.Manifest, error)
	// changed compares the job with the start under which a checkpoint was made.
	changed func(made *log.Entry) (changes, error)
}

// verdict is the one checkpoint that counts; without one it is genesis.
type verdict struct {
	id     log.ID
	m      *log.Manifest // under today's names
	change changes
	behind []string            // participants to be rolled forward to it
	adopt  map[string]adoption // by participant, before it is rolled forward
}

// adoption is sinks that are to get a ledger at a checkpoint.
type adoption struct {
	at    log.ID
	sinks []Adopted
}

// member is a sink as a start entry has it.
type member struct{ id, party, kind string }

func members(g plan.Graph) []member {
	var ms []member
	for _, n := range g.Nodes {
		if n.Op != plan.Sink || n.Sink == nil {
			continue
		}
		m := member{n.ID, n.Sink.Participant, n.Sink.Kind}
		if m.party == "" {
			m.party = Alone(n.ID)
		}
		ms = append(ms, m)
	}
	return ms
}

// idNow is what is called now what had an id; renamed has the old ids.
func idNow(id string, renamed map[string]string) string {
	for now, old := range renamed {
		if old == id {
			return now
		}
	}
	return id
}

// resolve decides what to restore, or refuses. It is pure.
//
// Whom to ask is what the start says under which the newest checkpoint was
// entered: before it entered anything, every ledger of its sinks named that
// checkpoint's parent. So a decider that has changed since is no danger: while
// the new one has decided nothing, the newest checkpoint is the old one's.
//
//	store        decider          others          verdict
//	empty        zero             zero            genesis
//	epoch 0      zero             zero            genesis, redone
//	epoch >= 1   zero             -               refused: older than the store
//	any          missing          -               refused: replaced
//	any          not connected    -               n if the log says that n is settled, or else refused
//	any          names n          n or parent(n)  n; the latter rolled forward
//	any          names n          anything else   refused
//	any          names n          new, missing    n; its ledger is made there
//	any          names n          new, not n      refused: it has missed some
//	any          names n          given up, n     n
//	any          names n          given up, gone  n if the log says that n is settled, or else refused
//	any          not in the log   -               refused: another store's
//
// Where the store decides, the newest entry before our start is n.
func resolve(f facts) (verdict, error) {
	newest := f.life.newest()
	if newest == nil {
		return f.ledgers(verdict{}, nil)
	}
	made := f.life.start(newest.Checkpoint.Incarnation)
	change, err := f.changed(newest)
	if err != nil {
		return verdict{}, err
	}
	id, err := f.decided(*newest, made, change)
	if err != nil {
		return verdict{}, err
	}
	if id.IsZero() {
		return f.ledgers(verdict{change: change}, made)
	}
	m, err := f.find(id)
	if err != nil {
		return verdict{}, refused("the ledger of %s names a checkpoint that this store doesn't have: %v; sink and state directory don't belong together (one of them was copied, or comes from a backup): bring back the one that is missing, %s",
			made.Decider, err, startOverHint)
	}
	v := verdict{id: id, m: m}
	if v.change, err = f.changed(&log.Entry{ID: id, Checkpoint: m}); err != nil {
		return verdict{}, err
	}
	made = f.life.start(m.Incarnation)
	if v, err = f.ledgers(v, made); err == nil {
		err = f.givenUp(v, made)
	}
	if err != nil {
		return verdict{}, err
	}
	v.m = m.As(v.change.renamed, v.change.dropped).Moved(v.change.moved)
	return v, nil
}

// decided asks the decider that the newest checkpoint was entered under. A zero
// id says that nothing was.
func (f facts) decided(newest log.Entry, made *log.Start, change changes) (log.ID, error) {
	if made.Decider == storeDecides {
		return newest.ID, nil
	}
	var first Ledger
	var of string
	for _, m := range members(made.Graph) {
		p := f.home(m, change)
		if m.party != made.Decider || p == nil {
			continue
		}
		l := p.ledger(idNow(m.id, change.renamed), m.id)
		switch {
		case !l.Found && slices.Contains(change.oldSinks, m.id):
		case !l.Found && slices.Contains(change.resited, idNow(m.id, change.renamed)):
			return log.ID{}, f.elsewhere(idNow(m.id, change.renamed), m.id, p.Name)
		case !l.Found:
			return log.ID{}, f.missing(idNow(m.id, change.renamed), p.Name)
		case of == "":
			first, of = l, m.id
		case l.ID != first.ID:
			return log.ID{}, differ(p.Name, of, first, m.id, l)
		}
	}
	switch {
	case of == "" && f.life.settled(newest.ID):
		return newest.ID, nil
	case of == "":
		return log.ID{}, refused("whether checkpoint %s (epoch %d) was committed only %s can say, which decided the epochs and which the job doesn't have any more, and the log in %s doesn't show it either: %s",
			newest.ID, newest.Checkpoint.Epoch, made.Decider, f.store, onceMoreHint)
	case first.ID.IsZero() && newest.Checkpoint.Epoch > 0:
		return log.ID{}, refused("sink %s has a ledger from before the first checkpoint, but %s holds checkpoints of job %s up to epoch %d: the sink is an older copy; bring the right one back, %s",
			of, f.store, f.job, newest.Checkpoint.Epoch, startOverHint)
	}
	return first.ID, nil
}

// ledgers compares every participant with the checkpoint of v, which was made
// under a start, or with genesis. It adds who is behind and who needs ledgers.
func (f facts) ledgers(v verdict, made *log.Start) (verdict, error) {
	v.adopt = map[string]adoption{}
	for _, p := range f.parties {
		if p.Kind == atLeastOnce {
			continue
		}
		at, adopt, err := f.standing(p, v)
		if err != nil {
			return verdict{}, err
		}
		if len(adopt) > 0 {
			v.adopt[p.Name] = adoption{at, adopt}
		}
		switch {
		case at == v.id:
		case v.m == nil:
			return verdict{}, refused("the ledger of sink %s names checkpoint %s, but job %s has committed none according to %s: they don't belong together; bring the right one back, %s",
				p.sinks(), at, f.job, f.store, startOverHint)
		case at != v.m.Parent:
			return verdict{}, refused("the ledger of sink %s names %s, but %s has committed %s (epoch %d), and it must name that one or its parent, %s: the sink comes from another time or another store; bring the right one back, %s",
				p.sinks(), say(at), made.Decider, v.id, v.m.Epoch, say(v.m.Parent), startOverHint)
		case p.Kind != idempotent && slices.ContainsFunc(adopt, func(a Adopted) bool { return a.Was != "" }):
			// What is kept for the participant knows its sinks by their old names.
			return verdict{}, refused("the job ended before %s could commit epoch %d, and sinks of it have been renamed since: %s",
				p.Name, v.m.Epoch, onceMoreHint)
		case slices.ContainsFunc(p.IDs, func(id string) bool { return slices.Contains(v.change.resited, id) }):
			// What is kept of the epoch is kept for the participant that it was.
			return verdict{}, refused("the job ended before %s could commit epoch %d, and sinks of it commit in another way or at another place since: %s",
				p.sinks(), v.m.Epoch, onceMoreHint)
		}
		if at != v.id {
			v.behind = append(v.behind, p.Name)
		}
	}
	return v, nil
}

// standing returns the one checkpoint that all ledgers of a participant name,
// that of v where it has none yet, and the sinks that it has to be told of.
func (f facts) standing(p party, v verdict) (at log.ID, adopt []Adopted, err error) {
	var first Ledger
	var of string
	for _, sink := range p.IDs {
		if slices.Contains(v.change.newSinks, sink) {
			continue
		}
		l, was := p.ledgers[sink], v.change.renamed[sink]
		if was != "" {
			old := p.ledgers[was]
			if l.Found && old.Found {
				return at, nil, refused("sink %s was called %s, but %s has ledgers of both: %s names %s and %s names %s; choose another id for it",
					sink, was, p.Name, sink, say(l.ID), was, say(old.ID))
			}
			l = p.ledger(sink, was)
			adopt = append(adopt, Adopted{Sink: sink, Was: was})
		}
		switch {
		case !l.Found && slices.Contains(v.change.resited, sink):
			return at, nil, f.elsewhere(sink, cmp.Or(was, sink), p.Name)
		case !l.Found:
			return at, nil, f.missing(sink, p.Name)
		case of == "":
			first, of = l, sink
		case l.ID != first.ID:
			return at, nil, differ(p.Name, of, first, sink, l)
		}
	}
	if at = first.ID; of == "" {
		at = v.id
	}
	for _, sink := range p.IDs {
		if !slices.Contains(v.change.newSinks, sink) {
			continue
		}
		if l := p.ledgers[sink]; l.Found && l.ID != at {
			return at, nil, refused("sink %s is new in the job, but %s has a ledger of that id from an earlier time, which names %s, and the job stands at %s: it would lack what was committed in between; choose another id and another target for it",
				sink, p.Name, say(l.ID), say(at))
		}
		adopt = append(adopt, Adopted{Sink: sink})
	}
	return at, adopt, nil
}

// givenUp checks that sinks which the job no longer declares have all that was
// committed up to the checkpoint of v: what is kept for them goes.
func (f facts) givenUp(v verdict, made *log.Start) error {
	for _, m := range members(made.Graph) {
		if m.kind == atLeastOnce || !slices.Contains(v.change.oldSinks, m.id) {
			continue
		}
		var l Ledger
		if p := f.home(m, v.change); p != nil {
			l = p.ledgers[m.id]
		}
		switch {
		case l.Found && l.ID == v.id, !l.Found && f.life.settled(v.id):
		case l.Found:
			return refused("sink %s is to be given up, but its ledger names %s, and the job has committed %s (epoch %d): %s",
				m.id, say(l.ID), v.id, v.m.Epoch, onceMoreHint)
		default:
			return refused("sink %s is to be given up, but whether it has all of epoch %d only %s can say, which the job doesn't have any more, and the log in %s doesn't show it either: %s",
				m.id, v.m.Epoch, m.party, f.store, onceMoreHint)
		}
	}
	return nil
}

// onceMoreHint is what to do before sinks can be removed or renamed.
const onceMoreHint = "start the job once as it was, let it stop politely, and change it then"

// home is the participant that has, or can be asked for, the ledger of a sink
// that a start had; nil: none of the job's.
func (f facts) home(m member, change changes) *party {
	now := idNow(m.id, change.renamed)
	for i, p := range f.parties {
		if slices.Contains(p.IDs, now) {
			return &f.parties[i]
		}
	}
	return f.party(m.party)
}

func (f facts) party(name string) *party {
	for i := range f.parties {
		if f.parties[i].Name == name {
			return &f.parties[i]
		}
	}
	return nil
}

// ledger returns that of a sink, or the one that it had under its old id.
func (p party) ledger(sink, was string) Ledger {
	if l := p.ledgers[sink]; l.Found {
		return l
	}
	return p.ledgers[was]
}

func (f facts) missing(sink, party string) error {
	held := "has none"
	if e := f.life.newest(); e != nil {
		held = fmt.Sprintf("has checkpoints up to epoch %d", e.Checkpoint.Epoch)
	}
	return refused("sink %s has no ledger in %s, but job %s has one by now and %s %s: the sink was replaced or emptied; bring it back, %s",
		sink, party, f.job, f.store, held, startOverHint)
}

// elsewhere refuses a sink whose ledger isn't where it commits now.
func (f facts) elsewhere(sink, was, party string) error {
	made := f.life.start(f.life.newest().Checkpoint.Incarnation)
	for _, m := range members(made.Graph) {
		if m.id == was {
			return refused("sink %s has no ledger in %s, because it has committed in %s so far; set it back, bring what is there to the new place together with its ledger, or give the sink another id and give up the old one with --drop %s (Drop)",
				sink, party, m.party, was)
		}
	}
	return f.missing(sink, party)
}

func differ(party, a string, of Ledger, b string, other Ledger) error {
	return refused("sinks %s and %s are committed together in %s, but their ledgers name %s and %s: one of them was changed by hand or comes from a backup; bring the right one back, %s",
		a, b, party, say(of.ID), say(other.ID), startOverHint)
}

func (p party) sinks() string { return strings.Join(p.IDs, ", ") }

func say(id log.ID) string {
	if id.IsZero() {
		return "no checkpoint yet"
	}
	return id.String()
}
