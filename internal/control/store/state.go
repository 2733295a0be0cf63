package store

import (
	"cmp"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/plan"
	"github.com/weirstream/weir/internal/table"
)

// State is what a checkpoint holds of one step: of each key the newest value, as
// a restore would find it. What a restore would skip, because event time has
// passed it, isn't part of it. It is read a key group at a time.
type State struct {
	Step log.Step
	Op   plan.Op
	Size time.Duration // of its windows, if it has any

	store  *Store
	of     Checkpoint
	form   *table.Form
	tables map[int64][]*table.Stored
	skip   func(tag int64, group int, value []byte) bool // nil: nothing
	groups int
	visit  table.Visitor
	older  table.Visitor
	times  *table.Form // of a Distinct's older times
}

// Entry is one key's state. For a step with windows there is one for each.
type Entry struct {
	Key, Value jsontext.Value
	Window     time.Time // its start; zero: the step has none
}

// State opens a step's state. The files that hold it are compared with their
// checksums first.
func (s *Store) State(c Checkpoint, step string) (*State, error) {
	i := slices.IndexFunc(c.Steps, func(st log.Step) bool { return st.ID == step })
	if i < 0 {
		return nil, s.noStep(c, step)
	}
	st := &State{Step: c.Steps[i], store: s, of: c, groups: c.KeyGroups}
	var err error
	if st.form, err = table.FormOf(st.Step.Key, st.Step.Value); err != nil {
		return nil, s.damaged(c, step, err)
	}
	if c.Start != nil {
		g := c.Start.Graph
		st.skip = data.Expired(g, step, st.Step.Clocks, c.KeyGroups)
		for _, n := range g.Nodes {
			if n.ID == step && n.Side == "" {
				st.Op, st.Size = n.Op, n.Size
			}
		}
	}
	if st.Op == plan.Distinct {
		if st.times, err = table.FormOf(st.Step.Key, data.ValueOf(st.Op, data.OlderTimes, st.Step.Value)); err != nil {
			return nil, s.damaged(c, step, err)
		}
	}
	if st.tables, err = st.open(); err != nil {
		return nil, s.gone(c, s.damaged(c, step, err))
	}
	return st, nil
}

func (s *Store) noStep(c Checkpoint, step string) error {
	var have []string
	for _, st := range c.Steps {
		have = append(have, st.ID)
	}
	if len(have) == 0 {
		return unknown("checkpoint %d holds no state of step %q, nor of any other", c.ID.Slot, step)
	}
	return unknown("checkpoint %d holds no state of step %q, only of %q", c.ID.Slot, step, have)
}

// damaged makes what isn't a section of this version a file that can't be
// vouched for.
func (s *Store) damaged(c Checkpoint, step string, err error) error {
	err = fmt.Errorf("read step %s in checkpoint %d: %w", step, c.ID.Slot, err)
	if errors.Is(err, table.ErrCorrupt) {
		return fmt.Errorf("%w: %w", log.ErrCorrupt, err)
	}
	return err
}

// open verifies the segments and finds the step's tables in them.
func (st *State) open() (map[int64][]*table.Stored, error) {
	files := map[string]io.ReaderAt{}
	var sections []data.StoredSection
	for _, p := range st.Step.Parts {
		if files[p.Segment] == nil {
			i := slices.IndexFunc(st.of.Segments, func(f log.Segment) bool { return f.Name == p.Segment })
			if i < 0 {
				return nil, fmt.Errorf("segment %s isn't listed", p.Segment)
			}
			if err := log.VerifySegment(st.store.blobs, st.store.where, st.of.Segments[i]); err != nil {
				return nil, err
			}
			files[p.Segment] = &window{from: log.Stored{Blobs: st.store.blobs, Segment: st.of.Segments[i]}, size: st.of.Segments[i].Size}
		}
		sections = append(sections, data.StoredSection{At: files[p.Segment], Off: p.Off, Len: p.Len})
	}
	return data.Tables(sections)
}

// window reads ahead, so that neighbours cost one read. What it keeps of a file
// is all of a small one, and a piece of a large one.
type window struct {
	from io.ReaderAt
	size int64
	off  int64
	b    []byte
}

const windowBytes = 64 << 10

// ReadAt implements io.ReaderAt, for one goroutine.
func (w *window) ReadAt(p []byte, off int64) (int, error) {
	if off < w.off || off+int64(len(p)) > w.off+int64(len(w.b)) {
		if len(p) >= windowBytes || off < 0 || off > w.size-int64(len(p)) {
			return w.from.ReadAt(p, off)
		}
		n := min(windowBytes, w.size-off)
		b := slices.Grow(w.b[:0], int(n))[:n]
		if _, err := w.from.ReadAt(b, off); err != nil {
			w.b = nil
			return 0, err
		}
		w.off, w.b = off, b
	}
	return copy(p, w.b[off-w.off:]), nil
}

// tags returns the windows' starts, oldest first, or the one table of another step.
func (st *State) tags() []int64 {
	if st.Op == plan.Window {
		return slices.Sorted(maps.Keys(st.tables))
	}
	return []int64{0}
}

// pair is one stored entry, and the older times of a Distinct's.
type pair struct {
	table.Pair
	older []byte
}

// group returns what is stored of a key group under a tag, by the bytes of the
// keys; good until the next call.
func (st *State) group(tag int64, group int) ([]pair, error) {
	var keep func(int, []byte) bool
	if st.skip != nil {
		if st.Op == plan.Window && st.skip(tag, group, nil) {
			return nil, nil
		}
		keep = func(group int, value []byte) bool { return !st.skip(tag, group, value) }
	}
	stored, err := st.visit.Group(st.form, st.tables[tag], group, keep)
	if err != nil {
		return nil, st.failed(err)
	}
	pairs := make([]pair, len(stored))
	for i, p := range stored {
		pairs[i].Pair = p
	}
	if st.times == nil || len(st.tables[data.OlderTimes]) == 0 {
		return pairs, nil
	}
	older, err := st.older.Group(st.times, st.tables[data.OlderTimes], group, func(group int, value []byte) bool {
		return st.skip == nil || !st.skip(data.OlderTimes, group, value)
	})
	if err != nil {
		return nil, st.failed(err)
	}
	byKey := map[string][]byte{}
	for _, o := range older {
		byKey[string(o.Key)] = o.Value
	}
	for i := range pairs {
		pairs[i].older = byKey[string(pairs[i].Key)]
	}
	return pairs, nil
}

func (st *State) failed(err error) error {
	return st.store.gone(st.of, st.store.damaged(st.of, st.Step.ID, err))
}

// entry turns a stored entry into JSON.
func (st *State) entry(tag int64, p pair) (e Entry, err error) {
	if st.Op == plan.Window {
		e.Window = time.Unix(0, tag).UTC()
	}
	if e.Key, err = st.form.AppendKey(nil, p.Key); err == nil {
		e.Value, err = st.value(p)
	}
	if err != nil {
		return e, st.store.damaged(st.of, st.Step.ID, err)
	}
	return e, nil
}

// value is a stored value as JSON. That of a Distinct, which has a table or two of
// times, becomes an object.
func (st *State) value(p pair) (jsontext.Value, error) {
	b, err := st.form.AppendValue(nil, p.Value)
	if err != nil || st.Op != plan.Distinct {
		return b, err
	}
	out, err := timeOf([]byte(`{"newest":`), string(b))
	if err != nil || p.older == nil {
		return append(out, '}'), err
	}
	if b, err = st.times.AppendValue(nil, p.older); err != nil {
		return nil, err
	}
	out = append(out, `,"older":[`...)
	for i, n := range strings.Split(strings.Trim(string(b), "[]"), ",") {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = timeOf(out, n); err != nil {
			return nil, err
		}
	}
	return append(out, "]}"...), nil
}

// Each calls do for every entry, windows from the oldest, keys in an order that is
// the same for the same state. Memory is bounded by the largest key group. An
// error of do ends it and is returned.
func (st *State) Each(do func(Entry) error) error {
	for _, tag := range st.tags() {
		for _, g := range table.Groups(st.tables[tag]) {
			pairs, err := st.group(tag, g)
			if err != nil {
				return err
			}
			for _, p := range pairs {
				e, err := st.entry(tag, p)
				if err == nil {
					err = do(e)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Key returns the entries of one key: none, one, or one for each window. key is
// JSON, or the text itself where keys are texts.
func (st *State) Key(key string) ([]Entry, error) {
	keys, err := st.form.ParseKey(key)
	if err != nil {
		return nil, unknown("step %s: %v", st.Step.ID, err)
	}
	var found []Entry
	for _, k := range keys {
		for _, tag := range st.tags() {
			pairs, err := st.group(tag, table.GroupOf(k, st.groups))
			if err != nil {
				return nil, err
			}
			i, ok := slices.BinarySearchFunc(pairs, k, func(p pair, k []byte) int { return cmp.Compare(string(p.Key), string(k)) })
			if !ok {
				continue
			}
			e, err := st.entry(tag, pairs[i])
			if err != nil {
				return nil, err
			}
			found = append(found, e)
		}
	}
	return found, nil
}

// Clock is how far event time had come in a step's key groups, at least and at
// most, in nanoseconds since 1970; ok is false where one has seen none yet.
func Clock(step log.Step) (low, high int64, ok bool) {
	low, high = data.EndOfTime, data.MinTime
	for _, c := range step.Clocks {
		low, high = min(low, c.At), max(high, c.At)
	}
	return low, high, low <= high && low != data.MinTime
}

// timeOf is a JSON number of nanoseconds as a time.
func timeOf(to []byte, number string) ([]byte, error) {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return to, fmt.Errorf("%w: %q isn't a time", log.ErrCorrupt, number)
	}
	return time.Unix(0, n).UTC().AppendFormat(to, `"`+time.RFC3339Nano+`"`), nil
}
