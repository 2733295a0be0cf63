package table

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"
)

type (
	myString string
	myInt    int16
	pair     struct{ A, B int32 }
	inner    struct { //nolint:unused // by the type that holds it
		x uint8
		y bool
	}
	unexported struct {
		a  uint16 //nolint:unused // by its bytes
		in inner  //nolint:unused // by its bytes
	}
	blank struct {
		A int32
		_ int32
		B int64
	}
	gap struct {
		A int8
		B int32
	}
	tail struct {
		A int64
		B int8
	}
	deep struct {
		Name string
		In   struct{ Rates [2]float64 }
	}
)

func kindOf[K comparable]() (string, keyForm, error) {
	k, err := KeyOf[K]()
	if err != nil {
		return "", 0, err
	}
	return k.Schema(), k.l.form, nil
}

func TestKeyOfAccepts(t *testing.T) {
	for _, c := range []struct {
		of     func() (string, keyForm, error)
		schema string
		form   keyForm
	}{
		{kindOf[string], "string", keyString},
		{kindOf[myString], "string", keyString},
		{kindOf[int], "int64", keyFixed},
		{kindOf[uint], "uint64", keyFixed},
		{kindOf[myInt], "int16", keyFixed},
		{kindOf[bool], "bool", keyFixed},
		{kindOf[rune], "int32", keyFixed},
		{kindOf[time.Duration], "int64", keyFixed},
		{kindOf[[16]byte], "[16]uint8", keyFixed},
		{kindOf[[200]byte], "[200]uint8", keyComposite},
		{kindOf[pair], "struct{A int32; B int32}", keyFixed},
		{kindOf[unexported], "struct{a uint16; in struct{x uint8; y bool}}", keyFixed},
		{kindOf[blank], "struct{A int32; _ int32; B int64}", keyComposite},
		{kindOf[[2]string], "[2]string", keyComposite},
		{kindOf[userAd], "struct{User string; Ad uint32}", keyComposite},
		{kindOf[modelKey], "struct{User string; Day int32; Bot bool; Tags [2]string}", keyComposite},
		{kindOf[struct{}], "struct{}", keyFixed},
	} {
		schema, form, err := c.of()
		if err != nil || schema != c.schema || form != c.form {
			t.Errorf("%s: schema %q, form %d, %v", c.schema, schema, form, err)
		}
	}
}

func TestKeyOfRefuses(t *testing.T) {
	for _, c := range []struct {
		of   func() (string, keyForm, error)
		want []string
	}{
		{kindOf[float64], []string{"key type float64", "NaN"}},
		{kindOf[deep], []string{"key type table.deep", "field In.Rates[0]", "float64"}},
		{kindOf[complex64], []string{"complex64", "NaN"}},
		{kindOf[*int], []string{"*int", "address"}},
		{kindOf[struct{ P *int }], []string{"field P", "address"}},
		{kindOf[uintptr], []string{"uintptr", "address"}},
		{kindOf[unsafe.Pointer], []string{"address"}},
		{kindOf[any], []string{"interface"}},
		{kindOf[struct{ A [3]error }], []string{"field A[0]", "interface"}},
		{kindOf[chan int], []string{"chan int", "use integers"}},
		{kindOf[gap], []string{"3 bytes of padding after field A", "_ [3]byte"}},
		{kindOf[tail], []string{"7 bytes of padding after field B"}},
		{kindOf[struct{ In [2]gap }], []string{"3 bytes of padding after field In[0].A"}},
		{kindOf[[5000]string], []string{"more than 4096 parts"}},
		{kindOf[time.Time], []string{"time.Time", "field loc", "address"}},
	} {
		schema, _, err := c.of()
		if err == nil {
			t.Errorf("%s: accepted, want an error with %q", schema, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q doesn't say %q", err, w)
			}
		}
	}
}

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		word   uintptr
		little bool
		ok     bool
	}{{8, true, true}, {4, true, false}, {8, false, false}} {
		if err := checkMachine(c.word, c.little); (err == nil) != c.ok {
			t.Errorf("%d bytes, little-endian %t: %v", c.word, c.little, err)
		}
	}
}

func hashOf[K comparable](t *testing.T, key K) uint64 {
	t.Helper()
	k, err := KeyOf[K]()
	if err != nil {
		t.Fatal(err)
	}
	h := Hash(k, &key)
	var all [3]uint64
	HashAll(k, []K{key, key}, all[:])
	if all != [3]uint64{h, h, 0} {
		t.Fatalf("key %v: Hash gives %x, HashAll %x", key, h, all)
	}
	return h
}

// The hash chooses the key group, which is stored: these values never change.
// They were computed with the reference implementation of xxHash (XXH3_64bits)
// over the bytes that the keys must be encoded to.
func TestHashGolden(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"empty", hashOf(t, ""), 0x2d06800538d394c2},
		{"string", hashOf(t, "ad-42"), 0xddf714050902e9c2},
		{"named string", hashOf(t, myString("ad-42")), 0xddf714050902e9c2},
		{"long string", hashOf(t, strings.Repeat("weir", 100)), 0xb11dad24ec303692},
		{"int", hashOf(t, 42), 0xd5a6f8c838df27c8},
		{"int64", hashOf(t, int64(42)), 0xd5a6f8c838df27c8},
		{"int32", hashOf(t, int32(-1)), 0xcd6b1c920d3f662c},
		{"bool", hashOf(t, true), 0xe12ef9d2eb86ceeb},
		{"pair", hashOf(t, pair{1, 2}), 0x0389e2c8892d5450},
		{"composite", hashOf(t, userAd{"ann", 7}), 0xcbef691ed0e2805c},
		{"blank", hashOf(t, blank{A: 1, B: 2}), 0xfbb890e2ef969bde},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

// What a composite key is encoded to, written down by hand.
func TestCompositeBytes(t *testing.T) {
	want := "\x03\x00\x00\x00ann" + "\x07\x00\x00\x00"
	if got := hashOf(t, userAd{"ann", 7}); got != xxh3.HashString(want) {
		t.Errorf("hash %#x isn't that of %q", got, want)
	}
	want = "\x01\x00\x00\x00u" + "\xfe\xff\xff\xff" + "\x01" + "\x00\x00\x00\x00" + "\x02\x00\x00\x00ab"
	if got := hashOf(t, modelKey{"u", -2, true, [2]string{"", "ab"}}); got != xxh3.HashString(want) {
		t.Errorf("hash %#x isn't that of %q", got, want)
	}
	want = "\x01\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00"
	if got := hashOf(t, blank{A: 1, B: 2}); got != xxh3.HashString(want) {
		t.Errorf("hash %#x isn't that of %q: a blank field counts", got, want)
	}
}

// Keys that are equal in Go have equal bytes, and the reverse: strings that
// could be taken for each other's pieces above all.
func TestEqualKeysEqualBytes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	k, err := KeyOf[modelKey]()
	if err != nil {
		t.Fatal(err)
	}
	word := func() string { return strings.Repeat("\x00", rng.IntN(3)) + strings.Repeat("\x01", rng.IntN(2)) }
	key := func() modelKey {
		return modelKey{word(), rng.Int32N(2), rng.IntN(2) == 0, [2]string{word(), word()}}
	}
	equal := 0
	for range 20000 {
		a, b := key(), key()
		x := string(k.l.append(nil, unsafe.Pointer(&a)))
		y := string(k.l.append(nil, unsafe.Pointer(&b)))
		if (a == b) != (x == y) {
			t.Fatalf("%+v and %+v: equal %t, bytes %q and %q", a, b, a == b, x, y)
		}
		if a == b {
			equal++
		}
		var back modelKey
		if !k.l.decode(unsafe.Pointer(&back), x) || back != a {
			t.Fatalf("%+v came back as %+v", a, back)
		}
	}
	if equal == 0 {
		t.Fatal("no pair was equal: the test tests half")
	}
}

// A blank field isn't compared by Go, so what is in it must not matter.
func TestBlankFieldIgnored(t *testing.T) {
	a, b := blank{A: 1, B: 2}, blank{A: 1, B: 2}
	*(*int32)(unsafe.Add(unsafe.Pointer(&a), 4)) = 99
	if a != b {
		t.Fatal("Go compares blank fields after all")
	}
	k, v := layouts[blank, int64](t)
	tab := New[blank, int64](k, v, 8)
	ids := make([]uint32, 2)
	hash := make([]uint64, 2)
	HashAll(k, []blank{a, b}, hash)
	tab.Locate(hash, []blank{a, b}, ids)
	if ids[0]&^Fresh != ids[1] {
		t.Errorf("equal keys got the entries %x and %x", ids[0], ids[1])
	}
}

// Bytes decide: composed and decomposed spellings are two keys, and so are
// invalid UTF-8 and its replacement.
func TestBytesDecide(t *testing.T) {
	keys := []string{"caf\u00e9", "cafe\u0301", "caf\xe9", "caf\ufffd", "caf\u00e9\x00"}
	tab := filled(t, keys)
	if tab.Len() != len(keys) {
		t.Fatalf("%d keys of %d", tab.Len(), len(keys))
	}
	for i, key := range keys {
		if got := tab.Key(uint32(i)); got != key {
			t.Errorf("key %q came back as %q", key, got)
		}
	}
}

func TestGroup(t *testing.T) {
	for _, groups := range []int{1, 2, 3, 100, 128, 1 << 15} {
		for _, h := range []uint64{0, 1, 127, 128, 1<<63 + 5, 1<<64 - 1} {
			if got := uint64(Group(h, groups)); got != h-h/uint64(groups)*uint64(groups) {
				t.Errorf("group of %#x of %d is %d", h, groups, got)
			}
		}
	}
}

// A task owns few groups, so the low bits of its hashes say little: the index
// must not crowd because of that.
func TestIndexSpreadsOneGroup(t *testing.T) {
	k, v := layouts[int, int64](t)
	tab := New[int, int64](k, v, 1024)
	ids := make([]uint32, 1)
	for i, n := 0, 0; n < 3000; i++ {
		if h := Hash(k, &i); Group(h, 1024) == 5 {
			tab.Locate([]uint64{h}, []int{i}, ids)
			n++
		}
	}
	run, longest := 0, 0
	for _, c := range tab.index {
		if run++; c == 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	if longest > 200 {
		t.Errorf("%d cells in a row are taken, of %d with %d keys", longest, len(tab.index), tab.Len())
	}
}

func TestNewChecksLayouts(t *testing.T) {
	k, _ := layouts[string, int64](t)
	_, v := layouts[string, float64](t)
	defer func() {
		if msg := fmt.Sprint(recover()); !strings.Contains(msg, "float64") {
			t.Errorf("panic %q", msg)
		}
	}()
	New[string, int64](k, v, 8)
	t.Error("a table took the layout of other values")
}

func TestShapeOfKeyHasGoLayout(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[unexported](), reflect.TypeFor[pair](), reflect.TypeFor[modelFixed]()} {
		w := keyWalk{}
		s, err := w.walk(typ, "", 0)
		if err != nil || s.size != int(typ.Size()) {
			t.Errorf("%v: size %d, %v", typ, s.size, err)
		}
	}
}
