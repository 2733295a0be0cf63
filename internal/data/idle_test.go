package data

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

// In a fused task the keyer's batch ends in the sink's buffer: before the task
// sleeps both must have been let go of, the keyer's first.
func TestAQuietFusedTaskKeepsNothingBack(t *testing.T) {
	in := newFeed()
	kind := must(table.KeyOf[string]())
	f := start(t, shape{parallelism: 1, batch: 64}, nil, []*feed{in}, func(f *flow, t *Task) Out[rec] {
		fold := NewFold(At{t, 2}, FoldConfig[string, rec, int64, string]{ID: "step", Key: kind, Value: must(table.ValueOf[int64]()),
			Count: true, Make: func(k string, n int64) string { return fmt.Sprint(k, "=", n) }}, Out[string](NewSink(At{t, 3}, SinkWriter[string](f.out))))
		return NewLocal(t, 1, kind, func(r rec) string { return r.key }, Op[string, rec](fold), Marker(fold))
	})
	f.settle(1)
	task := f.tasks[0]
	if len(task.idle) != 2 {
		t.Fatalf("%d flushes are registered, want the sink's and the keyer's", len(task.idle))
	}
	f.Stop()
	f.Wait() // the task is the test's now
	task.run.ctl = f.boss
	task.head.(Out[rec]).Push(&rec{"k", 1, 0}, 1)
	task.flushIdle()
	if out := f.out.take(); !slices.Equal(out, []string{"k=1"}) {
		t.Fatalf("before it sleeps the task let go of %v", out)
	}
}

// Each of several probes is passed on, although the source is always busy.
func TestProbesThatOverlap(t *testing.T) {
	in := newFeed()
	f := start(t, shape{parallelism: 2, batch: 4}, nil, []*feed{in, newFeed()}, counting())
	f.Hold(true)
	f.settle(1)
	for _, s := range f.sources { // both wait before the source gets to emit one
		s.t.cmd <- Mark{Probe, 2}
		s.t.cmd <- Mark{Probe, 3}
	}
	got := map[int64]int{}
	for range 2 * f.Tasks() {
		got[<-f.probes]++
	}
	if got[2] != f.Tasks() || got[3] != f.Tasks() {
		t.Fatalf("probes passed on: %v, by %d tasks", got, f.Tasks())
	}
}
