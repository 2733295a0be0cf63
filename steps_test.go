package weir_test

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir"
)

// numbers are 0 to n-1.
func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestStatelessSteps compares each step with a loop over the same numbers.
func TestStatelessSteps(t *testing.T) {
	in := numbers(2_500)
	tests := []struct {
		name  string
		build func(s *weir.Stream[int]) *weir.Stream[string]
		want  func(n int) []string
	}{
		{"map", func(s *weir.Stream[int]) *weir.Stream[string] { return s.Map(strconv.Itoa) },
			func(n int) []string { return []string{strconv.Itoa(n)} }},
		{"try-map", func(s *weir.Stream[int]) *weir.Stream[string] {
			return s.TryMap(func(n int) (string, error) { return fmt.Sprint("t", n), nil })
		}, func(n int) []string { return []string{"t" + strconv.Itoa(n)} }},
		{"flat-map", func(s *weir.Stream[int]) *weir.Stream[string] {
			return s.FlatMap(func(n int, emit func(string)) {
				for i := range n % 4 {
					emit(fmt.Sprint(n, ":", i))
				}
			})
		}, func(n int) (out []string) {
			for i := range n % 4 {
				out = append(out, strconv.Itoa(n)+":"+strconv.Itoa(i))
			}
			return out
		}},
		{"filter", func(s *weir.Stream[int]) *weir.Stream[string] {
			return s.Filter(func(n int) bool { return n%3 == 1 }).Map(strconv.Itoa)
		}, func(n int) []string {
			if n%3 != 1 {
				return nil
			}
			return []string{strconv.Itoa(n)}
		}},
		{"via", func(s *weir.Stream[int]) *weir.Stream[string] { return s.Via(twice).Via(text) },
			func(n int) []string { return []string{strconv.Itoa(2 * n)} }},
		{"a stream merged with itself", func(s *weir.Stream[int]) *weir.Stream[string] {
			return s.Map(func(n int) int { return -n }).Union(s).Map(strconv.Itoa)
		}, func(n int) []string { return []string{strconv.Itoa(-n), strconv.Itoa(n)} }},
		{"both ways of a split", func(s *weir.Stream[int]) *weir.Stream[string] {
			even, odd := s.Split(func(n int) bool { return n%2 == 0 })
			return even.Map(func(n int) string { return fmt.Sprint("even ", n) }).
				Union(odd.Map(func(n int) string { return fmt.Sprint("odd ", n) }))
		}, func(n int) []string {
			return []string{[]string{"even ", "odd "}[n%2] + strconv.Itoa(n)}
		}},
	}
	for _, tt := range tests {
		var want []string
		for _, n := range in {
			want = append(want, tt.want(n)...)
		}
		slices.Sort(want)
		t.Run(tt.name, func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				var got gathered[string]
				job := weir.NewJob("stateless")
				job.From("in", weir.Slices(in[:1_000], in[1_000:])).Via(tt.build).To("out", got.sink())
				mustRun(t, job, opts...)
				wantSame(t, sorted(got.all()), want)
			})
		})
	}
}

func twice(s *weir.Stream[int]) *weir.Stream[int]   { return s.Map(func(n int) int { return 2 * n }) }
func text(s *weir.Stream[int]) *weir.Stream[string] { return s.Map(strconv.Itoa) }

// TestOrderWithinASplit: a split's records keep their order through steps that
// run in one task, and per key through an exchange.
func TestOrderWithinASplit(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var straight gathered[int]
		var keyed gathered[weir.Pair[int, int]]
		job := weir.NewJob("order")
		in := job.From("in", weir.Slice(numbers(3_000)...))
		in.FlatMap(func(n int, emit func(int)) { emit(2 * n); emit(2*n + 1) }).To("straight", straight.sink())
		in.KeyBy(func(n int) int { return n % 10 }).
			Fold("last", -1, func(_, n int) int { return n }).
			To("keyed", keyed.sink())
		mustRun(t, job, opts...)
		if got := straight.all(); !slices.Equal(got, numbers(6_000)) {
			t.Errorf("%d records, not 0 to 5999 in order", len(got))
		}
		last := map[int]int{}
		for _, p := range keyed.all() {
			if prev, ok := last[p.Key]; ok && p.Value <= prev {
				t.Fatalf("key %d: %d came after %d", p.Key, p.Value, prev)
			}
			last[p.Key] = p.Value
		}
	})
}

// TestOrderAcrossTheWaysOfASplit: records that go different ways and meet again
// don't overtake each other, through steps of one task.
func TestOrderAcrossTheWaysOfASplit(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var straight gathered[int]
		var last gathered[weir.Pair[bool, int]]
		job := weir.NewJob("ways")
		yes, no := job.From("in", weir.Slice(numbers(3_000)...)).Split(func(n int) bool { return n%3 == 0 })
		merged := yes.Map(func(n int) int { return n }).Union(no.Filter(func(int) bool { return true }))
		merged.To("straight", straight.sink())
		merged.KeyBy(func(int) bool { return true }).Fold("last", 0, func(_, n int) int { return n }).To("lasts", last.sink())
		mustRun(t, job, opts...)
		if got := straight.all(); !slices.Equal(got, numbers(3_000)) {
			t.Errorf("%d records, not 0 to 2999 in order", len(got))
		}
		for i, p := range last.all() {
			if p.Value != i {
				t.Fatalf("update %d holds record %d", i, p.Value)
			}
		}
	})
}

// TestUnionOfTwoSources: both are read to their ends, whatever their lengths.
func TestUnionOfTwoSources(t *testing.T) {
	for _, lengths := range [][2]int{{1_500, 700}, {0, 10}, {10, 0}, {0, 0}} {
		t.Run(fmt.Sprint(lengths), func(t *testing.T) {
			eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
				var got gathered[weir.Pair[bool, int64]]
				job := weir.NewJob("union")
				a := job.From("a", weir.Slice(numbers(lengths[0])...))
				b := job.From("b", weir.Slice(numbers(lengths[1])...))
				a.Union(b).KeyBy(func(n int) bool { return n%2 == 0 }).Count("count").To("out", got.sink())
				mustRun(t, job, opts...)
				last := map[bool]int64{}
				for _, p := range got.all() {
					last[p.Key] = max(last[p.Key], p.Value)
				}
				even := int64((lengths[0]+1)/2 + (lengths[1]+1)/2)
				odd := int64(lengths[0]/2 + lengths[1]/2)
				if last[true] != even || last[false] != odd {
					t.Errorf("counted %v, want %d even and %d odd", last, even, odd)
				}
			})
		})
	}
}

// A diamond is one stream, on two ways, into one keyed step: each record is
// counted on both.
func TestDiamondCountsBothWays(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var got vault[weir.Pair[int, int64]]
		job := weir.NewJob("diamond")
		in := job.From("in", weir.Slice(numbers(999)...))
		in.Union(in.Filter(func(n int) bool { return n%2 == 0 })).
			KeyBy(func(n int) int { return n % 3 }).Count("count", weir.EachBarrier()).To("out", &got)
		mustRun(t, job, append(opts, weir.Interval(0), weir.StateDir(t.TempDir()))...)
		want := map[int]int64{}
		for n := range 999 {
			want[n%3]++
			if n%2 == 0 {
				want[n%3]++
			}
		}
		for _, p := range got.all() {
			if want[p.Key] != p.Value {
				t.Errorf("key %d: %d, want %d", p.Key, p.Value, want[p.Key])
			}
			delete(want, p.Key)
		}
		if len(want) > 0 {
			t.Errorf("not emitted: %v", want)
		}
	})
}

// place is a key of several fields, a string among them.
type place struct {
	City string
	Zone int64
}

func TestKeyTypes(t *testing.T) {
	in := numbers(1_000)
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		byString := countBy(t, in, func(n int) string { return fmt.Sprint(n % 17) }, opts)
		byInt := countBy(t, in, func(n int) int8 { return int8(n%17 - 8) }, opts)
		byBool := countBy(t, in, func(n int) bool { return n%17 == 0 }, opts)
		byStruct := countBy(t, in, func(n int) place { return place{fmt.Sprint(n % 5), int64(n % 3)} }, opts)
		byArray := countBy(t, in, func(n int) [2]uint16 { return [2]uint16{uint16(n % 5), uint16(n % 7)} }, opts)
		if len(byString) != 17 || len(byInt) != 17 || len(byBool) != 2 || len(byStruct) != 15 || len(byArray) != 35 {
			t.Errorf("%d, %d, %d, %d and %d keys", len(byString), len(byInt), len(byBool), len(byStruct), len(byArray))
		}
	})
}

// countBy counts with the engine, compares with a loop, and returns the counts.
func countBy[K comparable](t *testing.T, in []int, key func(int) K, opts []weir.RunOption) map[K]int64 {
	t.Helper()
	var got gathered[weir.Pair[K, int64]]
	job := weir.NewJob("count")
	job.From("in", weir.Slices(in[:len(in)/3], in[len(in)/3:])).KeyBy(key).Count("count").To("out", got.sink())
	mustRun(t, job, opts...)
	want, have := map[K]int64{}, map[K]int64{}
	for _, n := range in {
		want[key(n)]++
	}
	for _, p := range got.all() {
		if have[p.Key]++; p.Value != have[p.Key] {
			t.Fatalf("key %v: update %d is %d", p.Key, have[p.Key], p.Value)
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(have) {
		t.Errorf("counted %v, want %v", have, want)
	}
	return have
}

// bag is an accumulator with everything that needs a pointer.
type bag struct {
	Seen  map[int64]int
	Order []int64
	Label string
	Last  time.Duration
}

// add copies what it changes: what it returns has been emitted before.
func (b bag) add(e event) bag {
	next := bag{Seen: map[int64]int{}, Order: append(slices.Clone(b.Order), e.N), Label: b.Label + "x", Last: time.Duration(e.At)}
	for k, v := range b.Seen {
		next.Seen[k] = v
	}
	next.Seen[e.N%3]++
	return next
}

// TestFoldWithBoxedAccumulators goes over checkpoints and a crash, from a zero
// that isn't empty.
func TestFoldWithBoxedAccumulators(t *testing.T) {
	var in []event
	for i := range int64(300) {
		in = append(in, sec(fmt.Sprint("k", i%7), i))
	}
	zero := bag{Seen: map[int64]int{9: 1}, Order: []int64{-1}, Label: ">"}
	want := map[string]bag{}
	for _, e := range in {
		acc, ok := want[e.Key]
		if !ok {
			acc = zero
		}
		want[e.Key] = acc.add(e)
	}
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		opts = append(opts, weir.StateDir(t.TempDir()), weir.EveryRecords(40))
		var got vault[weir.Pair[string, bag]]
		declare := func(crash int) *weir.Job {
			job := weir.NewJob("bags")
			job.From("in", weir.Slice(in...)).TryMap(crashAt[event](crash)).KeyBy(keyOf).
				Fold("bag", zero, bag.add, weir.EachBarrier()).To("out", &got)
			return job
		}
		mustCrash(t, declare(170), opts...)
		mustRun(t, declare(0), opts...)
		have := map[string]bag{}
		for _, p := range got.all() {
			have[p.Key] = p.Value // the newest of a key comes last
		}
		wantSame(t, texts(have), texts(want))
	})
}

// texts prints a map's entries in order.
func texts[V any](m map[string]V) []string {
	var out []string
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s %+v", k, v))
	}
	sort.Strings(out)
	return out
}

// TestZeroIsNotSharedBetweenKeys: an accumulator that add changes in place is
// still each key's own, and the declared zero is never written to.
func TestZeroIsNotSharedBetweenKeys(t *testing.T) {
	zero := map[string]int{}
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		var got gathered[string]
		job := weir.NewJob("zero")
		job.From("in", weir.Slice(sec("a", 1), sec("b", 2), sec("a", 3), sec("c", 4))).KeyBy(keyOf).
			Fold("seen", zero, func(acc map[string]int, e event) map[string]int {
				acc[e.Key]++
				return acc
			}).
			Map(func(p weir.Pair[string, map[string]int]) string { return fmt.Sprint(p.Key, p.Value) }).
			To("out", got.sink())
		mustRun(t, job, opts...)
		wantSame(t, sorted(got.all()), []string{"amap[a:1]", "amap[a:2]", "bmap[b:1]", "cmap[c:1]"})
		if len(zero) > 0 {
			t.Errorf("the declared zero became %v", zero)
		}
	})
}
