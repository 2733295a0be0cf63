package table

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestBytesOfBoxedValues compares the estimate with what the runtime says.
func TestBytesOfBoxedValues(t *testing.T) {
	type inner struct {
		Name string
		Tags []string
	}
	fill := map[string]func(i int) any{
		"strings": func(i int) any { return strings.Repeat("x", 200+i%50) },
		"slices":  func(i int) any { return make([]int64, 100+i%20) },
		"structs": func(i int) any {
			return inner{fmt.Sprint("a name that is long enough to count ", i), []string{strings.Repeat("y", 100), strings.Repeat("z", 50)}}
		},
		"maps": func(i int) any {
			m := map[string]int64{}
			for k := range 40 {
				m[fmt.Sprintf("a key of some length %d %d", i, k)] = int64(k)
			}
			return m
		},
	}
	for name, fresh := range fill {
		t.Run(name, func(t *testing.T) {
			switch fresh(0).(type) {
			case string:
				boxed(t, func(i int) []string { return []string{fresh(i).(string)} })
			case []int64:
				boxed(t, func(i int) []int64 { return fresh(i).([]int64) })
			case inner:
				boxed(t, func(i int) []inner { return []inner{fresh(i).(inner)} })
			case map[string]int64:
				boxed(t, func(i int) map[string]int64 { return fresh(i).(map[string]int64) })
			}
		})
	}
}

func boxed[V any](t *testing.T, value func(i int) V) {
	const n = 2000
	kind, err := KeyOf[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	v, err := ValueOf[V]()
	if err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	tab := New[uint64, V](kind, v, 16)
	for i := range uint64(n) {
		id := locateOne(tab, kind, i)
		*tab.Value(id) = value(int(i))
		tab.Touch(id)
	}
	func() { // nothing of it is alive behind its end
		pool := NewPool()
		fz, err := tab.Freeze(pool, false)
		if err != nil {
			t.Fatal(err)
		}
		if pool.Bytes() <= 0 {
			t.Errorf("a copy of %d values takes %d bytes", n, pool.Bytes())
		}
		fz.Release()
	}()
	grown, says := heap()-before, tab.Bytes()
	if says < grown*7/10 || says > grown*14/10 {
		t.Errorf("the table says %d bytes, the heap has grown by %d", says, grown)
	}
	for i := range uint64(n) {
		tab.Drop(locateOne(tab, kind, i))
	}
	if left := tab.Bytes(); left > says/2 {
		t.Errorf("%d bytes of %d are left, and no entry", left, says)
	}
	runtime.KeepAlive(tab)
}

func locateOne[V any](tab *Table[uint64, V], kind Key, key uint64) uint32 {
	hash, ids := []uint64{0}, []uint32{0}
	HashAll(kind, []uint64{key}, hash)
	tab.Locate(hash, []uint64{key}, ids)
	return ids[0] &^ Fresh
}

// TestGrowth checks that the index grows exactly when it was said to, and that
// nothing large is taken otherwise.
func TestGrowth(t *testing.T) {
	kind, _ := KeyOf[uint64]()
	v, _ := ValueOf[int64]()
	tab := New[uint64, int64](kind, v, 16)
	grown := 0
	for i := range uint64(5000) {
		more, cells := tab.Growth(1), len(tab.index)
		locateOne(tab, kind, i)
		if now := len(tab.index); (now != cells) != (more > 0) || more > 0 && more != int64(8*now) {
			t.Fatalf("entry %d: growth of %d bytes was said, and the index went from %d to %d cells", i, more, cells, now)
		} else if now != cells {
			grown++
		}
	}
	if grown < 4 {
		t.Errorf("the index grew %d times", grown)
	}
}

// TestPoolBytes follows a pool's memory through copies that are kept, dropped
// and replaced.
func TestPoolBytes(t *testing.T) {
	kind, _ := KeyOf[uint64]()
	v, _ := ValueOf[int64]()
	tab := New[uint64, int64](kind, v, 16)
	for i := range uint64(10_000) {
		tab.Touch(locateOne(tab, kind, i))
	}
	pool := NewPool()
	var copies []*Frozen
	for range 4 {
		fz, err := tab.Freeze(pool, true)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, fz)
	}
	each := int64(10_000 * 8 * 3)
	if got := pool.Bytes(); got < 4*each || got > 6*each {
		t.Errorf("4 copies of %d bytes: %d", each, got)
	}
	for _, fz := range copies {
		if err := fz.Encode(discard{}); err != nil {
			t.Fatal(err)
		}
		fz.Release()
	}
	kept := pool.Bytes()
	if kept < 2*each || kept > 5*each { // two copies and a buffer
		t.Errorf("two copies are kept: %d", kept)
	}
	for range 2 {
		fz, err := tab.Freeze(pool, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fz.Release)
	}
	if got := pool.Bytes(); got != kept {
		t.Errorf("copies that are used again: %d bytes, %d before", got, kept)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// TestOnLoadEndsALoad checks that a load asks while it goes on, and stops.
func TestOnLoadEndsALoad(t *testing.T) {
	kind, _ := KeyOf[uint64]()
	v, _ := ValueOf[int64]()
	const n = 3 * checked
	from := New[uint64, int64](kind, v, 16)
	for i := range uint64(n) {
		from.Touch(locateOne(from, kind, i))
	}
	fz, err := from.Freeze(NewPool(), true)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := fz.Encode(&b); err != nil {
		t.Fatal(err)
	}
	full := fmt.Errorf("full")
	for _, limit := range []int{0, 1, 2, 3, 4} {
		to := New[uint64, int64](kind, v, 16)
		var asked []int64
		to.OnLoad(func(more int64) error {
			if asked = append(asked, more); len(asked) > limit {
				return full
			}
			return nil
		})
		_, err := to.Load([]byte(b.String()), kind.Schema(), v.Schema(), nil, nil)
		if want := limit < 4; (err != nil) != want {
			t.Errorf("limit %d: %v", limit, err)
		}
		if asked[0] == 0 || len(asked) > 1 && !reflect.DeepEqual(asked[1:], make([]int64, len(asked)-1)) {
			t.Errorf("limit %d: asked for %v", limit, asked)
		}
		if limit == 0 && to.Len() > 0 {
			t.Error("the index was refused, and there are entries")
		}
	}
}
