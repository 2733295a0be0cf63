package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/control"
	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
)

// build is one lowering of a job: typed handles in, tasks out.
type build struct {
	ctx     context.Context
	conf    runConfig
	job     *Job
	run     *data.Run
	outlets map[string]any  // sink id -> Outlet[T]
	writers map[string]int  // sink id -> writers handed out
	merges  map[merging]any // of a Union in a task: *data.Merge[T]
}

// merging is a Union, by the stream that follows it, in one task.
type merging struct {
	stream any
	task   *data.Task
}

// sinkStep is a declared sink with its type erased.
type sinkStep struct {
	id       string
	spec     SinkSpec
	examiner Examiner // nil: it can't be examined
	connect  func(ctx context.Context, sinks []string) (Participant, error)
	open     func(ctx context.Context, p Participant) (outlet any, err error)
}

// participant is the name of what the sink commits with.
func (s *sinkStep) participant() string {
	if s.spec.Participant != "" {
		return s.spec.Participant
	}
	return control.Alone(s.id)
}

// participants groups the sinks by what they share.
func (j *Job) participants() []control.Sinks {
	var out []control.Sinks
	index := map[string]int{}
	for _, s := range j.sinks {
		name := s.participant()
		i, ok := index[name]
		if !ok {
			i = len(out)
			index[name] = i
			out = append(out, control.Sinks{Name: name, Kind: s.spec.Kind.String(), Rank: s.spec.Rank})
			out[i].Connect = func(ctx context.Context) (control.Participant, error) {
				p, err := s.connect(ctx, out[i].IDs)
				if err != nil {
					return nil, fmt.Errorf("sink %s: connect: %w", s.id, err)
				}
				return committer{p}, nil
			}
		}
		out[i].IDs = append(out[i].IDs, s.id)
		if s.spec.Appends {
			out[i].Appends = append(out[i].Appends, s.id)
		}
	}
	return out
}

// lower makes the tasks of a run.
func (j *Job) lower(ctx context.Context, conf runConfig, connected []control.Participant) (*data.Run, error) {
	b := &build{ctx: ctx, conf: conf, job: j, outlets: map[string]any{}, writers: map[string]int{}, merges: map[merging]any{},
		run: data.NewRun(data.Config{Parallelism: min(conf.parallelism, j.graph.KeyGroups), Groups: j.graph.KeyGroups,
			BatchLen: conf.batch, ReadLen: min(conf.batch, 256), Names: j.steps(), IDs: j.ids(),
			StateMemory: conf.stateMemory})}
	for i, group := range j.participants() {
		for _, id := range group.IDs {
			s := j.sink(id)
			out, err := s.open(ctx, connected[i].(committer).p)
			if err != nil {
				return nil, fmt.Errorf("sink %s: open: %w", id, err)
			}
			b.outlets[id] = out
		}
	}
	j.dead.lower(b)
	for _, open := range j.sources {
		if err := open(b); err != nil {
			return nil, err
		}
	}
	return b.run, nil
}

func (j *Job) sink(id string) *sinkStep {
	for _, s := range j.sinks {
		if s.id == id {
			return s
		}
	}
	return nil
}

// fused reports whether a keyed step runs in the task that feeds it.
func (b *build) fused(node int) bool { return b.job.graph.Fused(node, b.run.Parallelism) }

// admit is how far behind a Distinct takes records.
func (b *build) admit(node int) time.Duration {
	d, _ := b.job.graph.AdmitOf(node) // validated before
	return d
}

// committer gives control a participant in control's own types.
type committer struct{ p Participant }

func (c committer) Fence(ctx context.Context, f control.Fence) (map[string]control.Ledger, error) {
	ledgers, err := c.p.Fence(ctx, Fence{Job: JobID{Name: f.Job, UUID: f.UUID},
		By: Incarnation{Number: f.Incarnation, Nonce: f.Nonce}, Create: f.Create, StartOver: f.StartOver, Former: f.Former})
	out := make(map[string]control.Ledger, len(ledgers))
	for sink, l := range ledgers {
		out[sink] = control.Ledger{Found: l.Found, ID: log.ID(l.ID)}
	}
	return out, err
}

func (c committer) Follow() bool {
	f, ok := c.p.(Follower)
	if ok {
		f.Follow()
	}
	return ok
}

func (c committer) Press(ask func()) {
	if p, ok := c.p.(Pressed); ok {
		p.Press(ask)
	}
}

func (c committer) Adopt(ctx context.Context, at log.ID, sinks []control.Adopted) error {
	a, ok := c.p.(Adopter)
	if !ok {
		return fmt.Errorf("%w: sink %s can't be added to a job that has checkpoints, nor get another id: its kind of sink has no way to begin in the middle",
			ErrRefused, sinks[0].Sink)
	}
	adopted := make([]Adopted, len(sinks))
	for i, s := range sinks {
		adopted[i] = Adopted(s)
	}
	return a.Adopt(ctx, CheckpointID(at), adopted)
}

func (c committer) Visible(ctx context.Context, id log.ID) error {
	if r, ok := c.p.(Revealer); ok {
		return r.Visible(ctx, CheckpointID(id))
	}
	return nil
}

func (c committer) Probe(ctx context.Context) error {
	if p, ok := c.p.(Prober); ok {
		return p.Probe(ctx)
	}
	return nil
}

func (c committer) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	return c.p.Prepare(ctx, epoch)
}

func (c committer) Commit(ctx context.Context, e control.Commit) error {
	at, _ := positions(e.Positions)
	return c.p.Commit(ctx, Commit{Epoch: e.Epoch, ID: CheckpointID(e.ID), Parent: CheckpointID(e.Parent), Positions: at, Staged: e.Staged, Empty: e.Empty})
}

func (c committer) Flush(ctx context.Context) error { return c.p.Flush(ctx) }
func (c committer) Close() error                    { return c.p.Close() }
