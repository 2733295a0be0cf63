package data

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

// counter is the end of a chain.
type counter[T any] struct{ n int64 }

func (c *counter[T]) Push(*T, int64) { c.n++ }
func (c *counter[T]) Mark(Mark)      {}

// What a sink for dead letters costs a record that is good: without one the steps
// must cost what they did before there were guards.
func BenchmarkGuards(b *testing.B) {
	for _, careful := range []bool{false, true} {
		r := NewRun(Config{Parallelism: 1, Groups: 128, BatchLen: MaxBatch, ReadLen: 256, Names: []string{"a"}})
		if careful {
			r.SetAside(Aside{Limit: Limit{-1, 0}, Letters: func() Letters { return &slot{box: &box{}} }})
		}
		t := r.newTask("bench", 0, 1)
		at := At{t, 0}
		b.Run(fmt.Sprintf("map, filter, dead letters %t", careful), func(b *testing.B) {
			end := &counter[rec]{}
			chain := NewMap(at, func(r rec) rec { r.n++; return r }, NewFilter(at, func(r rec) bool { return r.n > 0 }, Out[rec](end)))
			in := rec{key: "k", at: 1}
			for b.Loop() {
				for i := range int64(1000) {
					in.n = i
					chain.Push(&in, i)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
		})
		keys := make([]rec, 1024)
		for i := range keys {
			keys[i] = rec{key: fmt.Sprint("key number ", i%1000), n: int64(i)}
		}
		fold := func(name string, c FoldConfig[string, rec, int64, string]) {
			b.Run(fmt.Sprintf("%s, dead letters %t", name, careful), func(b *testing.B) {
				c.ID, c.Key, c.Value, c.Barrier = "a", must(table.KeyOf[string]()), must(table.ValueOf[int64]()), true
				c.Zero = func() int64 { return 0 }
				f := NewFold(at, c, Out[string](&counter[string]{}))
				k := NewLocal(t, 0, c.Key, func(r rec) string { return r.key }, Op[string, rec](f), f)
				for b.Loop() {
					for i := range keys {
						k.Push(&keys[i], 1)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/record")
			})
		}
		fold("key, count", FoldConfig[string, rec, int64, string]{Count: true})
		fold("key, fold", FoldConfig[string, rec, int64, string]{Add: func(n int64, r rec) int64 { return n + r.n }})
	}
}
