// Package window describes how a keyed stream is cut into windows of event
// time, and when the results of a window are emitted.
package window

import (
	"fmt"
	"math"
	"time"
)

// Window is a description of windows. It is made by a function of this
// package, such as Tumbling, and doesn't change. Times are nanoseconds since
// 1970, as everywhere on the path of a record.
//
// A description isn't checked when it is made: Check says what is wrong with
// it, and the job reports that with the step's id before it starts. The other
// methods want a description that Check accepts.
type Window struct {
	size, offset, lateness time.Duration
	emission               Emission
}

// Tumbling returns windows of a fixed size that follow each other without gap
// or overlap. One of them starts at 1970-01-01T00:00:00Z plus Offset, so with
// a size of an hour they are the hours of the clock in UTC. Without options no
// record may be later than the windows' end, and results come OnClose.
func Tumbling(size time.Duration, opts ...Option) Window {
	w := Window{size: size}
	for _, o := range opts {
		if o != nil {
			o.apply(&w)
		}
	}
	return w
}

// Option changes a description: Offset, Lateness, or an Emission.
type Option interface{ apply(*Window) }

type option func(*Window)

func (o option) apply(w *Window) { o(w) }

// Offset moves the starts of all windows: 0 or more, and less than the size.
// Tumbling(24*time.Hour, Offset(6*time.Hour)) are days from 06:00 UTC to 06:00.
// The default is 0.
func Offset(d time.Duration) Option { return option(func(w *Window) { w.offset = d }) }

// Lateness keeps a window open for d past its end: 0 (the default) or more. A
// record is late for a window when the watermark of its own split, as it was
// read, is at or past the window's end plus d.
func Lateness(d time.Duration) Option { return option(func(w *Window) { w.lateness = d }) }

// Emission says when the result of a key and window is emitted. It is an
// Option.
type Emission uint8

const (
	// OnClose emits exactly one result per key and window, when the watermark
	// is at or past the window's end plus the lateness. It is the default.
	OnClose Emission = iota
	// EachBarrier emits, at each barrier, the windows that have changed since
	// the one before, and what has changed since the last barrier when a window
	// closes. How often that is depends on the checkpoint interval; the last
	// result of a key and window doesn't.
	EachBarrier
	// EachRecord emits the new result after every record.
	EachRecord
)

func (e Emission) apply(w *Window) { w.emission = e }

// String returns "close", "barrier" or "record".
func (e Emission) String() string {
	switch e {
	case OnClose:
		return "close"
	case EachBarrier:
		return "barrier"
	case EachRecord:
		return "record"
	}
	return fmt.Sprintf("Emission(%d)", uint8(e))
}

// Size is how long a window is.
func (w Window) Size() time.Duration { return w.size }

// Offset is by how much the windows are moved against 1970-01-01T00:00:00Z.
func (w Window) Offset() time.Duration { return w.offset }

// Lateness is how long a window stays open past its end.
func (w Window) Lateness() time.Duration { return w.lateness }

// Emission is when results are emitted.
func (w Window) Emission() Emission { return w.emission }

// Check returns what is wrong with the description, or nil. It is the only
// place that decides that.
func (w Window) Check() error {
	switch {
	case w.size <= 0:
		return fmt.Errorf("window size is %v: give a size above 0", w.size)
	case w.offset < 0 || w.offset >= w.size:
		return fmt.Errorf("window offset is %v: give one from 0 to less than the size, %v", w.offset, w.size)
	case w.lateness < 0:
		return fmt.Errorf("window lateness is %v: give 0 or more", w.lateness)
	case w.size > math.MaxInt64-w.lateness:
		return fmt.Errorf("window size %v and lateness %v together are more than %v: give less", w.size, w.lateness, time.Duration(math.MaxInt64))
	case w.emission > EachRecord:
		return fmt.Errorf("window emission is %v: give OnClose, EachBarrier or EachRecord", w.emission)
	}
	return nil
}

// Start returns the start of the window that the event time at falls into:
// the last one at or before it, also before 1970. Where that lies before
// math.MinInt64 (the year 1677), the window is cut off and starts there.
func (w Window) Start(at int64) int64 {
	past := w.past(at)
	if at < math.MinInt64+past {
		return math.MinInt64
	}
	return at - past
}

// End returns the end of the window that at falls into, its start included:
// the first instant after at that isn't part of it. A window that ends past
// math.MaxInt64 (the year 2262) is cut off and ends there.
func (w Window) End(at int64) int64 {
	return later(at, int64(w.size)-w.past(at))
}

// Closes returns the watermark that closes the window that at falls into: its
// end plus the lateness, or math.MaxInt64 where that would be past it.
func (w Window) Closes(at int64) int64 {
	return later(w.End(at), int64(w.lateness))
}

// past is how long before at its window starts, without the ends of int64.
func (w Window) past(at int64) int64 {
	size := int64(w.size)
	past := at % size
	if past < 0 { // the remainder of a negative time is negative
		past += size
	}
	past -= int64(w.offset)
	if past < 0 {
		past += size
	}
	return past
}

// later returns t plus d, which isn't negative, or math.MaxInt64.
func later(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}

// Span is one window: from Start up to, not including, End. Both are in UTC.
type Span struct{ Start, End time.Time }

// Span returns the window that at falls into.
func (w Window) Span(at int64) Span {
	return Span{time.Unix(0, w.Start(at)).UTC(), time.Unix(0, w.End(at)).UTC()}
}

// String returns START/END as RFC 3339 has it, with as many decimals as needed.
func (s Span) String() string {
	return s.Start.Format(time.RFC3339Nano) + "/" + s.End.Format(time.RFC3339Nano)
}
