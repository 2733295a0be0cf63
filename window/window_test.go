package window

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = int64(time.Millisecond)

func TestTumblingStart(t *testing.T) {
	for _, c := range []struct {
		name         string
		size, offset time.Duration
		at, start    int64
	}{
		{"zero", time.Minute, 0, 0, 0},
		{"inside the first", time.Minute, 0, 59_999 * ms, 0},
		{"on an edge", time.Minute, 0, 60_000 * ms, 60_000 * ms},
		{"just before 1970", time.Minute, 0, -1 * ms, -60_000 * ms},
		{"an edge before 1970", time.Minute, 0, -60_000 * ms, -60_000 * ms},
		{"just before that edge", time.Minute, 0, -60_001 * ms, -120_000 * ms},
		{"one nanosecond before 1970", time.Minute, 0, -1, -60_000 * ms},
		{"offset, before its edge", time.Minute, 15 * time.Second, 0, -45_000 * ms},
		{"offset, on its edge", time.Minute, 15 * time.Second, 15_000 * ms, 15_000 * ms},
		{"offset, just before its edge", time.Minute, 15 * time.Second, 15_000*ms - 1, -45_000 * ms},
		{"offset, just before 1970", time.Minute, 15 * time.Second, -1 * ms, -45_000 * ms},
		{"offset, an edge before 1970", time.Minute, 15 * time.Second, -45_000 * ms, -45_000 * ms},
		{"offset, just before that edge", time.Minute, 15 * time.Second, -45_001 * ms, -105_000 * ms},
		{"offset, -60,000 ms", time.Minute, 15 * time.Second, -60_000 * ms, -105_000 * ms},
		{"offset, -60,001 ms", time.Minute, 15 * time.Second, -60_001 * ms, -105_000 * ms},
		{"one nanosecond windows", 1, 0, -7, -7},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := Tumbling(c.size, Offset(c.offset))
			if err := w.Check(); err != nil {
				t.Fatalf("Check: %v", err)
			}
			if got := w.Start(c.at); got != c.start {
				t.Errorf("Start(%d) = %d, want %d", c.at, got, c.start)
			}
			if got, want := w.End(c.at), c.start+int64(c.size); got != want {
				t.Errorf("End(%d) = %d, want %d", c.at, got, want)
			}
			if got, want := w.End(c.start), c.start+int64(c.size); got != want {
				t.Errorf("End(%d), of the start, = %d, want %d", c.start, got, want)
			}
		})
	}
}

// TestEveryTimeHasOneWindow checks against arithmetic that can't overflow.
func TestEveryTimeHasOneWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "size")
		offset := rapid.Int64Range(0, size-1).Draw(t, "offset")
		late := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, math.MaxInt64-size)).Draw(t, "lateness")
		at := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-5000, 5000),
			rapid.Int64Range(math.MinInt64, math.MinInt64+5000), rapid.Int64Range(math.MaxInt64-5000, math.MaxInt64)).Draw(t, "at")
		w := Tumbling(time.Duration(size), Offset(time.Duration(offset)), Lateness(time.Duration(late)))
		if err := w.Check(); err != nil {
			t.Fatalf("Check: %v", err)
		}
		// The start is offset + k*size for the largest k that is not past at.
		k := new(big.Int).Div( // Euclidean: rounds down for a positive divisor
			new(big.Int).Sub(big.NewInt(at), big.NewInt(offset)), big.NewInt(size))
		start := k.Mul(k, big.NewInt(size)).Add(k, big.NewInt(offset))
		end := new(big.Int).Add(start, big.NewInt(size))
		closes := new(big.Int).Add(end, big.NewInt(late))
		if end.Cmp(big.NewInt(math.MaxInt64)) > 0 { // cut off there, and only then the lateness counts
			closes = big.NewInt(math.MaxInt64)
		}
		if got, want := w.Start(at), clamp(start); got != want {
			t.Errorf("Start = %d, want %d", got, want)
		}
		if got, want := w.End(at), clamp(end); got != want {
			t.Errorf("End = %d, want %d", got, want)
		}
		if got, want := w.Closes(at), clamp(closes); got != want {
			t.Errorf("Closes = %d, want %d", got, want)
		}
		if s := w.Start(at); w.End(s) != w.End(at) {
			t.Errorf("End of start %d = %d, of %d = %d: two ends of one window", s, w.End(s), at, w.End(at))
		}
	})
}

func clamp(b *big.Int) int64 {
	if b.Cmp(big.NewInt(math.MinInt64)) < 0 {
		return math.MinInt64
	}
	if b.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return math.MaxInt64
	}
	return b.Int64()
}

func TestEndsOfTime(t *testing.T) {
	w := Tumbling(time.Minute, Lateness(time.Hour))
	if got := w.Start(math.MinInt64); got != math.MinInt64 {
		t.Errorf("Start of the first instant = %d", got)
	}
	first := w.End(math.MinInt64)
	if first == math.MinInt64 || w.Start(first) != first {
		t.Errorf("the first window ends at %d, which starts no window: Start = %d", first, w.Start(first))
	}
	if got := w.End(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("End of the last instant = %d", got)
	}
	if s := w.Start(math.MaxInt64); s > math.MaxInt64-1 || w.Closes(s) != math.MaxInt64 {
		t.Errorf("the last window starts at %d and closes at %d", s, w.Closes(s))
	}
}

// With no lateness, in-order records, equal times and the very first belong to
// a window that is still open.
func TestNothingInOrderIsLate(t *testing.T) {
	w := Tumbling(time.Minute)
	watermark := int64(math.MinInt64)
	for _, at := range []int64{-60_001 * ms, -60_000 * ms, -1, 0, 0, 1, 59_999 * ms, 60_000*ms - 1, 60_000 * ms} {
		watermark = max(watermark, at)
		if c := w.Closes(at); watermark >= c {
			t.Errorf("record at %d: its window closes at %d, the watermark is %d", at, c, watermark)
		}
	}
	// At is late: a watermark exactly at the end closes the window.
	if c := w.Closes(0); c != 60_000*ms {
		t.Errorf("the window of 0 closes at %d, want %d", c, 60_000*ms)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name string
		w    Window
		want string // part of the error; empty: none
	}{
		{"plain", Tumbling(time.Minute), ""},
		{"all options", Tumbling(time.Hour, Offset(time.Minute), Lateness(time.Hour), EachBarrier), ""},
		{"largest offset", Tumbling(time.Hour, Offset(time.Hour-1)), ""},
		{"nil option", Tumbling(time.Hour, nil), ""},
		{"longest", Tumbling(math.MaxInt64), ""},
		{"zero value", Window{}, "size is 0s"},
		{"negative size", Tumbling(-time.Minute), "size is -1m0s"},
		{"negative offset", Tumbling(time.Minute, Offset(-1)), "offset is -1ns"},
		{"offset as large as the size", Tumbling(time.Minute, Offset(time.Minute)), "less than the size, 1m0s"},
		{"negative lateness", Tumbling(time.Minute, Lateness(-time.Second)), "lateness is -1s"},
		{"too long together", Tumbling(math.MaxInt64, Lateness(1)), "together"},
		{"unknown emission", Tumbling(time.Minute, Emission(9)), "Emission(9)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.w.Check()
			if c.want == "" {
				if err != nil {
					t.Fatalf("Check: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Check = %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestAccessors(t *testing.T) {
	w := Tumbling(time.Hour, Offset(time.Minute), Lateness(2*time.Hour), EachRecord)
	if w.Size() != time.Hour || w.Offset() != time.Minute || w.Lateness() != 2*time.Hour || w.Emission() != EachRecord {
		t.Errorf("got %v %v %v %v", w.Size(), w.Offset(), w.Lateness(), w.Emission())
	}
	if e := Tumbling(time.Hour).Emission(); e != OnClose {
		t.Errorf("default emission is %v", e)
	}
	for e, want := range map[Emission]string{OnClose: "close", EachBarrier: "barrier", EachRecord: "record"} {
		if e.String() != want {
			t.Errorf("%d is %q, want %q", e, e, want)
		}
	}
}
