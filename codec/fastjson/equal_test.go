package fastjson_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codec/fastjson"
)

// seeds are documents that each rule has to do with.
var seeds = []string{
	``, ` `, `null`, ` null `, `nul`, `true`, `fals`, `{}`, `{} `, `{}x`, `{`, `}`, `[]`, `[`, `]`, `{"`, `{"s`, `{"s"`, `{"s":`, `{"s":"`, `{"s":"a`,
	`{"s":"a"}`, `{"s":"a",}`, `{"s":"a" , "b" : true}`, `{"s" "a"}`, `{"s":"a""b":true}`, `{,}`, `{"s":"a"}{"s":"b"}`, "\ufeff{}", "\x00", "{}\x00", "\v{}",
	`{"s":"a","s":"b"}`, `{"S":"a"}`, `{"s":"\u0061"}`, `{"\u0073":"a"}`, `{"s":"a","\u0073":"b"}`, `{"x":1,"x":2}`, `{"x":1,"\u0078":2}`, `{"s":null}`, `{"s":null,"s":"a"}`,
	`{"x":{"y":1,"y":2}}`, `{"x":{"y":1,"z":{"y":2}}}`, `{"x":[{"y":1},{"y":2}],"y":3}`, `{"x":[1,]}`, `{"x":[,1]}`, `{"x":[1 2]}`, `{"x":{"y"}}`, `{"x":tru}`, `{"x":"\q"}`, `{"x":"\u12"}`,
	"{\"s\":\"a\tb\"}", "{\"s\":\"a\xff\"}", "{\"x\xff\":1}", "{\"x\":\"a\xff\"}", "{\"s\":\"a\x1f\"}", "{\"s\":\"\x7f\"}", "{\"ö\":\"é\"}", "{\"a name that is longer than eight\xff\":1}",
	`{"s":"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"}`, `{"s":"\ud800"}`, `{"s":"\udc00\ud800"}`, `{"s":"\ud800\u0041"}`, `{"s":"\ud83d\ude0"}`, `{"s":"\"}`, `{"s":"\\"}`, `{"s":"\u00zz"}`, `{"s":"\U0041"}`,
	`{"i":0}`, `{"i":-0}`, `{"i":00}`, `{"i":01}`, `{"i":-}`, `{"i":+1}`, `{"i":1.0}`, `{"i":1e2}`, `{"i":1.}`, `{"i":.1}`, `{"i":0x1}`, `{"i":1_0}`, `{"i":"1"}`, `{"i":true}`,
	`{"i8":127}`, `{"i8":128}`, `{"i8":-128}`, `{"i8":-129}`, `{"i16":32768}`, `{"i32":-2147483649}`, `{"i64":9223372036854775807}`, `{"i64":9223372036854775808}`, `{"i64":-9223372036854775808}`, `{"i64":-9223372036854775809}`,
	`{"u8":255}`, `{"u8":256}`, `{"u8":-1}`, `{"u8":-0}`, `{"u16":65536}`, `{"u32":4294967296}`, `{"u64":18446744073709551615}`, `{"u64":18446744073709551616}`, `{"u64":9999999999999999999}`, `{"u64":99999999999999999999}`,
	`{"f64":0}`, `{"f64":-0}`, `{"f64":-0.0e-0}`, `{"f64":1e400}`, `{"f64":1e-400}`, `{"f64":0.1}`, `{"f64":1E+2}`, `{"f64":1e}`, `{"f64":1e+}`, `{"f64":1.e1}`, `{"f64":NaN}`, `{"f64":Infinity}`, `{"f64":5e-324}`, `{"f32":3.5e38}`, `{"f32":16777217}`, `{"f64":123456789012345678901234567890}`,
	`{"b":true}`, `{"b":false}`, `{"b":1}`, `{"b":"true"}`, `{"b":truex}`,
	`{"t":"2026-01-01T00:00:00Z"}`, `{"t":"2026-01-01T00:00:00.123456789Z"}`, `{"t":"2026-01-01T00:00:00.1234567891Z"}`, `{"t":"2026-01-01T00:00:00.Z"}`, `{"t":"2026-01-01T00:00:00,5Z"}`,
	`{"t":"2026-02-29T00:00:00Z"}`, `{"t":"2024-02-29T00:00:00Z"}`, `{"t":"2026-02-30T00:00:00Z"}`, `{"t":"2026-04-31T00:00:00Z"}`, `{"t":"2026-00-01T00:00:00Z"}`, `{"t":"2026-13-01T00:00:00Z"}`, `{"t":"2026-01-00T00:00:00Z"}`, `{"t":"2026-01-32T00:00:00Z"}`,
	`{"t":"2026-01-01T24:00:00Z"}`, `{"t":"2026-01-01T23:60:00Z"}`, `{"t":"2026-01-01T23:59:60Z"}`, `{"t":"2026-01-01t00:00:00Z"}`, `{"t":"2026-01-01T00:00:00z"}`, `{"t":"2026-01-01 00:00:00Z"}`, `{"t":"2026-01-01T0:00:00Z"}`, `{"t":"0000-01-01T00:00:00Z"}`, `{"t":"9999-12-31T23:59:59.999999999Z"}`, `{"t":"+2026-01-01T00:00:00Z"}`,
	`{"t":"2026-01-01T00:00:00+01:00"}`, `{"t":"2026-01-01T00:00:00-00:00"}`, `{"t":"2026-01-01T00:00:00+24:00"}`, `{"t":"2026-01-01T00:00:00+01:60"}`, `{"t":"2026-01-01T00:00:00"}`, `{"t":1}`, `{"t":"\u0032026-01-01T00:00:00Z"}`, `{"t":""}`,
	`{"a":{"s":"x"},"l":[{"m":{"x":"y"}},{"l":[]}],"m":{"z":[{"y":1.5}]},"p":"s","n":7,"ls":["a",null,"b"],"Ts":["2026-01-01T00:00:00Z"]}`,
	`{"a":null,"l":null,"m":null,"p":null,"n":null,"ls":null}`, `{"l":[null,{}],"ls":[]}`, `{"l":{}}`, `{"m":[]}`, `{"ls":[1]}`,
	`{"id":"c","at":"2026-01-01T00:00:00Z","by":"red"}`, `{"id":"c","at":1767225600123,"by":"grün"}`, `{"at":null,"by":null}`, `{"at":1.5}`, `{"at":[1,{"a":2}]}`, `{"by":"blue"}`, `{"by":"r\u0065d"}`, `{"by":1}`, `{"at":{"a":1,"a":2}}`,
	`{"any":{"b":1,"a":[true,null]},"map":{"k":{"x":"y"}},"bytes":"aGVsbG8=","array":[1,2],"raw":{"z":1},"dur":"1s","tag":"7","sub":{"x":"a","q":"b"},"zero":{"V":3},"keys":{"red":1}}`,
	`{"bytes":"!"}`, `{"array":[1]}`, `{"tag":7}`, `{"dur":1}`, `{"any":{"a":1,"a":2}}`, `{"raw": [ 1 ] }`, `{"sub":{"q":"b","q":"c"}}`, `{"zero":{"V":30}}`,
	`{"ö":"1","a\"b":2,"<&>":"3","Empty":"4","-":"5","Ignored":"6","hidden":"7","F1":1,"F9":9,"f1":2}`, `{"a_name_that_is_longer_than_a_word_of_eight":"x"}`,
	`{"V":1}`, `{"v":1}`, `{"V":1,"w":2}`, `{"VALUE":1}`, `{"Value":1}`, `{"value":1}`, `{"-":1}`, `{"a\"b":1}`, `{"next":{"next":{"V":{"k":null}}}}`, `{"t":"2026-01-01T00:00:00+02:00","s":5,"c":"red","e":{"id":"x"},"n":1.50}`, `{"t":null,"s":null,"c":null,"e":null,"n":null}`, `{"n":"1"}`,
	`"a"`, `"a\n"`, `1`, `-1`, `1.5`, `[1,2]`, `["a"]`, `[[1],[2,3],[]]`, `[null]`, `"red"`, `"2026-01-01T00:00:00Z"`, `256`, ` "a" `, `"a" "b"`,
	strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200), strings.Repeat(`{"x":`, 150) + `1` + strings.Repeat(`}`, 150), strings.Repeat(`{"l":[`, 120) + strings.Repeat(`]}`, 120),
	`{"k1":1,"k2":1,"k3":1,"k4":1,"k5":1,"k6":1,"k7":1,"k8":1,"k9":1,"k10":1,"k11":1,"k12":1,"k13":1,"k14":1,"k15":1,"k16":1,"k17":{"k1":1},"k18":1,"k19":1,"k20":1,"k21":1,"k22":1,"k23":1,"k24":1,"k25":1,"k26":1,"k27":1,"k28":1,"k29":1,"k30":1,"k31":1,"k32":1,"k33":1,"k1":2}`,
	`{"click_id":"cc2e2ac0090ab2e","ad_id":"ad-77","user_id":"u0946","ts":"2026-03-01T11:59:46.200Z"}`,
}

func TestEqualToTheDefault(t *testing.T) {
	for _, p := range pairs() {
		for _, doc := range seeds {
			p.decode(t, []byte(doc))
		}
	}
}

// Documents that are nearly right are where two readers differ.
func TestEqualOnChangedDocuments(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := pairs()
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	accepted := 0
	for range rounds {
		for _, p := range all {
			doc := p.random(t, r)
			if doc == nil || r.IntN(4) == 0 {
				doc = []byte(seeds[r.IntN(len(seeds))])
			}
			p.decode(t, slices.Clone(doc))
			for range r.IntN(3) {
				doc = change(r, doc)
			}
			p.decode(t, doc)
			accepted++
		}
	}
	if accepted != rounds*len(all) {
		t.Errorf("%d documents compared, want %d", accepted, rounds*len(all))
	}
}

// change makes one change to a document: of a byte, of a piece, of white space.
func change(r *rand.Rand, doc []byte) []byte {
	doc = slices.Clone(doc)
	at := r.IntN(len(doc) + 1)
	switch pieces := []string{`"`, `,`, `:`, `{`, `}`, `[`, `]`, `\`, ` `, "\n", `0`, `1`, `-`, `.`, `e`, `null`, `true`, `\u0041`, `\ud800`, "\xff", "é", `"x":1,`, `"s":"",`, "\x00", `{}`, `[]`}; r.IntN(5) {
	case 0:
		return slices.Insert(doc, at, []byte(pieces[r.IntN(len(pieces))])...)
	case 1:
		return slices.Delete(doc, at, min(at+1+r.IntN(4), len(doc)))
	case 2:
		if at < len(doc) {
			doc[at] = byte(r.IntN(256))
		}
	case 3:
		to := min(at+r.IntN(20), len(doc))
		return slices.Insert(doc, r.IntN(len(doc)+1), slices.Clone(doc[at:to])...)
	case 4:
		return doc[:at]
	}
	return doc
}

func FuzzDecode(f *testing.F) {
	all := pairs()
	for i := range all {
		for _, doc := range seeds {
			f.Add(uint8(i), []byte(doc))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, doc []byte) { all[int(which)%len(all)].decode(t, bytes.Clone(doc)) })
}

func FuzzEncode(f *testing.F) {
	all := pairs()
	for i := range all {
		f.Add(uint8(i), uint64(i), uint64(0))
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b uint64) {
		all[int(which)%len(all)].random(t, rand.New(rand.NewPCG(a, b)))
	})
}

// What is nested too deep, or contains itself, is left to the default: to encode it
// without an end would take the stack.
func TestEncodeOfWhatContainsItself(t *testing.T) {
	type loop struct{ Next *loop }
	l := &loop{}
	l.Next = l
	if out, err := fastjson.JSON[*loop]().Encode([]byte("kept"), &l); err == nil || string(out) != "kept" {
		t.Errorf("Encode = %.100q, %v; want what was there, and an error", out, err)
	}
}
