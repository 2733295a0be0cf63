package fastjson_test

import (
	"bytes"
	json1 "encoding/json"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/codec/fastjson"
)

// The types that are compared cover every rule of the short way, and what it must
// leave alone.
type (
	plain struct {
		S   string    `json:"s"`
		B   bool      `json:"b"`
		I   int       `json:"i"`
		I8  int8      `json:"i8"`
		I16 int16     `json:"i16"`
		I32 int32     `json:"i32"`
		I64 int64     `json:"i64"`
		U   uint      `json:"u"`
		U8  uint8     `json:"u8"`
		U16 uint16    `json:"u16"`
		U32 uint32    `json:"u32"`
		U64 uint64    `json:"u64"`
		F32 float32   `json:"f32"`
		F64 float64   `json:"f64"`
		T   time.Time `json:"t"`
	}
	nested struct {
		A  *plain   `json:"a,omitzero"`
		L  []nested `json:"l,omitempty"`
		M  few      `json:"m"`
		P  **string `json:"p"`
		N  *int64   `json:"n,omitempty"`
		T  *event   `json:"t,omitzero"`
		Ls []string `json:"ls"`
		Ts []time.Time
	}
	few struct {
		X string  `json:"x,omitempty"`
		Y float64 `json:"y,omitzero"`
		Z []few   `json:"z,omitzero"`
		W word    `json:"w,omitempty"`
	}
	word  string
	event struct {
		ID string `json:"id"`
		At stamp  `json:"at"`
		By color  `json:"by,omitzero"`
	}
	foreign struct {
		Any   any               `json:"any"`
		Map   map[string]few    `json:"map"`
		Bytes []byte            `json:"bytes"`
		Array [2]int            `json:"array"`
		Raw   jsontext.Value    `json:"raw,omitzero"`
		Dur   *wait             `json:"dur,omitempty"`
		Tag   int               `json:"tag,string"`
		Sub   embedding         `json:"sub"`
		Zero  vacant            `json:"zero,omitzero"`
		Keys  map[color]float32 `json:"keys,omitempty"`
	}
	embedding struct {
		few
		Q string `json:"q"`
	}
	names struct {
		O                                  string `json:"ö"`
		HTML                               string `json:"<&>"`
		Dash                               int    `json:"-a"`
		Ignored                            string `json:"-"`
		Long                               string `json:"a_name_that_is_longer_than_a_word_of_eight"`
		F1, F2, F3, F4, F5, F6, F7, F8, F9 int
	}
	// What v2 refuses, or takes in its own way.
	twice struct {
		V int `json:"W"`
		W int
	}
	ignoreCase struct {
		Value int `json:"value,case:ignore"`
	}
	channel struct {
		C chan int
		V int
	}
	recursive struct {
		Next *recursive `json:"next,omitempty"`
		V    map[string]*recursive
	}
	pointed struct {
		T *time.Time   `json:"t,omitzero"`
		S *stamp       `json:"s,omitempty"`
		C *color       `json:"c"`
		E **event      `json:"e,omitempty"`
		N json1.Number `json:"n,omitzero"`
	}
	empty  struct{}
	vacant struct{ V int }
)

// stamp reads RFC 3339 and milliseconds since 1970.
type stamp struct{ time.Time }

func (s *stamp) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		return s.Time.UnmarshalJSON(b)
	}
	ms, err := strconv.ParseInt(string(b), 10, 64)
	s.Time = time.UnixMilli(ms).UTC()
	return err
}

func (s stamp) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, " %d ", s.UnixMilli()), nil }

// color has a text form.
type color uint8

func (c *color) UnmarshalText(b []byte) error {
	switch string(b) {
	case "red":
		*c = 1
	case "grün":
		*c = 2
	default:
		return fmt.Errorf("no color %q", b)
	}
	return nil
}

func (c color) MarshalText() ([]byte, error) {
	if c > 2 {
		return nil, errors.New("no color")
	}
	return []byte([]string{"", "red", "grün"}[c]), nil
}

// wait has methods that only v2 knows.
type wait time.Duration

func (w *wait) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var s string
	if err := json.UnmarshalDecode(d, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	*w = wait(v)
	return err
}

func (w wait) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteToken(jsontext.String(time.Duration(w).String()))
}

func (v vacant) IsZero() bool { return v.V < 10 }

// A pair compares the two codecs for one type.
type pair struct {
	name   string
	decode func(t testing.TB, doc []byte)
	random func(t testing.TB, r *rand.Rand) []byte // compares what a random value is encoded to, and returns it
}

func pairOf[T any]() pair {
	want, got := codec.JSON[T](), fastjson.JSON[T]()
	encode := func(t testing.TB, v *T) []byte {
		t.Helper()
		a, errA := want.Encode([]byte("before"), v)
		b, errB := got.Encode([]byte("before"), v)
		if fmt.Sprint(errA) != fmt.Sprint(errB) || !bytes.Equal(a, b) {
			t.Fatalf("%T %+v:\nencodes to %s, %v\nand fast to %s, %v", *v, *v, a, errA, b, errB)
		}
		if errA != nil {
			return nil
		}
		return a[len("before"):]
	}
	p := pair{name: reflect.TypeFor[T]().String()}
	p.decode = func(t testing.TB, doc []byte) {
		t.Helper()
		var a, b T
		spread(reflect.ValueOf(&b).Elem(), rand.New(rand.NewPCG(1, 1)), 2) // what was there must not shine through
		kept := bytes.Clone(doc)
		errA, errB := want.Decode(doc, &a), got.Decode(doc, &b)
		if fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("%T from %q: %v\nfast: %v", a, doc, errA, errB)
		}
		if !bytes.Equal(doc, kept) {
			t.Fatalf("%T: Decode changed its input %q to %q", a, kept, doc)
		}
		if errA != nil {
			return
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%T from %q:\n%#v\nfast:\n%#v", a, doc, a, b)
		}
		for i := range doc {
			doc[i] = '!'
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%T shares memory with its document %q", b, kept)
		}
		copy(doc, kept)
		encode(t, &b)
	}
	p.random = func(t testing.TB, r *rand.Rand) []byte {
		t.Helper()
		var v T
		spread(reflect.ValueOf(&v).Elem(), r, 3)
		return encode(t, &v)
	}
	return p
}

func pairs() []pair {
	return []pair{
		pairOf[plain](), pairOf[nested](), pairOf[few](), pairOf[event](), pairOf[foreign](), pairOf[names](), pairOf[empty](), pairOf[embedding](),
		pairOf[string](), pairOf[word](), pairOf[int64](), pairOf[uint8](), pairOf[float32](), pairOf[float64](), pairOf[bool](), pairOf[time.Time](),
		pairOf[stamp](), pairOf[color](), pairOf[*plain](), pairOf[[]string](), pairOf[[][]int](), pairOf[[]*few](), pairOf[any](), pairOf[map[string]any](),
		pairOf[twice](), pairOf[ignoreCase](),
		pairOf[channel](), pairOf[recursive](), pairOf[pointed](), pairOf[json1.Number](),
		pairOf[[]byte](), pairOf[json.Unmarshaler](), pairOf[time.Duration](), pairOf[clickTime](), pairOf[clickMillis](), pairOf[adMinute](),
	}
}

// spread fills a value with what is likely to go wrong.
func spread(v reflect.Value, r *rand.Rand, depth int) {
	texts := []string{"", "a", "ad-77", "a\"b", `a\b`, "tab\t", "é", "\u2028", "😀", "<&>", "a\xff", "\x7f", "\x00", "a string of more than eight", "null"}
	switch v.Interface().(type) {
	case time.Time:
		years := []int{0, 1, 1970, 2026, 9999, 10000, -1}
		zones := []*time.Location{time.UTC, time.UTC, time.UTC, time.FixedZone("", 3600), time.FixedZone("", -7*3600-30*60), time.FixedZone("", 24*3600)}
		t := time.Date(years[r.IntN(len(years))], time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(4)*r.IntN(1e9), zones[r.IntN(len(zones))])
		if r.IntN(8) == 0 {
			t = time.Time{}
		}
		v.Set(reflect.ValueOf(t))
		return
	case jsontext.Value:
		v.SetBytes([]byte(texts[r.IntN(len(texts))]))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float32, reflect.Float64:
		switch r.IntN(6) {
		case 0:
			v.SetFloat(math.Float64frombits(r.Uint64()))
		case 1:
			v.SetFloat(float64(int64(r.Uint64()) >> r.IntN(64)))
		case 2:
			v.SetFloat(math.Copysign(0, -1))
		default:
			v.SetFloat(float64(r.IntN(1e6)) * math.Pow10(r.IntN(60)-30))
		}
	case reflect.String:
		v.SetString(texts[r.IntN(len(texts))])
	case reflect.Pointer:
		if depth > 0 && r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			spread(v.Elem(), r, depth-1)
		}
	case reflect.Slice:
		if n := r.IntN(4) - 1; depth > 0 && n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n+r.IntN(3)))
			for i := range n {
				spread(v.Index(i), r, depth-1)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			spread(v.Index(i), r, depth)
		}
	case reflect.Map:
		if depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(4) {
				key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				spread(key, r, depth-1)
				spread(elem, r, depth-1)
				v.SetMapIndex(key, elem)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && r.IntN(5) > 0 {
				spread(v.Field(i), r, depth)
			}
		}
	}
}
