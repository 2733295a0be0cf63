package cli

import (
	"bytes"
	"testing"
	"time"
)

// The same cause is told once, and then less and less often; another one, or the
// same a good while later, at once.
func TestWaitingIsToldSparsely(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := &printer{w: &out, now: func() time.Time { return now }}
	for i := range 100 { // every second
		p.waiting("a broker")
		if i == 40 {
			p.waiting("a lock")
			p.waiting("a broker")
		}
		now = now.Add(time.Second)
	}
	now = now.Add(time.Hour)
	p.waiting("a broker")
	want := "waiting: a broker\n" +
		"waiting for 10s now: a broker\n" +
		"waiting for 30s now: a broker\n" +
		"waiting: a lock\n" +
		"waiting: a broker\n" +
		"waiting for 10s now: a broker\n" +
		"waiting for 30s now: a broker\n" +
		"waiting: a broker\n"
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
}
