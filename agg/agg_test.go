package agg

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// laws checks that a result depends on the set of records alone: neither on
// their order nor on how they are grouped into accumulators.
func laws[V, A, R any](t *testing.T, a Aggregate[V, A, R], gen *rapid.Generator[V]) {
	t.Helper()
	same := func(t *rapid.T, law string, x, y A) {
		if !cmp.Equal(x, y, sameNaN) {
			t.Fatalf("%s: %+v and %+v", law, x, y)
		}
	}
	acc := func(recs []V) A {
		x := a.Zero()
		for _, r := range recs {
			x = a.Add(x, r)
		}
		return x
	}
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(gen, 0, 40)
		x, y, z := recs.Draw(t, "x"), recs.Draw(t, "y"), recs.Draw(t, "z")
		ax, ay, az := acc(x), acc(y), acc(z)
		same(t, "merge with zero", a.Merge(ax, a.Zero()), ax)
		same(t, "merge is commutative", a.Merge(ax, ay), a.Merge(ay, ax))
		same(t, "merge is associative", a.Merge(a.Merge(ax, ay), az), a.Merge(ax, a.Merge(ay, az)))
		rec := gen.Draw(t, "rec")
		same(t, "add after merge", a.Add(a.Merge(ax, ay), rec), a.Merge(ax, a.Add(ay, rec)))
		all := append(append(append([]V{}, x...), y...), z...)
		want := acc(all)
		same(t, "grouping", a.Merge(a.Merge(ax, ay), az), want)
		same(t, "order", acc(rapid.Permutation(all).Draw(t, "order")), want)
	})
}

var sameNaN = cmp.Options{
	cmp.Comparer(func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
	}),
	cmp.Comparer(func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
	}),
}

func self[V any](v V) V { return v }

func TestResultsDependOnTheSetOfRecordsAlone(t *testing.T) {
	floats := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), 0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1)}))
	t.Run("count", func(t *testing.T) { laws(t, Count[string](), rapid.String()) })
	t.Run("sum of int64", func(t *testing.T) { laws(t, Sum(self[int64]), rapid.Int64()) })
	t.Run("sum of uint64", func(t *testing.T) { laws(t, Sum(self[uint64]), rapid.Uint64()) })
	t.Run("sum of int8", func(t *testing.T) { laws(t, Sum(self[int8]), rapid.Int8()) })
	t.Run("mean", func(t *testing.T) { laws(t, Mean(self[int]), rapid.Int()) })
	t.Run("min of int64", func(t *testing.T) { laws(t, Min(self[int64]), rapid.Int64()) })
	t.Run("max of uint8", func(t *testing.T) { laws(t, Max(self[uint8]), rapid.Uint8()) })
	t.Run("min of float64", func(t *testing.T) { laws(t, Min(self[float64]), floats) })
	t.Run("max of float64", func(t *testing.T) { laws(t, Max(self[float64]), floats) })
	t.Run("max of float32", func(t *testing.T) { laws(t, Max(self[float32]), rapid.Float32()) })
	gcd := Of(0, func(acc, n int) int { return gcd(acc, n) }, gcd, self[int])
	t.Run("of functions", func(t *testing.T) { laws(t, gcd, rapid.IntRange(0, 1e9)) })
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Against arithmetic of any length.
func TestSumAndMeanAreExact(t *testing.T) {
	near := func(v int64) *rapid.Generator[int64] { return rapid.Int64Range(v-3*sign(v), v) }
	gen := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 10), rapid.Just[int64](math.MinInt64), near(math.MaxInt64))
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(gen, 1, 30).Draw(t, "recs")
		sum, mean := Sum(self[int64]), Mean(self[int64])
		acc, want := sum.Zero(), new(big.Int)
		for _, r := range recs {
			acc = sum.Add(acc, r)
			want.Add(want, big.NewInt(r))
		}
		got, err := result(sum, acc)
		switch {
		case want.IsInt64() && (err != nil || got != want.Int64()):
			t.Errorf("sum = %d, %v, want %d", got, err, want)
		case !want.IsInt64() && err == nil:
			t.Errorf("sum = %d, want an overflow: it is %d", got, want)
		}
		exact, _ := new(big.Float).SetPrec(200).Quo(new(big.Float).SetPrec(200).SetInt(want), big.NewFloat(float64(len(recs)))).Float64()
		if m := mean.Result(acc); math.Abs(m-exact) > math.Abs(exact)*1e-15 {
			t.Errorf("mean = %v, want %v", m, exact)
		}
	})
}

func sign(v int64) int64 {
	if v < 0 {
		return -1
	}
	return 1
}

// result returns what the aggregate's Result panicked with as err.
func result[T, A, R any](a Aggregate[T, A, R], acc A) (r R, err error) {
	defer func() {
		if e, ok := recover().(error); ok {
			err = e
		}
	}()
	return a.Result(acc), nil
}

func TestSumOverflow(t *testing.T) {
	for _, c := range []struct {
		name string
		recs []int64
		want int64
		bad  string // what the error says; empty: no error
	}{
		{"nothing", nil, 0, ""},
		{"largest", []int64{math.MaxInt64 - 1, 1}, math.MaxInt64, ""},
		{"smallest", []int64{math.MinInt64 + 1, -1}, math.MinInt64, ""},
		{"over and back", []int64{math.MaxInt64, 1, -1}, math.MaxInt64, ""},
		{"under and back", []int64{math.MinInt64, -1, 1}, math.MinInt64, ""},
		{"one too large", []int64{math.MaxInt64, 1}, 0, "sum of 2 records is about 9.223e+18"},
		{"one too small", []int64{math.MinInt64, -1}, 0, "sum of 2 records is about -9.223e+18"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Sum(self[int64])
			acc := s.Zero()
			for _, r := range c.recs {
				acc = s.Add(acc, r)
			}
			got, err := result(s, acc)
			if c.bad == "" {
				if err != nil || got != c.want {
					t.Fatalf("got %d, %v, want %d", got, err, c.want)
				}
				return
			}
			var over *OverflowError
			if !errors.As(err, &over) || !strings.Contains(err.Error(), c.bad) {
				t.Fatalf("got %d, %v, want an OverflowError with %q", got, err, c.bad)
			}
		})
	}
	s := Sum(self[uint64])
	if _, err := result(s, s.Add(s.Zero(), math.MaxInt64+1)); err == nil {
		t.Error("a uint64 above the largest int64 was summed up as if it fitted")
	}
}

// The number of records is kept in an int64, and never wraps around either.
func TestCountsDontWrap(t *testing.T) {
	const most = math.MaxInt64
	counts := Count[int]()
	full := Total{N: most}
	extreme := Extreme[int]{Value: 3, N: most}
	for _, c := range []struct {
		name  string
		do    func()
		wraps bool
	}{
		{"count up to the largest", func() { counts.Add(most-1, 0) }, false},
		{"count past it", func() { counts.Add(most, 0) }, true},
		{"merge up to the largest", func() { counts.Merge(most-5, 5) }, false},
		{"merge past it", func() { counts.Merge(most-5, 6) }, true},
		{"merge two of the largest", func() { counts.Merge(most, most) }, true},
		{"sum", func() { Sum(self[int]).Add(full, 1) }, true},
		{"mean", func() { Mean(self[int]).Add(full, 1) }, true},
		{"merge means", func() { Mean(self[int]).Merge(full, Total{N: 1}) }, true},
		{"min", func() { Min(self[int]).Add(extreme, 1) }, true},
		{"max", func() { Max(self[int]).Merge(extreme, Extreme[int]{Value: 9, N: 1}) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				p := recover()
				var e *CountError
				if err, ok := p.(error); c.wraps && (!ok || !errors.As(err, &e) || !strings.Contains(e.Error(), "9223372036854775807")) || !c.wraps && p != nil {
					t.Errorf("panic %v, want one: %t", p, c.wraps)
				}
			}()
			c.do()
		})
	}
}

func TestExtremes(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name     string
		recs     []float64
		min, max float64
	}{
		{"one", []float64{3}, 3, 3},
		{"negative only", []float64{-2, -7, -3}, -7, -2},
		{"NaN is smallest", []float64{1, nan, math.Inf(-1)}, nan, 1},
		{"NaN only", []float64{nan, nan}, nan, nan},
		{"no -0", []float64{math.Copysign(0, -1), math.Copysign(0, -1)}, 0, 0},
		{"nothing", nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			least, most := Min(self[float64]), Max(self[float64])
			a, b := least.Zero(), most.Zero()
			for _, r := range c.recs {
				a, b = least.Add(a, r), most.Add(b, r)
			}
			if got := least.Result(a); !cmp.Equal(got, c.min, sameNaN) {
				t.Errorf("min = %v, want %v", got, c.min)
			}
			if got := most.Result(b); !cmp.Equal(got, c.max, sameNaN) {
				t.Errorf("max = %v, want %v", got, c.max)
			}
		})
	}
}

// Accumulators must be flat, so that state keeps them without a pointer.
func TestAccumulatorsAreFlat(t *testing.T) {
	for _, a := range []any{Count[int]().Zero(), Sum(self[int]).Zero(), Mean(self[int]).Zero(), Min(self[int8]).Zero(), Max(self[float64]).Zero()} {
		typ := reflect.TypeOf(a)
		if typ.Kind() != reflect.Struct {
			if typ.Kind() != reflect.Int64 {
				t.Errorf("accumulator %v", typ)
			}
			continue
		}
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Type.Kind() < reflect.Bool || f.Type.Kind() > reflect.Complex128 || !f.IsExported() {
				t.Errorf("%v: field %s is a %v", typ, f.Name, f.Type)
			}
		}
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	mean := Mean(self[int])
	acc := mean.Zero()
	if n := testing.AllocsPerRun(100, func() { acc = mean.Add(acc, 7) }); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
	if got := mean.Result(acc); got != 7 {
		t.Errorf("mean of sevens = %v", got)
	}
}
