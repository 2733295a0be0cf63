//go:build !race

package fastjson_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/codec/fastjson"
)

func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		name string
		want float64
		run  func()
	}{
		{"a click with a time", 3, decodes[clickTime](t, fmt.Sprintf(timeFormat, 1, 2, 3, 4, 5))},
		{"a click in milliseconds", 2, decodes[clickMillis](t, fmt.Sprintf(millisFormat, 1, 2, 3, 4, 5))},
		{"numbers", 0, decodes[plain](t, `{"i":-1,"i8":-8,"u64":64,"f64":1.5,"f32":-2e3,"b":true,"t":"2026-01-01T00:00:00.5Z"}`)},
		{"unknown members", 0, decodes[few](t, `{"a":[1,{"b":"c\n","d":null}],"e":{"f":true,"g":-1.5e3},"y":2}`)},
		{"another order, and white space", 0, decodes[plain](t, "\t{ \"u8\" : 8 ,\r\n\"i\" : 1 } ")},
		{"null", 0, decodes[plain](t, `{"s":null,"i":null,"t":null,"f64":null,"b":null}`)},
		{"more fields than are compared", 0, decodes[names](t, `{"F9":9,"F1":1,"ö":"","<&>":""}`)},
		{"methods", 1, decodes[event](t, `{"id":"c","at":1767225600123,"by":"red"}`)},
		{"escapes", 2, decodes[few](t, `{"x":"a string with\nan escape"}`)},
		{"encode a click", 0, encodes(t, clickTime{"cc2e2ac0090ab2e", "ad-77", "u0946", time.Date(2026, 3, 1, 11, 59, 46, 2e8, time.UTC)})},
		{"encode counts", 0, encodes(t, adMinute{"ad-77", "2026-01-01T00:00:00Z", 17})},
		{"encode é", 0, encodes(t, adMinute{"é\n", "", -1})},
	} {
		if got := testing.AllocsPerRun(100, tt.run); got > tt.want {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.want)
		}
	}
}

func decodes[T any](t *testing.T, doc string) func() {
	c, b, v := fastjson.JSON[T](), []byte(doc), new(T)
	return func() {
		if err := c.Decode(b, v); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
	}
}

func encodes[T any](t *testing.T, v T) func() {
	c, buf := fastjson.JSON[T](), make([]byte, 0, 1024)
	return func() {
		if _, err := c.Encode(buf, &v); err != nil {
			t.Fatal(err)
		}
	}
}
