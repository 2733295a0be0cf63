package data

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config is the shape of a run.
type Config struct {
	Parallelism int      // tasks a keyed stage, at least 1
	Groups      int      // key groups
	BatchLen    int      // records in a batch between stages, 1 to MaxBatch
	ReadLen     int      // records in a source's and a sink's batch, 1 to MaxBatch
	Names       []string // of the declared steps, by their number, for errors
	IDs         []string // the same, as the user gave them
	StateMemory int64    // the most bytes that state may take; 0: no limit
}

// Run is one execution of a job: all tasks and what they share. It is built
// by the job's handles, opened, started, driven by control and stopped, once.
type Run struct {
	Config
	// Stages finds what a step has made in this run, by the step.
	Stages map[any]any

	tasks   []*Task
	sources []sourceTask
	growths []func(*Run) // each looks for new splits of a source until the run is over
	ctx     context.Context
	ctl     Control
	done    chan struct{}
	stop    sync.Once
	wg      sync.WaitGroup
	hold    atomic.Bool
	asked   atomic.Int64 // progress requests so far
	full    sync.Map     // epoch -> map[string]bool, of open epochs
	late    map[string]*atomic.Int64
	abouts  map[string]about // by source
	aside   *aside           // nil: there is no sink for dead letters
	meters  meters
	state   atomic.Int64 // bytes of state in all tasks

	mu struct {
		sync.Mutex
		places   []place                    // the splits, by their number
		progress map[string][]SplitProgress // by task
	}
}

type sourceTask struct {
	t     *Task
	open  func(context.Context, Restorer) error
	atEnd func() error // of a finished job's input
	close func() error
}

// place is a split for error messages.
type place struct {
	source, split string
	locate        func(split string, mark int64) string
}

// SplitProgress is how far the reading of a split has come.
type SplitProgress struct {
	SplitState
	Standing
	Idle  bool
	Since time.Time // when its watermark last moved, or it was opened
}

// NewRun returns a run without tasks.
func NewRun(c Config) *Run {
	r := &Run{Config: c, Stages: map[any]any{}, done: make(chan struct{}), late: map[string]*atomic.Int64{}, abouts: map[string]about{}}
	r.mu.progress = map[string][]SplitProgress{}
	return r
}

func (r *Run) newTask(stage string, index, of int) *Task {
	t := &Task{name: taskName(stage, index), index: index, of: of, run: r, wm: MinTime, Behind: MinTime, Origin: noOrigin}
	if r.aside != nil {
		t.letters = &letters{all: r.aside, out: r.aside.conf.Letters(), last: noOrigin}
	}
	r.tasks = append(r.tasks, t)
	return t
}

// addSplit numbers a split.
func (r *Run) addSplit(source, split string, locate func(string, int64) string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.places = append(r.mu.places, place{source, split, locate})
	return len(r.mu.places) - 1
}

// tooMany refuses more splits than there are numbers.
func (r *Run) tooMany() error {
	if n := len(r.splits()); n > maxSplits {
		return fmt.Errorf("%w: the job's sources have %d splits, and can have %d: give them fewer and larger ones", ErrRefused, n, maxSplits)
	}
	return nil
}

// splits are all of them, by their number.
func (r *Run) splits() []place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.places
}

// maxSplits is what an origin has room for.
const maxSplits = 1 << (63 - markBits)

// locate puts an origin into words. It may read the input again.
func (r *Run) locate(origin int64) string {
	p, ok := r.placeOf(origin)
	if !ok {
		return ""
	}
	return fmt.Sprintf("source %s, %s", p.source, p.words(origin&markMask))
}

// words names a record of a split, in the words of its source.
func (p place) words(mark int64) string {
	if p.locate != nil {
		return p.locate(p.split, mark)
	}
	return fmt.Sprintf("split %s, record %d", p.split, mark)
}

// placeOf is the split of an origin.
func (r *Run) placeOf(origin int64) (p place, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if origin < 0 || int(origin>>markBits) >= len(r.mu.places) {
		return place{}, false
	}
	return r.mu.places[origin>>markBits], true
}

func (r *Run) stepName(step int32) string {
	if step < 0 || int(step) >= len(r.Names) {
		return fmt.Sprintf("#%d", step)
	}
	return r.Names[step]
}

// lateOf returns the counter of late records of a step, which its tasks share:
// late records are rare.
func (r *Run) lateOf(step string) *atomic.Int64 {
	c := r.late[step]
	if c == nil {
		c = new(atomic.Int64)
		r.late[step] = c
	}
	return c
}

// Late returns the records that were late at each step since the start.
func (r *Run) Late() map[string]int64 {
	out := make(map[string]int64, len(r.late))
	for step, n := range r.late {
		out[step] = n.Load()
	}
	return out
}

// Open restores every task and opens every split. It returns where the splits
// stand, which at the very first start is what genesis saves.
func (r *Run) Open(ctx context.Context, rs Restorer) ([]SplitState, error) {
	r.ctx = ctx
	if err := r.tooMany(); err != nil {
		return nil, err
	}
	if err := r.known(rs); err != nil {
		return nil, err
	}
	var states []SplitState
	for _, s := range r.sources {
		if err := s.open(ctx, rs); err != nil {
			return nil, err
		}
		states = append(states, s.t.splits()...)
	}
	if err := r.grown(rs); err != nil {
		return nil, err
	}
	for _, t := range r.tasks {
		for _, load := range t.onLoad {
			if err := load(rs); err != nil {
				return nil, fmt.Errorf("restore task %s: %w", t.name, err)
			}
			if t.measure(); t.err != nil {
				return nil, fmt.Errorf("restore task %s: %w", t.name, t.err)
			}
		}
	}
	return states, nil
}

// grown refuses input behind the end of a finished job: more of a split, or a
// split that is new. Where splits may come, their ends don't tell of a finished job.
func (r *Run) grown(rs Restorer) error {
	if r.Growing() {
		return nil
	}
	had, finished := 0, true
	for _, source := range r.sourceIDs() {
		for _, st := range rs.Splits(source) {
			had++
			finished = finished && st.Ended
		}
	}
	if had == 0 || !finished {
		return nil
	}
	for _, p := range r.splits() {
		if _, ok := rs.Split(p.source, p.split); !ok {
			return fmt.Errorf("source %s: split %s is new: %w; to read it, start a new job (another name and state directory)", p.source, p.split, ErrGrown)
		}
	}
	for _, s := range r.sources {
		if err := s.atEnd(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) sourceIDs() []string { return slices.Sorted(maps.Keys(r.abouts)) }

// known checks that every split of the checkpoint still exists.
func (r *Run) known(rs Restorer) error {
	have := map[string]bool{}
	for _, p := range r.splits() {
		have[p.source+"\x00"+p.split] = true
	}
	for _, source := range r.sourceIDs() {
		for _, st := range rs.Splits(source) {
			if !have[source+"\x00"+st.Split] {
				return fmt.Errorf("%w: source %s: split %s, at position %q in the checkpoint, is missing now: bring it back, what was read of it can't be told from what wasn't",
					ErrRefused, source, st.Split, st.Position)
			}
		}
	}
	return nil
}

// Start starts the tasks.
func (r *Run) Start(ctl Control) {
	r.ctl = ctl
	for _, t := range r.tasks {
		t.mail = make(chan msg, len(t.ins)*(credit+4)+1)
	}
	r.meters.live.Store(true)
	for _, t := range r.tasks {
		r.wg.Go(func() {
			err := errGoexit // unless loop returns
			defer func() {
				t.release()
				select {
				case <-r.done: // the run is over: what broke now doesn't count
				default:
					switch {
					case errors.Is(err, errGoexit):
						ctl.Failed(t.blame(err))
					case err != nil:
						ctl.Failed(err)
					}
				}
			}()
			err = t.loop()
		})
	}
	for _, look := range r.growths {
		r.wg.Go(func() { look(r) })
	}
}

// Barrier asks every source task for barrier epoch; the steps named in full
// save everything they have. Control asks for one at a time.
func (r *Run) Barrier(epoch int64, full map[string]bool) {
	r.full.Clear()
	r.full.Store(epoch, full)
	r.tell(Mark{Barrier, epoch})
}

// isFull reports whether a step saves everything at barrier epoch.
func (r *Run) isFull(epoch int64, step string) bool {
	m, ok := r.full.Load(epoch)
	return ok && m.(map[string]bool)[step]
}

// Probe asks every source task for a mark behind everything that it can read
// now. n is at least 1.
func (r *Run) Probe(n int64) { r.tell(Mark{Probe, n}) }

// Hold makes the sources wait, or go on.
func (r *Run) Hold(on bool) {
	r.hold.Store(on)
	r.meters.hold(on)
	if !on {
		r.tell(Mark{wake, 0})
	}
}

func (r *Run) tell(m Mark) {
	for _, s := range r.sources {
		select {
		case s.t.cmd <- m:
		case <-r.done:
		}
	}
}

// Stop ends the tasks. What is under way is dropped.
func (r *Run) Stop() { r.stop.Do(func() { close(r.done) }) }

// Wait returns when every task has returned.
func (r *Run) Wait() { r.wg.Wait() }

// Close closes the readers. The tasks have returned.
func (r *Run) Close() error {
	var first error
	for _, s := range r.sources {
		if err := s.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Tasks is the number of tasks, each of which acknowledges a barrier.
func (r *Run) Tasks() int { return len(r.tasks) }

// Growing reports whether a source may get more splits: then the job has no end.
func (r *Run) Growing() bool { return len(r.growths) > 0 }

// Sources is the number of source tasks, each of which ends.
func (r *Run) Sources() int { return len(r.sources) }

// Progress returns what the source tasks last told, and asks them to tell again.
func (r *Run) Progress() []SplitProgress {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []SplitProgress
	for _, task := range slices.Sorted(maps.Keys(r.mu.progress)) {
		out = append(out, r.mu.progress[task]...)
	}
	return out
}
