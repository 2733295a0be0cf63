package connectortest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/weirstream/weir"
)

// spoiled is a source in which every third record is bad, except for its faults.
func spoiled(f faults) *SpoiledSource[[]byte] {
	want := map[string][]SpoiledRecord[[]byte]{"a": nil, "b": nil}
	recs := map[string][][]byte{"a": nil, "b": nil}
	for i := range 12 {
		raw := fmt.Appendf(nil, "record %d", i)
		w := SpoiledRecord[[]byte]{Rec: raw}
		if i%3 == 1 {
			raw = fmt.Appendf(nil, "bad %d", i)
			w = SpoiledRecord[[]byte]{Raw: raw}
		}
		want["a"], recs["a"] = append(want["a"], w), append(recs["a"], raw)
	}
	return &SpoiledSource[[]byte]{Want: want, New: func(*testing.T) weir.Source[[]byte] {
		return &faultyAside{faulty{f: f, want: recs}}
	}}
}

type faultyAside struct{ faulty }

func (s *faultyAside) Open(ctx context.Context, split string, at []byte) (weir.Reader[[]byte], error) {
	r, err := s.faulty.Open(ctx, split, at)
	if err != nil {
		return nil, err
	}
	return &asideFaulty{faultyReader: r.(*faultyReader)}, nil
}

func (s *faultyAside) Reread(split string, mark int64) ([]byte, error) {
	if s.f.rereadsElse {
		mark = 0
	}
	return s.want[split][mark], nil
}

// asideFaulty reads one record at a time from the reader below.
type asideFaulty struct {
	*faultyReader
	aside bool
	bad   []weir.Rejected
	marks []int64
}

func (r *asideFaulty) SetAside()                 { r.aside = true }
func (r *asideFaulty) Rejected() []weir.Rejected { return r.bad }
func (r *asideFaulty) Marks() []int64            { return r.marks }

func (r *asideFaulty) Read(dst [][]byte, limit int) ([][]byte, bool, error) {
	r.bad, r.marks = nil, nil
	f := r.faultyReader.f
	for n := 0; n < limit; n++ {
		before := bytes.Clone(r.at)
		recs, end, err := r.faultyReader.Read(nil, 1)
		if err != nil || end && len(recs) == 0 || len(recs) == 0 {
			return dst, end, err
		}
		mark := int64(*r.next - 1)
		if !bytes.HasPrefix(recs[0], []byte("bad")) {
			dst, r.marks = append(dst, recs[0]), append(r.marks, mark)
		} else if (!r.aside || f.stopsAtBad) && !f.passesOver {
			return dst, false, errors.New("a bad record")
		} else {
			r.reject(mark, recs[0])
			if f.positionBefore {
				r.at = before
			}
			if f.tooMany {
				n--
			}
		}
		if end {
			return dst, true, nil
		}
	}
	return dst, false, nil
}

func (r *asideFaulty) reject(mark int64, raw []byte) {
	f := r.faultyReader.f
	if f.forgetsBad {
		return
	}
	if f.otherRaw {
		raw = []byte("?")
	}
	r.bad = append(r.bad, weir.Rejected{Mark: mark, Raw: raw, Err: errors.New("bad")})
	if f.badTwice {
		r.bad = append(r.bad, r.bad[0])
	}
}

// growing is a source that gets a split at each step, and more of those it has.
func growing(f faults) *GrowingSource[[]byte] {
	return &GrowingSource[[]byte]{New: func(*testing.T) GrowingSplits[[]byte] {
		step := 0
		want := map[string][][]byte{}
		return GrowingSplits[[]byte]{
			Source: func() weir.Source[[]byte] { return &faultyGrowing{f: f, want: want} },
			Grow: func() (map[string][][]byte, bool) {
				step++
				for i := range step {
					split := fmt.Sprint("split ", i)
					want[split] = append(want[split], fmt.Appendf(nil, "%d of %s", step, split))
				}
				return want, step < 3
			},
		}
	}}
}

type faultyGrowing struct {
	f    faults
	want map[string][][]byte
	said int
}

func (s *faultyGrowing) Splits(context.Context) ([]string, error) {
	names := slices.Sorted(maps.Keys(s.want))
	s.said++
	switch {
	case s.f.notListed:
		return names[:1], nil
	case s.f.goes && s.said > 3:
		return names[1:], nil
	}
	return names, nil
}

func (s *faultyGrowing) Open(ctx context.Context, split string, at []byte) (weir.Reader[[]byte], error) {
	if at == nil && s.f.opensAtEnd {
		at = fmt.Append(nil, len(s.want[split]))
	}
	if at != nil && s.f.opensTwice {
		at = nil
	}
	r, err := (&faulty{want: s.want}).Open(ctx, split, at)
	if err != nil {
		return nil, err
	}
	return &growingFaulty{r.(*faultyReader), s, split}, nil
}

// growingFaulty reads what has come since it was opened, too.
type growingFaulty struct {
	*faultyReader
	s     *faultyGrowing
	split string
}

func (r *growingFaulty) Read(dst [][]byte, limit int) ([][]byte, bool, error) {
	r.recs = r.s.want[r.split]
	recs, _, err := r.faultyReader.Read(dst, limit)
	return recs, false, err
}
