package trial

// Rules are the flags that decide what is counted, in milliseconds.
type Rules struct{ Dedup, Disorder, Lateness int64 }

// In milliseconds.
const (
	Minute   = int64(60_000)
	Admitted = 31 * Minute // behind which a job takes a click for late before it looks for repeats, whatever the windows do
)

// Oracle counts the clicks of one split, one by one, with nothing but the
// definitions. A click is late where the newest time of all clicks before it in
// the split, less the disorder, has reached the end of its minute plus the
// lateness. Repeats of an id stand in one split, so splits can be counted alone.
type Oracle struct {
	Rules
	N      int // clicks so far
	newest int64
	passed map[string][]int64
}

// NewOracle returns one that has seen nothing.
func NewOracle(r Rules) *Oracle { return &Oracle{Rules: r, passed: map[string][]int64{}} }

// Count takes the next click, with its id and time. passed: it is no repeat, and not
// too late to tell. counted: its window, which begins at minute, takes it as well.
func (o *Oracle) Count(id string, at int64) (minute int64, passed, counted bool) {
	first, watermark := o.N == 0, o.newest-o.Disorder
	behind := func(limit int64) bool { return !first && watermark >= limit }
	o.N++
	if first || at > o.newest {
		o.newest = at
	}
	if o.Dedup > 0 {
		if behind(at+Admitted) || o.repeats(id, at) {
			return 0, false, false
		}
		o.passed[id] = append(o.passed[id], at)
	}
	minute = at - at%Minute
	return minute, true, !behind(minute + Minute + o.Lateness)
}

func (o *Oracle) repeats(id string, at int64) bool {
	for _, p := range o.passed[id] {
		if at-p < o.Dedup && p-at < o.Dedup {
			return true
		}
	}
	return false
}
