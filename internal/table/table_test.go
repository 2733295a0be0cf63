package table

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// contents is a table as a Go map.
func contents[K comparable, V any](t *Table[K, V]) map[K]V {
	m := map[K]V{}
	for id := range t.IDs() {
		if !t.Dead(id) {
			m[t.Key(id)] = *t.Value(id)
		}
	}
	return m
}

// apply loads sections, oldest first.
func apply(t *testing.T, sections ...[]byte) map[string]int64 {
	t.Helper()
	k, v := layouts[string, int64](t)
	tab := New[string, int64](k, v, 128)
	for _, b := range sections {
		if _, err := tab.Load(b, "string", "int64", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return contents(tab)
}

func TestDeleteAndDrop(t *testing.T) {
	tab := filled(t, []string{"stays", "deleted", "dropped", "again", "twice"})
	base := save(t, tab, false)
	id := func(key string) uint32 {
		i, ok := tab.Find(Hash(Key{tab.key}, &key), key)
		if !ok {
			t.Fatalf("key %s is gone", key)
		}
		return i
	}
	tab.Delete(id("deleted"))
	tab.Drop(id("dropped"))
	tab.Delete(id("again"))
	put(tab, "again", 77)
	tab.Delete(id("twice"))
	put(tab, "twice", 1)
	tab.Delete(id("twice"))
	tab.Delete(put(tab, "short-lived", 5))
	if got := tab.Dirty(); got != 6 { // 5 tombstones and "again"
		t.Errorf("%d dirty", got)
	}
	delta := save(t, tab, false)
	if got := tab.Dirty(); got != 0 {
		t.Errorf("%d dirty after the freeze", got)
	}
	want := map[string]int64{"stays": 0, "dropped": 2, "again": 77}
	if got := apply(t, base, delta); !maps.Equal(got, want) {
		t.Errorf("restored %v, want %v", got, want)
	}
	tab.Delete(id("again"))
	full := save(t, tab, true)
	if got := apply(t, full); !maps.Equal(got, map[string]int64{"stays": 0}) {
		t.Errorf("full: %v", got)
	}
	if f, err := tab.Freeze(NewPool(), false); err != nil || f.Entries() != 0 {
		t.Errorf("a full freeze left %d entries for the next, %v", f.Entries(), err)
	}
}

// A tombstone holds its key's bytes until it is frozen, and no longer.
func TestTombstonesLetGo(t *testing.T) {
	tab := filled(t, stringKeys(100))
	for id := range tab.IDs() {
		tab.Delete(id)
	}
	if tab.arena.used != 1200 {
		t.Errorf("%d bytes of keys are held for tombstones, want 1200", tab.arena.used)
	}
	save(t, tab, false)
	if tab.arena.used != 0 || len(tab.tombs) != 0 {
		t.Errorf("%d bytes of keys and %d words are held after the freeze", tab.arena.used, len(tab.tombs))
	}
}

// Keys with one hash are still different keys.
func TestEqualHashes(t *testing.T) {
	testEqualHashes(t, stringKeys(50))
	testEqualHashes(t, []int{1, 2, 3, 4, -5})
	testEqualHashes(t, []userAd{{"a", 1}, {"a", 2}, {"b", 1}})
}

func testEqualHashes[K comparable](t *testing.T, keys []K) {
	k, v := layouts[K, int64](t)
	tab := New[K, int64](k, v, 4)
	hash, ids := make([]uint64, len(keys)), make([]uint32, len(keys))
	for i := range hash {
		hash[i] = 0 // the hardest: looks like an empty cell
	}
	for round := range 2 {
		tab.Locate(hash, keys, ids)
		for i, id := range ids {
			if fresh := id&Fresh != 0; fresh != (round == 0) || tab.Key(id&^Fresh) != keys[i] {
				t.Fatalf("round %d: key %v got id %x, of key %v", round, keys[i], id, tab.Key(id&^Fresh))
			}
		}
	}
	tab.Delete(ids[0])
	for i, key := range keys {
		if id, ok := tab.Find(0, key); ok != (i > 0) || ok && id != ids[i] {
			t.Errorf("key %v: id %d, %t", key, id, ok)
		}
	}
}

func TestIDsReused(t *testing.T) {
	tab := filled(t, stringKeys(100))
	for id := range uint32(50) {
		tab.Delete(2 * id)
	}
	for i := range 50 {
		id := put(tab, fmt.Sprint("new", i), 1)
		if id%2 != 0 || id >= 100 {
			t.Errorf("key %d got id %d", i, id)
		}
	}
	if tab.IDs() != 100 || tab.Len() != 100 {
		t.Errorf("%d ids, %d entries", tab.IDs(), tab.Len())
	}
}

func TestChanged(t *testing.T) {
	tab := filled(t, stringKeys(500))
	save(t, tab, false)
	for _, id := range []uint32{499, 3, 64, 65, 4} {
		tab.Touch(id)
		tab.Touch(id)
	}
	var got []uint32
	tab.Changed(func(id uint32) {
		if got = append(got, id); id == 3 {
			tab.Drop(4)
		}
	})
	if want := []uint32{3, 64, 65, 499}; !slices.Equal(got, want) {
		t.Errorf("visited %v, want %v", got, want)
	}
	if tab.Dirty() != 4 {
		t.Errorf("%d dirty", tab.Dirty())
	}
}

// Keys around the sizes at which the arena keeps them another way.
func TestKeyLengths(t *testing.T) {
	var keys []string
	for _, n := range []int{0, 1, chunkMin, chunkMin + 1, ownChunk - 1, ownChunk, ownChunk + 1, chunkMax, chunkMax + 1, longKey - 1, longKey, longKey + 1, 20 << 20} {
		keys = append(keys, strings.Repeat("k", n))
	}
	tab := filled(t, keys)
	back := loaded[string, int64](t, save(t, tab, true), 128)
	for i, key := range keys {
		if tab.Key(uint32(i)) != key {
			t.Errorf("key of %d bytes came back with %d", len(key), len(tab.Key(uint32(i))))
		}
		if _, ok := back.Find(tab.HashOf(uint32(i)), key); !ok {
			t.Errorf("key of %d bytes is gone after a load", len(key))
		}
	}
	held := tab.Bytes()
	for id := range tab.IDs() {
		tab.Drop(id)
	}
	if freed := held - tab.Bytes(); freed < 50<<20 {
		t.Errorf("dropping all keys freed %d bytes of %d", freed, held)
	}
}

func TestKeyTooLongToSave(t *testing.T) {
	tab := filled(t, []string{"a"})
	tab.arena.maxKey = 1000 // so that the test needs no gigabyte
	id := put(tab, strings.Repeat("k", 1001), 1)
	if _, err := tab.Freeze(NewPool(), false); err == nil || !strings.Contains(err.Error(), "1 keys are longer than 1000 bytes") {
		t.Fatalf("%v", err)
	}
	if tab.Dirty() != 2 {
		t.Errorf("%d dirty after a freeze that failed", tab.Dirty())
	}
	tab.Drop(id)
	if got := apply(t, save(t, tab, false)); len(got) != 1 {
		t.Errorf("saved %v", got)
	}
}

type failing struct{ Fails bool }

func (f failing) MarshalBinary() ([]byte, error) {
	if f.Fails {
		return nil, errFull
	}
	return []byte{1}, nil
}
func (f *failing) UnmarshalBinary([]byte) error { return nil }

func TestFreezeNamesKeyOfBadValue(t *testing.T) {
	k, v := layouts[string, map[string]failing](t)
	tab := New[string, map[string]failing](k, v, 8)
	put(tab, "good", nil)
	id := put(tab, "bad", map[string]failing{"x": {true}})
	p := NewPool()
	if _, err := tab.Freeze(p, false); err == nil || !strings.Contains(err.Error(), "value of key bad") || !strings.Contains(err.Error(), "disk full") {
		t.Fatalf("%v", err)
	}
	if tab.Dirty() != 2 {
		t.Errorf("%d dirty after a freeze that failed", tab.Dirty())
	}
	*tab.Value(id) = map[string]failing{"x": {}}
	f, err := tab.Freeze(p, false)
	if err != nil || f.Entries() != 2 {
		t.Fatalf("%d entries, %v", f.Entries(), err)
	}
}

// Keys that were handed out stay as they were, whatever happens to the table.
func TestHandedOutKeysStay(t *testing.T) {
	keys := stringKeys(20000)
	tab := filled(t, keys)
	var out []string
	for id := range tab.IDs() {
		out = append(out, tab.Key(id))
	}
	for id := range tab.IDs() {
		if id%50 != 0 {
			tab.Drop(id) // most: the arena repacks
		}
	}
	for i := range 20000 {
		put(tab, fmt.Sprintf("KEY-%08d", i), 1)
	}
	tab.Reset()
	for i := range 20000 {
		put(tab, fmt.Sprintf("Key-%08d", i), 1)
	}
	if !slices.Equal(out, keys) {
		t.Error("a key changed after it was handed out")
	}
}

// Memory follows what is left of the keys, though every chunk keeps a few.
func TestArenaRepacks(t *testing.T) {
	pad := strings.Repeat("x", 200)
	var keys []string
	for i := range 50_000 {
		keys = append(keys, fmt.Sprint(pad, i))
	}
	tab := filled(t, keys)
	for id := range tab.IDs() {
		switch {
		case id%100 == 0:
		case id%100 == 1:
			tab.Delete(id)
		default:
			tab.Drop(id)
		}
	}
	if tab.arena.held > 2<<20 {
		t.Errorf("the arena holds %d bytes for %d", tab.arena.held, tab.arena.used)
	}
	f, err := tab.Freeze(NewPool(), false)
	if err != nil || f.Entries() != 1000 {
		t.Fatalf("%d entries, %v", f.Entries(), err)
	}
	want := map[string]int64{}
	for i := 0; i < len(keys); i += 100 {
		want[keys[i]] = int64(i % MaxBatch)
	}
	if got := contents(tab); !maps.Equal(got, want) {
		t.Errorf("%d entries are left, want %d", len(got), len(want))
	}
}

// Chunks come and go for ever, so their numbers must be used again.
func TestArenaReusesNumbers(t *testing.T) {
	tab := filled(t, []string{})
	for i := range 200_000 {
		tab.Drop(put(tab, fmt.Sprintf("%0100d", i), 1))
	}
	if n := len(tab.arena.chunks); n > 10 {
		t.Errorf("%d chunk numbers for one key at a time", n)
	}
}

func TestReset(t *testing.T) {
	k, v := layouts[string, []int](t)
	tab := New[string, []int](k, v, 8)
	for _, key := range stringKeys(3000) {
		put(tab, key, []int{1})
	}
	tab.Delete(7)
	tab.Reset()
	if tab.Len() != 0 || tab.Dirty() != 0 || tab.IDs() != 0 {
		t.Fatalf("%d entries, %d dirty, %d ids", tab.Len(), tab.Dirty(), tab.IDs())
	}
	held := tab.Bytes()
	tab.Touch(put(tab, stringKeys(1)[0], nil))
	if tab.Dirty() != 1 { // it counted as changed before
		t.Errorf("%d dirty", tab.Dirty())
	}
	tab.Drop(0)
	for _, key := range stringKeys(3000) {
		hash, ids := []uint64{Hash(k, &key)}, []uint32{0}
		tab.Locate(hash, []string{key}, ids)
		if ids[0]&Fresh == 0 || *tab.Value(ids[0] &^ Fresh) != nil {
			t.Fatalf("key %s: id %x, value %v", key, ids[0], *tab.Value(ids[0] &^ Fresh))
		}
	}
	if grown := tab.Bytes() - held; grown > 200<<10 {
		t.Errorf("a table that was reset grew by %d bytes", grown)
	}
}

// A pointer to a value stays right while the table grows.
func TestValuePointersStay(t *testing.T) {
	testPointers(t, func(i int) int64 { return int64(i) })
	testPointers(t, func(i int) string { return fmt.Sprint(i) })
}

func testPointers[V comparable](t *testing.T, val func(int) V) {
	k, l := layouts[int, V](t)
	tab := New[int, V](k, l, 8)
	first := tab.Value(put(tab, 0, val(0)))
	for i := range 10_000 {
		put(tab, i+1, val(i))
	}
	*first = val(42)
	if got := *tab.Value(0); got != val(42) {
		t.Errorf("value %v", got)
	}
}

// A frozen copy is encoded while its table changes in every way. Run with -race.
func TestFrozenWhileTableChanges(t *testing.T) {
	keys := stringKeys(30_000)
	tab := filled(t, keys)
	want := contents(tab)
	p := NewPool()
	var wg sync.WaitGroup
	defer wg.Wait()
	for round := range 6 {
		f, err := tab.Freeze(p, true)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, k, v := want, Key{tab.key}, Value{tab.value}
		wg.Go(func() {
			var b bytes.Buffer
			if err := f.Encode(&b); err != nil {
				t.Error(err)
				return
			}
			f.Release()
			back := New[string, int64](k, v, 128)
			if _, err := back.Load(b.Bytes(), "string", "int64", nil, nil); err != nil {
				t.Error(err)
			}
			if !maps.Equal(contents(back), snapshot) {
				t.Errorf("round %d: %d entries, want %d, or others", round, back.Len(), len(snapshot))
			}
		})
		switch round % 3 {
		case 0:
			for i := range 10_000 {
				put(tab, fmt.Sprintf("more-%d-%d", round, i), int64(i))
			}
		case 1:
			for id := range tab.IDs() {
				if id%8 != 0 && !tab.Dead(id) {
					tab.Delete(id)
				}
			}
		case 2:
			tab.Reset()
			for i, key := range keys {
				put(tab, key+"!", int64(round*i))
			}
		}
		want = contents(tab)
	}
}

func TestPoolKeepsTwo(t *testing.T) {
	tab := filled(t, stringKeys(1000))
	p := NewPool()
	var all []*Frozen
	for range 3 {
		f, err := tab.Freeze(p, true)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		f.Release()
		f.Release() // does nothing
	}
	if n := len(p.copies); n != 2 {
		t.Errorf("the pool keeps %d copies", n)
	}
	f, err := tab.Freeze(p, true)
	if err != nil || len(p.copies) != 1 {
		t.Errorf("the pool keeps %d copies after it gave one, %v", len(p.copies), err)
	}
	for _, old := range all {
		old.Release() // an old handle must not free the new copy
	}
	if f.Entries() != 1000 || len(p.copies) != 1 {
		t.Errorf("%d entries, %d copies in the pool", f.Entries(), len(p.copies))
	}
	if got := p.buffer(10); cap(got) > 100 {
		t.Errorf("a buffer of %d bytes for 10", cap(got))
	}
}

// Groups that don't fit into one buffer are written in several passes.
func TestEncodeInPasses(t *testing.T) {
	keys := make([]string, 40)
	for i := range keys {
		keys[i] = fmt.Sprint(i, strings.Repeat("k", 1<<12))
	}
	tab := filled(t, keys)
	var w sizes
	p := NewPool()
	p.deal = 1 << 16
	f, err := tab.Freeze(p, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Encode(&w); err != nil {
		t.Fatal(err)
	}
	if len(w.writes) < 3 || slices.Max(w.writes) > p.deal {
		t.Errorf("writes of %v bytes", w.writes)
	}
	if back := loaded[string, int64](t, w.Bytes(), 128); !maps.Equal(contents(back), contents(tab)) {
		t.Errorf("%d entries of %d, or others", back.Len(), tab.Len())
	}
}

// sizes notes how much each Write took.
type sizes struct {
	bytes.Buffer
	writes []int
}

func (s *sizes) Write(b []byte) (int, error) {
	s.writes = append(s.writes, len(b))
	return s.Buffer.Write(b)
}

func TestNoAllocations(t *testing.T) {
	t.Run("string", func(t *testing.T) { testAllocs(t, stringKeys(MaxBatch)) })
	var fixed []adMinute
	var composite []userAd
	for i := range MaxBatch {
		fixed = append(fixed, adMinute{uint64(i), 1})
		composite = append(composite, userAd{fmt.Sprint(i), 1})
	}
	t.Run("fixed", func(t *testing.T) { testAllocs(t, fixed) })
	t.Run("composite", func(t *testing.T) { testAllocs(t, composite) })
}

func testAllocs[K comparable](t *testing.T, keys []K) {
	tab := filled(t, keys)
	k := Key{tab.key}
	hash, ids := make([]uint64, len(keys)), make([]uint32, len(keys))
	var sum int
	step := func() {
		HashAll(k, keys, hash)
		tab.Locate(hash, keys, ids)
		for i, id := range ids {
			*tab.Value(id)++
			tab.Touch(id)
			if tab.Key(id) == keys[i] {
				sum++
			}
		}
		if id, ok := tab.Find(Hash(k, &keys[3]), keys[3]); !ok || id != 3 {
			t.Errorf("found %d, %t", id, ok)
		}
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if sum == 0 {
		t.Error("no key came back")
	}
	p := NewPool()
	freeze := func() {
		f, err := tab.Freeze(p, true)
		if err != nil {
			t.Fatal(err)
		}
		f.Release()
	}
	if n := testing.AllocsPerRun(100, freeze); n > 1 { // the handle
		t.Errorf("%v allocations a freeze", n)
	}
	f, err := tab.Freeze(p, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	encode := func() {
		if err := f.Encode(io.Discard); err != nil {
			t.Error(err)
		}
	}
	if n := testing.AllocsPerRun(100, encode); n > 15 {
		t.Errorf("%v allocations a section", n)
	}
}

// 10,000 keys of 12 bytes and a counter, at a good fill of the index.
func TestBytesPerKey(t *testing.T) {
	const n = 12_000
	tab := filled(t, stringKeys(n))
	if per := float64(tab.Bytes()) / n; per > 64 {
		t.Errorf("%.1f bytes a key", per)
	}
}
