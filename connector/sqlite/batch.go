package sqlite

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/weirstream/weir"
	"github.com/zeebo/xxh3"
)

// A batch is rows of one table, the last one of each key. It belongs to one
// goroutine at a time. Nothing in it points into the rows it was given.
//
// A row is len(cols) cells. A cell is an integer, the bits of a float, or, for
// text and blobs, a span: where its bytes lie in the arena. A row's key lies
// there too, encoded so that equal keys are equal bytes and that the bytes
// sort almost as SQLite sorts the columns. (Exactly would be a little faster
// to insert, and means nothing else.)
type batch struct {
	lay     *layout
	cells   []uint64
	keys    []span
	gone    []bool // rows that delete; kept only where the layout has deletes
	arena   []byte
	index   []uint64 // open addressing: low half of the key's hash, row number + 1
	scratch []byte   // the key of the row at hand
	parts   []span   // where its key columns' text lies in scratch
}

// span is offset<<32 | length.
type span uint64

const maxArena = math.MaxUint32

// maxRow is what SQLite takes (SQLITE_MAX_LENGTH), less room for what it adds.
// Found out only at the commit, a larger row would stop the job.
const maxRow = 1_000_000_000 - 1<<16

var errTooMuch = fmt.Errorf("more than %d bytes of rows in one epoch: take checkpoints more often", uint32(maxArena))

func newSpan(off, n int) span { return span(uint64(off)<<32 | uint64(n)) }

func (b *batch) bytes(s span) []byte {
	off, n := uint64(s>>32), uint64(uint32(s))
	return b.arena[off : off+n : off+n]
}

func newBatch(l *layout) *batch {
	return &batch{lay: l, index: make([]uint64, 64), parts: make([]span, len(l.keys))}
}

func (b *batch) rows() int { return len(b.keys) }

// size is about what the rows take, in bytes.
func (b *batch) size() int64 { return int64(len(b.arena)) + int64(len(b.cells)+2*len(b.keys))*8 }

func (b *batch) full(l limit) bool { return b.rows() >= l.rows || b.size() >= l.bytes }

func (b *batch) reset() {
	if len(b.keys) > 0 {
		clear(b.index)
	}
	b.cells, b.keys, b.gone, b.arena = b.cells[:0], b.keys[:0], b.gone[:0], b.arena[:0]
}

// put adds the row at p, or replaces the one with its key. After an error the
// batch is as it was: a courier may still write it.
func (b *batch) put(p unsafe.Pointer) error {
	if err := b.encodeKey(p); err != nil {
		return b.describe(p, err)
	}
	if gone := b.lay.deletes; gone != nil && gone(p) {
		if len(b.arena)+len(b.scratch) > maxArena {
			return b.describe(p, errTooMuch)
		}
		row, _ := b.locate()
		b.gone[row] = true
		return nil
	}
	if err := b.check(p); err != nil {
		return b.describe(p, err)
	}
	row, found := b.locate()
	if b.lay.deletes != nil {
		b.gone[row] = false
	}
	cells := b.cells[row*len(b.lay.cols) : (row+1)*len(b.lay.cols)]
	for i := range b.lay.cols {
		c := &b.lay.cols[i]
		if c.key {
			continue
		}
		switch c.kind { // without errors, after check
		case kindText:
			s := *(*string)(unsafe.Add(p, c.offset))
			cells[i] = b.keep(unsafe.Slice(unsafe.StringData(s), len(s)), cells[i], found)
		case kindBlob:
			cells[i] = b.keep(*(*[]byte)(unsafe.Add(p, c.offset)), cells[i], found)
		case kindTime:
			b.scratch, _ = appendTime(b.scratch[:0], *(*time.Time)(unsafe.Add(p, c.offset)))
			cells[i] = b.keep(b.scratch, cells[i], found)
		default:
			cells[i], _ = c.number(p)
		}
	}
	return nil
}

// check refuses what put couldn't keep as it is. The key, in scratch, has been
// looked at.
func (b *batch) check(p unsafe.Pointer) error {
	need := len(b.arena) + len(b.scratch)
	for i := range b.lay.cols {
		c := &b.lay.cols[i]
		if c.key {
			continue
		}
		var err error
		switch f := unsafe.Add(p, c.offset); c.kind {
		case kindText:
			need += len(*(*string)(f))
			err = checkText(*(*string)(f))
		case kindBlob:
			need += len(*(*[]byte)(f))
		case kindTime:
			need += len(time.RFC3339Nano)
			err = checkTime((*(*time.Time)(f)).UTC())
		case kindUint, kindFloat:
			_, err = c.number(p)
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", c.name, err)
		}
	}
	if n := need - len(b.arena); n > maxRow {
		return fmt.Errorf("it has %d bytes, and SQLite takes rows of at most %d", n, maxRow)
	}
	if need > maxArena {
		return errTooMuch
	}
	return nil
}

// encodeKey writes the row's key into scratch.
func (b *batch) encodeKey(p unsafe.Pointer) error {
	b.scratch = b.scratch[:0]
	for k, i := range b.lay.keys {
		c := &b.lay.cols[i]
		at := len(b.scratch)
		var err error
		switch c.kind {
		case kindText:
			s := *(*string)(unsafe.Add(p, c.offset))
			err = checkText(s) // no NUL inside, so NUL can end it
			b.scratch = append(b.scratch, s...)
			b.parts[k] = newSpan(at, len(s))
			b.scratch = append(b.scratch, 0)
		case kindTime:
			b.scratch, err = appendTime(b.scratch, *(*time.Time)(unsafe.Add(p, c.offset)))
			b.parts[k] = newSpan(at, len(b.scratch)-at)
			b.scratch = append(b.scratch, 0)
		case kindBlob:
			v := *(*[]byte)(unsafe.Add(p, c.offset))
			b.scratch = binary.BigEndian.AppendUint64(b.scratch, uint64(len(v)))
			b.scratch = append(b.scratch, v...)
			b.parts[k] = newSpan(at+8, len(v))
		default:
			var n uint64
			n, err = c.number(p)
			b.scratch = binary.BigEndian.AppendUint64(b.scratch, n^1<<63)
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", c.name, err)
		}
	}
	return nil
}

// locate finds the row of the key in scratch, or makes it and fills in its
// key columns.
func (b *batch) locate() (row int, found bool) {
	if len(b.lay.keys) == 0 { // every row is one of its own
		b.keys = append(b.keys, 0)
		b.extend()
		return len(b.keys) - 1, false
	}
	if 2*len(b.keys) >= len(b.index) {
		b.grow()
	}
	hash := xxh3.Hash(b.scratch) & math.MaxUint32
	mask := uint64(len(b.index) - 1)
	at := hash & mask
	for ; b.index[at] != 0; at = (at + 1) & mask {
		if b.index[at]>>32 != hash {
			continue
		}
		row = int(uint32(b.index[at])) - 1
		if bytes.Equal(b.bytes(b.keys[row]), b.scratch) {
			return row, true
		}
	}
	row = len(b.keys)
	b.index[at] = hash<<32 | uint64(row+1)
	off := len(b.arena)
	b.arena = append(b.arena, b.scratch...)
	b.keys = append(b.keys, newSpan(off, len(b.scratch)))
	cells := b.extend()
	pos := 0 // of the key column at hand
	for k, i := range b.lay.keys {
		switch b.lay.cols[i].kind {
		case kindText, kindTime, kindBlob:
			cells[i] = uint64(b.parts[k]) + uint64(off)<<32
			pos = int(b.parts[k]>>32) + int(uint32(b.parts[k]))
			if b.lay.cols[i].kind != kindBlob {
				pos++
			}
		default:
			cells[i] = binary.BigEndian.Uint64(b.scratch[pos:]) ^ 1<<63
			pos += 8
		}
	}
	return row, false
}

// extend makes room for one row more, and returns its cells.
func (b *batch) extend() []uint64 {
	if b.lay.deletes != nil {
		b.gone = append(b.gone, false)
	}
	n := len(b.lay.cols)
	b.cells = slices.Grow(b.cells, n)[:len(b.cells)+n]
	cells := b.cells[len(b.cells)-n:]
	clear(cells)
	return cells
}

// grow doubles the index. It holds half of each hash, which is enough to put
// the entries into their new places.
func (b *batch) grow() {
	old := b.index
	b.index = make([]uint64, 2*len(old))
	mask := uint64(len(b.index) - 1)
	for _, e := range old {
		if e == 0 {
			continue
		}
		at := e >> 32 & mask
		for b.index[at] != 0 {
			at = (at + 1) & mask
		}
		b.index[at] = e
	}
}

// keep copies v into the arena, over the value that it replaces if it fits.
func (b *batch) keep(v []byte, cell uint64, replace bool) uint64 {
	if old := span(cell); replace && len(v) <= int(uint32(old)) {
		copy(b.bytes(old), v)
		return uint64(newSpan(int(old>>32), len(v)))
	}
	off := len(b.arena)
	b.arena = append(b.arena, v...)
	return uint64(newSpan(off, len(v)))
}

// number reads a field that fits a cell as it is.
func (c *column) number(p unsafe.Pointer) (uint64, error) {
	p = unsafe.Add(p, c.offset)
	switch c.kind {
	case kindInt:
		switch c.size {
		case 1:
			return uint64(*(*int8)(p)), nil
		case 2:
			return uint64(*(*int16)(p)), nil
		case 4:
			return uint64(*(*int32)(p)), nil
		}
		return uint64(*(*int64)(p)), nil
	case kindUint:
		switch c.size {
		case 1:
			return uint64(*(*uint8)(p)), nil
		case 2:
			return uint64(*(*uint16)(p)), nil
		case 4:
			return uint64(*(*uint32)(p)), nil
		}
		if v := *(*uint64)(p); v > math.MaxInt64 {
			return 0, fmt.Errorf("%d is more than SQLite's largest integer %d: store it as a text", v, int64(math.MaxInt64))
		}
		return *(*uint64)(p), nil
	case kindBool:
		if *(*bool)(p) {
			return 1, nil
		}
		return 0, nil
	}
	var f float64
	switch c.size {
	case 4:
		f = float64(*(*float32)(p))
	default:
		f = *(*float64)(p)
	}
	if f != f {
		return 0, fmt.Errorf("it is not a number (NaN), which SQLite would store as NULL")
	}
	return math.Float64bits(f), nil
}

func checkText(s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("the text %q holds a NUL byte, at which SQLite's functions end it: clean it, or use a []byte", clip(s))
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("the text %q isn't valid UTF-8: clean it, or use a []byte", clip(s))
	}
	return nil
}

func appendTime(dst []byte, t time.Time) ([]byte, error) {
	t = t.UTC()
	if err := checkTime(t); err != nil {
		return dst, err
	}
	return t.AppendFormat(dst, time.RFC3339Nano), nil
}

func checkTime(utc time.Time) error {
	if y := utc.Year(); y < 0 || y > 9999 {
		return fmt.Errorf("the year %d can't be written in RFC 3339, which knows 0 to 9999", y)
	}
	return nil
}

// clip keeps error messages readable.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// describe names the row in an error.
func (b *batch) describe(p unsafe.Pointer, err error) error {
	var parts []string
	for _, i := range b.lay.telling() {
		c := &b.lay.cols[i]
		var v any
		switch f := unsafe.Add(p, c.offset); c.kind {
		case kindText:
			v = clip(*(*string)(f))
		case kindBlob:
			v = clip(string(*(*[]byte)(f)))
		case kindTime:
			v = (*(*time.Time)(f)).UTC().Format(time.RFC3339Nano) // as it is stored
		case kindUint:
			if v, _ = c.number(p); c.size == 8 {
				v = *(*uint64)(f)
			}
		default:
			n, _ := c.number(p)
			v = int64(n)
		}
		parts = append(parts, keyPart(c, v))
	}
	return rowError(b.lay, parts, err)
}

func keyPart(c *column, v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%s=%q", c.name, v)
	case []byte:
		return fmt.Sprintf("%s=%q", c.name, clip(string(v)))
	}
	return fmt.Sprintf("%s=%v", c.name, v)
}

func rowError(l *layout, key []string, err error) error {
	return fmt.Errorf("table %q, row %s: %w: %w", l.table, strings.Join(key, ", "), weir.ErrInput, err)
}

// value is a cell as the driver wants it. Text and blobs point into the arena:
// the driver copies them before it returns.
func (b *batch) value(row, col int) driver.Value {
	cell := b.cells[row*len(b.lay.cols)+col]
	switch b.lay.cols[col].kind {
	case kindFloat:
		return math.Float64frombits(cell)
	case kindText, kindTime:
		v := b.bytes(span(cell))
		return unsafe.String(unsafe.SliceData(v), len(v))
	case kindBlob:
		if v := b.bytes(span(cell)); len(v) > 0 {
			return v
		}
		return []byte{}
	}
	return int64(cell)
}
