package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A section written down by hand, byte by byte, from docs/formats.md.
// With two key groups, "d" is in group 0 and "a" in group 1, by the reference
// implementation of xxHash.
func TestSectionGolden(t *testing.T) {
	want := "WTBL\x01\x01\x00\x00" + // version 1, keys have a length
		"\x00\x00\x00\x00" + "\x08\x00\x00\x00" + // value of 8 bytes
		"\x02\x00\x00\x00" + "\x02\x00\x00\x00" + // 2 groups, both listed
		"\x1f\x00\x00\x00\x00\x00\x00\x00" + // 31 bytes of entries
		"\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "\x01\x00\x00\x00" + "\x12\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00" + "\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "\x0d\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00" + "d" + // tombstone: d was deleted, then made again
		"\x01\x00\x00\x00" + "d" + "\x05\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00" + "a" + "\xff\xff\xff\xff\xff\xff\xff\xff"
	k, v := layouts[string, int64](t)
	tab := New[string, int64](k, v, 2)
	tab.Delete(put(tab, "d", 1))
	put(tab, "d", 5)
	put(tab, "a", -1)
	if got := string(save(t, tab, false)); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestOwnsSkipsWithoutReading(t *testing.T) {
	keys := stringKeys(2000)
	tab := filled(t, keys)
	b := save(t, tab, true)
	s, _, err := parseSection(b)
	if err != nil {
		t.Fatal(err)
	}
	owned := func(g int) bool { return g%3 == 0 }
	want, at := 0, 0
	for i := range s.listed { // destroy what isn't owned
		g := s.group(i)
		if owned(g.group) {
			want += g.live
		} else {
			for j := at; j < at+g.bytes; j++ {
				s.body[j] = 0xff
			}
		}
		at += g.bytes
	}
	k, v := layouts[string, int64](t)
	part := New[string, int64](k, v, 128)
	if _, err := part.Load(b, "string", "int64", owned, nil); err != nil {
		t.Fatal(err)
	}
	if part.Len() != want || want == 0 || want == len(keys) {
		t.Errorf("%d entries, want %d of %d", part.Len(), want, len(keys))
	}
	if _, err := New[string, int64](k, v, 128).Load(b, "string", "int64", nil, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a destroyed group was read: %v", err)
	}
}

// A newer value that keep refuses must not leave the older one behind.
func TestKeepRefusesNewest(t *testing.T) {
	tab := filled(t, []string{"a", "b"})
	base := save(t, tab, true)
	put(tab, "a", 99)
	delta := save(t, tab, false)
	k, v := layouts[string, int64](t)
	got := New[string, int64](k, v, 128)
	for _, b := range [][]byte{base, delta} {
		if _, err := got.Load(b, "string", "int64", nil, func(_ uint64, v *int64) bool { return *v != 99 }); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := got.Find(Hash(k, ptr("a")), "a"); ok || got.Len() != 1 {
		t.Errorf("found %t, %d entries: the refused key is still there", ok, got.Len())
	}
}

// samples are small sections of every kind, and how to load them.
type sample struct {
	name    string
	section []byte
	load    func(tb testing.TB, b []byte) (entries int, bytes int64, rest []byte, err error)
}

func sampleOf[K comparable, V any](tb testing.TB, name string, keys []K, val func(i int) V) sample {
	k, v := layouts[K, V](tb)
	tab := New[K, V](k, v, 4)
	for i, key := range keys {
		put(tab, key, val(i))
	}
	save(tb, tab, false)
	for i, key := range keys {
		id := put(tab, key, val(i+1))
		if i%3 == 0 {
			tab.Delete(id)
		}
	}
	load := func(tb testing.TB, b []byte) (int, int64, []byte, error) {
		tab := New[K, V](k, v, 4)
		empty := tab.Bytes()
		rest, err := tab.Load(b, k.Schema(), v.Schema(), nil, nil)
		if err == nil {
			again := loaded[K, V](tb, save(tb, tab, true), 4)
			if again.Len() != tab.Len() {
				tb.Errorf("%d entries, saved and loaded %d", tab.Len(), again.Len())
			}
			for id := range tab.IDs() {
				if !tab.Dead(id) {
					if _, ok := again.Find(tab.HashOf(id), tab.Key(id)); !ok {
						tb.Errorf("key %v is gone after another round", tab.Key(id))
					}
				}
			}
		}
		return tab.Len(), tab.Bytes() - empty, rest, err
	}
	return sample{name, save(tb, tab, false), load}
}

func samples(tb testing.TB) []sample {
	return []sample{
		sampleOf(tb, "string, flat", stringKeys(7), func(i int) int64 { return int64(i) }),
		sampleOf(tb, "fixed, flat", []modelFixed{{A: 1}, {B: [3]bool{true}}, {C: 1}, {C: 2}}, func(i int) modelFlat { return modelFlat{Bot: i > 1, At: int64(i)} }),
		sampleOf(tb, "int, boxed", []int{1, 2, 3, 4}, func(i int) modelBoxed { return modelBoxed{At: int64(i), Names: []string{"x"}} }),
		sampleOf(tb, "composite, nothing", []modelKey{{User: "a"}, {Day: 1}, {Tags: [2]string{"", "b"}}}, func(int) struct{} { return struct{}{} }),
		sampleOf(tb, "no key, no value", []struct{}{{}}, func(int) struct{} { return struct{}{} }),
	}
}

// Whatever is cut off or changed, a load gives an error or a sound table.
func TestDamagedSections(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.name, func(t *testing.T) {
			if n, _, rest, err := s.load(t, s.section); err != nil || len(rest) > 0 || n == 0 && s.name != "no key, no value" {
				t.Fatalf("undamaged: %d entries, rest %q, %v", n, rest, err)
			}
			for n := range s.section {
				if _, _, _, err := s.load(t, s.section[:n]); !errors.Is(err, ErrCorrupt) {
					t.Errorf("the first %d bytes: %v", n, err)
				}
			}
			for i := range s.section {
				for _, x := range []byte{1, 0x80, 0xff} {
					b := slices.Clone(s.section)
					b[i] ^= x
					_, _, rest, err := s.load(t, b)
					if err == nil && i < headerBytes && len(rest) == 0 {
						t.Errorf("byte %d changed from %x to %x: accepted", i, s.section[i], b[i])
					}
				}
			}
		})
	}
}

func TestDamageNamed(t *testing.T) {
	good := samples(t)[0].section
	good = append(good, make([]byte, 1000)...)
	k, v := layouts[int32, int64](t)
	ints := New[int32, int64](k, v, 4)
	for i := range 40 {
		put(ints, int32(i), 1)
	}
	other := save(t, ints, false)
	le := binary.LittleEndian
	for _, c := range []struct {
		name   string
		damage func(b []byte)
		want   string
	}{
		{"magic", func(b []byte) { b[0] = 'X' }, `starts with "XTBL"`},
		{"version", func(b []byte) { b[4] = 2 }, "version is 2, this program reads version 1"},
		{"flags", func(b []byte) { b[5] |= 4 }, "unknown flags"},
		{"groups", func(b []byte) { le.PutUint32(b[16:], 8) }, "8 key groups, the job has 4"},
		{"key form", func(b []byte) { copy(b, other) }, "aren't those of schema string"},
		{"value size", func(b []byte) { le.PutUint32(b[12:], 0) }, "aren't those of schema int64"},
		{"more entries than bytes", func(b []byte) { le.PutUint32(b[headerBytes+8:], 1<<32-1) }, "entries and"},
		{"fewer entries", func(b []byte) { le.PutUint32(b[headerBytes+8:], 0); le.PutUint32(b[headerBytes+4:], 0) }, "left over"},
		{"group order", func(b []byte) { le.PutUint32(b[headerBytes+groupBytes:], 0) }, "follows group"},
		{"wrong group", func(b []byte) { b[headerBytes+4*groupBytes+4] ^= 1 }, "is listed in group"},
		{"group bytes", func(b []byte) { le.PutUint64(b[headerBytes+12:], 1<<63+1) }, "bytes, "},
		{"key length", func(b []byte) { le.PutUint32(b[headerBytes+4*groupBytes:], 1<<31) }, "a key takes 2147483648 bytes"},
	} {
		b := slices.Clone(good)
		c.damage(b)
		_, _, _, err := samples(t)[0].load(t, b)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A bool from a file is 0 or 1, or Go's own rules are broken.
func TestBoolsChecked(t *testing.T) {
	k, v := layouts[bool, bool](t)
	tab := New[bool, bool](k, v, 1)
	put(tab, true, true)
	b := save(t, tab, false)
	at := bytes.LastIndexByte(b[:len(b)-8], 1) // the key is one byte, then comes the value
	for _, i := range []int{at, len(b) - 8} {
		c := slices.Clone(b)
		c[i] = 2
		if _, err := New[bool, bool](k, v, 1).Load(c, "bool", "bool", nil, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "holds 2") {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

func TestCompositeBoolsChecked(t *testing.T) {
	type key struct {
		S string
		B bool
	}
	k, v := layouts[key, struct{}](t)
	tab := New[key, struct{}](k, v, 1)
	put(tab, key{"x", true}, struct{}{})
	b := save(t, tab, false)
	b[len(b)-1] = 2
	if _, err := New[key, struct{}](k, v, 1).Load(b, k.Schema(), v.Schema(), nil, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "isn't a struct{S string; B bool}") {
		t.Errorf("%v", err)
	}
}

// Entries without bytes can't be counted against the size: there is one at most.
func TestManyEntriesWithoutBytes(t *testing.T) {
	s := samples(t)[4]
	for _, at := range []int{4, 8} {
		b := slices.Clone(s.section)
		binary.LittleEndian.PutUint32(b[headerBytes+at:], 2)
		if _, _, _, err := s.load(t, b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "more than once") {
			t.Errorf("2 at %d: %v", at, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	all := samples(f)
	for i, s := range all {
		f.Add(i, s.section)
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		s := all[uint(i)%uint(len(all))]
		_, held, rest, err := s.load(t, b)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v isn't ErrCorrupt", s.name, err)
		}
		if limit := int64(1<<20 + 100*len(b)); held > limit {
			t.Errorf("%s: %d bytes made the table take %d", s.name, len(b), held)
		}
		if _, behind, bad := parseSection(b); err == nil && (bad != nil || !bytes.Equal(behind, rest)) {
			t.Errorf("%s: Load leaves %d bytes, the section's sizes %d, %v", s.name, len(rest), len(behind), bad)
		}
	})
}

func TestWriteErrors(t *testing.T) {
	tab := filled(t, stringKeys(10))
	full := save(t, tab, true)
	for n := range []int{0, headerBytes, len(full) - 1} {
		f, err := tab.Freeze(NewPool(), true)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Encode(&limited{n}); !errors.Is(err, errFull) {
			t.Errorf("full after %d bytes: %v", n, err)
		}
		f.Release()
	}
}

var errFull = fmt.Errorf("disk full")

// limited takes so many bytes.
type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.left {
		return l.left, errFull
	}
	l.left -= len(b)
	return len(b), nil
}
