package weir

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/internal/table"
)

// Stream is a handle on the output of a step. Several steps may follow one
// stream: each sees every record.
type Stream[T any] struct {
	job  *Job
	node int
	// outs makes the consumers of the stream in a task, once a task.
	outs []func(b *build, t *data.Task) data.Out[T]
}

// lower makes the consumers of s in task t.
func (s *Stream[T]) lower(b *build, t *data.Task) data.Out[T] {
	if len(s.outs) == 1 {
		return s.outs[0](b, t)
	}
	tee := make(data.Tee[T], len(s.outs))
	for i, out := range s.outs {
		tee[i] = out(b, t)
	}
	return tee
}

// From adds a source with the given id.
func (j *Job) From[T any](id string, src Source[T], opts ...SourceOption[T]) *Stream[T] {
	var c sourceConfig[T]
	for _, o := range opts {
		o.source(&c)
	}
	j.need(id, "event-time function", c.timed && c.time == nil)
	if j.need(id, "source", src == nil) {
		return &Stream[T]{job: j, node: j.add(plan.Node{Op: plan.Source, ID: id, EventTime: c.timed})}
	}
	if check, ok := src.(interface{ Check() error }); ok {
		j.unfit(id, check.Check())
	}
	reads := ""
	if d, ok := src.(Described); ok {
		reads = d.Describe()
	}
	node := j.add(plan.Node{Op: plan.Source, ID: id, Reads: reads, EventTime: c.time != nil, Disorder: c.bound})
	s := &Stream[T]{job: j, node: node}
	if n, ok := src.(Committed); ok {
		j.notify = append(j.notify, notifier{source: id, to: n})
	}
	if e, ok := src.(Examiner); ok {
		j.examined = append(j.examined, examined{id, e})
	}
	j.splits = append(j.splits, splitLister{source: id, list: src.Splits, grows: func() bool {
		g, ok := src.(Growing)
		return ok && g.Poll() > 0
	}})
	j.sources = append(j.sources, func(b *build) error {
		names, err := src.Splits(b.ctx)
		if err != nil {
			return fmt.Errorf("source %s: list its splits: %w", id, err)
		}
		if dup := firstRepeat(names); dup != "" {
			return fmt.Errorf("source %s: two splits are named %s", id, dup)
		}
		data.NewSource(b.run, lowerSource(b, id, node, src, c), names, func(t *data.Task) data.Out[T] { return s.lower(b, t) })
		return nil
	})
	return s
}

func lowerSource[T any](b *build, id string, node int, src Source[T], c sourceConfig[T]) data.SourceConfig[T] {
	conf := data.SourceConfig[T]{
		Step: node, ID: id, Time: c.time, Bound: int64(c.bound), MaxAhead: c.ahead, Every: b.conf.every,
		Now: sys.From(b.ctx).Clock.Now,
		Open: func(ctx context.Context, split string, at []byte) (data.Reader[T], error) {
			r, err := src.Open(ctx, split, at)
			if err != nil {
				return nil, err
			}
			return r, nil
		},
		Standing: func(r data.Reader[T]) data.Standing {
			if sr, ok := r.(StatusReader); ok {
				return data.Standing(sr.Status())
			}
			return data.Standing{Lag: -1}
		},
		SetAside: func(r data.Reader[T]) func() []data.Rejected {
			rj, ok := r.(Rejecter)
			if !ok {
				return nil
			}
			rj.SetAside()
			return func() []data.Rejected { return rejected(rj) }
		},
	}
	if l, ok := src.(Locator); ok {
		conf.Locate = l.Locate
	}
	if r, ok := src.(Rereader); ok {
		conf.Reread = r.Reread
	}
	if s, ok := src.(Starter); ok {
		conf.Start = s.Start
	}
	if g, ok := src.(Growing); ok && g.Poll() > 0 {
		conf.Growth = growth(b.ctx, g.Poll(), src.Splits)
	}
	return conf
}

// rejected asks a reader for what it has passed over: nothing, as a rule.
func rejected(r Rejecter) (out []data.Rejected) {
	for _, rj := range r.Rejected() {
		out = append(out, data.Rejected(rj))
	}
	return out
}

// growth is how the splits of a source become more.
func growth(ctx context.Context, poll time.Duration, list func(context.Context) ([]string, error)) *data.Growth {
	env := sys.From(ctx)
	return &data.Growth{Poll: poll, After: env.Clock.After,
		List: func(ctx context.Context) ([]string, error) {
			names, err := list(ctx)
			if dup := firstRepeat(names); err == nil && dup != "" {
				err = fmt.Errorf("two splits are named %s", dup)
			}
			return names, err
		},
		Waiting: func(what string) {
			if env.Waiting != nil {
				env.Waiting(what)
			}
		}}
}

func firstRepeat(names []string) string {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return n
		}
		seen[n] = true
	}
	return ""
}

// step appends a stateless step that runs in the tasks of s.
func step[T, R any](s *Stream[T], op plan.Op, mk func(at data.At, next data.Out[R]) data.Out[T]) *Stream[R] {
	next := &Stream[R]{job: s.job, node: s.job.add(plan.Node{Op: op, Inputs: []int{s.node}})}
	s.outs = append(s.outs, func(b *build, t *data.Task) data.Out[T] {
		return mk(data.At{Task: t, Step: int32(next.node)}, next.lower(b, t))
	})
	return next
}

// Map turns every record into another.
func (s *Stream[T]) Map[R any](f func(T) R) *Stream[R] {
	s.job.need("map", "function", f == nil)
	return step(s, plan.Map, func(at data.At, next data.Out[R]) data.Out[T] {
		return data.NewMap(at, f, next)
	})
}

// TryMap is Map for a function that can fail: an error stops the job and names
// the input record, or sends that to the dead letters (see [Job.DeadLetters]).
func (s *Stream[T]) TryMap[R any](f func(T) (R, error)) *Stream[R] {
	s.job.need("try-map", "function", f == nil)
	return step(s, plan.TryMap, func(at data.At, next data.Out[R]) data.Out[T] {
		return data.NewTryMap(at, f, next)
	})
}

// FlatMap emits any number of records for one. emit must not be called after f
// has returned.
func (s *Stream[T]) FlatMap[R any](f func(rec T, emit func(R))) *Stream[R] {
	s.job.need("flat-map", "function", f == nil)
	return step(s, plan.FlatMap, func(at data.At, next data.Out[R]) data.Out[T] {
		return data.NewFlatMap(at, f, next)
	})
}

// TryFlatMap is FlatMap for a function that can fail: what it has emitted goes on
// when it returns nil. An error stops the job and names the input record, or sends
// that to the dead letters.
func (s *Stream[T]) TryFlatMap[R any](f func(rec T, emit func(R)) error) *Stream[R] {
	s.job.need("try-flat-map", "function", f == nil)
	return step(s, plan.TryFlatMap, func(at data.At, next data.Out[R]) data.Out[T] {
		return data.NewTryFlatMap(at, f, next)
	})
}

// Filter keeps the records for which keep returns true.
func (s *Stream[T]) Filter(keep func(T) bool) *Stream[T] {
	s.job.need("filter", "function", keep == nil)
	return step(s, plan.Filter, func(at data.At, next data.Out[T]) data.Out[T] {
		return data.NewFilter(at, keep, next)
	})
}

// Split sends each record one of two ways: yes gets those for which cond
// returns true, no the others.
func (s *Stream[T]) Split(cond func(T) bool) (yes, no *Stream[T]) {
	s.job.need("split", "function", cond == nil)
	yes = &Stream[T]{job: s.job, node: s.job.add(plan.Node{Op: plan.Split, Inputs: []int{s.node}})}
	no = side[T](yes, "otherwise")
	s.outs = append(s.outs, func(b *build, t *data.Task) data.Out[T] {
		return data.NewSplit(data.At{Task: t, Step: int32(yes.node)}, cond, yes.lower(b, t), no.lower(b, t))
	})
	return yes, no
}

// side declares the side output of the step that s is the output of.
func side[T, R any](s *Stream[R], name string) *Stream[T] {
	return &Stream[T]{job: s.job, node: s.job.add(plan.Node{Op: plan.Split, Inputs: []int{s.node}, Side: name})}
}

// Union merges streams. Records that were read in one task keep their order,
// also where they came different ways; how tasks interleave is a matter of timing. It has no tasks of its own: what follows
// runs in those of each input.
func (s *Stream[T]) Union(others ...*Stream[T]) *Stream[T] {
	all := append([]*Stream[T]{s}, others...)
	next := &Stream[T]{job: s.job}
	way := func(b *build, t *data.Task) data.Out[T] {
		at := merging{next, t}
		m, ok := b.merges[at].(*data.Merge[T])
		if !ok {
			m = data.NewMerge(next.lower(b, t))
			b.merges[at] = m
		}
		return m.Way()
	}
	var inputs []int
	for _, in := range all {
		if in.job != s.job {
			s.job.fail("union", fmt.Errorf("a stream of job %s can't be merged into job %s", in.job.Name(), s.job.Name()))
			continue
		}
		inputs = append(inputs, in.node)
		in.outs = append(in.outs, way)
	}
	next.node = s.job.add(plan.Node{Op: plan.Union, Inputs: inputs})
	return next
}

// Via applies a piece of pipeline, which may be shared between jobs.
func (s *Stream[T]) Via[R any](piece func(*Stream[T]) *Stream[R]) *Stream[R] { return piece(s) }

// KeyBy partitions the stream by a key. A key is a string, an integer or bool,
// or an array or struct of those; numbers must not have padding between them. A
// job with another key type isn't run. Keys are equal when their bytes are: Unicode isn't normalised.
func (s *Stream[T]) KeyBy[K comparable](key func(T) K) *Keyed[K, T] {
	s.job.need("key-by", "function", key == nil)
	kind, err := table.KeyOf[K]()
	if err != nil {
		s.job.fail(fmt.Sprintf("#%d (key-by)", len(s.job.graph.Nodes)), err)
	}
	node := s.job.add(plan.Node{Op: plan.KeyBy, Inputs: []int{s.node}, Key: kind.Schema()})
	return &Keyed[K, T]{s: s, node: node, key: key, kind: kind}
}

// To ends the stream in a sink with the given id.
func (s *Stream[T]) To(id string, sink Sink[T]) {
	node, ok := addSink(s.job, id, sink, plan.Node{Inputs: []int{s.node}})
	if !ok {
		return
	}
	s.outs = append(s.outs, func(b *build, t *data.Task) data.Out[T] {
		writer := b.outlets[id].(Outlet[T]).Writer(b.writers[id])
		b.writers[id]++
		return data.NewSink(data.At{Task: t, Step: int32(node)}, writer)
	})
}

// addSink declares a sink and returns the number of its step.
func addSink[T any](j *Job, id string, sink Sink[T], n plan.Node) (node int, ok bool) {
	if j.need(id, "sink", sink == nil) {
		return 0, false
	}
	if check, ok := sink.(interface{ Check() error }); ok {
		j.unfit(id, check.Check())
	}
	spec := sink.Spec()
	n.Op, n.ID = plan.Sink, id
	n.Sink = &plan.SinkNode{
		Kind: spec.Kind.String(), Target: spec.Target, Participant: spec.Participant, Place: spec.Place, Rank: spec.Rank,
		Readers: spec.Readers, Needs: slices.Clone(spec.Needs)}
	node = j.add(n)
	examiner, _ := sink.(Examiner)
	j.sinks = append(j.sinks, &sinkStep{id: id, spec: spec, examiner: examiner, connect: sink.Connect,
		open: func(ctx context.Context, p Participant) (any, error) { return sink.Open(ctx, p, id) }})
	return node, true
}

// nanos is the event time of a result.
func nanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }
