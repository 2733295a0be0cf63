package weir_test

import (
	"fmt"
	"slices"
	"time"
)

// rules is what a version of the job is declared with, as far as its results
// depend on it. Times are milliseconds.
type rules struct{ disorder, lateness, ttl, admit int64 }

func ms(d time.Duration) int64 { return d.Milliseconds() }

func firstRules() rules {
	return rules{ms(shopDisorder), ms(shopLateness), ms(shopTTL), ms(shopAdmit)}
}

// books is what the tables hold, counted by hand, one order after the other. It
// knows nothing of the engine: it is what the documentation says, in maps.
type books struct {
	rules
	watermark, newest int64
	shut              int64 // windows that end then or before were closed when the job was changed
	orders, cents     map[string]int64
	most              map[string]int64 // largest order since the change
	last              map[string]string
	minutes           map[string]map[int64][]int64
	touched           map[string]bool // "shop minute" that got an order since the change
	passed            map[string][]int64
	uniques           map[string]int64
}

func newBooks(r rules) *books {
	return &books{rules: r, watermark: -1 << 62, newest: -1 << 62, shut: -1 << 62, orders: map[string]int64{}, cents: map[string]int64{}, most: map[string]int64{}, last: map[string]string{},
		minutes: map[string]map[int64][]int64{}, touched: map[string]bool{}, passed: map[string][]int64{}, uniques: map[string]int64{}}
}

// change goes on under other rules: what was closed or forgotten stays that.
func (b *books) change(r rules) {
	if r.lateness != b.lateness {
		b.shut = b.watermark - b.lateness
	}
	if r.ttl > b.ttl {
		for id, times := range b.passed {
			b.passed[id] = slices.DeleteFunc(times, func(at int64) bool { return at+b.ttl+b.admit <= b.watermark })
		}
	}
	b.newest = b.watermark + r.disorder
	b.rules = r
	clear(b.most)
	clear(b.last)
	clear(b.touched)
}

func (b *books) add(orders ...order) {
	for _, o := range orders {
		behind := b.watermark
		if o.At >= behind && o.At > b.newest {
			b.newest, b.watermark = o.At, o.At-b.disorder
		}
		b.total(o)
		b.minute(o, behind)
		b.unique(o, behind)
	}
}

func (b *books) total(o order) {
	b.orders[o.Shop]++
	b.cents[o.Shop] += o.Cents
	b.most[o.Shop] = max(b.most[o.Shop], o.Cents)
	b.last[o.Shop] = o.ID
}

func (b *books) minute(o order, behind int64) {
	start := o.At - o.At%60_000
	end := start + 60_000
	if behind >= end+b.lateness || end <= b.shut {
		return
	}
	if b.minutes[o.Shop] == nil {
		b.minutes[o.Shop] = map[int64][]int64{}
	}
	b.minutes[o.Shop][start/1000] = append(b.minutes[o.Shop][start/1000], o.Cents)
	b.touched[fmt.Sprint(o.Shop, " ", start/1000)] = true
}

func (b *books) unique(o order, behind int64) {
	if behind >= o.At+b.admit {
		return
	}
	for _, t := range b.passed[o.ID] {
		if d := t - o.At; -b.ttl < d && d < b.ttl {
			return
		}
	}
	b.passed[o.ID] = append(b.passed[o.ID], o.At)
	b.uniques[o.Shop]++
}

// totalRows are those of the table of totals, with what else a state has.
func (b *books) totalRows(table string, more func(shop string) string) []string {
	var out []string
	for shop, n := range b.orders {
		out = append(out, fmt.Sprintf("%s %s %d %d %s", table, shop, n, b.cents[shop], more(shop)))
	}
	return out
}

func noMore(string) string { return "0 " }

// minuteRows are those of the table of minutes.
func (b *books) minuteRows(table string, value func(cents []int64) int64) []string {
	var out []string
	for shop, minutes := range b.minutes {
		for start, cents := range minutes {
			out = append(out, fmt.Sprintf("%s %s %d %d", table, shop, start, value(cents)))
		}
	}
	return out
}

func summed(cents []int64) (n int64) {
	for _, c := range cents {
		n += c
	}
	return n
}

func (b *books) uniqueRows() []string {
	var out []string
	for shop, n := range b.uniques {
		out = append(out, fmt.Sprintf("uniques %s %d", shop, n))
	}
	return out
}

// all is every table of the first version.
func (b *books) all() []string {
	return slices.Concat(b.totalRows("total", noMore), b.minuteRows("minute", summed), b.uniqueRows())
}
