package connectortest

import (
	"errors"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
)

// testFollow: a sink that doesn't decide is committed by a later incarnation
// from what Prepare returned alone, and another one than was decided never is.
func testFollow(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	w.follows = true
	kind := s.New(w.dir, "left").Spec().Kind
	if _, ok := w.open(t).p.(weir.Follower); kind != weir.Following && (kind != weir.Transactional || !ok) {
		t.Log("the sink can only decide, or commits nothing: nothing to test")
		return
	}
	must(t, w.live(t.Context(), 1))
	old := w.start(t)
	must(t, old.write(2))
	staged, err := old.p.Prepare(t.Context(), 2)
	must(t, err)
	w.check(t, 1) // nothing is visible yet
	w.next(2, old.by, staged)
	must(t, old.close())
	w.check(t, 1)
	later := w.start(t) // rolls forward
	w.check(t, 2)
	must(t, later.epoch(t.Context(), 3))
	must(t, later.write(4))
	_, err = later.p.Prepare(t.Context(), 4) // and is never entered
	must(t, err)
	must(t, later.close())
	w.check(t, 3)
	must(t, w.live(t.Context(), len(scenario)))
	w.check(t, len(scenario))
}

// testAdopt: sinks that can be added to a job get a ledger at its checkpoint,
// and renamed ones keep theirs, as often as they are told.
func testAdopt(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	w.follows = true
	if _, ok := w.open(t).p.(weir.Adopter); !ok {
		t.Log("the participant is no weir.Adopter: nothing to test")
		return
	}
	at := weir.CheckpointID{Slot: 7, Sum: [32]byte{7}}
	adopt := func(number int64, was string, sinks ...string) (map[string]weir.Ledger, error) {
		p, err := s.New(w.dir, "left").Connect(t.Context(), sinks)
		must(t, err)
		defer func() { must(t, p.Close()) }()
		f := weir.Fence{Job: testJob, By: weir.Incarnation{Number: number, Nonce: "n"}}
		if was != "" {
			f.Former = []string{was}
		}
		found, err := p.Fence(t.Context(), f)
		if err != nil {
			return nil, err
		}
		var all []weir.Adopted
		for _, sink := range sinks {
			all = append(all, weir.Adopted{Sink: sink, Was: was})
		}
		for range 2 {
			if err := p.(weir.Adopter).Adopt(t.Context(), at, all); err != nil {
				return found, fmt.Errorf("repeat Adopt, which may be repeated: %w", err)
			}
		}
		return found, nil
	}
	want := map[string]weir.Ledger{"first": {Found: true, ID: at}}
	for number := int64(1); number <= 2; number++ {
		got, err := adopt(number, "", "first")
		must(t, err)
		if number == 2 {
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("ledgers after it was added (-want +got):\n%s", diff)
			}
		}
	}
	if _, err := adopt(3, "first", "second"); err != nil {
		t.Fatal("rename:", err)
	}
	got, err := adopt(4, "first", "second")
	must(t, err)
	if diff := gocmp.Diff(map[string]weir.Ledger{"second": {Found: true, ID: at}}, found(got)); diff != "" {
		t.Errorf("ledgers after it was renamed (-want +got):\n%s", diff)
	}
	at.Slot++
	if _, err := adopt(5, "second", "third"); err == nil || errors.Is(err, weir.ErrFenced) {
		t.Errorf("renamed at another checkpoint than its ledger's: got %v, want an error that isn't weir.ErrFenced", err)
	}
	if _, err := adopt(4, "", "second"); !errors.Is(err, weir.ErrFenced) {
		t.Errorf("an older incarnation got %v, want weir.ErrFenced", err)
	}
}

// found leaves out the ledgers that aren't there.
func found(all map[string]weir.Ledger) map[string]weir.Ledger {
	out := map[string]weir.Ledger{}
	for sink, l := range all {
		if l.Found {
			out[sink] = l
		}
	}
	return out
}
