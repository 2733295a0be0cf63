package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// A Chain is what checkpoints hold of one step, a base and deltas, to be merged
// into a new base outside the run. It is a Part, encoded once.
type Chain struct {
	Step       string
	Key, Value string
	// Sections, oldest first, each one a step's section where it lies.
	Sections []StoredSection
	Groups   int
	// Expired says that a restore would skip an entry of a key group, or with
	// value nil all entries under the tag. nil: it skips nothing.
	Expired func(tag int64, group int, value []byte) bool
	// Run is about how much is merged at once, in bytes: what a merge takes of
	// memory is twice that, or twice the largest key group of the step.
	Run int
	// Stop ends the merge early with its error.
	Stop func() error

	merger  table.Merger
	entries int
}

// StoredSection is Len bytes at Off in At.
type StoredSection struct {
	At       io.ReaderAt
	Off, Len int64
}

// Info implements Part. How many entries there are is known once it is encoded;
// before that it is a guess.
func (c *Chain) Info() PartInfo {
	return PartInfo{Step: c.Step, Full: true, Entries: c.entries, Key: c.Key, Value: c.Value}
}

// NewChain returns a chain to be encoded. entries is what all sections hold.
func NewChain(c Chain, entries int64) *Chain {
	c.entries = int(min(entries, math.MaxInt))
	return &c
}

// Release implements Part.
func (c *Chain) Release() {}

// Encode writes the section that has the same effect as all of Sections.
func (c *Chain) Encode(w io.Writer) error {
	tables, err := c.tables()
	if err != nil {
		return err
	}
	tags := slices.Sorted(maps.Keys(tables))
	type merge struct {
		tag int64
		run table.Run
	}
	var merges []merge
	for _, tag := range tags {
		for _, run := range table.Runs(tables[tag], c.Run, c.wanted(tag)) {
			merges = append(merges, merge{tag, run})
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, sectionVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(merges)))
	c.entries = 0
	for _, m := range merges {
		if err := c.Stop(); err != nil {
			return err
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(m.tag))
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
		n, err := c.merger.Merge(w, tables[m.tag], m.run, c.wanted(m.tag), c.keep(m.tag))
		if err != nil {
			return err
		}
		c.entries += n
	}
	if len(b) > 0 { // no table at all
		_, err = w.Write(b)
	}
	return err
}

// wanted chooses key groups of a tag.
func (c *Chain) wanted(tag int64) func(group int) bool {
	if c.Expired == nil {
		return nil
	}
	return func(group int) bool { return !c.Expired(tag, group, nil) }
}

// keep chooses entries of a tag.
func (c *Chain) keep(tag int64) func(group int, value []byte) bool {
	if c.Expired == nil {
		return nil
	}
	return func(group int, value []byte) bool { return !c.Expired(tag, group, value) }
}

// tables finds the tables of every section, by tag.
func (c *Chain) tables() (map[int64][]*table.Stored, error) {
	tables := map[int64][]*table.Stored{}
	for _, sec := range c.Sections {
		var head [8]byte
		if _, err := sec.At.ReadAt(head[:], sec.Off); err != nil {
			return nil, fmt.Errorf("%w: its head can't be read: %w", errSection, err)
		}
		if binary.LittleEndian.Uint32(head[:]) != sectionVersion {
			return nil, errSection
		}
		at, end := sec.Off+8, sec.Off+sec.Len
		for range binary.LittleEndian.Uint32(head[4:]) {
			var tag [8]byte
			if at > end-8 {
				return nil, fmt.Errorf("%w: it is cut short", errSection)
			}
			if _, err := sec.At.ReadAt(tag[:], at); err != nil {
				return nil, fmt.Errorf("%w: a tag can't be read: %w", errSection, err)
			}
			st, err := table.StoredAt(sec.At, at+8)
			if err != nil {
				return nil, err
			}
			if at = st.End(); at > end {
				return nil, fmt.Errorf("%w: it is cut short", errSection)
			}
			t := int64(binary.LittleEndian.Uint64(tag[:]))
			tables[t] = append(tables[t], st)
		}
		if at != end {
			return nil, fmt.Errorf("%w: %d bytes too many", errSection, end-at)
		}
	}
	return tables, nil
}

// Expired returns what a restore skips of a step, given how far time had come
// in it: time doesn't go back, so a later restore skips it, too. nil: nothing.
func Expired(g plan.Graph, step string, clocks []Clock, groups int) func(tag int64, group int, value []byte) bool {
	i := slices.IndexFunc(g.Nodes, func(n plan.Node) bool { return n.ID == step && n.Side == "" })
	if i < 0 {
		return nil
	}
	wm := make([]int64, groups)
	for g := range wm {
		wm[g] = MinTime
	}
	for _, c := range clocks {
		for g := max(c.From, 0); g < min(c.To, groups); g++ {
			wm[g] = c.At
		}
	}
	n := g.Nodes[i]
	switch n.Op {
	case plan.Window:
		keep := int64(n.Size) + int64(n.Lateness)
		return func(start int64, group int, _ []byte) bool { return wm[group] >= later(start, keep) }
	case plan.Distinct:
		admit, err := g.AdmitOf(i)
		if err != nil {
			return nil
		}
		keep := int64(n.TTL) + int64(admit)
		return func(tag int64, group int, value []byte) bool {
			at, err := newestTime(tag, value)
			return err == nil && wm[group] >= later(at, keep)
		}
	}
	return nil
}

var errNoTime = errors.New("no time")

// newestTime is the newest of the times that a Distinct has stored in one value.
func newestTime(tag int64, value []byte) (int64, error) {
	if tag == 0 {
		if len(value) != 8 {
			return 0, errNoTime
		}
		return int64(binary.LittleEndian.Uint64(value)), nil
	}
	var times []int64
	if len(value) < 4 {
		return 0, errNoTime
	}
	if err := cbor.Unmarshal(value[4:], &times); err != nil || len(times) == 0 {
		return 0, errNoTime
	}
	return times[len(times)-1], nil
}
