package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// sectionVersion is the version of a step's section in a segment:
//
//	u32 version | u32 tables | for each: i64 tag, the table's bytes
//
// Little endian. A tag is a window's start, or a table's number in its step.
const sectionVersion = 1

// frozen is what a table hands over at a barrier.
type frozen interface {
	Entries() int
	Encode(w io.Writer) error
	Release()
}

// part is a step's tables, frozen.
type part struct {
	info PartInfo
	tags []int64
	tabs []frozen
}

func (p *part) add(tag int64, f frozen) {
	if f.Entries() == 0 {
		f.Release()
		return
	}
	p.info.Entries += f.Entries()
	p.tags, p.tabs = append(p.tags, tag), append(p.tabs, f)
}

func (p *part) Info() PartInfo { return p.info }

func (p *part) Encode(w io.Writer) error {
	b := binary.LittleEndian.AppendUint32(nil, sectionVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.tabs)))
	for i, f := range p.tabs {
		b = binary.LittleEndian.AppendUint64(b, uint64(p.tags[i]))
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
		if err := f.Encode(w); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) Release() {
	for _, f := range p.tabs {
		f.Release()
	}
	p.tabs = nil
}

// errSection reports a section that isn't one.
var errSection = errors.New("not a state section of this version")

// sections walks the sections of one step, oldest first. load gets each table's
// tag and bytes and returns what follows it.
func sections(rs Restorer, step string, load func(tag int64, b []byte, sec Section) (rest []byte, err error)) error {
	secs, err := rs.Sections(step)
	if err != nil {
		return fmt.Errorf("step %s: %w", step, err)
	}
	for _, sec := range secs {
		b := sec.Bytes
		if len(b) < 8 || binary.LittleEndian.Uint32(b) != sectionVersion {
			return fmt.Errorf("step %s: %w", step, errSection)
		}
		n := binary.LittleEndian.Uint32(b[4:])
		b = b[8:]
		for range n {
			if len(b) < 8 {
				return fmt.Errorf("step %s: %w: it is cut short", step, errSection)
			}
			if b, err = load(int64(binary.LittleEndian.Uint64(b)), b[8:], sec); err != nil {
				return fmt.Errorf("step %s: %w", step, err)
			}
		}
		if len(b) > 0 {
			return fmt.Errorf("step %s: %w: %d bytes too many", step, errSection, len(b))
		}
	}
	return nil
}

// clock is how far event time has come for a step in one task. Key groups that
// came from tasks whose time was ahead keep that: what was closed stays closed.
// A clock that was moved, because the step has another lateness now, may be
// ahead of the records' own watermarks.
type clock struct {
	from, to int
	floor    []int64 // of groups from to to-1
	top      int64   // the highest floor
	wm       int64
}

func newClock(t *Task) clock {
	from, to := t.groups()
	c := clock{from: from, to: to, floor: make([]int64, to-from), top: MinTime, wm: MinTime}
	for i := range c.floor {
		c.floor[i] = MinTime
	}
	return c
}

// restore takes the clocks of a checkpoint over; the task's time is the lowest.
func (c *clock) restore(saved []Clock) {
	for _, s := range saved {
		for g := max(s.From, c.from); g < min(s.To, c.to); g++ {
			c.floor[g-c.from] = s.At
		}
	}
	if len(c.floor) > 0 {
		c.wm, c.top = slices.Min(c.floor), slices.Max(c.floor)
	}
}

func (c *clock) of(group int) int64 { return max(c.wm, c.floor[group-c.from]) }

// most is the furthest that time has come for any group.
func (c *clock) most() int64 { return max(c.wm, c.top) }

// save returns the clocks as runs of key groups.
func (c *clock) save() []Clock {
	var out []Clock
	for g := c.from; g < c.to; g++ {
		at := c.of(g)
		if n := len(out) - 1; n >= 0 && out[n].At == at {
			out[n].To = g + 1
		} else {
			out = append(out, Clock{From: g, To: g + 1, At: at})
		}
	}
	return out
}
