package table

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
)

// stringKeys are n keys of 12 bytes.
func stringKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%08d", i)
	}
	return keys
}

func layouts[K comparable, V any](tb testing.TB) (Key, Value) {
	tb.Helper()
	k, err := KeyOf[K]()
	if err != nil {
		tb.Fatal(err)
	}
	v, err := ValueOf[V]()
	if err != nil {
		tb.Fatal(err)
	}
	return k, v
}

// filled is a table with every key, touched.
func filled[K comparable](tb testing.TB, keys []K) *Table[K, int64] {
	tb.Helper()
	k, v := layouts[K, int64](tb)
	t := New[K, int64](k, v, 128)
	var hash [MaxBatch]uint64
	var ids [MaxBatch]uint32
	for len(keys) > 0 {
		n := min(len(keys), MaxBatch)
		HashAll(k, keys[:n], hash[:n])
		t.Locate(hash[:n], keys[:n], ids[:n])
		for i, id := range ids[:n] {
			*t.Value(id &^ Fresh) = int64(i)
			t.Touch(id &^ Fresh)
		}
		keys = keys[n:]
	}
	return t
}

// benchLocate counts keys in random order, hashes ready, as a step behind an
// exchange does.
func benchLocate[K comparable](b *testing.B, keys []K) {
	t := filled(b, keys)
	k, _ := layouts[K, int64](b)
	rng := rand.New(rand.NewPCG(1, 2))
	recs := make([]K, max(1<<17, min(len(keys), 1<<20)))
	for i := range recs {
		recs[i] = keys[rng.IntN(len(keys))]
	}
	hash := make([]uint64, len(recs))
	HashAll(k, recs, hash)
	var ids [MaxBatch]uint32
	at := 0
	for b.Loop() {
		t.Locate(hash[at:at+MaxBatch], recs[at:at+MaxBatch], ids[:])
		for _, id := range ids {
			*t.Value(id &^ Fresh)++
			t.Touch(id &^ Fresh)
		}
		if at += MaxBatch; at+MaxBatch > len(recs) {
			at = 0
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxBatch, "ns/record")
}

type adMinute struct {
	Ad     uint64
	Minute int64
}

type userAd struct {
	User string
	Ad   uint32
}

func BenchmarkLocate(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 5_000_000} {
		keys := stringKeys(n)
		b.Run(fmt.Sprintf("string/%d", n), func(b *testing.B) { benchLocate(b, keys) })
		ints := make([]uint64, n)
		structs := make([]adMinute, n)
		composite := make([]userAd, n)
		for i := range n {
			ints[i], structs[i], composite[i] = uint64(i), adMinute{uint64(i), 60}, userAd{keys[i], 7}
		}
		b.Run(fmt.Sprintf("uint64/%d", n), func(b *testing.B) { benchLocate(b, ints) })
		b.Run(fmt.Sprintf("struct/%d", n), func(b *testing.B) { benchLocate(b, structs) })
		b.Run(fmt.Sprintf("composite/%d", n), func(b *testing.B) { benchLocate(b, composite) })
	}
}

// BenchmarkGoMap is the loop that BenchmarkLocate is compared with.
func BenchmarkGoMap(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 5_000_000} {
		keys := stringKeys(n)
		m := map[string]*int64{}
		for _, k := range keys {
			m[k] = new(int64)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		recs := make([]string, max(1<<17, min(len(keys), 1<<20)))
		for i := range recs {
			recs[i] = keys[rng.IntN(len(keys))]
		}
		b.Run(fmt.Sprintf("string/%d", n), func(b *testing.B) {
			at := 0
			for b.Loop() {
				for _, k := range recs[at : at+MaxBatch] {
					*m[k]++
				}
				if at += MaxBatch; at+MaxBatch > len(recs) {
					at = 0
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxBatch, "ns/record")
		})
	}
}

const frozenKeys = 1_000_000

func perKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
}

func BenchmarkFreeze(b *testing.B) {
	t := filled(b, stringKeys(frozenKeys))
	for _, percent := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("dirty%%=%d", percent), func(b *testing.B) {
			p := NewPool()
			rng := rand.New(rand.NewPCG(1, 2))
			n := 0
			for b.Loop() {
				b.StopTimer()
				for id := range t.IDs() {
					if rng.IntN(100) < percent {
						t.Touch(id)
					}
				}
				n = t.Dirty()
				b.StartTimer()
				f, err := t.Freeze(p, false)
				if err != nil {
					b.Fatal(err)
				}
				f.Release()
			}
			perKey(b, n)
		})
	}
}

// BenchmarkFreezeWarm freezes what was just written, in a table that fits the
// caches.
func BenchmarkFreezeWarm(b *testing.B) {
	t := filled(b, stringKeys(50_000))
	p := NewPool()
	n := 0
	for b.Loop() {
		b.StopTimer()
		for id := uint32(0); id < t.IDs(); id += 10 {
			*t.Value(id)++
			t.Touch(id)
		}
		n = t.Dirty()
		b.StartTimer()
		f, err := t.Freeze(p, false)
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
	perKey(b, n)
}

// BenchmarkFreezeBoxed encodes values in the pause.
func BenchmarkFreezeBoxed(b *testing.B) {
	k, v := layouts[string, modelBoxed](b)
	t := New[string, modelBoxed](k, v, 128)
	for i, key := range stringKeys(10_000) {
		put(t, key, modelBoxed{At: int64(i), Names: []string{key}, Sums: map[string]int64{"a": 1, "b": 2}})
	}
	p := NewPool()
	for b.Loop() {
		f, err := t.Freeze(p, true)
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
	perKey(b, 10_000)
}

func BenchmarkEncode(b *testing.B) {
	t := filled(b, stringKeys(frozenKeys))
	p := NewPool()
	f, err := t.Freeze(p, false)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := f.Encode(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	perKey(b, frozenKeys)
}

func BenchmarkLoad(b *testing.B) {
	t := filled(b, stringKeys(frozenKeys))
	k, v := layouts[string, int64](b)
	f, err := t.Freeze(NewPool(), false)
	if err != nil {
		b.Fatal(err)
	}
	var buf bytes.Buffer
	if err := f.Encode(&buf); err != nil {
		b.Fatal(err)
	}
	for _, sub := range []struct {
		name string
		keep func(uint64, *int64) bool
	}{{"all", nil}, {"keep", func(uint64, *int64) bool { return true }}} {
		b.Run(sub.name, func(b *testing.B) {
			for b.Loop() {
				t := New[string, int64](k, v, 128)
				if _, err := t.Load(buf.Bytes(), k.Schema(), v.Schema(), nil, sub.keep); err != nil {
					b.Fatal(err)
				}
			}
			perKey(b, frozenKeys)
		})
	}
}

// BenchmarkMemory fills a table with 10 M keys of 12 bytes and a counter.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000_000
	k, v := layouts[string, int64](b)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		t := New[string, int64](k, v, 128)
		var key [12]byte
		for i := range n {
			one := []string{string(fmt.Appendf(key[:0], "key-%08d", i))}
			var hash [1]uint64
			var id [1]uint32
			HashAll(k, one, hash[:])
			t.Locate(hash[:], one, id[:])
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/key")
		b.ReportMetric(float64(t.Bytes())/n, "reported-B/key")
		runtime.KeepAlive(t)
	}
}
