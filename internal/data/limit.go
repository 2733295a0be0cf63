package data

import "fmt"

// Limit is how many records may be rejected: at most N of the last Of, or with
// Of 0 at most N since the start. With a negative N it is any number.
type Limit struct{ N, Of int64 }

// brake counts rejected records against a limit. It is pure: what it says
// depends on the calls and on no clock.
//
// The last Of records are told in blocks, as a source reads many at once: the
// blocks cover Of records and less than two blocks more, and N grows with what
// they cover. Until Of records have been read, N of any number is allowed.
type brake struct {
	limit    Limit
	blocks   []block
	covered  int64 // records in the blocks
	rejected int64 // of these
}

type block struct{ read, rejected int64 }

// precision is about how many blocks cover a window.
const precision = 64

// read says that n records more are being read, rejected ones among them.
func (b *brake) read(n int64) {
	if last := len(b.blocks) - 1; last >= 0 && (b.limit.Of == 0 || b.blocks[last].read < b.limit.Of/precision) {
		b.blocks[last].read += n
	} else {
		b.blocks = append(b.blocks, block{read: n})
	}
	b.covered += n
	drop := 0
	for b.limit.Of > 0 && drop < len(b.blocks)-1 && b.covered-b.blocks[drop].read >= b.limit.Of {
		b.covered -= b.blocks[drop].read
		b.rejected -= b.blocks[drop].rejected
		drop++
	}
	b.blocks = b.blocks[:copy(b.blocks, b.blocks[drop:])]
}

// reject notes one of the records read, and reports whether that is within the
// limit.
func (b *brake) reject() bool {
	if len(b.blocks) == 0 {
		b.blocks = append(b.blocks, block{})
	}
	b.blocks[len(b.blocks)-1].rejected++
	b.rejected++
	n, of := b.limit.N, b.limit.Of
	switch {
	case n < 0, b.rejected <= n:
		return true
	case of == 0, b.covered <= of:
		return false
	}
	return float64(b.rejected)*float64(of) <= float64(n)*float64(b.covered)
}

// String says how the counts stand to the limit.
func (b *brake) String() string {
	if b.limit.Of == 0 {
		return fmt.Sprintf("%d of %d records have been rejected since the start, and more than %d stop the job", b.rejected, b.covered, b.limit.N)
	}
	return fmt.Sprintf("%d of the last %d records have been rejected, and more than %d of %d stop the job", b.rejected, b.covered, b.limit.N, b.limit.Of)
}
