package main

import (
	"time"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// click is one record of the input; at is in milliseconds since 1970.
type click struct {
	id, ad string
	at     int64
}

const minute = trial.Minute

// cell is a window of an ad.
type cell struct{ ad, minute string }

func (c cell) key() string { return c.ad + "|" + c.minute }

// table is the clicks of each window.
type table map[cell]int64

// tally is the oracle of all splits together.
type tally struct {
	rules  trial.Rules
	splits map[string]*trial.Oracle
	table  table
}

func newTally(r trial.Rules) *tally { return &tally{r, map[string]*trial.Oracle{}, table{}} }

// advance counts each split's clicks up to where read says, and returns the
// windows that this has changed.
func (t *tally) advance(in map[string][]click, read map[string]int64) (map[cell]int64, error) {
	changed := map[cell]int64{}
	for split, n := range read {
		o := t.splits[split]
		if o == nil {
			o = trial.NewOracle(t.rules)
			t.splits[split] = o
		}
		if n < int64(o.N) || n > int64(len(in[split])) {
			return nil, trial.Failed("a checkpoint says that %d records of %s were read, of %d, and the one before it %d", n, split, len(in[split]), o.N)
		}
		for _, c := range in[split][o.N:n] {
			if start, _, counted := o.Count(c.id, c.at); counted {
				k := cell{c.ad, time.UnixMilli(start).UTC().Format(time.RFC3339)}
				t.table[k]++
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
