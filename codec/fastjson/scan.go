package fastjson

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stringEnd returns where the quote is that ends the string that begins at i, -1
// where there is none or before it a byte that a string can't have.
func stringEnd(b []byte, i int) (end int, escaped, ascii bool) {
	ascii = true
	for {
		// Eight bytes at a time as long as none of them is a quote, a backslash,
		// a control character or part of a longer one. Of the marks the lowest is
		// always right; those above it may come from a borrow.
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^('"'*ones), w^('\\'*ones)
			marks := (w - ' '*ones) | (quote - ones) | (slash - ones) | w
			if marks &= highs; marks != 0 {
				i += bits.TrailingZeros64(marks) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1, false, false
		}
		switch c := b[i]; {
		case c == '"':
			return i, escaped, ascii
		case c == '\\':
			escaped = true
			i += 2
		case c < ' ':
			return -1, false, false
		case c >= utf8.RuneSelf:
			ascii = false
			i++
		default:
			i++
		}
	}
}

// unescape appends a string that is valid UTF-8 with its escapes resolved.
func unescape(dst, text []byte) ([]byte, bool) {
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			dst = append(dst, text[i])
			i++
			continue
		}
		r, n, ok := escape(text[i:])
		if !ok {
			return dst, false
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst, true
}

// rightEscapes reports whether unescape would do.
func rightEscapes(text []byte) bool {
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			i++
			continue
		}
		_, n, ok := escape(text[i:])
		if !ok {
			return false
		}
		i += n
	}
	return true
}

// escape reads the one that b begins with, of n bytes.
func escape(b []byte) (r rune, n int, ok bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	switch c := b[1]; c {
	case '"', '\\', '/':
		return rune(c), 2, true
	case 'b':
		return '\b', 2, true
	case 'f':
		return '\f', 2, true
	case 'n':
		return '\n', 2, true
	case 'r':
		return '\r', 2, true
	case 't':
		return '\t', 2, true
	case 'u':
		r, ok := hex4(b[2:])
		if !ok || !utf16.IsSurrogate(r) {
			return r, 6, ok
		}
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return 0, 0, false
		}
		low, ok := hex4(b[8:])
		r = utf16.DecodeRune(r, low)
		return r, 12, ok && r != utf8.RuneError
	}
	return 0, 0, false
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// digits passes a whole number without a sign, of at most 19 digits: they fit into
// 64 bits.
func (d *decoder) digits() (v uint64, ok bool) {
	start := d.i
	for d.i < len(d.b) && d.b[d.i]-'0' <= 9 {
		v = v*10 + uint64(d.b[d.i]-'0')
		d.i++
	}
	n := d.i - start
	return v, n == 1 || n > 1 && n < 20 && d.b[start] != '0'
}

// whole reports whether the number ends here.
func (d *decoder) whole() bool {
	if d.i == len(d.b) {
		return true
	}
	c := d.b[d.i]
	return c != '.' && c != 'e' && c != 'E'
}

func (d *decoder) int(n *node, p unsafe.Pointer) bool {
	negative := d.i < len(d.b) && d.b[d.i] == '-'
	if negative {
		d.i++
	}
	v, ok := d.digits()
	limit := uint64(1) << (n.bits - 1)
	if !ok || !d.whole() || v > limit || v == limit && !negative {
		return false
	}
	x := int64(v)
	if negative {
		x = -x
	}
	switch n.bits {
	case 8:
		*(*int8)(p) = int8(x)
	case 16:
		*(*int16)(p) = int16(x)
	case 32:
		*(*int32)(p) = int32(x)
	default:
		*(*int64)(p) = x
	}
	return true
}

func (d *decoder) uint(n *node, p unsafe.Pointer) bool {
	v, ok := d.digits()
	if !ok || !d.whole() || n.bits < 64 && v>>n.bits != 0 {
		return false
	}
	switch n.bits {
	case 8:
		*(*uint8)(p) = uint8(v)
	case 16:
		*(*uint16)(p) = uint16(v)
	case 32:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = v
	}
	return true
}

// number passes a number of any form.
func (d *decoder) number() (text []byte, ok bool) {
	start := d.i
	if d.i < len(d.b) && d.b[d.i] == '-' {
		d.i++
	}
	first := d.i
	if n := d.run(); n == 0 || n > 1 && d.b[first] == '0' {
		return nil, false
	}
	if d.i < len(d.b) && d.b[d.i] == '.' {
		d.i++
		if d.run() == 0 {
			return nil, false
		}
	}
	if d.i < len(d.b) && (d.b[d.i] == 'e' || d.b[d.i] == 'E') {
		d.i++
		if d.i < len(d.b) && (d.b[d.i] == '+' || d.b[d.i] == '-') {
			d.i++
		}
		if d.run() == 0 {
			return nil, false
		}
	}
	return d.b[start:d.i], true
}

// run passes digits and returns how many.
func (d *decoder) run() int {
	start := d.i
	for d.i < len(d.b) && d.b[d.i]-'0' <= 9 {
		d.i++
	}
	return d.i - start
}

func (d *decoder) float(n *node, p unsafe.Pointer) bool {
	text, ok := d.number()
	if !ok {
		return false
	}
	// ParseFloat keeps the text in its errors only, and these go no further.
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(text), len(text)), n.bits)
	if err != nil {
		return false
	}
	if n.bits == 32 {
		*(*float32)(p) = float32(v)
	} else {
		*(*float64)(p) = v
	}
	return true
}

// time decodes RFC 3339 in UTC, as 2006-01-02T15:04:05Z with an optional fraction.
// Other zones are left to whom they take longer anyway.
func (d *decoder) time(p unsafe.Pointer) bool {
	text, ok := d.plain()
	if !ok || len(text) < len("2006-01-02T15:04:05Z") || text[len(text)-1] != 'Z' {
		return false
	}
	if text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return false
	}
	century, ok1 := two(text[0:])
	year, ok2 := two(text[2:])
	month, ok3 := two(text[5:])
	day, ok4 := two(text[8:])
	hour, ok5 := two(text[11:])
	minute, ok6 := two(text[14:])
	second, ok7 := two(text[17:])
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 {
		return false
	}
	nanos, ok := fraction(text[19 : len(text)-1])
	if !ok || hour > 23 || minute > 59 || second > 59 || month < 1 || month > 12 || day < 1 {
		return false
	}
	t := time.Date(century*100+year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	*(*time.Time)(p) = t
	return day <= 28 || t.Day() == day // the 31st of June would be the 1st of July
}

func two(b []byte) (int, bool) {
	x, y := b[0]-'0', b[1]-'0'
	return int(x)*10 + int(y), x <= 9 && y <= 9
}

// fraction reads the fraction of a second, from its point on.
func fraction(b []byte) (nanos int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != '.' || len(b) == 1 || len(b) > 10 {
		return 0, false
	}
	for i := range 9 {
		nanos *= 10
		if i+1 < len(b) {
			c := b[i+1] - '0'
			if c > 9 {
				return 0, false
			}
			nanos += int(c)
		}
	}
	return nanos, true
}
