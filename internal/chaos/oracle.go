package main

import (
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// click is one line of the input; at is in milliseconds since 1970.
type click struct {
	id, ad string
	at     int64
}

const minute = trial.Minute

// cell is a row of ad_minute, or with minute "" of ad_total.
type cell struct{ ad, minute string }

// table is what both tables hold.
type table map[cell]int64

// count adds the clicks of one file to the tables. Repeats of an id stand in one
// file, so files can be counted one by one.
func count(into table, r trial.Rules, clicks []click) {
	o := trial.NewOracle(r)
	for _, c := range clicks {
		start, passed, counted := o.Count(c.id, c.at)
		if passed {
			into[cell{ad: c.ad}]++
		}
		if counted {
			into[cell{c.ad, time.UnixMilli(start).UTC().Format(time.RFC3339)}]++
		}
	}
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
