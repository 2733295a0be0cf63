//go:build !race

package weir_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

type view struct {
	Page string
	User int64
	At   int64 // ms
}

var pages = strings.Fields("start about docs blog shop cart help jobs news team")

// views is a source of n records that allocates nothing a record. A page is
// seen again every ten, a user every thousand; time goes on 1 ms a record, and
// every hundredth record is a minute late.
func views(n int64) weir.Source[view] {
	return weir.Generate(n, func(i int64) view {
		v := view{Page: pages[i%int64(len(pages))], User: i % 1000, At: i}
		if i%100 == 99 {
			v.At = max(0, i-60_000)
		}
		return v
	})
}

func viewTime(v view) time.Time { return time.UnixMilli(v.At) }

// The path of a record allocates nothing a record: a run of twice the records
// allocates what one run does, but for a few for each of the windows that it
// has more.
func TestNoAllocationARecord(t *testing.T) {
	var (
		page  = func(v view) string { return v.Page }
		user  = func(v view) int64 { return v.User }
		twice = func(v view) int64 { return v.At / 2 } // two records have each value
		moved = func(v view) view { v.User++; return v }
		keep  = func(v view) bool { return v.User%10 != 0 }
		timed = weir.EventTime(viewTime, time.Second)
	)
	cases := []struct {
		name    string
		declare func(job *weir.Job, src weir.Source[view])
	}{
		{"stateless", func(job *weir.Job, src weir.Source[view]) {
			job.From("views", src).Map(moved).TryMap(func(v view) (view, error) { return v, nil }).
				FlatMap(func(v view, emit func(view)) { emit(v); emit(v) }).Filter(keep).To("out", discard[view]())
		}},
		{"count", func(job *weir.Job, src weir.Source[view]) {
			job.From("views", src).Map(moved).Filter(keep).KeyBy(page).Count("count").To("out", discard[weir.Pair[string, int64]]())
		}},
		{"fold by an integer, changed values at barriers", func(job *weir.Job, src weir.Source[view]) {
			job.From("views", src).KeyBy(user).Fold("fold", int64(0), func(n int64, v view) int64 { return n + v.At }, weir.EachBarrier()).
				To("out", discard[weir.Pair[int64, int64]]())
		}},
		{"by a struct", func(job *weir.Job, src weir.Source[view]) {
			type both struct {
				Page string
				User int64
			}
			job.From("views", src).KeyBy(func(v view) both { return both{v.Page, v.User} }).Count("count").To("out", discard[weir.Pair[both, int64]]())
		}},
		{"windows, each record", func(job *weir.Job, src weir.Source[view]) {
			job.From("views", src, timed).KeyBy(page).Window(window.Tumbling(50*time.Second, window.EachRecord)).Count("count").
				To("out", discard[weir.Result[string, int64]]())
		}},
		{"windows on close, late records aside", func(job *weir.Job, src weir.Source[view]) {
			w := job.From("views", src, timed).KeyBy(page).Window(window.Tumbling(50 * time.Second))
			w.Late().To("late", discard[view]())
			w.Count("count").To("out", discard[weir.Result[string, int64]]())
		}},
		{"distinct", func(job *weir.Job, src weir.Source[view]) {
			d := job.From("views", src, timed).KeyBy(twice).Distinct("seen", 500*time.Millisecond, weir.Admit(time.Second))
			d.Late().To("late", discard[view]())
			d.Repeats().To("repeats", discard[view]())
			d.To("out", discard[view]())
		}},
		{"distinct, then windows", func(job *weir.Job, src weir.Source[view]) {
			job.From("views", src, timed).KeyBy(twice).Distinct("seen", 2*time.Second).
				KeyBy(page).Window(window.Tumbling(50*time.Second)).Count("count").To("out", discard[weir.Result[string, int64]]())
		}},
	}
	const n = 200_000
	for _, c := range cases {
		for _, parallelism := range []int{1, 2} {
			mallocs := func(records int64) int64 {
				job := weir.NewJob("allocations")
				c.declare(job, views(records))
				return counted(t, func() error {
					return job.Run(t.Context(), weir.Interval(0), weir.Parallelism(parallelism))
				})
			}
			mallocs(1000) // what is made once in a process
			once, double := mallocs(n), mallocs(2*n)
			if more := double - once; more > n/1000 {
				t.Errorf("%s, parallelism %d: %d records allocate %d times more than %d do (%d): the path of a record allocates",
					c.name, parallelism, 2*n, more, n, once)
			}
		}
	}
}

// counted is the number of allocations that f makes.
func counted(t *testing.T, f func() error) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC() // so that no collection is under way, which counts its own
	runtime.ReadMemStats(&before)
	if err := f(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return int64(after.Mallocs - before.Mallocs)
}

// discard is a sink that does nothing.
func discard[T any]() weir.Sink[T] { return weir.Each(func(T) error { return nil }) }
