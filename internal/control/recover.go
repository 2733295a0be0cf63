package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/control/log"
)

// claimTries is how often the log is read again when its next slot was taken
// by something else than a start.
const claimTries = 10

// life is what the log holds of one uuid: of the job since it began, or since
// it was started over.
type life struct {
	uuid    string
	older   []string    // uuids of earlier lives
	entries []log.Entry // starts and checkpoints
}

// lifeOf returns the newest life in the log.
func lifeOf(entries []log.Entry) life {
	var l life
	for _, e := range entries {
		if e.Start != nil && e.Start.UUID != l.uuid {
			if l.uuid != "" {
				l.older = append(l.older, l.uuid)
			}
			l.uuid, l.entries = e.Start.UUID, nil
		}
		if e.Retire == nil {
			l.entries = append(l.entries, e)
		}
	}
	return l
}

// newest returns the newest checkpoint entry, decided or not; or nil.
func (l life) newest() *log.Entry {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if l.entries[i].Checkpoint != nil {
			return &l.entries[i]
		}
	}
	return nil
}

// start returns the start entry of an incarnation, or nil.
func (l life) start(incarnation int64) *log.Start {
	for _, e := range l.entries {
		if e.Slot == incarnation {
			return e.Start
		}
	}
	return nil
}

func newestStart(entries []log.Entry) *log.Entry {
	for _, e := range slices.Backward(entries) {
		if e.Start != nil {
			return &e
		}
	}
	return nil
}

// connect reaches every participant. The log isn't touched before, so that a
// job that is restarted again and again while a database is away doesn't fill
// it with starts.
func (j *job) connect() error {
	for _, s := range j.Sinks {
		err := j.committer.patiently("connect to "+s.Name, func(ctx context.Context) error {
			p, err := s.Connect(ctx)
			if err == nil {
				j.committer.parties = append(j.committer.parties, &party{Sinks: s, Participant: p})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// claim appends our start entry. From then on no earlier incarnation can append
// anything: its next slot is taken.
func (j *job) claim() error {
	var sinks []string
	for _, s := range j.Sinks {
		sinks = append(sinks, s.IDs...)
	}
	for try := 1; ; try++ {
		start := &log.Start{Job: j.Graph.Job, UUID: j.life.uuid, Nonce: rand.Text(), Graph: j.Graph,
			Decider: j.committer.decider, Sinks: sinks, At: j.env.Clock.Now().UTC()}
		id, err := j.log.Append(log.Entry{Start: start})
		if err == nil {
			j.me = Fence{Job: start.Job, UUID: start.UUID, Incarnation: id.Slot, Nonce: start.Nonce, Create: j.life.newest() == nil}
			j.me.StartOver = j.me.Create && (j.StartOver || len(j.life.older) > 0)
			j.committer.incarnation = id.Slot
			return wrap("append the start entry", j.log.Sweep())
		}
		if !errors.Is(err, log.ErrTaken) || try == claimTries {
			return fmt.Errorf("append the start entry: %w", err)
		}
		if err := j.lostSlot(); err != nil {
			return err
		}
	}
}

// lostSlot reads the log again. An incarnation that goes on committing while we
// take over may have the slot; if it was a start, somebody else takes over, and
// only who holds the lock insists.
func (j *job) lostSlot() error {
	var before int64
	if e := newestStart(j.log.Entries()); e != nil {
		before = e.Slot
	}
	if err := j.log.Reload(); err != nil {
		return fmt.Errorf("read the log again: %w", err)
	}
	if e := newestStart(j.log.Entries()); e != nil && e.Slot > before && j.lock == nil {
		return fmt.Errorf("%w: incarnation %d was started at the same moment", ErrFenced, e.Slot)
	}
	return j.checkStore()
}

// recover fences every participant, and only then asks which checkpoint counts:
// what an earlier incarnation has sent may still be on its way until then.
func (j *job) recover() error {
	if err := j.fence(); err != nil {
		return err
	}
	f := facts{store: j.where, job: j.Graph.Job, life: j.life, decider: j.committer.decider, find: j.log.Find}
	for _, p := range j.committer.parties {
		f.parties = append(f.parties, *p)
	}
	v, err := resolve(f)
	if err != nil {
		return err
	}
	if v.m == nil {
		return nil
	}
	// The newest entry, which was compared before the claim, needn't be this one.
	if err := j.compare(&log.Entry{ID: v.id, Checkpoint: v.m}); err != nil {
		return err
	}
	for _, p := range j.committer.parties {
		if !slices.Contains(v.behind, p.Name) {
			continue
		}
		j.Log.Info("rolling forward", "participant", p.Name, "checkpoint", v.id.String(), "epoch", v.m.Epoch)
		if err := j.committer.commit(p, v.id, v.m); err != nil {
			return fmt.Errorf("roll forward: %w", err)
		}
	}
	j.last = committed{v.id, v.m}
	return j.committer.retire(v.id, true)
}

func (j *job) fence() error {
	if j.me.Create {
		// What lived in this log before must not be able to write either.
		for _, uuid := range j.life.older {
			old := j.me
			old.UUID, old.Create, old.StartOver = uuid, false, false
			err := j.fenceAll(old, func(*party, map[string]Ledger) {})
			if err != nil && !errors.Is(err, ErrFenced) { // fenced by another run: just as well
				return err
			}
		}
	}
	return j.fenceAll(j.me, func(p *party, ledgers map[string]Ledger) { p.ledgers = ledgers })
}

func (j *job) fenceAll(f Fence, found func(*party, map[string]Ledger)) error {
	for _, p := range j.committer.parties {
		err := j.committer.patiently("fence "+p.Name, func(ctx context.Context) error {
			ledgers, err := p.Fence(ctx, f)
			found(p, ledgers)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// facts is all that recovery knows once everybody else is fenced.
type facts struct {
	store   string // in words
	job     string
	life    life
	decider string
	parties []party
	find    func(log.ID) (*log.Manifest, error)
}

// verdict is the one checkpoint that counts; without one it is genesis.
type verdict struct {
	id     log.ID
	m      *log.Manifest
	behind []string // participants to be rolled forward to it
}

// resolve decides what to restore, or refuses. It is pure.
//
//	store        decider          others          verdict
//	empty        zero             zero            genesis
//	epoch 0      zero             zero            genesis, redone
//	epoch >= 1   zero             -               refused: older than the store
//	any          missing          -               refused: replaced
//	any          names n          n or parent(n)  n; the latter rolled forward
//	any          names n          anything else   refused
//	any          not in the log   -               refused: another store's
//
// Where the store decides, the newest entry before our start is n.
func resolve(f facts) (verdict, error) {
	newest := f.life.newest()
	if newest == nil {
		return verdict{}, f.genesis()
	}
	id := newest.ID
	for _, p := range f.parties {
		if p.Name != f.decider {
			continue
		}
		var err error
		if id, err = f.names(p); err != nil {
			return verdict{}, err
		}
		if id.IsZero() && newest.Checkpoint.Epoch > 0 {
			return verdict{}, refused("sink %s has a ledger from before the first checkpoint, but %s holds checkpoints of job %s up to epoch %d: the sink is an older copy; bring the right one back, %s",
				p.sinks(), f.store, f.job, newest.Checkpoint.Epoch, startOverHint)
		}
	}
	if id.IsZero() {
		return verdict{}, f.genesis()
	}
	m, err := f.find(id)
	if err != nil {
		return verdict{}, refused("the ledger of %s names a checkpoint that this store doesn't have: %v; sink and state directory don't belong together (one of them was copied, or comes from a backup): bring back the one that is missing, %s",
			f.decider, err, startOverHint)
	}
	v := verdict{id: id, m: m}
	for _, p := range f.parties {
		if p.Name == f.decider || p.Kind == atLeastOnce {
			continue
		}
		at, err := f.names(p)
		switch {
		case err != nil:
			return verdict{}, err
		case at == id:
		case at == m.Parent:
			v.behind = append(v.behind, p.Name)
		default:
			return verdict{}, refused("the ledger of sink %s names %s, but %s has committed %s (epoch %d), and it must name that one or its parent, %s: the sink comes from another time or another store; bring the right one back, %s",
				p.sinks(), say(at), f.decider, id, m.Epoch, say(m.Parent), startOverHint)
		}
	}
	return v, nil
}

// genesis checks that no sink has seen a checkpoint.
func (f facts) genesis() error {
	for _, p := range f.parties {
		if p.Kind == atLeastOnce {
			continue
		}
		id, err := f.names(p)
		if err != nil {
			return err
		}
		if !id.IsZero() {
			return refused("the ledger of sink %s names checkpoint %s, but job %s has committed none according to %s: they don't belong together; bring the right one back, %s",
				p.sinks(), id, f.job, f.store, startOverHint)
		}
	}
	return nil
}

// names returns the one checkpoint that all ledgers of a participant name.
func (f facts) names(p party) (log.ID, error) {
	var first Ledger
	for i, sink := range p.IDs {
		l := p.ledgers[sink]
		if !l.Found {
			held := "has none"
			if e := f.life.newest(); e != nil {
				held = fmt.Sprintf("has checkpoints up to epoch %d", e.Checkpoint.Epoch)
			}
			return log.ID{}, refused("sink %s has no ledger in %s, but job %s has one by now and %s %s: the sink was replaced or emptied; bring it back, %s",
				sink, p.Name, f.job, f.store, held, startOverHint)
		}
		if i == 0 {
			first = l
		} else if l.ID != first.ID {
			return log.ID{}, refused("sinks %s and %s are committed together in %s, but their ledgers name %s and %s: one of them was changed by hand or comes from a backup; bring the right one back, %s",
				p.IDs[0], sink, p.Name, say(first.ID), say(l.ID), startOverHint)
		}
	}
	return first.ID, nil
}

func (p party) sinks() string { return strings.Join(p.IDs, ", ") }

func say(id log.ID) string {
	if id.IsZero() {
		return "no checkpoint yet"
	}
	return id.String()
}
