package weir

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirstream/weir/internal/control"
)

// tracing makes spans of what control tells. Its goroutine calls it, one call
// at a time; a nil one does nothing.
type tracing struct {
	tracer trace.Tracer
	ctx    context.Context
	job    attribute.KeyValue
	links  []trace.Link // to the span that the job was started in

	incarnation int64
	calls       []call           // of the open epoch
	restart     *control.Restart // at hand
	failed      time.Time        // when it began
}

// call is a call to a participant, and when it ended.
type call struct {
	*control.Call
	at time.Time
}

func newTracing(ctx context.Context, job string, tracer trace.Tracer) *tracing {
	if tracer == nil {
		return nil
	}
	t := &tracing{tracer: tracer, ctx: context.WithoutCancel(ctx), job: attribute.String("weir.job", job)}
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		t.links = []trace.Link{{SpanContext: at}}
	}
	return t
}

func (t *tracing) observe(e control.Event) {
	if t == nil {
		return
	}
	switch {
	case e.Started != nil:
		t.incarnation, t.calls = e.Started.Incarnation, nil
		t.restarted(e.At, nil, func(ctx context.Context) {
			t.span(ctx, "weir.start", span{-e.Started.Took, 0}, e.At, nil, nil,
				attribute.Int64("weir.epoch", e.Started.Epoch), attribute.Bool("weir.restored", e.Started.Restored),
				attribute.Int64("weir.keys", e.Started.Keys))
		})
	case e.Call != nil:
		t.calls = append(t.calls, call{e.Call, e.At})
	case e.Checkpoint != nil:
		t.committed(e.At, e.Checkpoint)
	case e.Failure != nil:
		f := e.Failure
		t.span(t.ctx, "weir.checkpoint", span{-f.Open, 0}, e.At, f.Err, func(ctx context.Context) { t.called(ctx, f.Epoch, "") },
			attribute.Int64("weir.epoch", f.Epoch), attribute.String("weir.phase", failedIn(f.Took)))
		t.calls = nil
	case e.Restart != nil:
		t.restarted(e.At, nil, nil) // the one at hand has failed, too
		t.restart, t.failed = e.Restart, e.At
	}
}

// committed makes the spans of a checkpoint: its phases, and in them the calls
// to participants.
func (t *tracing) committed(at time.Time, c *control.Checkpoint) {
	phases := phasesOf(c.Took)
	t.span(t.ctx, "weir.checkpoint", span{0, c.Took.Committed}, at.Add(-c.Took.Committed), nil, func(ctx context.Context) {
		for _, phase := range Phases() {
			t.span(ctx, "weir.checkpoint."+phase, phases[phase], at.Add(-c.Took.Committed), nil,
				func(ctx context.Context) { t.called(ctx, c.Epoch, phase) })
		}
	}, attribute.Int64("weir.epoch", c.Epoch), attribute.String("weir.checkpoint", c.ID.String()),
		attribute.Int64("weir.bytes", c.Bytes), attribute.Bool("weir.finished", c.Finished))
	t.calls = nil
}

// called makes the spans of an epoch's calls: of those that belong to a phase,
// or of all.
func (t *tracing) called(ctx context.Context, epoch int64, phase string) {
	for _, c := range t.calls {
		in := PhaseCommit
		if c.What == control.Prepare {
			in = PhasePrepare
		}
		if c.Epoch == epoch && (phase == "" || phase == in) {
			t.span(ctx, "weir.sink."+c.What, span{-c.Took, 0}, c.at, c.Err, nil,
				attribute.String("weir.participant", c.Participant), attribute.StringSlice("weir.sinks", c.Sinks))
		}
	}
}

// restarted ends the restart at hand, if there is one: the start that follows
// belongs to it.
func (t *tracing) restarted(at time.Time, err error, start func(context.Context)) {
	r := t.restart
	if r == nil {
		if start != nil {
			start(t.ctx)
		}
		return
	}
	t.restart = nil
	if err == nil {
		err = r.Err
	}
	t.span(t.ctx, "weir.restart", span{t.failed.Sub(at), 0}, at, err, start,
		attribute.String("weir.reason", string(r.Reason)), attribute.Int("weir.attempt", r.Attempt))
}

// end makes the spans that are still missing when the run is over.
func (t *tracing) end(err error) {
	if t != nil {
		t.restarted(time.Now(), err, nil)
	}
}

// span makes a span that is over, with the spans within it. Its times are
// relative to at. Without a parent of ours it begins a trace.
func (t *tracing) span(parent context.Context, name string, when span, at time.Time, err error,
	within func(context.Context), attrs ...attribute.KeyValue) {
	attrs = append(attrs, t.job, attribute.Int64("weir.incarnation", t.incarnation))
	opts := []trace.SpanStartOption{trace.WithTimestamp(at.Add(when.from)), trace.WithAttributes(attrs...)}
	if parent == t.ctx {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(t.links...))
	}
	ctx, s := t.tracer.Start(parent, name, opts...)
	if within != nil {
		within(ctx)
	}
	if err != nil {
		s.RecordError(err, trace.WithTimestamp(at.Add(when.to)))
		s.SetStatus(codes.Error, err.Error())
	}
	s.End(trace.WithTimestamp(at.Add(when.to)))
}
