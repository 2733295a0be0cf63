// Package rig is what the Kafka rows of bench stand on: the click workload on a
// broker, one lap of a job or of a loop by hand in a process of its own, and the
// comparison of what a lap wrote with a result that is computed anew.
package rig

import (
	"strconv"
	"time"
)

// The click workload: clicks of 77 bytes, so many of them in a second of event
// time, a little out of order, with repeats of earlier ones among them.
const (
	Partitions = 4
	Ads        = 10_000
	perSecond  = 10_000          // clicks in a second of event time
	disorder   = 4_000           // milliseconds that a click may come late, less one
	oneIn      = 50              // one click in so many is a repeat
	within     = 150 * perSecond // repeats follow at most so many clicks behind
	users      = 1_000
)

var firstClick = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// Workload is a sequence of clicks. What the click at an index is depends on the
// seed and the index alone.
type Workload struct {
	Seed    uint64
	Records int64
}

// made is one click of the workload.
type made struct {
	ad, user int
	id       uint32
	at       int64 // milliseconds since 1970
	repeat   bool  // an earlier click has the same id
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// click is the click at index i. A repeat has the id, the ad and the user of an
// earlier click, so it has the key and the partition of that one, and a time of
// its own.
func (w Workload) click(i int64) made {
	at := firstClick + i*1000/perSecond - int64(mix(w.Seed^uint64(3*i+1))%disorder)
	first := i
	for first > 0 && mix(w.Seed^uint64(3*first+2))%oneIn == 0 {
		first -= 1 + int64(mix(w.Seed^uint64(3*first))%uint64(min(first, within)))
	}
	h := mix(w.Seed ^ uint64(3*first) ^ 1<<63)
	return made{ad: int(h % Ads), user: int(h >> 32 % users), id: uint32(first) * 0x9e3779b1, at: max(at, firstClick), repeat: first != i}
}

func appendKey(b []byte, ad int) []byte { return padded(append(b, "ad-"...), ad, Ads/10) }

// padded appends n with zeros before it: one for each power of ten, from limit
// down, that n doesn't reach.
func padded(b []byte, n, limit int) []byte {
	for ; limit > 1 && n < limit; limit /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(n), 10)
}

const hexDigits = "0123456789abcdef"

// appendValue appends the JSON of a click.
func appendValue(b []byte, c made) []byte {
	b = append(b, `{"click_id":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[c.id>>shift&15])
	}
	b = append(b, `","ad_id":"`...)
	b = appendKey(b, c.ad)
	b = append(b, `","user_id":"u`...)
	b = padded(b, c.user, users/10)
	b = append(b, `","ts":`...)
	b = strconv.AppendInt(b, c.at, 10)
	return append(b, '}')
}
