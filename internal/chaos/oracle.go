package main

import "time"

// click is one line of the input; at is in milliseconds since 1970.
type click struct {
	id, ad string
	at     int64
}

// rules are the flags that decide what the tables hold, in milliseconds.
type rules struct{ dedup, disorder, lateness int64 }

const (
	minute   = int64(60_000)
	admitted = 31 * minute // behind which the job takes a click for late, whatever the windows do
)

// cell is a row of ad_minute, or with minute "" of ad_total.
type cell struct{ ad, minute string }

// table is what both tables hold.
type table map[cell]int64

// count is the oracle: it says what the clicks of one file add to the tables,
// line by line, with nothing but the definitions. A click is late where the
// newest time of all lines before it, less the disorder, has reached the end of
// its minute plus the lateness. Repeats of an id stand in one file, so files
// can be counted one by one.
func (r rules) count(into table, clicks []click) {
	passed := map[string][]int64{}
	var newest int64
	for i, c := range clicks {
		watermark := newest - r.disorder
		behind := func(limit int64) bool { return i > 0 && watermark >= limit }
		if i == 0 || c.at > newest {
			newest = c.at
		}
		if r.dedup > 0 {
			if behind(c.at+admitted) || r.repeats(passed[c.id], c.at) {
				continue
			}
			passed[c.id] = append(passed[c.id], c.at)
		}
		into[cell{ad: c.ad}]++
		start := c.at - c.at%minute
		if !behind(start + minute + r.lateness) {
			into[cell{c.ad, time.UnixMilli(start).UTC().Format(time.RFC3339)}]++
		}
	}
}

func (r rules) repeats(passed []int64, at int64) bool {
	for _, p := range passed {
		if at-p < r.dedup && p-at < r.dedup {
			return true
		}
	}
	return false
}

// compare counts the rows that don't lie between low and high, which are equal
// where only one result is right, and says what the first of them are.
func compare(got, low, high table) (n int, first string) {
	keys := map[cell]bool{}
	for _, t := range []table{got, low, high} {
		for k := range t {
			keys[k] = true
		}
	}
	for k := range keys {
		if got[k] >= low[k] && got[k] <= high[k] && (got[k] != 0 || low[k] == 0) {
			continue
		}
		if n++; n <= 3 {
			first += describe(k, got[k], low[k], high[k])
		}
	}
	return n, first
}
