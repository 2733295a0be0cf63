package connectortest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

var testJob = weir.JobID{Name: "conformance", UUID: "00000000-run"}

// scenario is what the suite writes: epochs 1, 2, ... of rows by task. A key
// comes from one task, as behind a keyed step.
var scenario = [][][]Row{
	{{{"a", 1, 1, "one"}, {"b", 1, 1, ""}, {"a", 1, 2, "one again"}}, {{"c", -1, 1, "ünï"}}},
	{{{"a", 1, 3, "two"}}, nil},
	{nil, nil},
	{{{"d", 1, 7, "x"}, {"b", 1, 9, "longer than the one before it"}}, {{"c", -1, 5, ""}, {"c", 1 << 62, -5, "y"}}},
	{{{"a", 1, 4, "last"}}, {{"e", 0, 0, ""}}},
}

const tasks = 2

// world is everything that survives a crash: the target and the store's log.
// It plays the part of control, as small as it can be told.
type world struct {
	s         SinkUnderTest
	dir       string
	targets   []string
	log       []weir.Commit // the checkpoints that were entered, the first is epoch 0
	starts    int64
	openFirst bool
	follows   bool     // some other participant decides
	env       *sys.Env // what the targets lie on; nil: the operating system
}

// context returns ctx with the world's machine.
func (w *world) context(ctx context.Context) context.Context {
	if w.env == nil {
		return ctx
	}
	return sys.With(ctx, w.env)
}

// clone returns a world that goes its own way, on another machine.
func (w *world) clone(env *sys.Env) *world {
	c := *w
	c.log, c.env = slices.Clone(w.log), env
	return &c
}

func newWorld(t *testing.T, s SinkUnderTest) *world {
	t.Helper()
	return newWorldIn(s, t.TempDir())
}

func newWorldIn(s SinkUnderTest, dir string) *world {
	w := &world{s: s, dir: dir, targets: []string{"left"}}
	if spec := s.New(w.dir, "left").Spec(); spec.Participant != "" && spec.Participant == s.New(w.dir, "right").Spec().Participant {
		w.targets = append(w.targets, "right")
	}
	return w
}

// ids are the sinks' step ids, other words than the targets on purpose.
func (w *world) ids() []string {
	ids := make([]string, len(w.targets))
	for i, target := range w.targets {
		ids[i] = "to-" + target
	}
	return ids
}

// life is one incarnation.
type life struct {
	w       *world
	by      weir.Incarnation
	p       weir.Participant
	writers [][]weir.Writer[Row] // by target, task
	last    weir.CheckpointID    // that it has restored or committed
	rogue   bool                 // commits what the log doesn't have
	closed  bool
}

// close ends the life, once.
func (l *life) close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	return l.p.Close()
}

// connect reaches the participant, and opens the sinks if they come first.
func (w *world) connect(ctx context.Context) (*life, error) {
	p, err := w.s.New(w.dir, w.targets[0]).Connect(ctx, w.ids())
	if err != nil {
		return nil, err
	}
	l := &life{w: w, p: p}
	if f, ok := p.(interface{ Follow() }); ok && w.follows {
		f.Follow()
	}
	return l, nil
}

func (l *life) open(ctx context.Context) error {
	for i, target := range l.w.targets {
		o, err := l.w.s.New(l.w.dir, target).Open(ctx, l.p, l.w.ids()[i])
		if err != nil {
			return err
		}
		var writers []weir.Writer[Row]
		for task := range tasks {
			writers = append(writers, o.Writer(task))
		}
		l.writers = append(l.writers, writers)
	}
	return nil
}

// begin starts an incarnation: it fences, asks the decider, rolls forward.
// The second result is the epoch that was restored.
func (w *world) begin(ctx context.Context) (*life, int64, error) {
	l, err := w.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	epoch, err := l.recover(ctx)
	if err != nil {
		return nil, 0, errors.Join(err, l.close())
	}
	return l, epoch, nil
}

func (l *life) recover(ctx context.Context) (int64, error) {
	w := l.w
	if w.openFirst {
		if err := l.open(ctx); err != nil {
			return 0, err
		}
	}
	w.starts++
	l.by = weir.Incarnation{Number: w.starts, Nonce: fmt.Sprintf("nonce-%d", w.starts)}
	ledgers, err := l.p.Fence(ctx, weir.Fence{Job: testJob, By: l.by, Create: len(w.log) == 0})
	if err != nil {
		return 0, err
	}
	return l.resume(ctx, ledgers)
}

// resume goes on after Fence.
func (l *life) resume(ctx context.Context, ledgers map[string]weir.Ledger) (int64, error) {
	w := l.w
	if !w.openFirst {
		if err := l.open(ctx); err != nil {
			return 0, err
		}
	}
	if len(w.log) == 0 {
		if _, err := l.enter(0, nil); err != nil {
			return 0, err
		}
	}
	named := ledgers[w.ids()[0]]
	for _, id := range w.ids() {
		if got := ledgers[id]; !got.Found || got != named {
			return 0, fmt.Errorf("ledger of %q is %+v, that of %q is %+v", id, got, w.ids()[0], named)
		}
	}
	return l.rollForward(ctx, named.ID)
}

// rollForward makes the sinks name the checkpoint that was decided, and
// forgets what wasn't.
func (l *life) rollForward(ctx context.Context, named weir.CheckpointID) (int64, error) {
	w := l.w
	if w.decides() && !named.IsZero() {
		for len(w.log) > 0 && w.log[len(w.log)-1].ID != named {
			w.log = w.log[:len(w.log)-1]
		}
	} else if w.decides() {
		w.log = w.log[:1]
	}
	if len(w.log) == 0 {
		return 0, fmt.Errorf("the ledgers name %v, which was never entered", named)
	}
	last := w.log[len(w.log)-1]
	l.last = last.ID
	if named == last.ID {
		return last.Epoch, nil
	}
	return last.Epoch, l.p.Commit(ctx, last)
}

// decides reports whether the participant's own commit decides an epoch;
// otherwise the entry in the log does.
func (w *world) decides() bool {
	return !w.follows && w.s.New(w.dir, w.targets[0]).Spec().Kind == weir.Transactional
}

// next enters the checkpoint of an epoch into the log.
func (w *world) next(epoch int64, by weir.Incarnation, staged []byte) weir.Commit {
	id := weir.CheckpointID{Slot: int64(len(w.log)) + 1}
	id.Sum = sha256.Sum256(fmt.Appendf(nil, "%d %d %s", epoch, by.Number, by.Nonce))
	c := weir.Commit{Epoch: epoch, ID: id, Staged: staged, Empty: epoch == 0}
	if len(w.log) > 0 {
		c.Parent = w.log[len(w.log)-1].ID
	}
	w.log = append(w.log, c)
	return c
}

// write hands over an epoch's rows and seals it.
func (l *life) write(epoch int64) error {
	for _, writers := range l.writers {
		for task, rows := range scenario[epoch-1] {
			scratch := make([]Row, len(rows)) // the sink may not keep it
			copy(scratch, rows)
			if err := writers[task].Write(scratch, make([]int64, len(rows))); err != nil {
				return err
			}
			clear(scratch)
			if err := writers[task].Seal(epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *life) epoch(ctx context.Context, n int64) error {
	if err := l.write(n); err != nil {
		return err
	}
	if n%2 == 0 {
		if err := l.p.Flush(ctx); err != nil {
			return err
		}
	}
	staged, err := l.p.Prepare(ctx, n)
	if err != nil {
		return err
	}
	c, err := l.enter(n, staged)
	if err != nil {
		return err
	}
	l.last = c.ID
	return l.p.Commit(ctx, c)
}

// enter puts an epoch's checkpoint into the log, unless a newer incarnation has
// taken the slot. A rogue doesn't ask.
func (l *life) enter(n int64, staged []byte) (weir.Commit, error) {
	if l.by.Number == l.w.starts {
		return l.w.next(n, l.by, staged), nil
	}
	if !l.rogue {
		return weir.Commit{}, fmt.Errorf("%w: the slot in the log is taken", weir.ErrFenced)
	}
	c := weir.Commit{Epoch: n, Parent: l.last, Staged: staged}
	c.ID = weir.CheckpointID{Slot: l.last.Slot + 1, Sum: sha256.Sum256(fmt.Appendf(nil, "rogue %d", n))}
	return c, nil
}

// live runs one incarnation to the end of epoch last.
func (w *world) live(ctx context.Context, last int) error {
	l, restored, err := w.begin(ctx)
	if err != nil {
		return err
	}
	for n := restored + 1; n <= int64(last); n++ {
		if err := l.epoch(ctx, n); err != nil {
			return errors.Join(err, l.close())
		}
	}
	return l.close()
}

// open connects for a test that calls Fence itself.
func (w *world) open(t *testing.T) *life {
	t.Helper()
	l, err := w.connect(w.context(t.Context()))
	must(t, err)
	t.Cleanup(func() { must(t, l.close()) })
	return l
}

// start begins an incarnation for a test that goes on by itself.
func (w *world) start(t *testing.T) *life {
	t.Helper()
	l, _, err := w.begin(w.context(t.Context()))
	must(t, err)
	t.Cleanup(func() { must(t, l.close()) })
	return l
}

// rows reads all targets, sorted.
func (w *world) rows(t *testing.T) map[string][]Row {
	t.Helper()
	all := map[string][]Row{}
	for _, target := range w.targets {
		rows, err := w.s.Rows(w.context(t.Context()), w.dir, target)
		must(t, err)
		all[target] = sortRows(rows)
	}
	return all
}

// check compares the targets with the scenario up to an epoch.
func (w *world) check(t *testing.T, epochs int) {
	t.Helper()
	var want []Row
	type key struct {
		key  string
		part int64
	}
	at := map[key]int{}
	for _, epoch := range scenario[:epochs] {
		for _, rows := range epoch {
			for _, r := range rows {
				if i, ok := at[key{r.Key, r.Part}]; ok && w.s.Upserts {
					want[i] = r
					continue
				}
				at[key{r.Key, r.Part}] = len(want)
				want = append(want, r)
			}
		}
	}
	want = sortRows(want)
	for target, got := range w.rows(t) {
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%q after epoch %d (-want +got):\n%s", target, epochs, diff)
		}
	}
}
