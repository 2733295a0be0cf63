package table

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
)

// chainOf makes a base and deltas by random puts and deletes, and the map that
// they come to.
func chainOf[V any](t *testing.T, rnd *rand.Rand, value func() V) (chain [][]byte, want map[string]V) {
	t.Helper()
	k, v := layouts[string, V](t)
	tab := New[string, V](k, v, 16)
	want = map[string]V{}
	for range 1 + rnd.IntN(6) {
		for range rnd.IntN(60) {
			key := fmt.Sprintf("key-%d", rnd.IntN(80))
			if rnd.IntN(3) == 0 {
				if id, ok := tab.Find(Hash(k, &key), key); ok {
					tab.Delete(id)
				}
				delete(want, key)
				continue
			}
			want[key] = value()
			put(tab, key, want[key])
		}
		chain = append(chain, save(t, tab, len(chain) == 0))
	}
	return chain, want
}

func merged(t *testing.T, chain [][]byte, size int, keep func(int, []byte) bool) [][]byte {
	t.Helper()
	var olds []*Stored
	for _, b := range chain {
		st, err := StoredAt(bytes.NewReader(append([]byte("lead"), b...)), 4)
		if err != nil {
			t.Fatal(err)
		}
		if st.End() != int64(len(b)+4) {
			t.Fatalf("the section ends at %d of %d", st.End(), len(b)+4)
		}
		olds = append(olds, st)
	}
	var m Merger
	var out [][]byte
	for _, run := range Runs(olds, size, nil) {
		var b bytes.Buffer
		n, err := m.Merge(&b, olds, run, nil, keep)
		if err != nil {
			t.Fatal(err)
		}
		s, rest, err := parseSection(b.Bytes())
		live := 0
		for i := range s.listed {
			live += s.group(i).live
		}
		if err != nil || len(rest) > 0 || live != n {
			t.Fatalf("a section of %d entries says %d, %d bytes behind it: %v", n, live, len(rest), err)
		}
		out = append(out, b.Bytes())
	}
	return out
}

func mergesTo[V any](t *testing.T, value func(*rand.Rand) V) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		chain, want := chainOf(t, rnd, func() V { return value(rnd) })
		upTo := 1 + rnd.IntN(len(chain))
		got := merged(t, chain[:upTo], 1+rnd.IntN(2000), nil)
		k, v := layouts[string, V](t)
		tab := New[string, V](k, v, 16)
		for _, b := range append(got, chain[upTo:]...) {
			if _, err := tab.Load(b, k.Schema(), v.Schema(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if have := contents(tab); !reflect.DeepEqual(have, want) {
			t.Fatalf("%d of %d sections merged: got %v, want %v", upTo, len(chain), have, want)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Run("int64", func(t *testing.T) { mergesTo(t, (*rand.Rand).Int64) })
	t.Run("struct", func(t *testing.T) {
		type pair struct {
			N int32
			B bool
		}
		mergesTo(t, func(r *rand.Rand) pair { return pair{r.Int32(), r.IntN(2) == 0} })
	})
	t.Run("boxed", func(t *testing.T) {
		mergesTo(t, func(r *rand.Rand) []string { return []string{fmt.Sprint(r.IntN(9)), "x"} })
	})
	t.Run("no value", func(t *testing.T) { mergesTo(t, func(*rand.Rand) struct{} { return struct{}{} }) })
}

// What keep refuses also ends what an older section says of the key.
func TestMergeKeeps(t *testing.T) {
	tab := filled(t, []string{"a", "b"})
	put(tab, "a", 1)
	put(tab, "b", 2)
	base := save(t, tab, true)
	put(tab, "a", 100)
	delta := save(t, tab, false)
	got := merged(t, [][]byte{base, delta}, 1<<20, func(_ int, v []byte) bool { return v[0] != 100 })
	if have := apply(t, got...); !maps.Equal(have, map[string]int64{"b": 2}) {
		t.Fatalf("kept %v", have)
	}
}

// Damage is found or harmless, and never a panic.
func TestMergeDamaged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	chain, _ := chainOf(t, rnd, func() []string { return []string{"v"} })
	found := 0
	for range 3000 {
		b := bytes.Clone(chain[0])
		if rnd.IntN(4) == 0 {
			b = b[:rnd.IntN(len(b))]
		} else {
			b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		}
		st, err := StoredAt(bytes.NewReader(b), 0)
		if err == nil {
			var m Merger
			olds := []*Stored{st}
			for _, run := range Runs(olds, 100, nil) {
				if _, e := m.Merge(&bytes.Buffer{}, olds, run, nil, nil); e != nil {
					err = e
				}
			}
		}
		if err != nil {
			found++
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("damage is reported as %v", err)
			}
		}
	}
	if found == 0 {
		t.Fatal("no damage was found")
	}
}
