package table

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// model is what a table must look like: a Go map, and a clock that only moves
// forwards. Entries older than ttl are dropped, and refused by keep.
type model[K comparable, V any] struct {
	t       *testing.T
	rng     *rand.Rand
	k       Key
	v       Value
	groups  int
	tab     *Table[K, V]
	pool    *Pool
	want    map[K]V
	now     int64
	history [][]byte // a base and its deltas
	saved   map[K]V  // what history must give
	kept    []keptKey
	newKey  func(*rand.Rand) K
	newVal  func(*rand.Rand, int64) V
	stamp   func(V) int64
}

// keptKey is the text of a key that was handed out, and a copy made then.
type keptKey struct{ alias, copy string }

const ttl = 40

func (m *model[K, V]) fresh(now int64) func(V) bool {
	return func(v V) bool { return m.stamp(v) >= now-ttl }
}

// step does one random thing to both.
func (m *model[K, V]) step() {
	m.now++
	switch n := m.rng.IntN(100); {
	case n < 50:
		m.update(1 + m.rng.IntN(60))
	case n < 75:
		m.remove()
	case n < 78:
		m.expire()
	case n < 92:
		m.freeze(false)
	case n < 95:
		m.freeze(true)
	case n < 98:
		m.restore(1 + m.rng.IntN(5))
	default:
		m.check(m.tab, m.want)
	}
}

func (m *model[K, V]) update(n int) {
	keys := make([]K, n)
	for i := range keys {
		keys[i] = m.newKey(m.rng)
	}
	hash, ids := make([]uint64, n), make([]uint32, n)
	HashAll(m.k, keys, hash)
	m.tab.Locate(hash, keys, ids)
	for i, id := range ids {
		_, known := m.want[keys[i]]
		if known == (id&Fresh != 0) {
			m.t.Fatalf("key %v: id %x, but known is %t", keys[i], id, known)
		}
		id &^= Fresh
		if !known && !reflect.ValueOf(m.tab.Value(id)).Elem().IsZero() {
			m.t.Fatalf("key %v: made with value %v", keys[i], *m.tab.Value(id))
		}
		v := m.newVal(m.rng, m.now)
		*m.tab.Value(id) = v
		m.want[keys[i]] = v
		m.tab.Touch(id)
	}
}

// pick chooses a live entry.
func (m *model[K, V]) pick() (uint32, bool) {
	if m.tab.Len() == 0 {
		return 0, false
	}
	for id := m.rng.Uint32N(m.tab.IDs()); ; id = (id + 1) % m.tab.IDs() {
		if !m.tab.Dead(id) {
			return id, true
		}
	}
}

func (m *model[K, V]) remove() {
	for range m.rng.IntN(20) {
		id, ok := m.pick()
		if !ok {
			return
		}
		k := m.tab.Key(id)
		if s, ok := any(k).(string); ok {
			m.kept = append(m.kept, keptKey{s, string([]byte(s))})
		}
		m.tab.Delete(id)
		delete(m.want, k)
	}
}

// expire drops what keep would refuse.
func (m *model[K, V]) expire() {
	for id := range m.tab.IDs() {
		if !m.tab.Dead(id) && !m.fresh(m.now)(*m.tab.Value(id)) {
			delete(m.want, m.tab.Key(id))
			m.tab.Drop(id)
		}
	}
}

func (m *model[K, V]) freeze(all bool) {
	dirty := m.tab.Dirty()
	f, err := m.tab.Freeze(m.pool, all)
	if err != nil {
		m.t.Fatal(err)
	}
	if all && f.Entries() != len(m.want) || !all && f.Entries() != dirty || m.tab.Dirty() != 0 {
		m.t.Fatalf("freeze(%t): %d entries of %d, %d were dirty, now %d", all, f.Entries(), len(m.want), dirty, m.tab.Dirty())
	}
	m.saved = maps.Clone(m.want)
	done := make(chan []byte)
	go func() { // the table goes on meanwhile
		var b bytes.Buffer
		if err := f.Encode(&b); err != nil {
			m.t.Error(err)
		}
		f.Release()
		done <- b.Bytes()
	}()
	m.update(30)
	m.remove()
	if all {
		m.history = nil
	}
	m.history = append(m.history, <-done)
}

// restore loads the history into so many tables, by key group, and goes on from
// the last checkpoint.
func (m *model[K, V]) restore(tasks int) {
	if len(m.history) == 0 {
		return
	}
	fresh := m.fresh(m.now)
	want := maps.Clone(m.saved)
	maps.DeleteFunc(want, func(_ K, v V) bool { return !fresh(v) })
	keep := func(_ uint64, v *V) bool { return fresh(*v) }
	got := map[K]V{}
	for i := range tasks {
		owns := func(g int) bool { return g*tasks/m.groups == i }
		tab := m.load(owns, keep)
		for id := range tab.IDs() {
			if tab.Dead(id) {
				continue
			}
			if g := Group(tab.HashOf(id), m.groups); !owns(g) {
				m.t.Fatalf("task %d of %d got key %v of group %d", i, tasks, tab.Key(id), g)
			}
			got[tab.Key(id)] = *tab.Value(id)
		}
	}
	m.same(got, want)
	m.tab, m.want = m.load(nil, keep), want
	m.check(m.tab, want)
	if m.tab.Dirty() != 0 {
		m.t.Fatalf("%d entries are dirty after a load", m.tab.Dirty())
	}
}

func (m *model[K, V]) load(owns func(int) bool, keep func(uint64, *V) bool) *Table[K, V] {
	tab := New[K, V](m.k, m.v, m.groups)
	for i, b := range m.history {
		rest, err := tab.Load(append(slices.Clone(b), "rest"...), m.k.Schema(), m.v.Schema(), owns, keep)
		if err != nil || string(rest) != "rest" {
			m.t.Fatalf("section %d: rest %q, %v", i, rest, err)
		}
	}
	return tab
}

func (m *model[K, V]) same(got, want map[K]V) {
	m.t.Helper()
	if len(got) != len(want) {
		m.t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for k, w := range want {
		if g, ok := got[k]; !ok || !reflect.DeepEqual(g, w) {
			m.t.Fatalf("key %v: %v (%t), want %v", k, g, ok, w)
		}
	}
}

func (m *model[K, V]) check(tab *Table[K, V], want map[K]V) {
	m.t.Helper()
	got := map[K]V{}
	for id := range tab.IDs() {
		if !tab.Dead(id) {
			got[tab.Key(id)] = *tab.Value(id)
		}
	}
	m.same(got, want)
	if tab.Len() != len(want) {
		m.t.Fatalf("Len is %d, want %d", tab.Len(), len(want))
	}
	for k := range want {
		id, ok := tab.Find(Hash(m.k, &k), k)
		if !ok || tab.Key(id) != k || tab.HashOf(id) != Hash(m.k, &k) {
			m.t.Fatalf("key %v: found %t, id %d", k, ok, id)
		}
	}
	for range 20 {
		k := m.newKey(m.rng)
		if _, ok := tab.Find(Hash(m.k, &k), k); ok != has(want, k) {
			m.t.Fatalf("key %v: found %t", k, ok)
		}
	}
}

func has[K comparable, V any](m map[K]V, k K) bool { _, ok := m[k]; return ok }

func runModel[K comparable, V any](t *testing.T, newKey func(*rand.Rand) K, newVal func(*rand.Rand, int64) V, stamp func(V) int64) {
	steps := 1500
	if testing.Short() {
		steps = 300
	}
	for _, groups := range []int{1, 7, 128} {
		seed := uint64(time.Now().UnixNano())
		t.Run(fmt.Sprintf("groups=%d/seed=%d", groups, seed), func(t *testing.T) {
			k, v := layouts[K, V](t)
			m := &model[K, V]{
				t: t, rng: rand.New(rand.NewPCG(seed, 1)), k: k, v: v, groups: groups, pool: NewPool(),
				tab: New[K, V](k, v, groups), want: map[K]V{}, newKey: newKey, newVal: newVal, stamp: stamp,
			}
			for range steps {
				m.step()
			}
			m.freeze(false)
			m.restore(3)
			for _, k := range m.kept {
				if k.alias != k.copy {
					t.Fatalf("a key that was %q became %q", k.copy, k.alias)
				}
			}
		})
	}
}

type modelKey struct {
	User string
	Day  int32
	Bot  bool
	Tags [2]string
}

type modelFixed struct {
	A uint32
	B [3]bool
	C int8
}

type modelFlat struct {
	Bot  bool
	At   int64
	Sum  float32
	Many [3]int16
}

type modelBoxed struct {
	At    int64
	Names []string
	Sums  map[string]int64
	Last  *time.Time
}

func randText(r *rand.Rand) string {
	n := r.IntN(12)
	if r.IntN(4000) == 0 {
		n = 1 + r.IntN(chunkMax+9)
	}
	b := bytes.Repeat([]byte{byte('a' + r.IntN(3))}, n)
	return string(b) + fmt.Sprint(r.IntN(60))
}

func TestModel(t *testing.T) {
	ints := func(r *rand.Rand, now int64) int64 { return now }
	stamp := func(v int64) int64 { return v }
	t.Run("string", func(t *testing.T) { runModel(t, randText, ints, stamp) })
	t.Run("int", func(t *testing.T) {
		runModel(t, func(r *rand.Rand) int { return r.IntN(900) - 450 }, ints, stamp)
	})
	t.Run("fixed and flat", func(t *testing.T) {
		runModel(t, func(r *rand.Rand) modelFixed {
			return modelFixed{A: r.Uint32N(30), B: [3]bool{r.IntN(2) == 0, true, r.IntN(2) == 0}, C: int8(r.IntN(4) - 2)}
		}, func(r *rand.Rand, now int64) modelFlat {
			return modelFlat{Bot: r.IntN(2) == 0, At: now, Sum: r.Float32(), Many: [3]int16{1, 2, int16(r.IntN(9))}}
		}, func(v modelFlat) int64 { return v.At })
	})
	t.Run("composite and boxed", func(t *testing.T) {
		runModel(t, func(r *rand.Rand) modelKey {
			return modelKey{randText(r), r.Int32N(2), r.IntN(2) == 0, [2]string{"", fmt.Sprint(r.IntN(2))}}
		}, func(r *rand.Rand, now int64) modelBoxed {
			v := modelBoxed{At: now, Sums: map[string]int64{}}
			for range r.IntN(4) {
				v.Names = append(v.Names, randText(r))
				v.Sums[randText(r)] = r.Int64()
			}
			if r.IntN(2) == 0 {
				at := time.Unix(now, r.Int64N(1e9)).UTC()
				v.Last = &at
			}
			return v
		}, func(v modelBoxed) int64 { return v.At })
	})
	t.Run("no bytes", func(t *testing.T) {
		runModel(t, func(*rand.Rand) struct{} { return struct{}{} },
			func(_ *rand.Rand, now int64) int64 { return now }, stamp)
	})
}
