package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
)

// Run runs the job until its input ends, ctx is cancelled, or something fails for
// good: what may pass is recovered from in place, see [Restarts].
// The first start reads the input from its beginning; a later one goes on where
// the last committed checkpoint stands, under any parallelism.
//
// Cancelling ctx is a polite stop: one more checkpoint is taken and committed,
// no window is closed, and Run returns nil. It also returns nil when a bounded
// input has been read to its end, and when there is nothing left to do.
func (j *Job) Run(ctx context.Context, opts ...RunOption) error {
	return j.Start(ctx, opts...).Wait()
}

// Start is Run in the background. The caller must call Wait.
func (j *Job) Start(ctx context.Context, opts ...RunOption) *Running {
	conf := defaultRun()
	for _, o := range opts {
		o.run(&conf)
	}
	r := &Running{job: j, handle: control.NewHandle(), done: make(chan struct{}), tally: newTally(conf.stateMemory), tracing: newTracing(ctx, j.Name(), conf.tracer)}
	go func() {
		defer close(r.done)
		r.err = j.execute(ctx, conf, r)
		r.tracing.end(r.err)
	}()
	return r
}

func (j *Job) execute(ctx context.Context, conf runConfig, r *Running) error {
	ctx = j.withJob(ctx)
	if err := j.check(conf); err != nil {
		r.handle.End(err)
		return err
	}
	err := control.Run(ctx, control.Config{
		Graph:     j.graph,
		StateDir:  conf.stateDir,
		Interval:  conf.interval,
		Retain:    conf.retain,
		Takeover:  conf.takeover,
		StartOver: conf.startOver,
		Renamed:   j.renamed(),
		Drop:      conf.drop,
		Restarts:  conf.restarts,
		Limits:    conf.limits,
		Sinks:     j.participants(),
		Build: func(ctx context.Context, connected []control.Participant) (control.Flow, error) {
			run, err := j.lower(ctx, conf, connected)
			if err != nil {
				return nil, err
			}
			r.run.Store(run)
			r.tally.built(run)
			return run, nil
		},
		Notify:  j.committed,
		Log:     conf.log,
		Observe: func(e control.Event) { r.observe(conf, e) },
	}, r.handle)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Name(), err)
	}
	return nil
}

// check returns every error of the declaration and of the options, as one.
func (j *Job) check(conf runConfig) error {
	errs := j.mistakes(conf)
	if len(conf.guessed) > 0 {
		errs = append(errs, fmt.Errorf("%s: only what looks at the job, and runs nothing, can do without", conf.guessed.why()))
	}
	return j.undeclarable(append(errs, j.homeless(conf)...))
}

// homeless returns an error for each sink that needs a state directory, where
// there is none.
func (j *Job) homeless(conf runConfig) (errs []error) {
	for _, s := range j.sinks {
		if conf.stateDir == "" && s.spec.Kind >= Following {
			errs = append(errs, fmt.Errorf("step %s: a transactional sink needs checkpoints that outlive the run: give a state directory (StateDir, --state)", s.id))
		}
	}
	return errs
}

// mistakes returns the errors that the job has wherever it is run, and if it is.
func (j *Job) mistakes(conf runConfig) []error {
	errs := append([]error(nil), j.errs...)
	if len(conf.guessed) == 0 {
		errs = append(errs, j.unfits...)
	}
	errs = append(errs, j.graph.Validate()...)
	errs = append(errs, j.identities(conf.drop)...)
	return append(errs, conf.validate()...)
}

func (j *Job) undeclarable(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("job %s: %w:\n%w", j.Name(), ErrDeclaration, errors.Join(errs...))
}

// Running is a job that runs.
type Running struct {
	job     *Job
	handle  *control.Handle
	run     atomic.Pointer[data.Run]
	last    atomic.Pointer[Checkpoint]
	again   atomic.Pointer[restarts]
	tally   *tally
	tracing *tracing // nil: off
	done    chan struct{}
	err     error
}

// Wait returns when the job has ended, with what Run would return.
func (r *Running) Wait() error {
	<-r.done
	return r.err
}

// Checkpoint takes a checkpoint now and returns when it is committed. If the job
// recovers in place meanwhile, it is the first checkpoint after that.
func (r *Running) Checkpoint(ctx context.Context) (Checkpoint, error) {
	c, err := r.handle.Checkpoint(ctx)
	if err != nil {
		return Checkpoint{}, err
	}
	return checkpoint(time.Now(), &c), nil
}

// Settle waits until everything that the sources could read when it was called
// has passed every step and is confirmed by every sink, as far as a sink doesn't
// wait for a checkpoint. No barrier is emitted. If the job recovers in place
// meanwhile, that has happened again, as far as the new incarnation reads.
func (r *Running) Settle(ctx context.Context) error { return r.handle.Settle(ctx) }

// Stop asks for a polite stop, as cancelling Run's ctx does. It doesn't wait.
func (r *Running) Stop() { r.handle.Stop() }

// Progress is how far a job has come.
type Progress struct {
	Records int64            // read since the job first started
	Behind  int64            // of these, behind their own split's watermark when read
	Late    map[string]int64 // late records by step, since this start
	// DeadLetters are the records rejected since this start, by step and by the
	// Kind of their DeadLetter.
	DeadLetters map[string]map[string]int64
	Splits      []SplitProgress
	Checkpoint  *Checkpoint // the last one committed in this run, or nil
	Restarts    int         // recoveries in place in this run
	Restart     *Restart    // the last of them, or nil
}

// restarts is how often a job has recovered in place, and why at last.
type restarts struct {
	n    int
	last Restart
}

// SplitProgress is how far the reading of a split has come.
type SplitProgress struct {
	Source, Split string
	Records       int64
	Watermark     time.Time // zero before the first record, and when the split has ended
	Status        Status
	Ended, Idle   bool
	// Since is when the watermark last moved, or reading began: the split that holds
	// time back is the one with the lowest watermark of those that are neither Ended
	// nor Idle.
	Since time.Time
}

// Progress returns the last published figures and asks for new ones: calling it
// now and then gives figures that are at most one call old. It costs the tasks
// one load a batch.
func (r *Running) Progress() Progress {
	p := Progress{Checkpoint: r.last.Load()}
	if again := r.again.Load(); again != nil {
		p.Restarts, p.Restart = again.n, &again.last
	}
	run := r.run.Load()
	if run == nil {
		return p
	}
	p.Late = run.Late()
	p.DeadLetters = deadLettersOf(run)
	for _, s := range run.Progress() {
		sp := SplitProgress{Source: s.Source, Split: s.Split, Records: s.Records, Ended: s.Ended, Idle: s.Idle, Status: Status(s.Standing), Since: s.Since}
		sp.Status.Idle = s.Idle
		if s.Watermark != data.MinTime && !s.Ended {
			sp.Watermark = nanos(s.Watermark)
		}
		p.Records += s.Records
		p.Behind += s.Late
		p.Splits = append(p.Splits, sp)
	}
	return p
}

// Started is one start of a job, told before the first record is read.
type Started struct {
	Incarnation int64
	Restored    bool  // false: the very first start
	Epoch       int64 // of the checkpoint; the first record belongs to the next
	Checkpoint  CheckpointID
	Keys        int64 // state entries restored
	Positions   []Position
	Records     int64 // read up to the checkpoint
	// Took is the time from Run's call to here, or from the end of the wait before
	// a recovery in place.
	Took time.Duration
}

// Restart is a recovery in place: an incarnation has failed, and after the wait
// the next one starts, from the last committed checkpoint.
type Restart struct {
	// Reason is a word for metrics: disk-full, disk-read-only, disk-error, store
	// (the state directory), sink, task (a step, or what a source or a sink does in
	// it), start (opening the input and restoring state).
	Reason  string
	Attempt int // in a row, from 1
	Wait    time.Duration
	Err     error
}

// Checkpoint is one committed checkpoint.
type Checkpoint struct {
	Epoch     int64
	ID        CheckpointID
	At        time.Time // of the commit
	Finished  bool      // the bounded input was read to its end
	Bytes     int64     // written for it
	Full      []string  // steps that saved everything, not only what changed
	Positions []Position
	Records   int64 // read up to it since the job first started
	// Took is the time from the barrier to the last ledger's commit.
	Took time.Duration
}

func (r *Running) observe(conf runConfig, e control.Event) {
	if e.Checkpoint != nil {
		c := checkpoint(e.At, e.Checkpoint)
		r.last.Store(&c)
	}
	r.tally.observe(e, r.last.Load())
	r.tracing.observe(e)
	switch {
	case e.Started != nil:
		s := Started{Incarnation: e.Started.Incarnation, Restored: e.Started.Restored, Epoch: e.Started.Epoch,
			Checkpoint: CheckpointID(e.Started.Checkpoint), Keys: e.Started.Keys, Took: e.Started.Took}
		s.Positions, s.Records = positions(e.Started.Splits)
		for _, f := range conf.onStart {
			f(s)
		}
	case e.Waiting != nil:
		for _, f := range conf.onWait {
			f(e.Waiting.For)
		}
	case e.Restart != nil:
		next := restarts{n: 1, last: Restart{Reason: string(e.Restart.Reason), Attempt: e.Restart.Attempt, Wait: e.Restart.Wait, Err: e.Restart.Err}}
		if before := r.again.Load(); before != nil {
			next.n += before.n
		}
		r.again.Store(&next)
		for _, f := range conf.onRestart {
			f(next.last)
		}
	case e.Checkpoint != nil:
		for _, f := range conf.onCheck {
			f(*r.last.Load())
		}
	}
}

func checkpoint(at time.Time, e *control.Checkpoint) Checkpoint {
	c := Checkpoint{Epoch: e.Epoch, ID: CheckpointID(e.ID), At: at, Finished: e.Finished, Bytes: e.Bytes, Full: e.Full, Took: e.Took.Committed}
	c.Positions, c.Records = positions(e.Splits)
	return c
}

func positions(splits []data.SplitState) (out []Position, records int64) {
	for _, s := range splits {
		out = append(out, Position{Source: s.Source, Split: s.Split, At: s.Position})
		records += s.Records
	}
	return out, records
}

// notifier is a source that wants to know of commits.
type notifier struct {
	source string
	to     Committed
}

func (j *Job) committed(ctx context.Context, splits []data.SplitState) error {
	for _, n := range j.notify {
		var mine []data.SplitState
		for _, s := range splits {
			if s.Source == n.source {
				mine = append(mine, s)
			}
		}
		at, _ := positions(mine)
		if err := n.to.Committed(ctx, at); err != nil {
			return fmt.Errorf("source %s: tell it what was committed: %w", n.source, err)
		}
	}
	return nil
}

// Explanation is what a job promises, derived from its declaration.
type Explanation struct {
	Job    string
	Plan   string // the steps, printable
	Report string // the guarantee of each sink with its conditions, printable
}

// String returns the whole page.
func (e Explanation) String() string { return e.Plan + "\n" + e.Report }

// Explain derives what each sink's readers will see, what that needs, and which
// steps' results may depend on timing. It opens nothing but the sources' lists
// of splits.
func (j *Job) Explain(ctx context.Context, opts ...RunOption) (Explanation, error) {
	ctx = j.withJob(ctx)
	conf := defaultRun()
	for _, o := range opts {
		o.run(&conf)
	}
	if err := j.undeclarable(append(j.mistakes(conf), j.homeless(conf)...)); err != nil {
		return Explanation{}, err
	}
	graph := j.certain(conf.guessed)
	settings := plan.Settings{Checkpointed: conf.stateDir != "", Parallelism: conf.parallelism, Splits: map[string]int{}}
	for _, s := range j.splits {
		names, err := s.list(ctx)
		if err != nil && len(conf.guessed) > 0 {
			continue // how many there are isn't known
		}
		if err != nil {
			return Explanation{}, fmt.Errorf("job %s: source %s: list its splits: %w", j.Name(), s.source, err)
		}
		if settings.Splits[s.source] = len(names); s.grows() {
			settings.Splits[s.source] = max(2, len(names)) // there may come more
		}
	}
	return Explanation{Job: j.Name(), Plan: graph.String(), Report: graph.Explain(settings)}, nil
}
