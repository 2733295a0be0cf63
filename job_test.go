package weir_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

type click struct {
	ID, Ad string
	At     time.Time
	Ms     int64
}

// clicks makes n clicks of one second apart, every tenth a repeat.
func clicks(n int) []click {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	out := make([]click, n)
	for i := range out {
		out[i] = click{ID: fmt.Sprint("id-", i-i%10/9), Ad: fmt.Sprint("ad-", i*7919%13), At: start.Add(time.Duration(i) * time.Second), Ms: int64(i % 5)}
	}
	return out
}

// gathered is a sink that keeps what it gets.
type gathered[T any] struct {
	mu   sync.Mutex
	recs []T
}

func (g *gathered[T]) sink() weir.Sink[T] {
	return weir.Each(func(r T) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.recs = append(g.recs, r)
		return nil
	})
}

func at(c click) time.Time { return c.At }

func TestSameResultAtAnyParallelismAndBatchSize(t *testing.T) {
	all := clicks(5_000)
	var want []string
	for _, p := range []int{1, 2, 7} {
		for _, batch := range []int{1, 3, 256, 1024} {
			t.Run(fmt.Sprintf("parallelism %d, batch %d", p, batch), func(t *testing.T) {
				var got gathered[string]
				job := weir.NewJob("counts")
				job.From("clicks", weir.Slices(all[:2_000], all[2_000:]), weir.EventTime(at, time.Second)).
					Filter(func(c click) bool { return c.Ms != 3 }).
					KeyBy(func(c click) string { return c.ID }).
					Distinct("seen", time.Minute).
					KeyBy(func(c click) string { return c.Ad }).
					Window(window.Tumbling(time.Minute)).
					Count("count").
					Map(func(r weir.Result[string, int64]) string { return fmt.Sprint(r.Key, " ", r.Start.Unix(), " ", r.Value) }).
					To("out", got.sink())
				if err := job.Run(t.Context(), weir.Parallelism(p), weir.BatchSize(batch), weir.Interval(time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				slices.Sort(got.recs)
				if want == nil {
					want = got.recs
				}
				if len(got.recs) == 0 || !slices.Equal(got.recs, want) {
					t.Fatalf("%d results, want %d, or others", len(got.recs), len(want))
				}
			})
		}
	}
}
