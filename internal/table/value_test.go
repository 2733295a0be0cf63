package table

import (
	"bytes"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

type (
	mean struct {
		Sum   float64
		Count int64
	}
	hidden struct {
		n     int64
		ready bool
	}
	padded struct {
		A int8
		B int64
		C bool
		_ [3]byte
		D int16
	}
	embedsFlat struct {
		mean
		Max float32
	}
	session struct {
		ID     string `json:"id"`
		Events []string
		Seen   map[string]int64
		At     time.Time
		Best   *mean
		Flags  map[[2]byte]bool
		Peers  map[netip.Addr]uint8
		Places map[pair]string
		Total  *big.Int
		Raw    []byte
		Fixed  [4]byte
	}
	ring struct {
		Name string
		Next *ring
	}
	half struct{ s string }
)

func (h half) MarshalBinary() ([]byte, error) { return []byte(h.s), nil }

func valueOf[V any]() (string, bool, error) {
	v, err := ValueOf[V]()
	if err != nil {
		return "", false, err
	}
	return v.Schema(), v.Flat(), nil
}

func TestValueOfAccepts(t *testing.T) {
	for _, c := range []struct {
		of     func() (string, bool, error)
		schema string
		flat   bool
	}{
		{valueOf[int64], "int64", true},
		{valueOf[int], "int64", true},
		{valueOf[mean], "struct{Sum float64; Count int64}", true},
		{valueOf[hidden], "struct{n int64; ready bool}", true},
		{valueOf[padded], "struct{A int8; B int64; C bool; _ [3]uint8; D int16}", true},
		{valueOf[embedsFlat], "struct{mean struct{Sum float64; Count int64}; Max float32}", true},
		{valueOf[struct{}], "struct{}", true},
		{valueOf[complex128], "complex128", true},
		{valueOf[[10000]int64], "[10000]int64", false},
		{valueOf[string], "string", false},
		{valueOf[*mean], "*struct{Sum float64; Count int64}", false},
		{valueOf[[]string], "[]string", false},
		{valueOf[map[string][]int], "map[string][]int64", false},
		{valueOf[time.Time], "time.Time", false},
		{valueOf[struct {
			mean
			Note string `cbor:"note,omitempty"`
			N    int    `json:",omitempty"`
		}], `struct{Sum float64; Count int64; Note "note" string; N int64}`, false},
		{valueOf[session], `struct{ID "id" string; Events []string; Seen map[string]int64; At time.Time; ` +
			`Best *struct{Sum float64; Count int64}; Flags map[[2]uint8]bool; Peers map["net/netip.Addr"]uint8; ` +
			`Places map[struct{A int32; B int32}]string; Total *"math/big.Int"; Raw []uint8; Fixed [4]uint8}`, false},
	} {
		schema, flat, err := c.of()
		if err != nil || schema != c.schema || flat != c.flat {
			t.Errorf("%s: schema %s, flat %t, %v", c.schema, schema, flat, err)
		}
	}
}

func TestValueOfRefuses(t *testing.T) {
	for _, c := range []struct {
		of   func() (string, bool, error)
		want []string
	}{
		{valueOf[chan int], []string{"value type chan int", "means nothing after a restart"}},
		{valueOf[struct{ F func() }], []string{"field F", "func()"}},
		{valueOf[struct{ A struct{ P unsafe.Pointer } }], []string{"field A.P", "unsafe.Pointer"}},
		{valueOf[struct{ P uintptr }], []string{"field P", "uintptr"}},
		{valueOf[struct {
			P uintptr
			S string
		}], []string{"field P", "uintptr"}},
		{valueOf[struct{ x []int }], []string{"field x isn't exported"}},
		{valueOf[struct{ M map[string]hidden }], []string{"field M[].n isn't exported"}},
		{valueOf[[]any], []string{"field []", "interface"}},
		{valueOf[struct{ E error }], []string{"field E", "which type was in it"}},
		{valueOf[struct {
			S string
			C complex64
		}], []string{"field C", "two floats"}},
		{valueOf[struct {
			S string `json:"-"`
		}], []string{"field S", `"-"`}},
		{valueOf[struct {
			_ struct{} `cbor:",toarray"`
			S string
		}], []string{"field _", "toarray"}},
		{valueOf[struct {
			S string `cbor:"1,keyasint"`
		}], []string{"field S", "keyasint"}},
		{valueOf[struct {
			S string `json:"s"`
			T string `cbor:"s"`
		}], []string{"fields S and T", `"s"`}},
		{valueOf[struct {
			mean
			Sum string
		}], []string{"fields Sum and Sum", "one would be lost"}},
		{valueOf[struct {
			*mean
			S string
		}], []string{"field mean", "embedded pointer"}},
		{valueOf[ring], []string{"field Next", "contains itself"}},
		{valueOf[**mean], []string{"**table.mean", "nil"}},
		{valueOf[*[]int], []string{"*[]int", "nil"}},
		{valueOf[map[*int]int], []string{"pointer in a map key"}},
		{valueOf[half], []string{"table.half writes itself", "can't read itself"}},
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

// put makes one entry.
func put[K comparable, V any](t *Table[K, V], key K, v V) uint32 {
	hash, ids := []uint64{Hash(Key{t.key}, &key)}, []uint32{0}
	t.Locate(hash, []K{key}, ids)
	id := ids[0] &^ Fresh
	*t.Value(id) = v
	t.Touch(id)
	return id
}

// save freezes and encodes.
func save[K comparable, V any](tb testing.TB, t *Table[K, V], all bool) []byte {
	tb.Helper()
	f, err := t.Freeze(NewPool(), all)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Release()
	var b bytes.Buffer
	if err := f.Encode(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// loaded is a table with what one section gives.
func loaded[K comparable, V any](tb testing.TB, b []byte, groups int) *Table[K, V] {
	tb.Helper()
	k, v := layouts[K, V](tb)
	t := New[K, V](k, v, groups)
	if rest, err := t.Load(b, k.Schema(), v.Schema(), nil, nil); err != nil || len(rest) > 0 {
		tb.Fatalf("load: rest %q, %v", rest, err)
	}
	return t
}

// roundTrip saves v and loads it.
func roundTrip[V any](t *testing.T, v V) V {
	t.Helper()
	k, l := layouts[string, V](t)
	tab := New[string, V](k, l, 16)
	put(tab, "k", v)
	back := loaded[string, V](t, save(t, tab, false), 16)
	if back.Len() != 1 {
		t.Fatalf("%d entries", back.Len())
	}
	id, ok := back.Find(Hash(k, ptr("k")), "k")
	if !ok {
		t.Fatal("the key is gone")
	}
	return *back.Value(id)
}

func ptr[T any](v T) *T { return &v }

func TestBoxedRoundTrip(t *testing.T) {
	want := session{
		ID: "a\x00b\xff\xfe", Events: []string{"", "x"}, Seen: map[string]int64{"": math.MinInt64, "\xc3\x28": 9007199254740993},
		At:     time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("", -5400)),
		Best:   &mean{math.Inf(-1), 3},
		Flags:  map[[2]byte]bool{{1, 2}: true, {0, 0}: false},
		Peers:  map[netip.Addr]uint8{netip.MustParseAddr("10.0.0.1"): 1, netip.MustParseAddr("::1"): 2},
		Places: map[pair]string{{1, -2}: "x"}, Raw: []byte{}, Fixed: [4]byte{9, 8, 7, 6},
	}
	want.Total, _ = new(big.Int).SetString("-327267367867168100000", 10)
	equal := []cmp.Option{cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
	got := roundTrip(t, want)
	if d := cmp.Diff(want, got, equal...); d != "" {
		t.Error(d)
	}
	if _, off := got.At.Zone(); off != -5400 {
		t.Errorf("zone offset %d", off)
	}
	if d := cmp.Diff(session{}, roundTrip(t, session{})); d != "" {
		t.Errorf("zero value: %s", d)
	}
	long := make([]int32, 200_000)
	long[199_999] = -7
	if got := roundTrip(t, long); !reflect.DeepEqual(got, long) {
		t.Error("a slice of 200,000 elements came back different")
	}
	if got := roundTrip[*mean](t, nil); got != nil {
		t.Errorf("nil came back as %v", got)
	}
	if got := roundTrip(t, [9000]int64{8999: 5}); got != [9000]int64{8999: 5} {
		t.Error("a large array came back different")
	}
	for _, f := range []float64{math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 65504, 1 << 24} {
		if got := roundTrip(t, []float64{f})[0]; math.Float64bits(got) != math.Float64bits(f) {
			t.Errorf("%v came back as %v", f, got)
		}
	}
}

func TestFlatRoundTrip(t *testing.T) {
	want := padded{A: -1, B: math.MinInt64, C: true, D: -3}
	if got := roundTrip(t, want); got != want {
		t.Errorf("%+v came back as %+v", want, got)
	}
	if got := roundTrip(t, hidden{7, true}); got != (hidden{7, true}) {
		t.Errorf("unexported fields came back as %+v", got)
	}
	roundTrip(t, struct{}{}) // fails unless the entry comes back
	if got := roundTrip(t, complex(1, math.Inf(1))); got != complex(1, math.Inf(1)) {
		t.Errorf("complex came back as %v", got)
	}
	nan := math.Float64frombits(0x7ff8000000000123)
	if got := roundTrip(t, nan); math.Float64bits(got) != math.Float64bits(nan) {
		t.Errorf("NaN came back as %#x", math.Float64bits(got))
	}
}

// Bytes that belong to no field don't reach the disk: equal values give equal
// sections.
func TestPaddingZeroed(t *testing.T) {
	k, v := layouts[string, padded](t)
	var sections [2][]byte
	for i := range sections {
		tab := New[string, padded](k, v, 4)
		id := put(tab, "k", padded{})
		raw := unsafe.Slice((*byte)(unsafe.Pointer(tab.Value(id))), unsafe.Sizeof(padded{}))
		for j := range raw {
			raw[j] = byte(0xff * i)
		}
		p := tab.Value(id)
		p.A, p.B, p.C, p.D = 1, 2, true, 4
		sections[i] = save(t, tab, false)
	}
	if !bytes.Equal(sections[0], sections[1]) {
		t.Errorf("equal values gave\n%x\n%x", sections[0], sections[1])
	}
}

// The same map gives the same bytes, however it was built.
func TestBoxedBytesDeterministic(t *testing.T) {
	k, v := layouts[string, map[string]int64](t)
	var first []byte
	for run := range 200 {
		m := map[string]int64{}
		for i := range 50 {
			n := (i*37 + run*13) % 50
			m[strings.Repeat("k", n)] = int64(n)
		}
		tab := New[string, map[string]int64](k, v, 4)
		put(tab, "k", m)
		b := save(t, tab, true)
		if first == nil {
			first = b
		}
		if !bytes.Equal(b, first) {
			t.Fatalf("run %d gave other bytes", run)
		}
	}
}

func TestShapeHasGoLayout(t *testing.T) {
	check := func(typ reflect.Type) {
		t.Helper()
		s, err := flatShape(typ, "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseSchema(s.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*shape{s, p} {
			if !s.flat || s.size != int(typ.Size()) || s.align != typ.Align() || len(s.fields) != typ.NumField() {
				t.Errorf("%v: %d bytes aligned to %d, Go has %d and %d", typ, s.size, s.align, typ.Size(), typ.Align())
			}
			for i, f := range s.fields {
				if f.off != int(typ.Field(i).Offset) || f.name != typ.Field(i).Name {
					t.Errorf("%v: field %s at %d, Go has it at %d", typ, f.name, f.off, typ.Field(i).Offset)
				}
			}
		}
	}
	check(reflect.TypeFor[padded]())
	check(reflect.TypeFor[modelFlat]())
	check(reflect.TypeFor[embedsFlat]())
	check(reflect.TypeFor[struct{}]())
	check(reflect.TypeFor[struct {
		A int16
		B complex64
		C [3]bool
		D complex128
		E [0]int64
	}]())
	check(reflect.TypeFor[struct {
		A bool
		B struct{}
	}]())
	check(reflect.TypeFor[struct {
		A [2]struct {
			X int8
			Y int16
		}
		B int8
	}]())
}
