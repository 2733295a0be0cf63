package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/codec/fastjson"
	"github.com/weirstream/weir/connector/kafka"
)

// codecs are those that --codec chooses between.
var codecs = map[string]codec.Codec[Click]{codecV2: codec.JSON[Click](), codecFast: fastjson.JSON[Click]()}

func TestClicks(t *testing.T) {
	at := time.Date(2026, 3, 1, 11, 59, 46, 200e6, time.UTC)
	for _, c := range []struct {
		name, ts string
		want     time.Time
		err      bool
	}{
		{name: "RFC 3339", ts: `"2026-03-01T11:59:46.200Z"`, want: at},
		{name: "with an offset", ts: `"2026-03-01T13:59:46.2+02:00"`, want: at},
		{name: "nanoseconds", ts: `"2026-03-01T11:59:46.200000001Z"`, want: at.Add(1)},
		{name: "without a fraction", ts: `"2026-03-01T11:59:46Z"`, want: at.Truncate(time.Second)},
		{name: "leap day", ts: `"2024-02-29T00:00:00Z"`, want: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{name: "the last of a month", ts: `"2026-12-31T23:59:59Z"`, want: time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)},
		{name: "escaped", ts: `"2026-03-01T11:59:46.200\u005a"`, want: at},
		{name: "milliseconds", ts: `1772366386200`, want: at},
		{name: "milliseconds as a text", ts: `"1772366386200"`, want: at},
		{name: "milliseconds as a text with an escape", ts: `"\u0031772366386200"`, want: at},
		{name: "the epoch", ts: `0`, want: time.Unix(0, 0)},
		{name: "before 1970", ts: `-1`, want: time.UnixMilli(-1)},
		{name: "before 1970, as a text", ts: `"-1"`, want: time.UnixMilli(-1)},
		{name: "null", ts: `null`},
		{name: "no such day", ts: `"2026-02-29T00:00:00Z"`, err: true},
		{name: "no such day of a short month", ts: `"2026-04-31T00:00:00Z"`, err: true},
		{name: "no such hour", ts: `"2026-03-01T24:00:00Z"`, err: true},
		{name: "without a zone", ts: `"2026-03-01T11:59:46"`, err: true},
		{name: "a space in the middle", ts: `"2026-03-01 11:59:46Z"`, err: true},
		{name: "a day alone", ts: `"2026-03-01"`, err: true},
		{name: "a point without a fraction", ts: `"2026-03-01T11:59:46.Z"`, err: true},
		{name: "letters among the digits", ts: `"2026-03-01T1a:59:46Z"`, err: true},
		{name: "a fraction of a millisecond", ts: `1772366386200.5`, err: true},
		{name: "an exponent", ts: `1.7e12`, err: true},
		{name: "too large", ts: `9223372036854775808`, err: true},
		{name: "an empty text", ts: `""`, err: true},
		{name: "a minus alone", ts: `"-"`, err: true},
		{name: "a word", ts: `"yesterday"`, err: true},
		{name: "a truth", ts: `true`, err: true},
		{name: "an object", ts: `{}`, err: true},
	} {
		for name, codec := range codecs {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				var click Click
				in := fmt.Sprintf(`{"click_id":"c1","ad_id":"ad-1","user_id":"u1","ts":%s}`, c.ts)
				err := codec.Decode([]byte(in), &click)
				if c.err {
					if err == nil {
						t.Fatalf("%s was taken for %v", c.ts, click.At)
					}
					return
				}
				if err != nil || !click.At.Equal(c.want) || click.ID != "c1" || click.Ad != "ad-1" || click.User != "u1" {
					t.Fatalf("%s became %+v, %v; want %v", c.ts, click, err, c.want)
				}
			})
		}
	}
}

// TestWhenIsTheLibrarysTime compares the short way with the library's, which it
// shares no code with, at random times and with random bytes changed.
func TestWhenIsTheLibrarysTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	first, span := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), int64(9999)*365*86400
	for i := range 200_000 {
		at := time.Unix(first.Unix()+rnd.Int64N(span), rnd.Int64N(1e9)).UTC()
		layout := "2006-01-02T15:04:05" + []string{"", ".0", ".000", ".000000", ".000000000", ".999999999"}[rnd.IntN(6)] + "Z"
		text := []byte(at.Format(layout))
		if i%2 == 0 {
			text[rnd.IntN(len(text))] = "0123456789-:T.Z+ "[rnd.IntN(17)]
		}
		in := append(append([]byte{'"'}, text...), '"')
		var want time.Time
		var got When
		wantErr, err := want.UnmarshalJSON(in), got.UnmarshalJSON(in)
		if (wantErr == nil) != (err == nil) || err == nil && !got.Equal(want) {
			t.Fatalf("%s is %v, %v; want %v, %v", in, got, err, want, wantErr)
		}
	}
}

func TestWhenAllocatesNothing(t *testing.T) {
	for _, in := range []string{`"2026-03-01T11:59:46.200Z"`, `"2026-03-31T11:59:46Z"`, `1772366386200`, `"1772366386200"`} {
		b := []byte(in)
		w := new(When)
		if n := testing.AllocsPerRun(100, func() {
			if err := w.UnmarshalJSON(b); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", in, n)
		}
	}
}

func TestEncodeCount(t *testing.T) {
	minute := time.Date(2026, 1, 1, 0, 59, 0, 0, time.UTC)
	for _, ad := range []string{"ad-1", "", `a"b\c`, "a|b", "zwölf\n", "<&>\u2028"} {
		m := kafka.Message{Key: make([]byte, 0, 64), Value: make([]byte, 0, 64)}
		if err := encodeCount(&Count{Key: ad, Start: minute, Value: 1 << 60}, &m); err != nil {
			t.Fatalf("%q: %v", ad, err)
		}
		var v map[string]any
		d := json.NewDecoder(strings.NewReader(string(m.Value)))
		d.UseNumber()
		if err := d.Decode(&v); err != nil || v["ad_id"] != ad || v["minute"] != "2026-01-01T00:59:00Z" ||
			v["clicks"] != json.Number("1152921504606846976") || len(v) != 3 {
			t.Errorf("%q: the value is %s, %v", ad, m.Value, err)
		}
		if want := ad + "|2026-01-01T00:59:00Z"; string(m.Key) != want {
			t.Errorf("the key is %q, want %q", m.Key, want)
		}
	}
	c, m := Count{Key: "ad-77", Start: minute, Value: 12}, kafka.Message{Key: make([]byte, 0, 64), Value: make([]byte, 0, 128)}
	if n := testing.AllocsPerRun(100, func() {
		m.Key, m.Value = m.Key[:0], m.Value[:0]
		if err := encodeCount(&c, &m); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
