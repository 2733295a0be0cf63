package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/control/store"
	"github.com/weirstream/weir/internal/sys"
)

// Level says how bad a Finding is.
type Level string

// The levels, best first.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // it works, and may not for ever, or not as well as it could
	LevelProblem Level = "problem" // the job can't run, or breaks its promise, until it is mended
)

// Finding is one thing that Doctor has looked at.
type Finding struct {
	// Of is the source or the sinks that it was found at, such as "source clicks";
	// empty: the job itself. Doctor sets it.
	Of      string
	Level   Level
	Subject string // what was looked at: "topic clicks", "broker 2"
	Text    string // what was found
	// Fix is what to do about it: a sentence, and below it commands and settings to
	// be taken as they are, each on a line that begins with two spaces.
	Fix string
	// Repairs are what Doctor's caller can do about it now, by calling one of them.
	Repairs []Repair
}

// Repair is one way to mend what was found. Nothing is changed before Do is called,
// and nobody should call it without having shown Text and Evidence to a person, or
// having been told to.
type Repair struct {
	Text string // what will be done
	As   string // tells the ways apart, where there are several: "commit", "abort"
	// Evidence is what proves that it is the right way, a sentence each. Without
	// any, there are other ways as well, and who chooses one answers for it.
	Evidence []string
	// Do does it and returns nil once it was seen to be done. It may be called
	// once.
	Do func(ctx context.Context) error
}

// An Examiner is a Source or a Sink that can say what is wrong with what it reads or
// writes, before the job runs and beside a job that does. Examine changes nothing.
// It looks at everything that it can: what it can't look at is a finding, and an
// error only says that there is nothing that it can tell.
type Examiner interface {
	Examine(ctx context.Context, x Examination) ([]Finding, error)
}

// Examination is what an Examiner is given to judge by.
type Examination struct {
	Job      string
	UUID     string        // of the job's life in its state directory; empty: it hasn't started yet
	Interval time.Duration // between checkpoints; 0: none by time
	Downtime time.Duration // how long the job may stand still and still go on
	// StartOver: what the job has done so far would be given up.
	StartOver bool
	// Source is the id of the source; empty for sinks.
	Source string
	// Sinks are the ids of the sinks of one participant, and Peers the sinks
	// themselves, in the same order. The first is asked, for all.
	Sinks []string
	Peers []Examiner
	// Checkpoints are those of this life of the job, oldest first.
	Checkpoints []StoredCheckpoint
	// Refresh reads UUID and Checkpoints anew: a job that runs meanwhile goes on, so
	// that what seems to contradict them may only be later. nil: there is no state
	// directory, or nothing in it counts.
	Refresh func(ctx context.Context) (uuid string, all []StoredCheckpoint, err error)
	// Positions are where the next start may go on reading the source: at the newest
	// checkpoint and, if only a ledger can tell whether that was committed, at the
	// one before it. They are from the older of these, where there are two.
	Positions []Position
	// Shared lives as long as the call of Doctor: sources and sinks on one cluster
	// look at it once, by keeping what they found under a key of theirs.
	Shared map[any]any
}

// DowntimeBudget sets how long the job may stand still, by a breakdown or over a
// weekend, and still find everything that it hasn't read when it goes on. Doctor
// judges retention by it; a run doesn't. The default is 24 h.
func DowntimeBudget(d time.Duration) RunOption {
	return runOption(func(c *runConfig) { c.downtime = d })
}

// Doctor examines what the job needs in order to run: its state directory, and every
// source and participant that is an [Examiner]. It changes nothing, takes no lock,
// and may be called before the first start and while the job runs. The options are
// Run's. An error says that there was no examination, because the job's declaration
// is wrong or ctx has ended; what is wrong with the world is a Finding.
func (j *Job) Doctor(ctx context.Context, opts ...RunOption) ([]Finding, error) {
	conf := defaultRun()
	for _, o := range opts {
		o.run(&conf)
	}
	if err := j.check(conf); err != nil {
		return nil, err
	}
	ctx = j.withJob(ctx)
	x := Examination{Job: j.Name(), Interval: conf.interval, Downtime: conf.downtime, StartOver: conf.startOver, Shared: map[any]any{}}
	found := j.examineStore(ctx, conf, &x)
	for _, e := range j.examinees(x) {
		of, err := e.by.Examine(ctx, e.x)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("job %s: examine %s: %w", j.Name(), e.of, context.Cause(ctx))
		}
		if err != nil {
			of = append(of, Finding{Level: LevelProblem, Subject: "examination", Text: err.Error()})
		}
		for _, f := range of {
			f.Of = e.of
			found = append(found, f)
		}
	}
	return found, nil
}

// examined is a source that can be examined.
type examined struct {
	source string
	by     Examiner
}

// examinee is one call of Examine.
type examinee struct {
	of string
	by Examiner
	x  Examination
}

// examinees are the calls to be made: one for each source, and one for each
// participant, made to the first of its sinks that takes it.
func (j *Job) examinees(x Examination) (out []examinee) {
	for _, s := range j.examined {
		of := x
		of.Source, of.Positions = s.source, readFrom(x.Checkpoints, s.source)
		out = append(out, examinee{"source " + s.source, s.by, of})
	}
	for _, group := range j.participants() {
		of := x
		for _, id := range group.IDs {
			if s := j.sink(id); s.examiner != nil {
				of.Sinks, of.Peers = append(of.Sinks, id), append(of.Peers, s.examiner)
			}
		}
		if len(of.Peers) == 0 {
			continue
		}
		name := "sink " + of.Sinks[0]
		if len(of.Sinks) > 1 {
			name = "sinks " + strings.Join(of.Sinks, ", ")
		}
		out = append(out, examinee{name, of.Peers[0], of})
	}
	return out
}

// readFrom is where the next start may go on reading a source at the earliest.
func readFrom(all []StoredCheckpoint, source string) []Position {
	if len(all) == 0 {
		return nil
	}
	at := all[len(all)-1]
	if at.Standing == string(store.Undecided) {
		if i := slices.IndexFunc(all, func(c StoredCheckpoint) bool { return c.ID == at.Parent }); i >= 0 {
			at = all[i]
		}
	}
	return slices.DeleteFunc(slices.Clone(at.Positions), func(p Position) bool { return p.Source != source })
}

// examineStore looks at the state directory, and completes x.
func (j *Job) examineStore(ctx context.Context, conf runConfig, x *Examination) []Finding {
	subject := "state directory " + conf.stateDir
	if conf.stateDir == "" {
		return []Finding{{Level: LevelOK, Subject: "state directory", Text: "none is given: checkpoints live in memory, and each start reads the input from its beginning"}}
	}
	wrong := func(err error, fix string) []Finding {
		return []Finding{{Level: LevelProblem, Subject: subject, Text: err.Error(), Fix: fix}}
	}
	look, err := control.Look(ctx, control.Config{Graph: j.graph, StateDir: conf.stateDir, StartOver: conf.startOver, Renamed: j.renamed(), Drop: conf.drop})
	if err != nil {
		return wrong(err, "")
	}
	if look.Refused != nil && look.Manifest == nil { // nothing in it is this job's
		return wrong(look.Refused, "name another state directory (--state, or the option StateDir), or give the job the name back that it had")
	}
	f := Finding{Level: LevelOK, Subject: subject, Text: "no checkpoint yet: the job starts for the first time"}
	if conf.startOver {
		f.Text = "its checkpoints would be given up: the job starts over"
		return []Finding{f}
	}
	refresh := func(ctx context.Context) (string, []StoredCheckpoint, error) {
		return readStore(ctx, conf.stateDir, j.Name())
	}
	if x.UUID, x.Checkpoints, err = refresh(ctx); err != nil {
		return wrong(errors.Join(look.Refused, err), "")
	}
	x.Refresh = refresh
	if look.Refused != nil { // which hides nothing else
		return wrong(look.Refused, "the verb plan tells what of the job has changed")
	}
	if x.UUID != "" {
		f.Text = "no checkpoint yet: the job was started, and has made none"
	}
	if n := len(x.Checkpoints); n > 0 {
		c := x.Checkpoints[n-1]
		age := max(0, sys.From(ctx).Clock.Now().Sub(c.At)).Truncate(time.Second)
		f.Text = fmt.Sprintf("newest checkpoint %d (epoch %d), %v old, %s", c.ID.Slot, c.Epoch, age, c.Standing)
	}
	return []Finding{f}
}

// readStore reads the checkpoints of the job's newest life, oldest first. A folder
// that isn't there holds none.
func readStore(ctx context.Context, dir, job string) (uuid string, all []StoredCheckpoint, err error) {
	s, err := store.Open(ctx, dir, job)
	if errors.Is(err, ErrUnknown) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, e := range s.Log() {
		if e.Start != nil {
			uuid = e.Start.UUID
		}
	}
	for _, c := range s.Checkpoints() {
		if c.UUID == uuid {
			all = append(all, stored(c))
		}
	}
	slices.SortFunc(all, func(a, b StoredCheckpoint) int { return cmp.Compare(a.ID.Slot, b.ID.Slot) })
	return uuid, all, nil
}
