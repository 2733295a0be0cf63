package weir

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/control/store"
)

// ErrUnknown reports that a checkpoint, a step or a key was asked for that isn't
// there.
var ErrUnknown = store.ErrUnknown

// StoredCheckpoint is one checkpoint in a state directory.
type StoredCheckpoint struct {
	ID          CheckpointID // its slot is the number that people use
	Parent      CheckpointID // the one that was committed before it
	Epoch       int64
	Incarnation int64
	At          time.Time
	Finished    bool // the bounded input was read to its end
	// Standing is "committed", "undecided" (the newest one: only a sink's ledger
	// can tell), "abandoned" (never committed), or "given up" (of a life of the
	// job before it was started over).
	Standing  string
	Content   CheckpointID // after a rollback: the checkpoint whose content it has
	New       int64        // bytes that were written for it
	Total     int64        // bytes of all files that it needs
	Keys      int64        // entries of state
	Records   int64        // read up to it
	Positions []Position
	Steps     []string // that it holds state of
}

// ReadCheckpoints lists the checkpoints in a state directory, oldest first. It
// takes no lock and makes nothing: the job may be running, and may have retired
// some of them by the time that they are looked at.
func ReadCheckpoints(ctx context.Context, dir string) (_ []StoredCheckpoint, err error) {
	s, err := store.Open(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var all []StoredCheckpoint
	for _, c := range s.Checkpoints() {
		all = append(all, stored(c))
	}
	return all, nil
}

func stored(c store.Checkpoint) StoredCheckpoint {
	out := StoredCheckpoint{ID: CheckpointID(c.ID), Parent: CheckpointID(c.Parent), Epoch: c.Epoch, Incarnation: c.Incarnation, At: c.At,
		Finished: c.Finished, Standing: string(c.Standing), Content: CheckpointID(c.Content), New: c.New, Total: c.Total, Keys: c.Keys}
	out.Positions, out.Records = positions(c.Splits)
	for _, st := range c.Manifest.Steps {
		out.Steps = append(out.Steps, st.ID)
	}
	return out
}

// StateEntry is the state of one key, as JSON.
type StateEntry struct {
	Key, Value jsontext.Value
	Window     time.Time // its start; zero where the step has no windows
}

// ReadState returns what a checkpoint, given by its number, holds of one step:
// what a restore would find. The job's types aren't needed. Memory is bounded by
// the step's largest key group. It may be called while the job runs; if the job
// retires the checkpoint meanwhile, that is the error (ErrUnknown).
func ReadState(ctx context.Context, dir string, checkpoint int64, step string) iter.Seq2[StateEntry, error] {
	return func(yield func(StateEntry, error) bool) {
		s, err := store.Open(ctx, dir, "")
		if err != nil {
			yield(StateEntry{}, err)
			return
		}
		err = readState(s, checkpoint, step, yield)
		if err = errors.Join(err, s.Close()); err != nil && !errors.Is(err, errEnough) {
			yield(StateEntry{}, err)
		}
	}
}

// errEnough ends the reading of state early.
var errEnough = errors.New("enough")

func readState(s *store.Store, checkpoint int64, step string, yield func(StateEntry, error) bool) error {
	c, err := s.Find(checkpoint)
	if err != nil {
		return err
	}
	st, err := s.State(c, step)
	if err != nil {
		return err
	}
	return st.Each(func(e store.Entry) error {
		if !yield(StateEntry(e), nil) {
			return errEnough
		}
		return nil
	})
}

// RemoveCheckpoints removes checkpoints from a state directory by their numbers,
// all or none, and the files that only they need. The job must be stopped
// (ErrLocked). What a sink's ledger may name is refused (ErrRefused): the newest
// checkpoint and, unless the log says that every ledger has come to that one, the
// one before it.
func RemoveCheckpoints(ctx context.Context, dir string, numbers ...int64) error {
	_, err := store.Remove(ctx, dir, "", numbers)
	return err
}

// Rollback says to which checkpoint a job is to go back.
type Rollback struct {
	To int64 // its number: the slot of its id
	// AllowDuplicates allows it although there are sinks that only append: what
	// they hold of the records that are read again will be in them twice.
	AllowDuplicates bool
}

// Rollback makes an older checkpoint the one from which the job goes on, and
// returns the new checkpoint that has its content. It is a start of the job that
// reads no record: it fences every earlier one, and needs StateDir. What the sinks
// hold stays there, and is written again as the input is read again; a row that
// isn't computed again keeps its value. Every earlier checkpoint stays, too.
//
// It refuses (ErrRefused) a checkpoint that was never committed, one that has read
// further than the sinks hold, and sinks that only append.
func (j *Job) Rollback(ctx context.Context, to Rollback, opts ...RunOption) (CheckpointID, error) {
	ctx = j.withJob(ctx)
	conf, err := j.rollbackConfig(opts)
	if err != nil {
		return CheckpointID{}, err
	}
	done, err := control.RollBack(ctx, control.Config{
		Graph: j.graph, StateDir: conf.stateDir, Takeover: conf.takeover, Renamed: j.renamed(), Drop: conf.drop, Sinks: j.participants(),
		Build: func(ctx context.Context, connected []control.Participant) (control.Flow, error) {
			run, err := j.lower(ctx, conf, connected)
			if err != nil {
				return nil, err
			}
			return run, nil
		},
		Log: conf.log,
		Observe: func(e control.Event) {
			if e.Waiting != nil {
				for _, f := range conf.onWait {
					f(e.Waiting.For)
				}
			}
		},
	}, control.Rollback{Slot: to.To, Duplicates: to.AllowDuplicates})
	if err != nil {
		return CheckpointID{}, fmt.Errorf("job %s: %w", j.Name(), err)
	}
	return CheckpointID(done.ID), nil
}

func (j *Job) rollbackConfig(opts []RunOption) (runConfig, error) {
	conf := defaultRun()
	for _, o := range opts {
		o.run(&conf)
	}
	if err := j.check(conf); err != nil {
		return conf, err
	}
	if conf.stateDir == "" {
		return conf, fmt.Errorf("job %s: %w: a rollback needs a state directory (StateDir, --state)", j.Name(), ErrDeclaration)
	}
	return conf, nil
}

// RollbackPlan is what a rollback would do, as far as the state directory tells.
type RollbackPlan struct {
	Job             string
	Current, Target StoredCheckpoint
	Sinks           []RollbackSink
}

// RollbackSink is what a rollback means for one sink.
type RollbackSink struct {
	ID, Target string
	Kind       Kind
	Appends    bool
}

// PlanRollback looks at the state directory, asks no sink, and changes nothing.
func (j *Job) PlanRollback(ctx context.Context, to Rollback, opts ...RunOption) (_ RollbackPlan, err error) {
	conf, err := j.rollbackConfig(opts)
	if err != nil {
		return RollbackPlan{}, err
	}
	s, err := store.Open(ctx, conf.stateDir, j.Name())
	if err != nil {
		return RollbackPlan{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	target, err := s.Find(to.To)
	if err != nil {
		return RollbackPlan{}, err
	}
	p := RollbackPlan{Job: j.Name(), Target: stored(target)}
	for _, c := range s.Checkpoints() { // the newest that counts
		if st := c.Standing; st == store.Committed || st == store.Undecided {
			p.Current = stored(c)
		}
	}
	for _, k := range j.sinks {
		p.Sinks = append(p.Sinks, RollbackSink{ID: k.id, Target: k.spec.Target, Kind: k.spec.Kind, Appends: k.spec.Appends})
	}
	return p, nil
}

// String says it in words, a line for each thing.
func (p RollbackPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s goes back from checkpoint %d (epoch %d, %d records read) to the content of checkpoint %d (epoch %d, %d records read)\n",
		p.Job, p.Current.ID.Slot, p.Current.Epoch, p.Current.Records, p.Target.ID.Slot, p.Target.Epoch, p.Target.Records)
	if n := p.Current.Records - p.Target.Records; n > 0 {
		fmt.Fprintf(&b, "the next run reads %d records again\n", n)
	}
	if p.Current.Standing == string(store.Undecided) {
		fmt.Fprintf(&b, "whether checkpoint %d was committed, a sink's ledger will tell; if not, the job stands at %d\n", p.Current.ID.Slot, p.Current.Parent.Slot)
	}
	for _, s := range p.Sinks {
		what := "keeps what it holds; its rows are written again as the input is read again"
		switch {
		case s.Appends:
			what = "keeps what it holds, and gets the rows of the records that are read again a second time"
		case s.Kind == AtLeastOnce:
			what = "gets the records again that it was given since"
		}
		fmt.Fprintf(&b, "sink %s (%s) %s\n", s.ID, s.Target, what)
	}
	return b.String()
}
