package kafka

import (
	"strings"
	"testing"
)

func TestPosition(t *testing.T) {
	id := topicID{1, 2, 3, 250, 251, 252, 253, 254, 255, 0, 0, 0, 0, 0, 0, 16}
	for want, p := range map[string]position{
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:0":                     {"q-_7", id, 0, noEnd, noEpoch},
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:17:17":                 {"q-_7", id, 17, 17, noEpoch},
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:0:0":                   {"q-_7", id, 0, 0, noEpoch},
		"kafka1::AAAAAAAAAAAAAAAAAAAAAA:9223372036854775807":       {"", topicID{}, 1<<63 - 1, noEnd, noEpoch},
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:9223372036854775806:1": {"q-_7", id, 1<<63 - 2, 1, noEpoch},
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:17@0":                  {"q-_7", id, 17, noEnd, 0},
		"kafka1:q-_7:AQID-vv8_f7_AAAAAAAAEA:17@2147483647:20":      {"q-_7", id, 17, 20, 1<<31 - 1},
	} {
		b := p.append([]byte("x"))[1:]
		if string(b) != want {
			t.Errorf("%+v is written as %q, want %q", p, b, want)
		}
		if got, err := parsePosition(b); err != nil || got != p || !isPosition(b) {
			t.Errorf("%q is read as %+v, %v", b, got, err)
		}
	}
}

// What no source of this package has written isn't a position.
func TestNotAPosition(t *testing.T) {
	const good = "kafka1:c:AQID-vv8_f7_AAAAAAAAEA:17"
	for _, s := range []string{
		"", "17", "kafka1", "kafka1:", "kafka1:c", "kafka2:c:AQID-vv8_f7_AAAAAAAAEA:17", good + ":", good + ":-1", good + ":18:19", good + " ",
		good + "@", good + "@-1", good + "@2147483648", good + "@1@1", good + ":18@1",
		"kafka1:c:AQID-vv8_f7_AAAAAAAAEA:", "kafka1:c:AQID-vv8_f7_AAAAAAAAEA:+17", "kafka1:c:AQID-vv8_f7_AAAAAAAAEA:017", "kafka1:c:AQID-vv8_f7_AAAAAAAAEA:9223372036854775808",
		"kafka1:c:AQID-vv8_f7_AAAAAAAAEA=:17", "kafka1:c:AQID-vv8_f7_AAAAAAAAEB:17", "kafka1:c:AQID:17", "kafka1:c:AQID+vv8_f7_AAAAAAAAEA:17",
	} {
		if p, err := parsePosition([]byte(s)); err == nil || !strings.Contains(err.Error(), "isn't one of a Kafka partition") {
			t.Errorf("%q is read as %+v, %v", s, p, err)
		}
	}
}

func FuzzPosition(f *testing.F) {
	f.Add([]byte("kafka1:c:AQID-vv8_f7_AAAAAAAAEA:17:18"))
	f.Add([]byte("kafka1:c:AQID-vv8_f7_AAAAAAAAEA:17@5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsePosition(b); err == nil && string(p.append(nil)) != string(b) {
			t.Errorf("%q is read, and written as %q", b, p.append(nil))
		}
	})
}
