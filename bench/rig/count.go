package rig

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codec"
)

// Click is a record of the input as both sides decode it.
type Click struct {
	ID   string `json:"click_id"`
	Ad   string `json:"ad_id"`
	User string `json:"user_id"`
	At   int64  `json:"ts"` // milliseconds since 1970
}

// What a job promises of the clicks, and a loop as well.
const (
	outOfOrder = 30 * time.Second
	lateness   = 30 * time.Minute
	dedup      = time.Hour
)

// appendCountKey appends AD|MINUTE.
func appendCountKey(b []byte, ad string, minute time.Time) []byte {
	return minute.AppendFormat(append(append(b, ad...), '|'), time.RFC3339)
}

// appendCountValue appends the JSON of a count. An ad's name is taken to need no
// escapes; both sides take it so.
func appendCountValue(b []byte, ad string, minute time.Time, clicks int64) []byte {
	b = append(append(b, `{"ad_id":"`...), ad...)
	b = minute.AppendFormat(append(b, `","minute":"`...), time.RFC3339)
	return append(strconv.AppendInt(append(b, `","clicks":`...), clicks, 10), '}')
}

// cell is the count of an ad in a minute.
type cell struct {
	ad     string
	minute int64
	clicks int64
	dirty  bool
}

// counter counts clicks by ad and minute: a map for each minute, as most clicks
// fall into one or two of them, and a list of what has changed in the transaction.
// Memory of what was produced is used again after the transaction.
type counter struct {
	l       *loop
	codec   codec.Codec[Click]
	seen    *ids // nil: every click counts
	click   Click
	minutes map[int64]map[string]*cell
	minute  int64 // of cells
	cells   map[string]*cell
	dirty   []*cell
	recs    []kgo.Record
	text    []byte
}

func newCounter(l *loop, seen *ids) *counter {
	return &counter{l: l, codec: clickCodec(l.spec), seen: seen, minutes: map[int64]map[string]*cell{}}
}

func (c *counter) take(r *kgo.Record) error {
	c.click = Click{}
	err := c.codec.Decode(r.Value, &c.click)
	r.Recycle()
	if err != nil {
		return err
	}
	if c.seen != nil && c.seen.repeated(c.click.ID, c.click.At) {
		return nil
	}
	minute := c.click.At - c.click.At%time.Minute.Milliseconds()
	if minute != c.minute || c.cells == nil {
		if c.cells = c.minutes[minute]; c.cells == nil {
			c.cells = map[string]*cell{}
			c.minutes[minute] = c.cells
		}
		c.minute = minute
	}
	e := c.cells[c.click.Ad]
	if e == nil {
		e = &cell{ad: c.click.Ad, minute: minute}
		c.cells[c.click.Ad] = e
	}
	e.clicks++
	if !e.dirty {
		e.dirty = true
		c.dirty = append(c.dirty, e)
	}
	return nil
}

func (c *counter) flush() {
	if cap(c.recs) < len(c.dirty) {
		c.recs = make([]kgo.Record, len(c.dirty), len(c.dirty)+len(c.dirty)/4)
	}
	c.recs = c.recs[:len(c.dirty)]
	for i, e := range c.dirty {
		e.dirty = false
		minute := time.UnixMilli(e.minute).UTC()
		from := len(c.text)
		c.text = appendCountKey(c.text, e.ad, minute)
		key := len(c.text)
		c.text = appendCountValue(c.text, e.ad, minute, e.clicks)
		c.recs[i] = kgo.Record{Key: c.text[from:key:key], Value: c.text[key:len(c.text):len(c.text)]}
		c.l.session.Produce(context.Background(), &c.recs[i], c.l.promise)
	}
}

func (c *counter) done() { c.dirty, c.text = c.dirty[:0], c.text[:0] }

// ids are those of the last hour at least, in two maps that take turns: when the
// newer one covers an hour, the older one goes.
type ids struct {
	newer, older map[string]int64
	since        int64
}

// repeated notes an id with its time, and says whether it was there less than an
// hour before.
func (d *ids) repeated(id string, at int64) bool {
	hour := dedup.Milliseconds()
	if d.newer == nil || at-d.since >= hour {
		d.newer, d.older, d.since = map[string]int64{}, d.newer, at
	}
	was, ok := d.newer[id]
	if !ok {
		was, ok = d.older[id]
	}
	if ok && at-was < hour {
		return true
	}
	d.newer[id] = at
	return false
}
