package weir_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirstream/weir"
)

// recorded runs a job with a tracer and returns the spans, in the order of their
// starts.
func recorded(t *testing.T, start func(trace.Tracer)) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	start(provider.Tracer("test"))
	spans := exporter.GetSpans()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

func named(spans tracetest.SpanStubs, name string) (out tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return "none"
}

// TestSpans: each checkpoint is a trace of its own, with its phases one after the
// other and the sinks' calls in them.
func TestSpans(t *testing.T) {
	var m weir.Metrics
	spans := recorded(t, func(tracer trace.Tracer) {
		var out gathered[weir.Pair[string, int64]]
		job := weir.NewJob("traced")
		job.From("events", weir.Slices(lateEvents(1000))).KeyBy(keyOf).Count("count").To("out", out.sink())
		r := job.Start(t.Context(), weir.EveryRecords(300), weir.Tracer(tracer))
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
		m = r.Metrics()
	})
	all := named(spans, "weir.checkpoint")
	if int64(len(all)) != m.Checkpoints.Committed || len(all) < 3 {
		t.Fatalf("%d spans of %d checkpoints", len(all), m.Checkpoints.Committed)
	}
	for i, c := range all {
		if c.Parent.IsValid() || c.Status.Code == codes.Error || attr(c, "weir.job") != "traced" || attr(c, "weir.epoch") != fmt.Sprint(i+1) ||
			attr(c, "weir.incarnation") != "1" || attr(c, "weir.bytes") == "none" {
			t.Errorf("%+v", c)
		}
		end := c.StartTime
		for _, phase := range weir.Phases() {
			of := spansIn(spans, c, "weir.checkpoint."+phase)
			if len(of) != 1 {
				t.Fatalf("epoch %d has %d spans of phase %s", i+1, len(of), phase)
			}
			p := of[0]
			if p.StartTime.Before(c.StartTime) || p.EndTime.After(c.EndTime) || p.StartTime.After(end) {
				t.Errorf("phase %s of epoch %d, from %v to %v, of %v to %v, leaves a gap behind %v", phase, i+1, p.StartTime, p.EndTime, c.StartTime, c.EndTime, end)
			}
			if p.EndTime.After(end) {
				end = p.EndTime
			}
			for what, in := range map[string]string{"prepare": weir.PhasePrepare, "follow": weir.PhaseCommit} {
				calls := spansIn(spans, p, "weir.sink."+what)
				if want := in == phase; (len(calls) == 1) != want || want && attr(calls[0], "weir.sinks") != `["out"]` {
					t.Errorf("phase %s of epoch %d has %d calls of %s: %+v", phase, i+1, len(calls), what, calls)
				}
			}
		}
		if !end.Equal(c.EndTime) {
			t.Errorf("epoch %d ends at %v, its phases at %v", i+1, c.EndTime, end)
		}
	}
	if s := named(spans, "weir.start"); len(s) != 1 || attr(s[0], "weir.restored") != "false" {
		t.Errorf("%+v", s)
	}
}

func spansIn(spans tracetest.SpanStubs, parent tracetest.SpanStub, name string) (out tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name && s.Parent.SpanID() == parent.SpanContext.SpanID() {
			out = append(out, s)
		}
	}
	return out
}

// TestSpansOfFailures: a restart is a span with its error, the start that follows
// lies in it, and the epoch that was lost is a span with an error too.
func TestSpansOfFailures(t *testing.T) {
	synctest.Test(t, spansOfFailures)
}

func spansOfFailures(t *testing.T) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	spans := recorded(t, func(tracer trace.Tracer) {
		failed := false
		job := weir.NewJob("failing")
		job.From("events", weir.Slices(lateEvents(1000))).KeyBy(keyOf).Count("count").
			To("out", weir.Each(func(p weir.Pair[string, int64]) error {
				if p.Value == 100 && !failed {
					failed = true
					return passingError{errCrash}
				}
				return nil
			}))
		ctx := trace.ContextWithSpanContext(t.Context(), parent)
		if err := job.Run(ctx, weir.EveryRecords(300), weir.Restarts(1), weir.Parallelism(1), weir.Tracer(tracer)); err != nil {
			t.Fatal(err)
		}
	})
	restart := named(spans, "weir.restart")
	if len(restart) != 1 || restart[0].Status.Code != codes.Error || len(restart[0].Events) != 1 || attr(restart[0], "weir.reason") == "none" {
		t.Fatalf("restarts: %+v", restart)
	}
	if len(restart[0].Links) != 1 || restart[0].Links[0].SpanContext.SpanID() != parent.SpanID() {
		t.Errorf("it isn't linked to the span that the job was run in: %+v", restart[0].Links)
	}
	if s := spansIn(spans, restart[0], "weir.start"); len(s) != 1 || s[0].EndTime.After(restart[0].EndTime) {
		t.Errorf("the start in the restart: %+v", s)
	}
	if down := restart[0].EndTime.Sub(restart[0].StartTime); down < time.Second {
		t.Errorf("down for %v, and a restart waits for a second", down)
	}
}
