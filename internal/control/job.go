// Package control is the path of an epoch: from the barrier that ends it,
// through segments, prepare and the log's entry, to the decider's commit and
// those of the followers; and the way back to the last one after a crash, which
// is the same as a start.
//
// Run is that path from top to bottom. What may follow what is decided by the
// pure package epoch; what to restore by the pure function resolve; the rest of
// this package does what they say. Tasks, segment writers and the committer are
// the only goroutines, and Run waits for all of them.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/internal/table"
)

// job is one Run. Its fields belong to Run's goroutine; the committer's are its
// own while the loop runs.
type job struct {
	Config
	env    *sys.Env
	began  time.Time
	h      *Handle
	ctx    context.Context // ends with the run, not when it is asked to stop
	cancel context.CancelCauseFunc

	where  string // what errors call the store
	files  sys.Files
	lock   io.Closer // nil: another process holds it, and we take over
	log    *log.Log
	life   life // what the log holds of this job, without our own start entry
	change changes
	me     Fence     // our claim; Incarnation 0 until it is made
	last   committed // the checkpoint that everything agrees on

	committer *committer
	flow      Flow
	splits    []data.SplitState // where they stood when they were opened

	looping atomic.Bool // Run's goroutine follows epochs
	inbox   *inbox
	work    chan func() any // for the committer's goroutine
	workers sync.WaitGroup  // the committer and segment writers
	machine *epoch.Machine
	open    *snapshot  // the epoch whose barrier is out
	asked   []*request // checkpoints to be taken by the next barrier
	probes  int64
	settles map[int64]*settle
	over    bool
	err     error
}

// committed is a checkpoint that decider and followers have committed.
type committed struct {
	id log.ID
	m  *log.Manifest // nil: none yet
}

// Run executes a job: start, epochs, end. It is the same path for a first
// start, a restart and a takeover. When ctx is cancelled it takes a last
// checkpoint and returns nil; so it does when all input has been read. When it
// returns, nothing of the run is left but what is committed. h may be nil.
//
// The error wraps sys.ErrLocked, ErrRefused, ErrFenced, log.ErrCorrupt,
// data.ErrInput where one of these is the reason.
func Run(ctx context.Context, c Config, h *Handle) error {
	if h == nil {
		h = NewHandle()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(h.stop, stop)()
	j := newJob(ctx, c, h)
	err := j.run(ctx)
	err = j.close(err)
	h.End(err)
	return err
}

func newJob(ctx context.Context, c Config, h *Handle) *job {
	env := *sys.From(ctx)
	j := &job{Config: c.withDefaults(), env: &env, h: h, inbox: newInbox(), settles: map[int64]*settle{}}
	j.began = j.env.Clock.Now()
	env.Waiting = j.waiting
	j.ctx, j.cancel = context.WithCancelCause(sys.With(context.WithoutCancel(ctx), &env))
	j.where = "memory"
	if c.StateDir != "" {
		j.where = c.StateDir
	}
	return j
}

// run starts the job and then follows its epochs. stop is done once the run is
// to end.
func (j *job) run(stop context.Context) error {
	// A start that is asked to stop may drop everything; an epoch may not.
	starting := context.AfterFunc(stop, func() { j.cancel(errStopped) })
	err := j.start(stop)
	if !starting() {
		if err != nil && !errors.Is(err, errStopped) && !errors.Is(err, context.Canceled) {
			return err // it would have come without the stop, too
		}
		j.Log.Info("stopped before the first record", "job", j.Graph.Job)
		return nil
	}
	if err != nil {
		return err
	}
	if m := j.last.m; m.Finished {
		j.Log.Info("nothing to do: the job has read all its input", "job", j.Graph.Job,
			"checkpoint", j.last.id.String(), "epoch", m.Epoch)
		return nil
	}
	return j.loop(stop)
}

// start does everything before the first record, in the only order in which a
// start, a restart and a takeover are the same.
func (j *job) start(stop context.Context) error {
	for _, step := range []func() error{
		j.openStore, // alone, if the store can be locked
		j.connect,   // every participant, before the log is touched
		j.claim,     // the log's next slot: the incarnation
		j.recover,   // fence everybody, then ask the decider, then restore that
		j.build,     // tasks with their state, splits where they stood
		j.found,     // what the first record must not come before
	} {
		if stop.Err() != nil {
			return errStopped
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// openStore opens, locks and reads the store, and refuses one that isn't this
// job's or that a declaration like this can't go on from.
func (j *job) openStore() error {
	decider, err := j.decider()
	if err != nil {
		return err
	}
	if j.files, err = j.openFiles(); err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	if err := j.takeLock(); err != nil {
		return err
	}
	blobs := sys.NewBlobs(j.files)
	if j.log, err = log.Open(blobs, j.where); err != nil {
		return fmt.Errorf("open the checkpoint log: %w", err)
	}
	j.committer = &committer{job: j.Graph.Job, ctx: j.ctx, clock: j.env.Clock, log: j.log, blobs: blobs,
		retain: j.Retain, decider: decider, tell: j.observe, notify: j.Notify, warn: j.Log}
	return j.checkStore()
}

func (j *job) openFiles() (sys.Files, error) {
	if j.StateDir == "" {
		return sys.NewMemFiles(), nil
	}
	return j.env.Files(j.StateDir)
}

func (j *job) takeLock() error {
	lock, err := j.files.Lock("lock")
	switch {
	case err == nil:
		j.lock = lock
		if err := sys.CleanTemp(j.files); err != nil {
			return fmt.Errorf("state directory %s: %w", j.where, err)
		}
		return nil
	case !errors.Is(err, sys.ErrLocked):
		return fmt.Errorf("state directory %s: %w", j.where, err)
	case !j.Takeover:
		return fmt.Errorf("state directory %s is in use: %w: stop that process, or fence it with --takeover (Takeover)", j.where, err)
	}
	j.Log.Warn("another process holds the state directory; it is being fenced", "dir", j.where, "lock", err.Error())
	return nil
}

// checkStore looks at what the log holds, now or after it was read again.
func (j *job) checkStore() error {
	entries := j.log.Entries()
	for _, e := range entries {
		if e.Start != nil && e.Start.Job != j.Graph.Job {
			return refused("state directory %s belongs to job %q, not to %q: give each job a directory of its own", j.where, e.Start.Job, j.Graph.Job)
		}
	}
	j.life = lifeOf(entries)
	if j.StartOver || j.life.uuid == "" {
		older := j.life.older
		if j.life.uuid != "" {
			older = append(older, j.life.uuid)
		}
		j.life = life{uuid: newUUID(), older: older}
	}
	return j.compare(j.life.newest())
}

// compare checks the job as declared against the start under which a checkpoint
// was made; what an incarnation without one declared left nothing behind.
func (j *job) compare(made *log.Entry) error {
	j.change = changes{}
	if made == nil {
		return nil
	}
	start := j.life.start(made.Checkpoint.Incarnation)
	if start == nil {
		return refused("checkpoint %s in %s was made under start %d, which the log doesn't have", made.ID, j.where, made.Checkpoint.Incarnation)
	}
	j.change = compare(start.Graph, j.Graph, table.Migration)
	if err := j.change.err(); err != nil {
		return err
	}
	if start.Decider != j.committer.decider {
		return refused("epochs were decided by %s and would be by %s; set the sinks back", start.Decider, j.committer.decider)
	}
	return nil
}

// build makes the tasks and restores them.
func (j *job) build() (err error) {
	connected := make([]Participant, len(j.committer.parties))
	for i, p := range j.committer.parties {
		connected[i] = p.Participant
	}
	if j.flow, err = j.Build(j.ctx, connected); err != nil {
		return fmt.Errorf("build the job: %w", err)
	}
	from := j.last.m.Restore(j.committer.blobs, j.where)
	if j.splits, err = j.flow.Open(j.ctx, from); err != nil {
		return fmt.Errorf("open the job's input and state: %w", err)
	}
	return nil
}

// found takes the checkpoint that the first record must not come before: at
// genesis, and when splits are new, so that where they begin is never chosen
// twice.
func (j *job) found() error {
	restored := !j.last.id.IsZero()
	var grown []string
	if restored {
		grown = newSplits(j.last.m, j.splits)
	}
	if len(grown) > 0 && j.last.m.Finished {
		return fmt.Errorf("%w: %s, new since then; to read on, give the job a state directory of its own", data.ErrGrown, grown[0])
	}
	if !restored || len(grown) > 0 {
		m := &log.Manifest{Job: j.Graph.Job, UUID: j.me.UUID, Incarnation: j.me.Incarnation, Parent: j.last.id,
			KeyGroups: j.Graph.KeyGroups, Splits: sortSplits(slices.Clone(j.splits)), At: j.env.Clock.Now().UTC()}
		if restored {
			m.Epoch, m.Steps, m.Segments = j.last.m.Epoch+1, j.last.m.Steps, j.last.m.Segments
		}
		id, err := j.committer.commitAll(m)
		if err != nil {
			return fmt.Errorf("save where the splits begin: %w", err)
		}
		j.last = committed{id, m}
	}
	m := j.last.m
	started := Started{Incarnation: j.me.Incarnation, Restored: restored, Finished: m.Finished, Checkpoint: j.last.id,
		Epoch: m.Epoch, Splits: j.splits, Took: j.since(j.began)}
	for _, s := range m.Steps {
		started.Keys += s.Live
	}
	for _, id := range j.change.added {
		j.Log.Info("new since the last checkpoint: it starts with nothing", "step", id)
	}
	j.Log.Info("started", "job", j.Graph.Job, "incarnation", j.me.Incarnation, "restored", restored,
		"epoch", m.Epoch, "checkpoint", j.last.id.String(), "keys", started.Keys)
	j.observe(Event{Started: &started})
	return nil
}

// newSplits names the splits that the checkpoint doesn't have.
func newSplits(m *log.Manifest, splits []data.SplitState) []string {
	var grown []string
	for _, s := range splits {
		if !slices.ContainsFunc(m.Splits, func(o data.SplitState) bool { return o.Source == s.Source && o.Split == s.Split }) {
			grown = append(grown, fmt.Sprintf("split %s of source %s", s.Split, s.Source))
		}
	}
	return grown
}

// close ends everything that the run has begun, in the order in which one may
// wait for the other, and returns what Run returns.
func (j *job) close(err error) error {
	j.cancel(errEnded)
	if j.flow != nil {
		j.flow.Stop()
		j.flow.Wait()
	}
	if j.work != nil {
		close(j.work)
	}
	j.workers.Wait()
	j.inbox.close()
	if err != nil {
		err = j.explain(err)
	}
	if j.flow != nil {
		err = errors.Join(err, wrap("close the input", j.flow.Close()))
	}
	if j.committer != nil {
		for _, p := range j.committer.parties {
			err = errors.Join(err, wrap("close "+p.Name, p.Close()))
		}
	}
	if j.lock != nil {
		err = errors.Join(err, wrap("unlock the state directory", j.lock.Close()))
	}
	if j.files != nil {
		err = errors.Join(err, wrap("close the state directory", j.files.Close()))
	}
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// waiting says what a call to a database has been waiting for. While the job
// starts it is Run's goroutine that waits; later it is another.
func (j *job) waiting(what string) {
	j.Log.Warn("waiting", "job", j.Graph.Job, "for", what)
	e := Event{Waiting: &Waiting{For: what}}
	if j.looping.Load() {
		j.inbox.post(e)
		return
	}
	j.observe(e)
}

func (j *job) observe(e Event) {
	e.At = j.env.Clock.Now()
	j.Observe(e)
}

func (j *job) since(t time.Time) time.Duration { return j.env.Clock.Now().Sub(t) }

// newUUID returns a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
