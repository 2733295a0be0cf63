package main

import "time"

// click is one record of the input; at is in milliseconds since 1970.
type click struct {
	id, ad string
	at     int64
}

// rules are the flags that decide what is counted, in milliseconds.
type rules struct{ dedup, disorder, lateness int64 }

const (
	minute   = int64(60_000)
	admitted = 31 * minute // behind which the job takes a click for late before it looks for repeats, whatever the windows do
)

// cell is a window of an ad.
type cell struct{ ad, minute string }

func (c cell) key() string { return c.ad + "|" + c.minute }

// table is the clicks of each window.
type table map[cell]int64

// oracle counts the clicks of one split, one by one, with nothing but the
// definitions. A click is late where the newest time of all clicks before it in
// the split, less the disorder, has reached the end of its minute plus the
// lateness. Repeats of an id stand in one split, so splits can be counted alone.
type oracle struct {
	rules
	n      int
	newest int64
	passed map[string][]int64
}

func newOracle(r rules) *oracle { return &oracle{rules: r, passed: map[string][]int64{}} }

// count adds one click and returns the window that it has changed, if it has.
func (o *oracle) count(into table, c click) (changed cell, counted bool) {
	first, watermark := o.n == 0, o.newest-o.disorder
	behind := func(limit int64) bool { return !first && watermark >= limit }
	o.n++
	if first || c.at > o.newest {
		o.newest = c.at
	}
	if o.dedup > 0 {
		if behind(c.at+admitted) || o.repeats(c) {
			return cell{}, false
		}
		o.passed[c.id] = append(o.passed[c.id], c.at)
	}
	start := c.at - c.at%minute
	if behind(start + minute + o.lateness) {
		return cell{}, false
	}
	k := cell{c.ad, time.UnixMilli(start).UTC().Format(time.RFC3339)}
	into[k]++
	return k, true
}

func (o *oracle) repeats(c click) bool {
	for _, p := range o.passed[c.id] {
		if c.at-p < o.dedup && p-c.at < o.dedup {
			return true
		}
	}
	return false
}

// tally is the oracle of all splits together.
type tally struct {
	rules
	splits map[string]*oracle
	table  table
}

func newTally(r rules) *tally { return &tally{r, map[string]*oracle{}, table{}} }

// advance counts each split's clicks up to where read says, and returns the
// windows that this has changed.
func (t *tally) advance(in map[string][]click, read map[string]int64) (map[cell]int64, error) {
	changed := map[cell]int64{}
	for split, n := range read {
		o := t.splits[split]
		if o == nil {
			o = newOracle(t.rules)
			t.splits[split] = o
		}
		if n < int64(o.n) || n > int64(len(in[split])) {
			return nil, failed("a checkpoint says that %d records of %s were read, of %d, and the one before it %d", n, split, len(in[split]), o.n)
		}
		for _, c := range in[split][o.n:n] {
			if k, counted := o.count(t.table, c); counted {
				changed[k] = 0
			}
		}
	}
	for k := range changed {
		changed[k] = t.table[k]
	}
	return changed, nil
}

// all counts everything there is.
func (t *tally) all(in map[string][]click) error {
	read := map[string]int64{}
	for split, clicks := range in {
		read[split] = int64(len(clicks))
	}
	_, err := t.advance(in, read)
	return err
}
