package kafkalab

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseRecord(t *testing.T) {
	for _, c := range []struct {
		name, line string
		want       Record
	}{
		{"plain", `{"topic":"odd","partition":0,"offset":12,"tstype":"create","ts":1796041861394,"broker":1,"key":null,"payload":"x"}`,
			Record{Topic: "odd", Offset: 12, Time: 1796041861394, Value: []byte("x")}},
		{"empty is not null", `{"topic":"odd","partition":1,"offset":0,"tstype":"create","ts":-1,"broker":1,"key":"","payload":""}`,
			Record{Topic: "odd", Partition: 1, Time: -1, Key: []byte{}, Value: []byte{}}},
		{"bytes that are not UTF-8", `{"topic":"odd","partition":0,"offset":2,"tstype":"create","ts":-1,"broker":1,"key":"` + "\xff" + `\u0000\u001F\"\\\n/` + "\x7f\u2028" + `\b\f\r\t\/","payload":null}`,
			Record{Topic: "odd", Offset: 2, Time: -1, Key: []byte("\xff\x00\x1f\"\\\n/\x7f\u2028\b\f\r\t/")}},
		{"headers", `{"topic":"odd","partition":1,"offset":0,"tstype":"logappend","ts":5,"broker":-1,"headers":["h",null,"h","","a,=","` + "\xfe" + `\n,"],"key":"é","payload":null}`,
			Record{Topic: "odd", Partition: 1, Time: 5, Key: []byte("é"),
				Headers: []Header{{"h", nil}, {"h", []byte{}}, {"a,=", []byte("\xfe\n,")}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseRecord([]byte(c.line))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Fatalf("read %+v\nwant %+v", *got, c.want)
			}
			// A line that is cut anywhere is no record.
			for n := range len(c.line) {
				if r, err := parseRecord([]byte(c.line[:n])); err == nil {
					t.Fatalf("the first %d bytes were read as %+v", n, r)
				}
			}
		})
	}
}

func TestParseRecordRefuses(t *testing.T) {
	for _, line := range []string{
		``, `{}`, `[]`, `null`,
		`{"topic":"t","partition":0,"offset":0,"ts":1,"key":null,"payload":null,"payload_error":"no"}`,
		`{"topic":"t","partition":0,"offset":0,"ts":1,"key":null,"payload":"\u0100"}`,
		`{"topic":"t","partition":0,"offset":0,"ts":1,"key":null,"payload":"\x"}`,
		`{"topic":"t","partition":0,"offset":0,"ts":1,"key":null,"payload":null} more`,
		`{"topic":"t","partition":0,"ts":1,"key":null,"payload":null}`,
		`{"topic":"t","partition":0,"offset":0,"headers":["name"],"key":null,"payload":null}`,
	} {
		if r, err := parseRecord([]byte(line)); err == nil {
			t.Errorf("%s was read as %+v", line, r)
		}
	}
}

// The standard library writes the line, and what was written must be read.
func FuzzParseRecord(f *testing.F) {
	f.Add("key", "value", "name", "header")
	f.Add("", "\x00\x01\n\r\t\"\\/", "h,=", "\u2028é")
	f.Fuzz(func(t *testing.T, key, value, name, header string) {
		for _, s := range []*string{&key, &value, &name, &header} {
			*s = strings.ToValidUTF8(*s, "?")
			if !utf8.ValidString(*s) {
				t.Fatal("not the text that this test is about")
			}
		}
		var line strings.Builder
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false) // kcat doesn't
		text := func(s string) string {
			line.Reset()
			if err := enc.Encode(s); err != nil {
				t.Fatal(err)
			}
			// The two separators that JavaScript can't have in a string, as kcat leaves them.
			return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\\`, `\\`).Replace(strings.TrimSpace(line.String()))
		}
		got, err := parseRecord([]byte(`{"topic":"t","partition":3,"offset":4,"headers":[` + text(name) + `,` + text(header) +
			`],"key":` + text(key) + `,"payload":` + text(value) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Key) != key || string(got.Value) != value || len(got.Headers) != 1 ||
			got.Headers[0].Name != name || string(got.Headers[0].Value) != header {
			t.Fatalf("%q, %q, %q, %q came back as %+v", key, value, name, header, got)
		}
	})
}

func TestRecordsEnd(t *testing.T) {
	line := `{"topic":"t","partition":0,"offset":0,"ts":1,"key":null,"payload":"` + strings.Repeat("v", 3<<20) + `"}` + "\n"
	n := 0
	count := func(r *Record) error {
		if n++; len(r.Value) != 3<<20 {
			t.Errorf("record %d has %d bytes", n, len(r.Value))
		}
		return nil
	}
	if err := records(strings.NewReader(line+line), count); err != nil || n != 2 {
		t.Fatalf("%d records, %v", n, err)
	}
	if err := records(strings.NewReader(line+line[:100]), count); !errors.Is(err, errBreaksOff) {
		t.Fatal("an output that breaks off was taken as whole")
	}
	enough := errors.New("enough")
	if err := records(strings.NewReader(line), func(*Record) error { return enough }); err != enough {
		t.Fatalf("the caller's error came back as %v", err)
	}
}

func TestEndOf(t *testing.T) {
	for line, want := range map[string][3]int64{
		"% Reached end of topic odd [0] at offset 3":           {0, 3, 1},
		"% Reached end of topic odd [12] at offset 5: exiting": {12, 5, 1},
		"% ERROR: Topic nope error":                            {},
		"% Reached end of topic odd":                           {},
	} {
		p, o, ok := endOf(line)
		if ok != (want[2] == 1) || ok && (int64(p) != want[0] || o != want[1]) {
			t.Errorf("%s: partition %d, offset %d, %t", line, p, o, ok)
		}
	}
}
