package codec_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codec"
)

type click struct {
	ID   string         `json:"id"`
	N    int8           `json:"n"`
	At   time.Time      `json:"at"`
	Raw  jsontext.Value `json:"raw,omitzero"`
	Blob []byte         `json:"blob,omitzero"`
	List []string       `json:"list,omitzero"`
}

func TestJSONDecode(t *testing.T) {
	tests := []struct {
		name, in string
		want     click
		err      []string // parts of the message; none: no error
	}{
		{name: "all fields", in: `{"id":"c1","n":7,"at":"2026-01-01T00:00:00.5Z"}`,
			want: click{ID: "c1", N: 7, At: time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC)}},
		{name: "a missing field is zero, an unknown one is ignored", in: ` {"id":"c1","x":{"y":[1]}} `, want: click{ID: "c1"}},
		{name: "case counts", in: `{"ID":"c1"}`, want: click{}},
		{name: "escapes", in: `{"id":"\u00e9\n"}`, want: click{ID: "é\n"}},
		{name: "composed and decomposed spellings stay different", in: `{"id":"e\u0301"}`, want: click{ID: "e\u0301"}},
		{name: "empty", in: ``, err: []string{"breaks off at byte 0"}},
		{name: "cut short", in: `{"id":"c1`, err: []string{"breaks off at byte 9, in /id"}},
		{name: "not JSON", in: `id=c1`, err: []string{"not valid JSON", "invalid character 'i'", "at byte 0"}},
		{name: "invalid UTF-8", in: "{\"id\":\"a\xff\"}", err: []string{"invalid UTF-8 at byte 8, in /id"}},
		{name: "half a surrogate pair", in: `{"id":"\ud800"}`, err: []string{"invalid surrogate pair", "in /id"}},
		{name: "a control character", in: "{\"id\":\"a\tb\"}", err: []string{`'\t'`, "at byte 8, in /id"}},
		{name: "a NUL byte", in: "\x00", err: []string{`'\x00'`}},
		{name: "a name twice", in: `{"id":"a","id":"b"}`, err: []string{"duplicate object member name", "at byte 10, in /id"}},
		{name: "two values", in: `{"id":"a"} {"id":"b"}`, err: []string{"after top-level value", "at byte 11"}},
		{name: "a wrong type", in: `{"n":"x"}`, err: []string{"JSON string at byte 5, in /n can't become a Go int8"}},
		{name: "out of range", in: `{"n":300}`, err: []string{"JSON number 300 at byte 5, in /n can't become a Go int8", "out of range"}},
		{name: "a fraction", in: `{"n":1.5}`, err: []string{"JSON number 1.5", "Go int8"}},
		{name: "no timestamp", in: `{"at":"yesterday"}`, err: []string{"in /at can't become a Go time.Time", "yesterday"}},
		{name: "an array", in: `[1]`, err: []string{"JSON array at byte 0 can't become a Go codec_test.click"}},
		{name: "null", in: " null", err: []string{"null", "codec_test.click"}},
	}
	c := codec.JSON[click]()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got click
			err := c.Decode([]byte(tt.in), &got)
			if len(tt.err) == 0 {
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Fatalf("Decode(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("Decode(%q) = %+v without an error; want %q", tt.in, got, tt.err)
			}
			for _, part := range tt.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q doesn't say %q", err, part)
				}
			}
		})
	}
}

func TestJSONErrorsCanBeUnwrapped(t *testing.T) {
	var v click
	if _, ok := errors.AsType[*json.SemanticError](codec.JSON[click]().Decode([]byte(`{"n":"x"}`), &v)); !ok {
		t.Error("a wrong type: no *json.SemanticError")
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](codec.JSON[click]().Decode([]byte(`{`), &v)); !ok {
		t.Error("cut short: no *jsontext.SyntacticError")
	}
}

func TestJSONNullWhereItFits(t *testing.T) {
	p := &click{ID: "old"}
	if err := codec.JSON[*click]().Decode([]byte("null"), &p); err != nil || p != nil {
		t.Errorf("null into a pointer: %v, %v", p, err)
	}
	m := map[string]int{"old": 1}
	if err := codec.JSON[map[string]int]().Decode([]byte("null"), &m); err != nil || m != nil {
		t.Errorf("null into a map: %v, %v", m, err)
	}
}

func TestJSONOptions(t *testing.T) {
	var v click
	if err := codec.JSON[click](json.RejectUnknownMembers(true)).Decode([]byte(`{"x":1}`), &v); err == nil {
		t.Error("the unknown member was accepted")
	}
	if err := codec.JSON[click](json.MatchCaseInsensitiveNames(true)).Decode([]byte(`{"ID":"c1"}`), &v); err != nil || v.ID != "c1" {
		t.Errorf("ID = %q, %v; want c1", v.ID, err)
	}
}

// What was in the record before must not shine through, whatever the input
// leaves out.
func TestDecodeReplaces(t *testing.T) {
	v := click{ID: "old", N: 3, List: []string{"old"}}
	if err := codec.JSON[click]().Decode([]byte(`{"list":["new"]}`), &v); err != nil {
		t.Fatal(err)
	}
	if want := (click{List: []string{"new"}}); !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v, want %+v", v, want)
	}
}

// A source reuses its buffer at once; a record that still pointed into it
// would change behind everybody's back.
func TestDecodedDoesNotShareMemory(t *testing.T) {
	in := []byte(`{"id":"c1","raw":{"a":1},"blob":"aGVsbG8=","list":["x","y"]}`)
	want := click{ID: "c1", Raw: jsontext.Value(`{"a":1}`), Blob: []byte("hello"), List: []string{"x", "y"}}
	var v click
	if err := codec.JSON[click]().Decode(in, &v); err != nil {
		t.Fatal(err)
	}
	var b []byte
	text, s := []byte("text"), ""
	if err := errors.Join(codec.Bytes().Decode(text, &b), codec.String().Decode(text, &s)); err != nil {
		t.Fatal(err)
	}
	for _, buf := range [][]byte{in, text} {
		for i := range buf {
			buf[i] = '!'
		}
	}
	if !reflect.DeepEqual(v, want) || string(b) != "text" || s != "text" {
		t.Errorf("after the input changed: %+v, %q, %q", v, b, s)
	}
	if b = append(b, "more"...); string(text) != "!!!!" {
		t.Errorf("appending to the record changed the input to %q", text)
	}
}

func TestRoundTrip(t *testing.T) {
	checkRoundTrip(t, codec.JSON[click](), click{ID: "é<&>\u2028", N: -1, At: time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC), List: []string{""}})
	checkRoundTrip(t, codec.JSON[click](), click{})
	checkRoundTrip(t, codec.JSON[*int](), nil)
	checkRoundTrip(t, codec.String(), "")
	checkRoundTrip(t, codec.String(), "zwölf\x00")
	checkRoundTrip(t, codec.Bytes(), []byte{})
	checkRoundTrip(t, codec.Bytes(), []byte{0xff, 0, '\n'})
}

func checkRoundTrip[T any](t *testing.T, c codec.Codec[T], v T) {
	t.Helper()
	b, err := c.Encode([]byte("before"), &v)
	if err != nil {
		t.Fatalf("encode %+v: %v", v, err)
	}
	rest, ok := strings.CutPrefix(string(b), "before")
	if !ok {
		t.Fatalf("Encode gave %q: what was in dst is gone", b)
	}
	var got T
	if err := c.Decode([]byte(rest), &got); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%+v came back as %+v, %v", v, got, err)
	}
}

func TestInvalidUTF8(t *testing.T) {
	var s string
	if err := codec.String().Decode([]byte("ab\xc3("), &s); err == nil || err.Error() != "invalid UTF-8 at byte 2 (0xc3)" {
		t.Errorf("Decode: %v", err)
	}
	s = "a\xff"
	if b, err := codec.String().Encode([]byte("dst"), &s); err == nil || string(b) != "dst" {
		t.Errorf("String().Encode = %q, %v; want dst as it was, and an error", b, err)
	}
	v := click{ID: "a\xff"}
	if b, err := codec.JSON[click]().Encode([]byte("dst"), &v); err == nil || string(b) != "dst" {
		t.Errorf("JSON().Encode = %q, %v; want dst as it was, and an error", b, err)
	}
	// The replacement character itself is valid, and isn't taken for an error.
	if err := codec.String().Decode([]byte("\uFFFD"), &s); err != nil {
		t.Errorf("U+FFFD: %v", err)
	}
}

// Equal maps that were built in different orders must give equal bytes.
func TestJSONEncodesMapsInOrder(t *testing.T) {
	want := `{"a":1,"b":2,"c":3,"d":4}`
	for range 50 {
		m := map[string]int{}
		for k := range map[string]bool{"a": true, "b": true, "c": true, "d": true} {
			m[k] = int(k[0]-'a') + 1
		}
		b, err := codec.JSON[map[string]int](json.Deterministic(false)).Encode(nil, &m)
		if err != nil || string(b) != want {
			t.Fatalf("got %s, %v; want %s", b, err, want)
		}
	}
}

// A record is one line, whatever the options say about layout.
func TestJSONEncodesOneLine(t *testing.T) {
	v := click{List: []string{"a", "b"}}
	b, err := codec.JSON[click](jsontext.WithIndent("  ")).Encode(nil, &v)
	if err != nil || strings.Contains(string(b), "\n") {
		t.Errorf("got %q, %v", b, err)
	}
}

func BenchmarkJSONDecode(b *testing.B) {
	type event struct {
		ID   string    `json:"click_id"`
		Ad   string    `json:"ad_id"`
		User string    `json:"user_id"`
		At   time.Time `json:"ts"`
	}
	in := []byte(`{"click_id":"cc2e2ac0090ab2e","ad_id":"ad-77","user_id":"u0946","ts":"2026-03-01T11:59:46.200Z"}`)
	c := codec.JSON[event]()
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	var v event
	for b.Loop() {
		if err := c.Decode(in, &v); err != nil {
			b.Fatal(err)
		}
	}
}
