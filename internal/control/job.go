// Package control is the path of an epoch: from the barrier that ends it,
// through segments, prepare and the log's entry, to the decider's commit and
// those of the followers; and the way back to the last one after a crash, which
// is the same as a start.
//
// Run is that path from top to bottom, once for each incarnation. What may follow
// what is decided by the pure package epoch; what to restore by the pure function
// resolve; whether an error is followed by another incarnation by classOf and
// series.next, which are pure too; the rest of this package does what they say. Tasks, segment writers and the committer are
// the only goroutines, and Run waits for all of them.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/internal/table"
)

// job is one incarnation. Its fields belong to Run's goroutine; the committer's
// are its own while the loop runs. When it is closed, nothing of it is left.
type job struct {
	*process
	env     *sys.Env // the process's, and Waiting
	began   time.Time
	started time.Time       // when the first record could be read; zero: not yet
	ctx     context.Context // ends with the incarnation, not when it is asked to stop
	cancel  context.CancelCauseFunc

	log     *log.Log
	life    life // what the log holds of this job, without our own start entry
	change  changes
	me      Fence     // our claim; Incarnation 0 until it is made
	last    committed // the checkpoint that everything agrees on
	verdict verdict   // of the recovery

	committer *committer
	flow      Flow
	splits    []data.SplitState // where they stood when they were opened

	looping  atomic.Bool // Run's goroutine follows epochs
	inbox    *inbox
	work     chan func() any // for the committer's goroutine
	workers  sync.WaitGroup  // the committer and segment writers
	machine  *epoch.Machine
	open     *snapshot  // the epoch whose barrier is out
	asked    []*request // checkpoints to be taken by the next barrier
	probes   int64
	merges   int               // begun in this run
	splices  map[string]merged // by step: what the next manifest takes over
	settles  map[int64]*settle
	stopping bool // the next barrier is the last
	ends     bool // the last committed checkpoint is the last of the run
	over     bool
	err      error

	published bool // a checkpoint, by the loop
	keeps     bool // what is too old isn't retired
}

// committed is a checkpoint that decider and followers have committed.
type committed struct {
	id log.ID
	m  *log.Manifest // nil: none yet
}

func newJob(ctx context.Context, p *process) *job {
	env := *p.env
	j := &job{process: p, env: &env, inbox: newInbox(), settles: map[int64]*settle{}, splices: map[string]merged{}}
	j.began = j.env.Clock.Now()
	env.Waiting = j.waiting
	env.Warn = func(what string) { j.Log.Warn(what, "job", j.Graph.Job) }
	j.ctx, j.cancel = context.WithCancelCause(sys.With(context.WithoutCancel(ctx), &env))
	return j
}

// run starts the job and then follows its epochs. stop is done once the run is
// to end.
func (j *job) run(stop context.Context) error {
	// A start that is asked to stop may drop everything; an epoch may not.
	starting := context.AfterFunc(stop, func() { j.cancel(errStopped) })
	err := j.start(stop)
	if !starting() {
		if killed := killed(stop); killed != nil {
			return killed
		}
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
	for _, step := range []struct {
		do    func() error
		blame Reason
	}{
		{j.openStore, StoreFailed}, // alone, if the store can be locked
		{j.connect, SinkFailed},    // every participant, before the log is touched
		{j.probeSinks, SinkFailed}, // whether they can be written again, after an error of a disk
		{j.claim, StoreFailed},     // the log's next slot: the incarnation
		{j.recover, SinkFailed},    // fence everybody, then ask the decider, then restore that
		{j.build, StartFailed},     // tasks with their state, splits where they stood
		{j.found, SinkFailed},      // what the first record must not come before
	} {
		if stop.Err() != nil {
			return errStopped
		}
		if err := step.do(); err != nil {
			return blame(step.blame, err)
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
	if err := j.openFiles(); err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	if err := j.takeLock(); err != nil {
		return err
	}
	blobs := sys.NewBlobs(j.files)
	if j.log, err = log.Open(blobs, j.where); err != nil {
		return fmt.Errorf("open the checkpoint log: %w", err)
	}
	if err := j.strangers(); err != nil {
		return err
	}
	j.committer = &committer{job: j.Graph.Job, where: j.where, ctx: j.ctx, clock: j.env.Clock, log: j.log, blobs: blobs,
		retain: j.Retain, decider: decider, tell: j.observe, notify: j.Notify, warn: j.Log}
	if err := j.checkStore(); err != nil {
		return err
	}
	return j.cleanTemp()
}

// strangers refuses to begin a job among files that are something else's: a
// mistyped path, most likely.
func (j *job) strangers() error {
	if len(j.log.Entries()) > 0 {
		return nil
	}
	names, err := j.files.List(".")
	if err != nil {
		return fmt.Errorf("look into the state directory %s: %w", j.where, err)
	}
	for _, name := range names {
		if !slices.Contains([]string{"lock", "log/", "seg/", "out/", "tmp/", reserveFile, "lost+found/"}, name) && !strings.HasPrefix(name, ".") {
			return refused("%s holds %s, and no checkpoint of a job: give the job a folder of its own as its state directory, empty or not there yet", j.where, name)
		}
	}
	return nil
}

// openFiles opens the store once a process.
func (p *process) openFiles() (err error) {
	switch {
	case p.files != nil:
	case p.StateDir == "":
		p.files = sys.NewMemFiles()
	default:
		var files sys.Files
		if files, err = p.env.Files(p.StateDir); err == nil {
			p.files = files
		}
	}
	return err
}

// takeLock locks the store, if an earlier incarnation of the process hasn't.
func (p *process) takeLock() error {
	if p.lock == nil {
		lock, err := p.files.Lock("lock")
		switch {
		case errors.Is(err, sys.ErrLocked) && p.Takeover:
			p.Log.Warn("another process holds the state directory; it is being fenced", "dir", p.where, "lock", err.Error())
			return nil
		case errors.Is(err, sys.ErrLocked):
			return fmt.Errorf("state directory %s is in use: %w: stop that process, or fence it with --takeover (Takeover)", p.where, err)
		case err != nil:
			return fmt.Errorf("state directory %s: %w", p.where, err)
		}
		p.lock = lock
	}
	return nil
}

// cleanTemp deletes what is on its way to nowhere: all that was at work is gone.
// The log has been read before: whoever has taken over holds no lock, and what it
// is writing stays.
func (p *process) cleanTemp() error {
	if p.lock == nil {
		return nil
	}
	if err := sys.CleanTemp(p.files); err != nil {
		return fmt.Errorf("state directory %s: %w", p.where, err)
	}
	return nil
}

// checkStore looks at what the log holds, now or after it was read again.
func (j *job) checkStore() (err error) {
	entries := j.log.Entries()
	if err := foreign(entries, j.Graph.Job, j.where); err != nil {
		return err
	}
	if newer := j.know(entries); newer != nil {
		return errNewer
	}
	j.life = lifeOf(entries)
	if j.life.uuid == "" || j.StartOver && j.life.uuid != j.uuid {
		older := j.life.older
		if j.life.uuid != "" {
			older = append(older, j.life.uuid)
		}
		j.life = life{uuid: j.uuid, older: older}
	}
	j.change, err = j.changed(j.life.newest())
	return err
}

// changed compares the job as declared with the start under which a checkpoint
// was made; what an incarnation without one declared left nothing behind.
func (j *job) changed(made *log.Entry) (changes, error) {
	if made == nil {
		return changes{}, nil
	}
	start := j.life.start(made.Checkpoint.Incarnation)
	if start == nil {
		return changes{}, refused("checkpoint %s in %s was made under start %d, which the log doesn't have", made.ID, j.where, made.Checkpoint.Incarnation)
	}
	c := compare(start.Graph, j.Graph, asked{j.Renamed, j.Drop}, table.Migration)
	return c, c.err()
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
	if err := j.settle(); err != nil {
		return err
	}
	from := j.last.m.Restore(j.committer.blobs, j.where)
	from.Knows(j.sourcesOf(j.last.m)...)
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
	if restored && j.last.m.Finished && j.flow.Growing() {
		return refused("the job is finished: it has read its input to the end and has closed all windows, and as it is declared now its input has no end; to read on, give it a state directory and a name of its own, or start it over with --start-over (StartOver)")
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
	j.change.tell(j.Log)
	j.Log.Info("started", "job", j.Graph.Job, "incarnation", j.me.Incarnation, "restored", restored,
		"epoch", m.Epoch, "checkpoint", j.last.id.String(), "keys", started.Keys)
	j.reserve()
	j.observe(Event{Started: &started})
	j.started = j.env.Clock.Now()
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

// close ends everything that the incarnation has begun, in the order in which
// one may wait for the other. It returns err with what it means for the job, and
// what went wrong in closing.
func (j *job) close(err error) (failed, closing error) {
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
		j.hand()
		if j.open != nil {
			j.observe(Event{Failure: &Failure{Epoch: j.open.epoch, Open: j.since(j.open.began), Took: j.open.took, Err: err}})
		}
		if diskReason(err) == DiskFull && classOf(err) == disk && j.files != nil {
			j.makeRoom()
		}
	}
	if j.flow != nil {
		closing = errors.Join(closing, wrap("close the input", j.flow.Close()))
	}
	if j.committer != nil {
		for _, p := range j.committer.parties {
			closing = errors.Join(closing, wrap("close "+p.Name, p.Close()))
		}
	}
	return err, closing
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
