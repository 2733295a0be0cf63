package file

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// lineCounts remembers how many lines end before some offsets of files, so that
// asking for the lines of many records reads a file about once, also where tasks
// ask for them out of order. In a compressed file all before an offset is
// decompressed each time. It is safe for concurrent use.
type lineCounts struct {
	mu    sync.Mutex
	files map[string][]lineCount // by path; sorted by offset
}

type lineCount struct{ off, lines int64 }

// countEvery is how far apart remembered offsets are.
const countEvery = 256 << 10

// before is how many lines end before the offset.
func (c *lineCounts) before(path string, off int64) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.files[path]
	i, _ := slices.BinarySearchFunc(known, off+1, func(k lineCount, off int64) int { return cmp.Compare(k.off, off) })
	var from lineCount
	if i > 0 {
		from = known[i-1]
	}
	in, err := openInput(path)
	if err != nil {
		return 0, err
	}
	lines, more, err := countFrom(in, from, off)
	_ = in.close() // only read from, so there is nothing to lose
	if i == len(known) && len(more) > 0 {
		if c.files == nil {
			c.files = map[string][]lineCount{}
		}
		c.files[path] = append(known, more...)
	}
	return lines, err
}

// countFrom counts on from a known offset. It returns the counts on its way, too.
func countFrom(in *input, from lineCount, off int64) (lines int64, more []lineCount, err error) {
	s := newScanner(in, DefaultMaxLine, false)
	if in.format == plain && from.off > 0 { // what is compressed has to be read from its start
		if _, err := in.seek(from.off); err != nil {
			return 0, nil, err
		}
		s.off, s.lines = from.off, from.lines
	}
	for next := from.off + countEvery; next < off; next += countEvery {
		if _, err := s.skip(context.Background(), next); err != nil {
			return 0, more, err
		}
		more = append(more, lineCount{s.off, s.lines})
	}
	_, err = s.skip(context.Background(), off)
	return s.lines, more, err
}
