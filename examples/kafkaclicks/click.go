package main

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirstream/weir/codec"
)

// Click is the value of a message in the input topic, or a line of a file.
type Click struct {
	ID   string `json:"click_id"`
	Ad   string `json:"ad_id"`
	User string `json:"user_id"`
	At   When   `json:"ts"`
}

// whole is a codec that refuses a click without its id or its ad: counted, it would
// be a click of nothing, and for deduplication all of them would be the same one.
type whole struct{ codec.Codec[Click] }

// Decode implements codec.Codec.
func (w whole) Decode(b []byte, c *Click) error {
	if err := w.Codec.Decode(b, c); err != nil {
		return err
	}
	switch "" {
	case c.ID:
		return errors.New("the click has no click_id, or an empty one")
	case c.Ad:
		return errors.New("the click has no ad_id, or an empty one")
	}
	return nil
}

// When is a time that producers write in one of two ways: as a text in RFC 3339,
// or as milliseconds since 1970, a number or the text of one. What is missing or
// null is no time, which the job takes for a mistake in the record.
//
// Decoding it is on the path of every record. So it parses the bytes where they
// are and allocates nothing, under any JSON codec that knows UnmarshalJSON.
type When struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (w *When) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) == 0:
		return errors.New("no JSON value")
	case b[0] != '"' || len(b) < 2:
		return w.number(b)
	case w.utc(b[1 : len(b)-1]):
		return nil
	case digits(b[1 : len(b)-1]):
		return w.number(b[1 : len(b)-1])
	}
	// It takes RFC 3339 and nothing else, but doesn't know escapes.
	if err := w.Time.UnmarshalJSON(b); err == nil {
		return nil
	}
	s, err := jsontext.AppendUnquote(nil, b)
	if err != nil {
		return err
	}
	if digits(s) {
		return w.number(s)
	}
	if err := w.Time.UnmarshalText(s); err != nil {
		return fmt.Errorf("%q is neither a time in RFC 3339, as 2026-03-01T11:59:46.200Z, nor milliseconds since 1970", s)
	}
	return nil
}

// utc takes a time as 2026-03-01T11:59:46Z, with or without a fraction of a second,
// as nearly all producers write it, at a fraction of what the library needs. It
// leaves everything else to that, what isn't valid included.
func (w *When) utc(b []byte) bool {
	if len(b) < len("2026-03-01T11:59:46Z") || len(b) > len("2026-03-01T11:59:46.123456789Z") ||
		b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[len(b)-1] != 'Z' {
		return false
	}
	ok := true
	two := func(i int) int64 {
		hi, lo := b[i]-'0', b[i+1]-'0'
		ok = ok && hi <= 9 && lo <= 9
		return int64(hi)*10 + int64(lo)
	}
	year, month, day := two(0)*100+two(2), two(5), two(8)
	hour, minute, second := two(11), two(14), two(17)
	ns := int64(0)
	if fraction := b[19 : len(b)-1]; len(fraction) > 0 {
		ok = ok && fraction[0] == '.' && len(fraction) > 1
		for _, c := range fraction[1:] {
			ok = ok && c-'0' <= 9
			ns = ns*10 + int64(c-'0')
		}
		for range 10 - len(fraction) {
			ns *= 10
		}
	}
	// Months have 30 + (month+month/8)%2 days; the library knows about February's.
	if !ok || year < 1 || month < 1 || month > 12 || day < 1 || day > 28 && (month == 2 || day > 30+(month+month/8)%2) ||
		hour > 23 || minute > 59 || second > 59 {
		return false
	}
	w.Time = time.Unix(days(year, month, day)*86400+hour*3600+minute*60+second, ns).UTC()
	return true
}

// days counts days since 1970. Its year begins with March, so that the leap day
// is the last one, and the lengths of the months go 31, 30, 31, 30, 31 twice over.
func days(year, month, day int64) int64 {
	month -= 3
	if month < 0 {
		month, year = month+12, year-1
	}
	return year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 + day - 719469
}

// digits reports whether b is a whole number and not the year of a date.
func digits(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

func (w *When) number(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	// The compiler makes no copy of what only ParseInt sees.
	ms, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is no whole number of milliseconds since 1970", b)
	}
	w.Time = time.UnixMilli(ms).UTC()
	return nil
}
