package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/plan"
)

// claimTries is how often the log is read again when its next slot was taken
// by something else than a start.
const claimTries = 10

// life is what the log holds of one uuid: of the job since it began, or since
// it was started over.
type life struct {
	uuid    string
	older   []string    // uuids of earlier lives
	entries []log.Entry // of which none is retired
}

// lifeOf returns the newest life in the log.
func lifeOf(entries []log.Entry) life {
	var l life
	for _, e := range log.Standing(entries) {
		if e.Start != nil && e.Start.UUID != l.uuid {
			if l.uuid != "" {
				l.older = append(l.older, l.uuid)
			}
			l.uuid, l.entries = e.Start.UUID, nil
		}
		l.entries = append(l.entries, e)
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

// settled reports whether the log shows that all ledgers of the sinks under whose
// start a checkpoint was made name it.
func (l life) settled(id log.ID) bool { return log.Settled(l.entries, id) }

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
				p.Press(func() { j.inbox.Wants(false) })
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
		j.nonces[start.Nonce] = true
		id, err := j.log.Append(log.Entry{Start: start})
		if err == nil {
			j.me = Fence{Job: start.Job, UUID: start.UUID, Incarnation: id.Slot, Nonce: start.Nonce, Create: j.life.newest() == nil}
			j.me.StartOver = j.me.Create && (j.StartOver || len(j.life.older) > 0)
			j.committer.incarnation, j.committer.nonce, j.mine = id.Slot, start.Nonce, id.Slot
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
	if err := j.follow(); err != nil {
		return err
	}
	if err := j.fence(); err != nil {
		return err
	}
	f := facts{store: j.where, job: j.Graph.Job, life: j.life, find: j.log.Find, changed: j.changed}
	for _, p := range j.committer.parties {
		f.parties = append(f.parties, *p)
	}
	v, err := resolve(f)
	if err != nil {
		return err
	}
	// The newest entry, which was compared before the claim, needn't be this one.
	j.change, j.verdict = v.change, v
	return j.adopt(v.adopt)
}

// follow tells the participants that don't decide.
func (j *job) follow() error {
	for _, p := range j.committer.parties {
		if p.Kind == transactional && p.Name != j.committer.decider && !p.Follow() {
			return refused("sink %s commits in transactions of its own, and can't follow %s, which decides the epochs; make one of them idempotent, or give each a job of its own",
				p.sinks(), j.committer.decider)
		}
	}
	return nil
}

// adopt gives sinks that are new or renamed their ledgers, before anything else
// is committed there.
func (j *job) adopt(adopt map[string]adoption) error {
	for _, p := range j.committer.parties {
		a, ok := adopt[p.Name]
		if !ok {
			continue
		}
		for _, s := range a.sinks {
			j.Log.Info("a sink gets its ledger", "sink", s.Sink, "was", s.Was, "participant", p.Name, "checkpoint", a.at.String())
		}
		err := j.committer.patiently("make ledgers in "+p.Name, func(ctx context.Context) error { return p.Adopt(ctx, a.at, a.sinks) })
		if err != nil {
			return err
		}
	}
	return nil
}

// sourcesOf lists, under today's ids, the sources of the job that made a checkpoint.
func (j *job) sourcesOf(m *log.Manifest) (ids []string) {
	if m == nil {
		return nil
	}
	if made := j.life.start(m.Incarnation); made != nil {
		for _, n := range made.Graph.Nodes {
			if n.Op == plan.Source {
				ids = append(ids, idNow(n.ID, j.verdict.change.renamed))
			}
		}
	}
	return ids
}

// settle rolls the participants forward that are behind, once their sinks are
// open. From then on every ledger names the checkpoint that is restored.
func (j *job) settle() error {
	v := j.verdict
	if v.m == nil {
		return nil
	}
	for _, p := range j.committer.parties {
		if !slices.Contains(v.behind, p.Name) {
			continue
		}
		j.Log.Info("rolling forward", "participant", p.Name, "checkpoint", v.id.String(), "epoch", v.m.Epoch)
		if err := j.committer.commit(p, v.id, v.m, staged{}); err != nil {
			return fmt.Errorf("roll forward: %w", err)
		}
	}
	j.last = committed{v.id, v.m}
	if j.keeps {
		return nil
	}
	return j.committer.retire(v.id, true, v.m.Finished)
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
	former := j.former(f.UUID)
	for _, p := range j.committer.parties {
		f.Former = former[p.Name]
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

// former lists, by participant, the sinks that it had in a start of a life and
// that the job no longer has. A ledger is fenced once: by the participant that
// had the sink last.
func (j *job) former(uuid string) map[string][]string {
	last := map[string]string{}
	for _, e := range j.log.Entries() {
		if e.Start == nil || e.Start.UUID != uuid {
			continue
		}
		for _, m := range members(e.Start.Graph) {
			if m.kind != atLeastOnce {
				last[m.id] = m.party
			}
		}
	}
	of := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(last)) {
		if slices.ContainsFunc(j.Sinks, func(s Sinks) bool { return slices.Contains(s.IDs, id) }) {
			continue
		}
		party := last[id]
		if party == Alone(id) {
			party = Alone(idNow(id, j.Renamed))
		}
		of[party] = append(of[party], id)
	}
	return of
}
