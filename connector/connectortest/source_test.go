package connectortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir"
)

// faults are the ways in which the source below breaks the contract. Each
// names the check that must find it.
type faults struct {
	renames, oneSplitLess, overMax, overwritesDst, noEnd, endOnce, endEarly, skipsOne, repeatsOne,
	sharesRecords, sharesPosition, changesPosition, keepsAt, takesAnyPosition, sharedCursor, stuck, neverReady,
	markTwice, markTooFew, markByReader, locatesAlike, doneBack, wrongLag, dropsAtMax1,
	endless, saysEnd, blind, forgetsBad, passesOver, stopsAtBad, otherRaw, tooMany, badTwice, positionBefore, rereadsElse,
	notListed, goes, opensAtEnd, opensTwice bool
}

func TestEachCheckFindsItsFault(t *testing.T) {
	tests := []struct {
		check string
		f     faults
		says  string
	}{
		{"Splits", faults{renames: true}, "the first time"},
		{"Splits", faults{oneSplitLess: true}, "Splits = "},
		{"Whole", faults{sharesRecords: true}, "all records"},
		{"Whole", faults{overMax: true}, "Read(max 7)"},
		{"Whole", faults{endEarly: true}, "all records: got"},
		{"Whole", faults{stuck: true}, "1,000 times"},
		{"RandomReads", faults{overwritesDst: true}, "records that were in dst"},
		{"EveryPosition", faults{skipsOne: true}, "records from position"},
		{"EveryPosition", faults{repeatsOne: true}, "records from position"},
		{"EveryPosition", faults{dropsAtMax1: true}, "records from position"},
		{"PositionsAreTheCallers", faults{sharesPosition: true}, "changed it"},
		{"PositionsAreTheCallers", faults{changesPosition: true}, "when the reader went on"},
		{"PositionsAreTheCallers", faults{keepsAt: true}, "written into what it gave"},
		{"End", faults{endOnce: true}, "after the end"},
		{"End", faults{noEnd: true}, "1,000 times"},
		{"End", faults{neverReady: true}, "Ready never came"},
		{"TwoReaders", faults{sharedCursor: true}, "reader's records"},
		{"Marks", faults{markTwice: true}, "another record's too"},
		{"Marks", faults{markTooFew: true}, "marks for"},
		{"Marks", faults{markByReader: true}, "from the start they were"},
		{"Marks", faults{locatesAlike: true}, "Locate says"},
		{"Status", faults{doneBack: true}, "went back"},
		{"Status", faults{wrongLag: true}, "Lag is"},
		{"Refused", faults{takesAnyPosition: true}, "was not refused"},
		{"Whole", faults{endless: true, saysEnd: true}, "says that this is the end"},
		{"End", faults{endless: true, blind: true}, "no Status"},
		{"SetAside", faults{forgetsBad: true}, "set aside: got"},
		{"SetAside", faults{stopsAtBad: true}, "with bad records set aside"},
		{"SetAside", faults{otherRaw: true}, "set aside: number 0 is"},
		{"SetAside", faults{tooMany: true}, "Read(max 1) took"},
		{"SetAside", faults{badTwice: true}, "set aside: "},
		{"SetAside", faults{positionBefore: true}, "from position"},
		{"NotSetAside", faults{passesOver: true}, "was passed over"},
		{"Reread", faults{rereadsElse: true}, "it was set aside as"},
		{"Growing", faults{notListed: true}, "isn't in the list"},
		{"Growing", faults{goes: true}, "no longer in the list"},
		{"Growing", faults{opensAtEnd: true}, "records of split"},
		{"Growing", faults{opensTwice: true}, "records of split"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s", tt.check, tt.says), func(t *testing.T) {
			err := runSourceCheck(t, tt.check, tt.f)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s says %v of a source with %+v; want %q", tt.check, err, tt.f, tt.says)
			}
		})
	}
}

func TestNoCheckFindsAFaultInASoundSource(t *testing.T) {
	for _, c := range sourceChecks[[]byte]() {
		for _, f := range []faults{{}, {endless: true}} {
			if err := runSourceCheck(t, c.name, f); err != nil {
				t.Errorf("%s, endless %v: %v", c.name, f.endless, err)
			}
		}
	}
}

func TestRefusedMustNameAPosition(t *testing.T) {
	r := &sourceRun[int]{ctx: t.Context(), src: weir.Slice(1), again: weir.Slice(1), want: map[string][]int{"0": {1}}}
	if err := r.refuses("0", nil); err == nil {
		t.Error("no position to be refused, and no error")
	}
}

func runSourceCheck(t *testing.T, name string, f faults) error {
	ctx := t.Context()
	if f.neverReady {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	want := map[string][][]byte{"a": nil, "b": nil}
	for i := range 20 {
		want["a"] = append(want["a"], []byte(fmt.Sprint("record ", i)))
	}
	for _, c := range sourceChecks[[]byte]() {
		if c.name == name {
			return c.run(&sourceRun[[]byte]{
				ctx: ctx, src: &faulty{f: f, want: want}, again: &faulty{f: f, want: want},
				want: want, refused: [][]byte{[]byte("x"), []byte("21")}, endless: f.endless, seed: 1, t: t,
				spoiled: spoiled(f), growing: growing(f),
			})
		}
	}
	t.Fatalf("there is no check %q", name)
	return nil
}

// faulty is a source as it should be, except for its faults.
type faulty struct {
	f      faults
	want   map[string][][]byte
	asked  int
	cursor int
}

func (s *faulty) Splits(context.Context) ([]string, error) {
	s.asked++
	switch {
	case s.f.renames && s.asked > 1:
		return []string{"b", "a"}, nil
	case s.f.oneSplitLess:
		return []string{"a"}, nil
	}
	return []string{"a", "b"}, nil
}

func (s *faulty) Open(_ context.Context, split string, at []byte) (weir.Reader[[]byte], error) {
	r := &faultyReader{f: s.f, recs: s.want[split], next: new(int), at: at}
	if s.f.sharedCursor {
		r.next = &s.cursor
	}
	if at == nil {
		r.at = []byte("0")
		*r.next = 0
	} else {
		n, err := strconv.Atoi(string(at))
		if (err != nil || n > len(r.recs)) && !s.f.takesAnyPosition {
			return nil, errors.New("no position")
		}
		*r.next = min(n, len(r.recs))
		if s.f.skipsOne {
			*r.next = min(n+1, len(r.recs))
		}
		if s.f.repeatsOne {
			*r.next = max(n-1, 0)
		}
	}
	if !s.f.keepsAt {
		r.at = slices.Clone(r.at)
	}
	r.buf = []byte("                ")
	if s.f.blind {
		return &blindReader{r, r}, nil
	}
	return r, nil
}

func (s *faulty) Locate(_ string, mark int64) string {
	if s.f.locatesAlike {
		return "somewhere"
	}
	return fmt.Sprint("record ", mark)
}

// blindReader has no Status.
type blindReader struct {
	weir.Reader[[]byte]
	weir.Marker
}

type faultyReader struct {
	f     faults
	recs  [][]byte
	next  *int
	at    []byte // the position
	buf   []byte
	marks []int64
	reads int
	ends  int
}

func (r *faultyReader) Read(dst [][]byte, limit int) ([][]byte, bool, error) {
	r.reads++
	r.marks = r.marks[:0]
	n := min(limit, len(r.recs)-*r.next)
	if r.f.overMax {
		n = len(r.recs) - *r.next
	}
	if r.f.stuck || r.f.neverReady {
		return dst, false, nil
	}
	if r.f.overwritesDst && len(dst) > 0 {
		dst[0] = []byte("?")
	}
	if r.f.dropsAtMax1 && limit == 1 && *r.next == 5 {
		*r.next++
	}
	for range n {
		if *r.next == len(r.recs) {
			break
		}
		rec := slices.Clone(r.recs[*r.next])
		if r.f.sharesRecords {
			rec = append(r.buf[:0], rec...)
		}
		dst = append(dst, rec)
		mark := int64(*r.next)
		if r.f.markByReader {
			mark = int64(r.reads*1000 + len(r.marks))
		}
		if r.f.markTwice {
			mark /= 2
		}
		r.marks = append(r.marks, mark)
		*r.next++
	}
	r.at = strconv.AppendInt(nil, int64(*r.next), 10)
	if r.f.endless && !r.f.saysEnd {
		return dst, false, nil
	}
	end := *r.next == len(r.recs) || r.f.endEarly && *r.next > len(r.recs)/2
	if end {
		r.ends++
	}
	return dst, end && !r.f.noEnd && !(r.f.endOnce && r.ends > 1), nil
}

func (r *faultyReader) Ready() <-chan struct{} {
	if r.f.neverReady {
		return make(chan struct{})
	}
	return nil
}

func (r *faultyReader) Position() []byte {
	if r.f.changesPosition {
		return strconv.AppendInt(r.buf[:0], int64(*r.next), 10)
	}
	if r.f.sharesPosition {
		return r.at
	}
	return slices.Clone(r.at)
}

func (r *faultyReader) Marks() []int64 {
	if r.f.markTooFew && len(r.marks) > 0 {
		return r.marks[1:]
	}
	return r.marks
}

func (r *faultyReader) Status() weir.Status {
	st := weir.Status{Done: int64(*r.next), Total: int64(len(r.recs)), Lag: int64(len(r.recs) - *r.next)}
	if r.f.doneBack {
		st.Done = -st.Done
	}
	if r.f.wrongLag {
		st.Lag++
	}
	return st
}

func (r *faultyReader) Close() error { return nil }
