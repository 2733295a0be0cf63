package data

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// stopping is a reader that is to stop before some record.
type stopping struct {
	feedReader
	stop int
}

func (r *stopping) AtStop() bool { return r.pos >= r.stop }

func (r *stopping) Read(dst []rec, limit int) ([]rec, bool, error) {
	return r.feedReader.Read(dst, min(limit, r.stop-r.pos))
}

func records(n int) *feed {
	f := newFeed()
	for i := range n {
		f.send(rec{"a", int64(i), 0})
	}
	return f
}

// A source chooses where it begins once, for all its splits together, and never
// where a checkpoint knows it: a split that is new there is read from its beginning.
func TestASourceChoosesItsBeginning(t *testing.T) {
	feeds := []*feed{records(5), records(5), records(5)}
	var asked [][]string
	begin := func(c *SourceConfig[rec]) {
		c.Start = func(_ context.Context, splits []string) (map[string][]byte, error) {
			asked = append(asked, slices.Clone(splits))
			return map[string][]byte{"0": []byte("3"), "1": []byte("5")}, nil
		}
	}
	f := startAs(t, shape{parallelism: 2, batch: 4}, nil, feeds[:2], func(*Run) {}, begin, counting())
	if out := f.settle(1); !slices.Equal(out, []string{"a=1", "a=2"}) {
		t.Errorf("read %v, want the last two records of the first split", out)
	}
	if len(asked) != 1 || !slices.Equal(asked[0], []string{"0", "1"}) {
		t.Errorf("it was asked %v", asked)
	}
	var saved kept
	saved.take(t, f.barrier(1))
	f.end()

	g := startAs(t, shape{parallelism: 1, batch: 4}, &saved, feeds, func(*Run) {}, begin, counting())
	if out := g.settle(1); !slices.Equal(out, []string{"a=3", "a=4", "a=5", "a=6", "a=7"}) {
		t.Errorf("after the restart, with a new split: %v", out)
	}
	if len(asked) != 1 {
		t.Errorf("it was asked again: %v", asked)
	}
}

func TestABeginningThatCannotBeFound(t *testing.T) {
	r := NewRun(Config{Parallelism: 1, Groups: 8, BatchLen: 4, ReadLen: 4, Names: []string{"source"}})
	NewSource(r, SourceConfig[rec]{ID: "in", Start: func(context.Context, []string) (map[string][]byte, error) {
		return nil, errors.New("no such time")
	}}, []string{"0"}, func(*Task) Out[rec] { return nil })
	if _, err := r.Open(t.Context(), &kept{}); err == nil || !strings.Contains(err.Error(), "source in: choose where to begin: no such time") {
		t.Errorf("Open says %v", err)
	}
}

// A task rests once all its splits have ended or are at their stop, and says it
// once; one whose splits have all ended ends.
func TestATaskRests(t *testing.T) {
	feeds := []*feed{records(5), records(5)}
	feeds[0].end()
	f := startAs(t, shape{parallelism: 1, batch: 4}, nil, feeds, func(*Run) {}, func(c *SourceConfig[rec]) {
		open := c.Open
		c.Open = func(ctx context.Context, split string, at []byte) (Reader[rec], error) {
			rd, err := open(ctx, split, at)
			if split == "1" {
				return &stopping{*rd.(*feedReader), 3}, err
			}
			return rd, err
		}
	}, counting())
	if task := <-f.rests; task != "in/0" {
		t.Errorf("%s rests", task)
	}
	feeds[1].send(rec{"a", 9, 0}) // behind the stop
	if out := f.settle(1); len(out) != 8 {
		t.Errorf("read %v, want 5 and 3 records", out)
	}
	for _, s := range f.barrier(1)[0].Splits {
		if want := map[string]string{"0": "5", "1": "3"}[s.Split]; string(s.Position) != want || s.Ended != (s.Split == "0") {
			t.Errorf("split %s stands at %+v", s.Split, s)
		}
	}
	f.Stop()
	f.Wait()
	if len(f.rests) > 0 || len(f.ended) > 0 {
		t.Errorf("it said so %d times more, and %d times that it has ended", len(f.rests), len(f.ended))
	}
}
