package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sifter is a reader that passes over records whose key is "bad" or "long".
type sifter struct {
	feedReader
	bad   []Rejected
	marks []int64
}

func (r *sifter) Marks() []int64 { return r.marks }

func (r *sifter) Read(dst []rec, limit int) ([]rec, bool, error) {
	from := r.pos
	all, end, err := r.feedReader.Read(nil, limit)
	r.bad, r.marks = nil, nil
	for i, rc := range all {
		switch rc.key {
		case "bad":
			r.bad = append(r.bad, Rejected{Mark: int64(from + i), Raw: []byte("raw"), Err: errors.New("no record")})
		case "long":
			r.bad = append(r.bad, Rejected{Mark: int64(from + i), Err: fmt.Errorf("%w: 9 bytes", ErrOversized)})
		default:
			dst, r.marks = append(dst, rc), append(r.marks, int64(from+i))
		}
	}
	return dst, end, err
}

// sift starts a run whose source passes over bad records, and whose event-time
// function panics at 7 and knows no time for 8.
func sift(t *testing.T, s shape, b *box, from *kept, in *feed) *flow {
	return startAs(t, s, from, []*feed{in}, b.aside(Limit{-1, 0}), func(c *SourceConfig[rec]) {
		open := c.Open
		c.Open = func(ctx context.Context, split string, at []byte) (Reader[rec], error) {
			r, err := open(ctx, split, at)
			if err != nil {
				return nil, err
			}
			return &sifter{feedReader: *r.(*feedReader)}, nil
		}
		c.SetAside = func(r Reader[rec]) func() []Rejected {
			return func() []Rejected { return r.(*sifter).bad }
		}
		c.Reread = func(_ string, mark int64) ([]byte, error) { return fmt.Appendf(nil, "again %d", mark), nil }
		c.Time = func(r rec) time.Time {
			switch r.n {
			case 7:
				panic("seven")
			case 8:
				return time.Time{}
			}
			return time.Unix(0, r.at)
		}
	}, counting())
}

func TestASourceSetsAside(t *testing.T) {
	in := newFeed(rec{"a", 1, 1}, rec{"bad", 0, 0}, rec{"a", 2, 7}, rec{"long", 0, 0}, rec{"a", 3, 8}, rec{"a", 4, 4})
	for _, batch := range []int{1, 2, 64} {
		b := &box{}
		f := sift(t, shape{parallelism: 1, batch: batch}, b, nil, in)
		if out := f.settle(1); !slices.Equal(out, []string{"a=1", "a=2"}) {
			t.Fatalf("batches of %d: %v", batch, out)
		}
		got := b.all()
		if len(got) != 4 || !strings.HasPrefix(got[0], "in/0/1 source decode: no record") || !strings.HasPrefix(got[1], "in/0/2 source panic:") ||
			!strings.HasPrefix(got[2], "in/0/3 source oversized: too long: 9 bytes") || !strings.HasPrefix(got[3], "in/0/4 source event-time: the record has no event time") {
			t.Fatalf("batches of %d: letters %q", batch, got)
		}
		for _, l := range b.letters {
			if want := map[int64]string{1: "raw", 2: "again 2", 3: "", 4: "again 4"}[l.Mark]; string(l.Raw) != want {
				t.Errorf("the bytes of record %d are %q, want %q", l.Mark, l.Raw, want)
			}
		}
		for _, a := range f.barrier(1) {
			for _, s := range a.Splits {
				if s.Records != 6 || string(s.Position) != "6" {
					t.Errorf("batches of %d: it stands at %+v", batch, s)
				}
			}
		}
		f.end()
	}
}

// Records that are set aside alone are progress, and count for the next barrier.
func TestOnlyBadRecords(t *testing.T) {
	in := newFeed()
	for range 10 {
		in.send(rec{"bad", 0, 0})
	}
	b := &box{}
	f := sift(t, shape{parallelism: 1, batch: 64, every: 4}, b, nil, in)
	for epoch, want := range []string{"4", "8"} {
		<-f.wants
		if a := f.barrier(int64(epoch + 1)); string(a[0].Splits[0].Position) != want {
			t.Errorf("barrier %d at %s, want %s", epoch+1, a[0].Splits[0].Position, want)
		}
	}
	f.settle(1)
	if got := b.all(); len(got) != 10 {
		t.Errorf("%d letters", len(got))
	}
}

// What is ahead of the clock is rejected in words that don't tell the time.
func TestBadTimeWithoutTheClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	err := badTime(now.AddDate(5, 0, 0), time.Time{}, 48*time.Hour)
	if want := "event time 2031-03-01T00:00:00Z is more than 48 hours ahead of the clock: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("it says %q", err)
	}
	if err := badTime(now.AddDate(5, 0, 0), now, 48*time.Hour); !strings.Contains(err.Error(), "the clock (2026-03-01T00:00:00Z)") {
		t.Errorf("it says %q", err)
	}
}
