package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
)

// canon is JSON with the order of names and the spelling of strings taken out.
func canon(t *testing.T, b []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%q isn't one JSON value: %v", b, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// viewed is what a form says of all that sections hold, key by value.
func viewed(t *testing.T, f *Form, sections ...[]byte) map[string]string {
	t.Helper()
	var whole bytes.Buffer
	var at []int64
	for _, s := range sections {
		at = append(at, int64(whole.Len()))
		whole.Write(s)
	}
	var chain []*Stored
	for _, off := range at {
		st, err := StoredAt(bytes.NewReader(whole.Bytes()), off)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, st)
	}
	var v Visitor
	out := map[string]string{}
	for _, g := range Groups(chain) {
		pairs, err := v.Group(f, chain, g, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			key, err := f.AppendKey(nil, p.Key)
			if err != nil {
				t.Fatalf("key %x: %v", p.Key, err)
			}
			val, err := f.AppendValue(nil, p.Value)
			if err != nil {
				t.Fatalf("value of %s, %x: %v", key, p.Value, err)
			}
			out[canon(t, key)] = canon(t, val)
			back, err := f.ParseKey(string(key))
			if err != nil || !contains(back, p.Key) || GroupOf(p.Key, chain[0].Of()) != g {
				t.Fatalf("key %s of group %d is stored as %x, and read back as %x, %v", key, g, p.Key, back, err)
			}
		}
	}
	return out
}

func contains(keys [][]byte, key []byte) bool {
	for _, k := range keys {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// random makes values by reflection; times and the like are made by hand.
func random[T any](_ *testing.T, rng *rand.Rand) (v T) {
	fill(rng, reflect.ValueOf(&v).Elem())
	return v
}

func fill(rng *rand.Rand, v reflect.Value) {
	switch n := rng.IntN(5); v.Kind() {
	case reflect.Bool:
		v.SetBool(n%2 == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rng.Uint64()) >> rng.IntN(64)) // an int8 takes the low bits
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rng.Uint64() >> rng.IntN(64))
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, 1.5, -3, float64(float32(rng.NormFloat64() * 1e30)), float64(float32(rng.ExpFloat64() * 1e-9))}[n])
	case reflect.String:
		var text []rune
		for range rng.IntN(12) {
			text = append(text, []rune("aZ0 \"\\<&>\n\x00\u2028\u007fäж漢😀\ufffd")[rng.IntN(18)])
		}
		v.SetString(string(text))
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem())
		}
	case reflect.Slice:
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.Map:
		if n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for range n - 1 {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(rng, key)
			fill(rng, elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rng, v.Field(i))
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return canon(t, b)
}

// likeJSON saves a table of random keys and values, changes some, deletes some,
// saves that, and compares what is stored with encoding/json's view of it.
func likeJSON[K comparable, V any](t *testing.T, value func(*testing.T, *rand.Rand) V) {
	name := fmt.Sprintf("%v by %v", reflect.TypeFor[V](), reflect.TypeFor[K]())
	t.Run(name, func(t *testing.T) {
		const seed = 20260301
		rng := rand.New(rand.NewPCG(seed, 1))
		if value == nil {
			value = random[V]
		}
		k, v := layouts[K, V](t)
		tab, want := New[K, V](k, v, 16), map[K]V{}
		var saved [][]byte
		for range 3 {
			for range 40 {
				key, val := random[K](t, rng), value(t, rng)
				if n := rng.IntN(4); n < 2 && len(want) > 0 { // one that is there
					for key = range want {
						break
					}
				}
				if rng.IntN(4) == 0 {
					tab.Delete(put(tab, key, val))
					delete(want, key)
					continue
				}
				put(tab, key, val)
				want[key] = val
			}
			saved = append(saved, save(t, tab, len(saved) == 0))
		}
		f, err := FormOf(k.Schema(), v.Schema())
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for key, val := range want {
			texts[jsonOf(t, &key)] = jsonOf(t, &val)
		}
		if diff := cmp.Diff(texts, viewed(t, f, saved...)); diff != "" || len(texts) == 0 && len(want) > 1 {
			t.Errorf("seed %d: %d entries (-encoding/json +got):\n%s", seed, len(want), diff)
		}
	})
}

type (
	jsonFlat struct {
		I8  int8
		U64 uint64
		B   bool
		F32 float32
		F64 float64
		In  struct {
			U16 uint16
			Arr [3]int32
		}
		Bytes [5]byte
		Pairs [2]struct {
			A int16
			B bool
		}
	}
	jsonBox struct {
		Name    string `json:"name"`
		Total   int
		Tags    []string
		Raw     []byte
		Fixed   [4]byte
		ByName  map[string]float64
		ByNum   map[int32]string
		ByU     map[uint64][]int
		Deep    map[string]map[string][]jsonFlat
		P       *jsonFlat
		N       *int64
		Small   float32
		Maybe   string `json:"maybe,omitempty"`
		Nothing []int  `json:",omitempty"`
		JSONLifted
	}
	JSONLifted struct{ Sum float64 }
	jsonTimes  struct {
		At   time.Time
		Opt  *time.Time
		By   map[string]time.Time
		On   map[time.Time]int
		Addr netip.Addr
		Net  netip.Prefix
		Port netip.AddrPort
		Big  big.Int
		More *big.Int
	}
	jsonKey struct {
		Site string
		N    int32
		OK   bool
		Pos  [2]struct {
			T string
			U uint16
		}
	}
	jsonFixedKey struct {
		A int64
		B [3]uint16
		C bool
		D int8
	}
)

func randomTimes(t *testing.T, rng *rand.Rand) jsonTimes {
	at := func() time.Time {
		return time.Unix(rng.Int64N(4e9), rng.Int64N(1e9)).In(time.FixedZone("", 60*(rng.IntN(1600)-800)))
	}
	addr := netip.AddrFrom4(random[[4]byte](t, rng))
	if rng.IntN(2) == 0 {
		addr = netip.AddrFrom16(random[[16]byte](t, rng)).WithZone("eth0")
	}
	v := jsonTimes{By: map[string]time.Time{random[string](t, rng): at()}, On: map[time.Time]int{at(): 1, at(): 2}, Addr: addr,
		Net: netip.PrefixFrom(addr.WithZone(""), rng.IntN(32)), Port: netip.AddrPortFrom(addr, uint16(rng.IntN(65536)))}
	if rng.IntN(4) > 0 {
		v.At = at()
		opt := at()
		v.Opt = &opt
	}
	v.Big.Lsh(big.NewInt(rng.Int64()-rng.Int64()), uint(rng.IntN(90)))
	v.More = big.NewInt(rng.Int64() - rng.Int64())
	if rng.IntN(2) == 0 {
		v.More.Neg(new(big.Int).SetUint64(math.MaxUint64 - uint64(rng.IntN(2)))) // the edge of CBOR's numbers
	}
	return v
}

func TestJSONIsThatOfTheGoType(t *testing.T) {
	likeJSON[string, int64](t, nil)
	likeJSON[string, jsonFlat](t, nil)
	likeJSON[string, jsonBox](t, nil)
	likeJSON[int64, string](t, nil)
	likeJSON[uint16, []byte](t, nil)
	likeJSON[int8, *jsonFlat](t, nil)
	likeJSON[bool, map[string]int](t, nil)
	likeJSON[jsonKey, jsonTimes](t, randomTimes)
	likeJSON[jsonKey, uint8](t, nil)
	likeJSON[jsonFixedKey, float32](t, nil)
	likeJSON[jsonFixedKey, [][]float64](t, nil)
	likeJSON[[3]uint32, [6]bool](t, nil)
	likeJSON[[2]string, struct{}](t, nil)
	likeJSON[[40]int64, float64](t, nil) // too long for an entry
	likeJSON[struct{}, uint64](t, nil)
	likeJSON[string, [9000]int64](t, func(_ *testing.T, rng *rand.Rand) (v [9000]int64) {
		v[rng.IntN(len(v))] = rng.Int64()
		return v
	})
}

// ownCode is a type with an encoding of its own.
type ownCode struct{ b []byte }

func (o ownCode) MarshalBinary() ([]byte, error)    { return o.b, nil }
func (o *ownCode) UnmarshalBinary(b []byte) error   { o.b = b; return nil }
func (o ownCBOR) MarshalCBOR() ([]byte, error)      { return o.raw, nil }
func (o *ownCBOR) UnmarshalCBOR(b []byte) (_ error) { o.raw = bytes.Clone(b); return nil }

type ownCBOR struct{ raw []byte }

// TestJSONOfTheRest has what encoding/json has no word for, or another.
func TestJSONOfTheRest(t *testing.T) {
	type odd struct {
		Bools  map[bool]int
		Pairs  map[[2]byte]string
		Own    ownCode
		Mine   ownCode
		Raw    ownCBOR
		Bad    string
		Floats []float64
		Small  float32
		_      string
	}
	type memory struct {
		C64 complex64
		C   complex128
		NaN float64
		n   int32
		_   [4]byte
	}
	_ = memory{}.n
	tagged, err := cbor.Marshal(cbor.Tag{Number: 42, Content: map[string]any{"a": []any{1, -2, nil, true, 1.5}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		form  *Form
		bytes []byte
		want  string
	}{
		encoded(t, "k", odd{Bools: map[bool]int{true: 1, false: 0}, Pairs: map[[2]byte]string{{1, 2}: "b", {0, 9}: "a"},
			Own: ownCode{[]byte("plain words")}, Mine: ownCode{[]byte{0, 1, 255}}, Raw: ownCBOR{tagged}, Bad: "a\xffb",
			Floats: []float64{math.Inf(1), math.Inf(-1), math.NaN(), 1e300, 5e-324, 0.5, 65504, math.Copysign(0, -1)}, Small: 3.4e38},
			`{"Bools":[{"key":false,"value":0},{"key":true,"value":1}],"Pairs":[{"key":[0,9],"value":"a"},{"key":[1,2],"value":"b"}],`+
				`"Own":"plain words","Mine":{"base64":"AAH/"},"Raw":{"tag":42,"value":{"a":[1,-2,null,true,1.5]}},"Bad":{"base64":"Yf9i"},`+
				`"Floats":["Infinity","-Infinity","NaN",1e+300,5e-324,0.5,65504,-0],"Small":3.4e+38}`),
		encoded(t, "k", memory{C64: 1 + 2i, C: complex(-1, 0.25), NaN: math.NaN(), n: -7},
			`{"C64":{"real":1,"imag":2},"C":{"real":-1,"imag":0.25},"NaN":"NaN","n":-7}`),
		encoded(t, "k", ownCBOR{[]byte{0x83, 0x61, 'x', 0xa1, 0x01, 0xf4, 0xf8, 0xff}}, `["x",[{"key":1,"value":false}],255]`),
		encoded(t, "k", map[string]ownCode{"b": {[]byte("2")}, "a": {[]byte{3}}}, `{"a":{"base64":"Aw=="},"b":"2"}`),
		encoded(t, "k", []*mean{nil, {1, 2}}, `[null,{"Sum":1,"Count":2}]`),
	} {
		got, err := c.form.AppendValue(nil, c.bytes)
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s\nwant %s\n%v", c.form.value, got, c.want, err)
		}
		for n := range c.bytes { // cut short anywhere, it is an error, not a panic
			if _, err := c.form.AppendValue(nil, c.bytes[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d of %d bytes: %v", c.form.value, n, len(c.bytes), err)
			}
		}
		if _, err := c.form.AppendValue(nil, append(bytes.Clone(c.bytes), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with a byte behind it: %v", c.form.value, err)
		}
	}
}

type encodedCase = struct {
	form  *Form
	bytes []byte
	want  string
}

// encoded saves one value and cuts it out of the section again.
func encoded[V any](t *testing.T, key string, val V, want string) encodedCase {
	t.Helper()
	k, v := layouts[string, V](t)
	tab := New[string, V](k, v, 1)
	put(tab, key, val)
	st, err := StoredAt(bytes.NewReader(save(t, tab, true)), 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := FormOf(k.Schema(), v.Schema())
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := new(Visitor).Group(f, []*Stored{st}, 0, nil)
	if err != nil || len(pairs) != 1 {
		t.Fatalf("%d pairs, %v", len(pairs), err)
	}
	return encodedCase{f, bytes.Clone(pairs[0].Value), want}
}

func TestParseKey(t *testing.T) {
	const record = "struct{Site string; _ int32; N int32; OK bool}"
	for _, c := range []struct {
		schema, text string
		want         []string // the stored keys; none: an error that says says
		says         string
	}{
		{"string", "ad-42", []string{"ad-42"}, ""},
		{"string", "", []string{""}, ""},
		{"string", `"ad-42"`, []string{`"ad-42"`, "ad-42"}, ""},
		{"string", `{"base64":"/wA="}`, []string{`{"base64":"/wA="}`, "\xff\x00"}, ""},
		{"string", "42", []string{"42"}, ""},
		{"int16", "-2", []string{"\xfe\xff"}, ""},
		{"int16", "40000", nil, "out of range"},
		{"uint64", "18446744073709551615", []string{strings.Repeat("\xff", 8)}, ""},
		{"uint8", "-1", nil, "invalid syntax"},
		{"int64", "1.5", nil, "invalid syntax"},
		{"int64", "one", nil, "isn't JSON"},
		{"int64", "1 2", nil, "isn't JSON"},
		{"int64", `"1"`, nil, "isn't a int64"},
		{"bool", "true", []string{"\x01"}, ""},
		{"bool", "1", nil, "isn't a bool"},
		{"[2]uint16", "[1,2]", []string{"\x01\x00\x02\x00"}, ""},
		{"[2]uint16", "[1]", nil, "list of 2"},
		{record, `{"Site":"a","N":1,"OK":true}`, []string{"\x01\x00\x00\x00a\x01\x00\x00\x00\x01"}, ""},
		{record, `{"N":1,"OK":true}`, nil, "field Site is missing"},
		{record, `{"Site":"a","N":1,"OK":true,"X":0}`, nil, "no field X"},
		{record, `{"Site":1,"N":1,"OK":true}`, nil, "field Site"},
		{record, `[1]`, nil, "isn't an object"},
	} {
		f, err := FormOf(c.schema, "int64")
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.ParseKey(c.text)
		var texts []string
		for _, k := range got {
			texts = append(texts, string(k))
		}
		if diff := cmp.Diff(c.want, texts); diff != "" || (err == nil) != (c.want != nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s as %s: %q, %v (want %q)", c.text, c.schema, texts, err, c.want)
		}
	}
	if _, err := FormOf("chan int", "int64"); err == nil {
		t.Error("a schema that isn't one was taken")
	}
}

// TestVisitRefuses sections that aren't those of the schemas.
func TestVisitRefuses(t *testing.T) {
	k, v := layouts[string, int64](t)
	tab := New[string, int64](k, v, 4)
	put(tab, "a", 1)
	st, err := StoredAt(bytes.NewReader(save(t, tab, true)), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, schemas := range [][2]string{{"int64", "int64"}, {"string", "string"}, {"string", "struct{A int64; B int64}"}} {
		f, err := FormOf(schemas[0], schemas[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := new(Visitor).Group(f, []*Stored{st}, 0, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: %v", schemas, err)
		}
	}
	if got := Groups([]*Stored{st, st}); len(got) != 1 || got[0] != GroupOf([]byte("a"), 4) {
		t.Errorf("groups %v", got)
	}
}
