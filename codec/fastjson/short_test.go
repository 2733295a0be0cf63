package fastjson

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"
)

type (
	click struct {
		ID string    `json:"id"`
		At time.Time `json:"at"`
		N  *int      `json:"n,omitzero"`
		L  []inner   `json:"l,omitempty"`
		S  string    `json:"s"`
		M  millis    `json:"m"`
	}
	inner struct {
		F float64
		B bool
		U uint16
	}
	millis int64
)

func (m *millis) UnmarshalJSON(b []byte) error { *m = millis(len(b)); return nil }

// The short way must be taken where it is promised: a document that falls back
// without need passes every test of what comes out.
func TestShortWay(t *testing.T) {
	root := compile(reflect.TypeFor[click]())
	for _, tt := range []struct {
		doc   string
		short bool
	}{
		{`{}`, true},
		{`{"id":"a","at":"2026-01-01T00:00:00.123Z","n":7,"l":[{"F":1.5e3,"B":true,"U":65535},null],"s":"é\n\ud83d\ude00","m":[1,{"a":"\t"}]}`, true},
		{" \r\n\t{ \"m\" : null , \"id\" : null,\n\"s\":\"\" } ", true},
		{`{"x":[{"y":[{}],"z":"\u0041"},-0.5e-1,true,false,null],"id":"a"}`, true},
		{`{"at":"2026-01-01T00:00:00+01:00"}`, false}, // other zones
		{`{"\u0069d":"a"}`, false}, // escapes in a name
		{`{"id":"a","id":"b"}`, false},
		{`{"x":1,"x":1}`, false},
		{`null`, false},
		{`{"id":"a"`, false},
		{`{"n":1.0}`, false},
		{``, false},
	} {
		var v click
		d := decoder{b: []byte(tt.doc)}
		if got := d.document(root, unsafe.Pointer(&v)); got != tt.short {
			t.Errorf("%s: the short way was taken: %t, want %t (it stood at byte %d)", tt.doc, got, tt.short, d.i)
		}
	}
}

func TestShortWayToEncode(t *testing.T) {
	one := 1
	v := click{ID: "é\n", At: time.Date(2026, 1, 1, 0, 0, 0, 1, time.FixedZone("", 3600)), N: &one, L: []inner{{1e-7, true, 3}}}
	out, ok := compile(reflect.TypeFor[click]()).append(nil, unsafe.Pointer(&v), 0)
	if want := `{"id":"é\n","at":"2026-01-01T00:00:00.000000001+01:00","n":1,"l":[{"F":1e-7,"B":true,"U":3}],"s":"","m":0}`; !ok || string(out) != want {
		t.Errorf("append = %s, %t, want %s", out, ok, want)
	}
	v.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if out, ok := compile(reflect.TypeFor[click]()).append(nil, unsafe.Pointer(&v), 0); ok {
		t.Errorf("the year 10000 was encoded to %s", out)
	}
}

// What each type is compiled to: what isn't plain must be v2's.
func TestCompile(t *testing.T) {
	type embedding struct{ inner }
	type tagged struct {
		V int `json:"v,string"`
	}
	type zeros struct {
		V vacant `json:"v,omitzero"`
	}
	for _, tt := range []struct {
		typ      reflect.Type
		dec, enc kind
	}{
		{reflect.TypeFor[click](), structKind, structKind},
		{reflect.TypeFor[millis](), jsonMethod, intKind},
		{reflect.TypeFor[time.Time](), timeKind, timeKind},
		{reflect.TypeFor[time.Duration](), anyKind, anyKind},
		{reflect.TypeFor[[]byte](), anyKind, anyKind},
		{reflect.TypeFor[[]millis](), sliceKind, sliceKind},
		{reflect.TypeFor[[4]int](), anyKind, anyKind},
		{reflect.TypeFor[map[string]int](), anyKind, anyKind},
		{reflect.TypeFor[any](), anyKind, anyKind},
		{reflect.TypeFor[embedding](), anyKind, anyKind},
		{reflect.TypeFor[tagged](), anyKind, anyKind},
		{reflect.TypeFor[zeros](), anyKind, anyKind},
		{reflect.TypeFor[struct{}](), anyKind, anyKind},
		{reflect.TypeFor[*click](), pointerKind, pointerKind},
		{reflect.TypeFor[float32](), floatKind, floatKind},
	} {
		if n := compile(tt.typ); n.dec != tt.dec || n.enc != tt.enc {
			t.Errorf("%v: compiled to %d and %d, want %d and %d", tt.typ, n.dec, n.enc, tt.dec, tt.enc)
		}
	}
}

// Tags that v2 refuses, or takes in a way that isn't known here.
func TestCompileTags(t *testing.T) {
	one := reflect.TypeFor[int]()
	for _, tt := range []struct {
		tags []reflect.StructTag
		want kind
	}{
		{[]reflect.StructTag{``}, structKind},
		{[]reflect.StructTag{`json:"v"`}, structKind},
		{[]reflect.StructTag{`json:"-"`, `json:",omitzero,omitempty"`, `xml:"v"`}, structKind},
		{[]reflect.StructTag{`json:"<&>é"`}, structKind},
		{[]reflect.StructTag{`json:","`}, anyKind},
		{[]reflect.StructTag{`json:"v,"`}, anyKind},
		{[]reflect.StructTag{`json:"-,"`}, anyKind},
		{[]reflect.StructTag{`json:"v,,omitzero"`}, anyKind},
		{[]reflect.StructTag{`json:"v,omitzero,omitzero"`}, anyKind},
		{[]reflect.StructTag{`json:"v,omitZero"`}, anyKind},
		{[]reflect.StructTag{`json:"v,future"`}, anyKind},
		{[]reflect.StructTag{`json:"v,string"`}, anyKind},
		{[]reflect.StructTag{`json:"v,case:ignore"`}, anyKind},
		{[]reflect.StructTag{`json:"v,format:unix"`}, anyKind},
		{[]reflect.StructTag{`json:"v,embed"`}, anyKind},
		{[]reflect.StructTag{`json:"'v'"`}, anyKind},
		{[]reflect.StructTag{`json:"a\"b"`}, anyKind},
		{[]reflect.StructTag{`json:"v"`, `json:"v"`}, anyKind},
		{[]reflect.StructTag{`json:"-"`}, anyKind}, // nothing is left
		{slices.Repeat([]reflect.StructTag{`json:"-"`}, 65), anyKind},
	} {
		var fields []reflect.StructField
		for i, tag := range tt.tags {
			fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: one, Tag: tag})
		}
		if n := compile(reflect.StructOf(fields)); n.dec != tt.want || n.enc != tt.want {
			t.Errorf("%q: compiled to %d and %d, want %d", tt.tags, n.dec, n.enc, tt.want)
		}
	}
}

type vacant struct{ V int }

func (v vacant) IsZero() bool { return v.V < 10 }
