package window_test

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/window"
)

func ExampleTumbling() {
	w := window.Tumbling(time.Minute, window.Lateness(30*time.Minute), window.EachBarrier)
	click := time.Date(2026, 1, 1, 12, 0, 42, 0, time.UTC)

	fmt.Println(w.Span(click.UnixNano()))
	fmt.Println("closes when the watermark is at", time.Unix(0, w.Closes(click.UnixNano())).UTC().Format(time.TimeOnly))
	fmt.Println("emits at each", w.Emission())
	// Output:
	// 2026-01-01T12:00:00Z/2026-01-01T12:01:00Z
	// closes when the watermark is at 12:31:00
	// emits at each barrier
}

func ExampleOffset() {
	day := window.Tumbling(24*time.Hour, window.Offset(6*time.Hour))
	night := time.Date(2026, 1, 2, 5, 59, 59, 0, time.UTC)
	fmt.Println(day.Span(night.UnixNano()))
	// Output: 2026-01-01T06:00:00Z/2026-01-02T06:00:00Z
}
