// Package connectortest is the conformance suite of connectors: what package
// weir's Source and Sink promise, as tests. A connector calls Source or Sink
// from a test of its own.
package connectortest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
	"go.uber.org/goleak"
)

// Row is what the suite writes. Key and Part are the key of sinks that upsert.
type Row struct {
	Key   string
	Part  int64
	Value int64
	Note  string
}

// SinkUnderTest is a sink that knows the id of its last checkpoint: every kind
// but weir.AtLeastOnce.
type SinkUnderTest struct {
	// New returns the sink that writes to one target ("left", "right") below
	// dir; each time the same one. If the sinks of a dir have the same
	// participant, the suite also tests two of them in one.
	New func(dir, target string) weir.Sink[Row]
	// Rows reads what a reader of the target sees, in any order; nothing, and
	// no error, before the first commit.
	Rows func(ctx context.Context, dir, target string) ([]Row, error)
	// Upserts: a row replaces the one with its Key and Part. Otherwise every
	// row that was written is there.
	Upserts bool
	// Rejected are rows that the sink rejects each by itself (see weir.Rejection):
	// a text or a number that it can't store. Empty: there are none.
	Rejected []Row
	// NoSQL: the sink makes no call to a database, so there is no such call to
	// crash at. A sink that does is to be tested on what Driver or Call wraps.
	NoSQL bool
	// Files: all that the sink does it does through the Files of its context's
	// environment (package sys), and Rows reads through them too. The suite then
	// also runs it on a simulated disk: it crashes at each effect, with images of
	// what a power loss may leave; each effect fails; and an incarnation is paused
	// before each call while a newer one takes over.
	Files bool
}

// Sink tests a sink against the contract of weir.Sink. It needs no network of
// its own and leaves no goroutine behind.
func Sink(t *testing.T, s SinkUnderTest) {
	kind := s.New(t.TempDir(), "left").Spec().Kind
	if kind == weir.AtLeastOnce {
		t.Fatalf("the suite is for sinks with a ledger, and this one is %q", kind)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, SinkUnderTest)
	}{
		{"spec", testSpec},
		{"epochs", testEpochs},
		{"open before fence", testOpenFirst},
		{"overlap", testOverlap},
		{"fence", testFence},
		{"same number, other nonce", testNonce},
		{"missing ledger", testMissing},
		{"other run of the job", testForeign},
		{"start over", testStartOver},
		{"commit twice", testRepeat},
		{"wrong parent", testParent},
		{"close", testClose},
		{"rejection", testRejection},
		{"crash", testCrash},
		{"follow", testFollow},
		{"adopt", testAdopt},
		{"crash of the disk", testDisk},
		{"full disk", testFull},
		{"zombie", testZombie},
	} {
		t.Run(test.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) }) // runs last
			test.run(t, s)
		})
	}
}

func testSpec(t *testing.T, s SinkUnderTest) {
	dir := t.TempDir()
	sink := s.New(dir, "left")
	if c, ok := any(sink).(interface{ Check() error }); ok {
		if err := c.Check(); err != nil {
			t.Fatalf("Check: %v", err)
		}
	}
	spec := sink.Spec()
	if spec.Target == "" || spec.Readers == "" {
		t.Errorf("Spec %+v: Target and Readers are for people, and empty", spec)
	}
	if diff := gocmp.Diff(spec, s.New(dir, "left").Spec()); diff != "" {
		t.Errorf("two sinks with one target differ in their Specs (-first +second):\n%s", diff)
	}
	if other := s.New(t.TempDir(), "left").Spec(); spec.Participant != "" && spec.Participant == other.Participant {
		t.Errorf("targets in two folders share the participant %q", spec.Participant)
	}
}

// testEpochs runs the scenario without a crash, in every order of calls that
// the contract allows, and once more where there is nothing left to do.
func testEpochs(t *testing.T, s SinkUnderTest) { runEpochs(t, newWorld(t, s)) }

func testOpenFirst(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	w.openFirst = true
	runEpochs(t, w)
}

func runEpochs(t *testing.T, w *world) {
	t.Helper()
	for life := range 2 {
		if err := w.live(t.Context(), len(scenario)); err != nil {
			t.Fatalf("life %d: %v", life+1, err)
		}
		w.check(t, len(scenario))
	}
}

// testFence: a newer incarnation shuts the older one out of everything.
func testFence(t *testing.T, s SinkUnderTest) {
	for _, act := range []struct {
		name string
		do   func(old *life, c weir.Commit) error
	}{
		{"commit", func(old *life, c weir.Commit) error { return old.p.Commit(t.Context(), c) }},
		{"fence", func(old *life, _ weir.Commit) error {
			_, err := old.p.Fence(t.Context(), weir.Fence{Job: testJob, By: old.by})
			return err
		}},
		{"write and commit", func(old *life, c weir.Commit) error {
			if err := old.write(3); err != nil {
				return err
			}
			if _, err := old.p.Prepare(t.Context(), 3); err != nil {
				return err
			}
			c.Epoch++
			return old.p.Commit(t.Context(), c)
		}},
	} {
		t.Run(act.name, func(t *testing.T) {
			w := newWorld(t, s)
			must(t, w.live(t.Context(), 1))
			old := w.start(t)
			must(t, old.write(2))
			staged, err := old.p.Prepare(t.Context(), 2)
			must(t, err)
			c := w.next(2, old.by, staged)
			newer := w.start(t)
			before := w.rows(t)
			if err := act.do(old, c); !errors.Is(err, weir.ErrFenced) {
				t.Errorf("the older incarnation got %v, want weir.ErrFenced", err)
			}
			if diff := gocmp.Diff(before, w.rows(t)); diff != "" {
				t.Errorf("the older incarnation changed rows (-before +after):\n%s", diff)
			}
			must(t, newer.close())
			must(t, w.live(t.Context(), len(scenario)))
			w.check(t, len(scenario))
		})
	}
}

// testNonce: two incarnations that believe in the same number are two.
func testNonce(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 1))
	first := w.start(t)
	second := w.open(t)
	by := weir.Incarnation{Number: first.by.Number, Nonce: "another"}
	if _, err := second.p.Fence(t.Context(), weir.Fence{Job: testJob, By: by}); !errors.Is(err, weir.ErrFenced) && !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a second claim of number %d got %v, want weir.ErrFenced or weir.ErrRefused", by.Number, err)
	}
	must(t, first.epoch(t.Context(), 2))
	w.check(t, 2)
}

// testMissing: a ledger that isn't there is reported, and made by Create only.
func testMissing(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	for n, create := range []bool{false, false, true} {
		l := w.open(t)
		by := weir.Incarnation{Number: int64(n + 1), Nonce: fmt.Sprint(n)}
		ledgers, err := l.p.Fence(t.Context(), weir.Fence{Job: testJob, By: by, Create: create})
		must(t, err)
		for _, id := range w.ids() {
			want := weir.Ledger{Found: create}
			if got := ledgers[id]; got != want {
				t.Errorf("Fence %d, Create %v: ledger of %q is %+v, want %+v", n+1, create, id, got, want)
			}
		}
		must(t, l.close())
	}
}

// testForeign: a job that starts from nothing keeps away from the results of
// another run of the job.
func testForeign(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 2))
	l := w.open(t)
	job := weir.JobID{Name: testJob.Name, UUID: "another-run"}
	_, err := l.p.Fence(t.Context(), weir.Fence{Job: job, By: weir.Incarnation{Number: 99, Nonce: "x"}, Create: true})
	if !errors.Is(err, weir.ErrRefused) {
		t.Errorf("Fence of another run got %v, want weir.ErrRefused", err)
	}
	must(t, w.live(t.Context(), len(scenario)))
	w.check(t, len(scenario))
}

// testStartOver: a job that gives up the results of its other runs gets a ledger of
// its own, and shuts those runs out for good.
func testStartOver(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 1))
	old := w.start(t)
	must(t, old.write(2))
	staged, err := old.p.Prepare(t.Context(), 2)
	must(t, err)
	l := w.open(t)
	job := weir.JobID{Name: testJob.Name, UUID: "another-run"}
	ledgers, err := l.p.Fence(t.Context(), weir.Fence{Job: job, By: weir.Incarnation{Number: 1, Nonce: "x"}, Create: true, StartOver: true})
	must(t, err)
	for _, id := range w.ids() {
		if got, want := ledgers[id], (weir.Ledger{Found: true}); got != want {
			t.Errorf("ledger of %q after it was started over is %+v, want %+v", id, got, want)
		}
	}
	before := w.rows(t)
	if err := old.p.Commit(t.Context(), w.next(2, old.by, staged)); !errors.Is(err, weir.ErrFenced) {
		t.Errorf("a commit of the run that was given up got %v, want weir.ErrFenced", err)
	}
	if diff := gocmp.Diff(before, w.rows(t)); diff != "" {
		t.Errorf("the run that was given up changed rows (-before +after):\n%s", diff)
	}
	again := w.open(t)
	by := weir.Incarnation{Number: w.starts + 1, Nonce: "y"}
	if _, err := again.p.Fence(t.Context(), weir.Fence{Job: testJob, By: by}); !errors.Is(err, weir.ErrFenced) && !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a new start of the run that was given up got %v, want weir.ErrFenced or weir.ErrRefused", err)
	}
}

// testRepeat: a commit may be repeated, by its own and by a later incarnation.
func testRepeat(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 1))
	l := w.start(t)
	must(t, l.epoch(t.Context(), 2))
	c := w.log[len(w.log)-1]
	if err := l.p.Commit(t.Context(), c); err != nil {
		t.Fatalf("the same Commit once more, as after an answer that was lost: %v", err)
	}
	w.check(t, 2)
	must(t, l.close())
	later := w.start(t)
	if err := later.p.Commit(t.Context(), c); err != nil {
		t.Fatalf("a Commit of what the ledger names already, by a later incarnation: %v", err)
	}
	w.check(t, 2)
}

// testParent: a commit on top of another checkpoint than the ledger's changes
// nothing.
func testParent(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 1))
	l := w.start(t)
	must(t, l.write(2))
	staged, err := l.p.Prepare(t.Context(), 2)
	must(t, err)
	before := w.rows(t)
	c := w.next(2, l.by, staged)
	c.Parent.Sum[0]++
	if err := l.p.Commit(t.Context(), c); err == nil || errors.Is(err, weir.ErrFenced) {
		t.Errorf("a commit on a foreign parent got %v, want an error that isn't weir.ErrFenced", err)
	}
	if diff := gocmp.Diff(before, w.rows(t)); diff != "" {
		t.Errorf("the refused commit changed rows (-before +after):\n%s", diff)
	}
	must(t, l.close())
	must(t, w.live(t.Context(), len(scenario)))
	w.check(t, len(scenario))
}

// testClose: Close comes at any time, and what follows it is an error.
func testClose(t *testing.T, s SinkUnderTest) {
	w := newWorld(t, s)
	l := w.open(t)
	must(t, l.close())
	must(t, w.live(t.Context(), 1))
	l = w.start(t)
	must(t, l.close())
	l = w.start(t)
	must(t, l.write(2))
	must(t, l.close())
	l = w.start(t)
	must(t, l.write(2))
	staged, err := l.p.Prepare(t.Context(), 2)
	must(t, err)
	must(t, l.close())
	if err := l.p.Commit(t.Context(), w.next(2, l.by, staged)); err == nil {
		t.Error("Commit after Close succeeded")
	}
	must(t, w.live(t.Context(), len(scenario)))
	w.check(t, len(scenario))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sortRows(rows []Row) []Row {
	slices.SortFunc(rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Part, y.Part), cmp.Compare(x.Value, y.Value), cmp.Compare(x.Note, y.Note))
	})
	return rows
}
