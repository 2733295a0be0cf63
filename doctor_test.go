package weir_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
)

// seen is what examiners were asked, in order.
type seen struct {
	by    []string
	given []weir.Examination
	jobs  []string // by the context
}

func (s *seen) examine(ctx context.Context, by string, x weir.Examination) ([]weir.Finding, error) {
	s.by, s.given, s.jobs = append(s.by, by), append(s.given, x), append(s.jobs, weir.JobName(ctx))
	n, _ := x.Shared["asked"].(int)
	x.Shared["asked"] = n + 1
	return []weir.Finding{{Level: weir.LevelOK, Subject: by, Text: fmt.Sprint(n), Of: "is set by Doctor"}}, nil
}

type seenSource[T any] struct {
	weir.Source[T]
	*seen
	name string
	err  error
}

func (s seenSource[T]) Examine(ctx context.Context, x weir.Examination) ([]weir.Finding, error) {
	found, err := s.examine(ctx, s.name, x)
	return found, errors.Join(err, s.err)
}

type seenSink[T any] struct {
	weir.Sink[T]
	*seen
	name string
}

func (s seenSink[T]) Examine(ctx context.Context, x weir.Examination) ([]weir.Finding, error) {
	return s.examine(ctx, s.name, x)
}

type doctorRow struct {
	N int `db:"n"`
}

// doctorJob has two sources, two sinks in one database of which both can be
// examined, one in another database, and one that can't be examined.
func doctorJob(s *seen, dir string, crash int) *weir.Job {
	job := weir.NewJob("patient")
	rows := job.From("a", seenSource[int]{weir.Slices(numbers(400)), s, "source a", nil}).
		Union(job.From("b", seenSource[int]{weir.Slices(numbers(400)), s, "source b", nil})).
		TryMap(crashAt[int](crash)).Map(func(n int) doctorRow { return doctorRow{n} })
	db, other := filepath.Join(dir, "one.db"), filepath.Join(dir, "two.db")
	rows.To("first", seenSink[doctorRow]{sqlite.Upsert[doctorRow](db, "first", "n"), s, "sink first"})
	rows.To("other", seenSink[doctorRow]{sqlite.Upsert[doctorRow](other, "other", "n"), s, "sink other"})
	rows.To("second", seenSink[doctorRow]{sqlite.Upsert[doctorRow](db, "second", "n"), s, "sink second"})
	rows.To("plain", weir.Each(func(doctorRow) error { return nil }))
	return job
}

func TestDoctorExaminesEachParticipantOnce(t *testing.T) {
	var s seen
	dir := t.TempDir()
	found, err := doctorJob(&s, dir, 0).Doctor(t.Context(), weir.StateDir(filepath.Join(dir, "state")), weir.Interval(time.Minute), weir.DowntimeBudget(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s: %s %s", f.Of, f.Subject, f.Text))
	}
	want := []string{
		": state directory " + filepath.Join(dir, "state") + " no checkpoint yet: the job starts for the first time",
		"source a: source a 0", "source b: source b 1", "sinks first, second: sink first 2", "sink other: sink other 3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i, x := range s.given {
		if x.Job != "patient" || s.jobs[i] != "patient" || x.UUID != "" || x.Interval != time.Minute || x.Downtime != time.Hour {
			t.Errorf("%s is given %+v, by a call of job %q", s.by[i], x, s.jobs[i])
		}
	}
	both := s.given[2]
	if !slices.Equal(both.Sinks, []string{"first", "second"}) || len(both.Peers) != 2 || both.Peers[1].(seenSink[doctorRow]).name != "sink second" || both.Source != "" {
		t.Errorf("sinks of one database are given %+v", both)
	}
}

// Behind a crash only a ledger knows whether the newest checkpoint counts: a source
// is told where the one before it stands, which is no later.
func TestDoctorGivesTheEarlierPositions(t *testing.T) {
	var s seen
	dir := t.TempDir()
	state := weir.StateDir(filepath.Join(dir, "state"))
	mustCrash(t, doctorJob(&s, dir, 500), state, weir.EveryRecords(50), weir.Parallelism(1), weir.Restarts(0))
	if _, err := doctorJob(&s, dir, 0).Doctor(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	x := s.given[0]
	n := len(x.Checkpoints)
	if x.UUID == "" || n < 3 {
		t.Fatalf("it is given %+v", x)
	}
	last, before := x.Checkpoints[n-1], x.Checkpoints[n-2]
	if last.Standing != "undecided" || last.Parent != before.ID {
		t.Fatalf("the last checkpoints are %+v and %+v: this test needs another crash", before, last)
	}
	for _, p := range before.Positions {
		given := s.given[slices.Index([]string{"a", "b"}, p.Source)].Positions
		if len(given) != 1 || given[0].Source != p.Source || string(given[0].At) != string(p.At) {
			t.Errorf("source %s is given %+v, and stands at %q in the checkpoint before", p.Source, given, p.At)
		}
	}
	if given := s.given[2].Positions; given != nil {
		t.Errorf("sinks are given positions: %v", given)
	}
	mustRun(t, doctorJob(&s, dir, 0), state, weir.Parallelism(1)) // nothing was changed
}

func TestDoctorReportsErrors(t *testing.T) {
	declare := func(err error) *weir.Job {
		job := weir.NewJob("patient")
		job.From("a", seenSource[int]{weir.Slices(numbers(3)), &seen{}, "source a", err}).To("out", weir.Each(func(int) error { return nil }))
		return job
	}
	found, err := declare(errors.New("nobody is at home")).Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := found[len(found)-1]
	if last.Level != weir.LevelProblem || last.Of != "source a" || last.Text != "nobody is at home" || len(found) != 3 {
		t.Errorf("found %+v", found)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop it")
	cancel(stop)
	if _, err := declare(nil).Doctor(ctx); !errors.Is(err, stop) {
		t.Errorf("an examination that was stopped: %v", err)
	}
	if _, err := declare(nil).Doctor(t.Context(), weir.DowntimeBudget(-1)); !errors.Is(err, weir.ErrDeclaration) || !strings.Contains(err.Error(), "downtime budget") {
		t.Errorf("a negative budget: %v", err)
	}
}

// A state directory of another job is a problem, and hides nothing else.
func TestDoctorRefusesAForeignStore(t *testing.T) {
	state := weir.StateDir(t.TempDir())
	other := weir.NewJob("other")
	other.From("a", weir.Slices(numbers(3))).To("out", weir.Each(func(int) error { return nil }))
	mustRun(t, other, state)
	var s seen
	found, err := doctorJob(&s, t.TempDir(), 0).Doctor(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if f := found[0]; f.Level != weir.LevelProblem || !strings.Contains(f.Text, `belongs to job "other"`) || !strings.Contains(f.Fix, "--state") || len(found) != 5 {
		t.Errorf("found %+v", found)
	}
	if len(s.given[0].Checkpoints) != 0 {
		t.Errorf("the checkpoints of another job are given: %+v", s.given[0])
	}
}

// A job that can't go on from its checkpoint as it is declared has one all the same.
func TestDoctorReadsTheStoreOfAJobThatHasChanged(t *testing.T) {
	var s seen
	dir := t.TempDir()
	state := weir.StateDir(filepath.Join(dir, "state"))
	mustRun(t, doctorJob(&s, dir, 0), state)
	job := weir.NewJob("patient")
	job.From("a", seenSource[int]{weir.Slices(numbers(400)), &s, "source a", nil}).To("plain", weir.Each(func(int) error { return nil }))
	found, err := job.Doctor(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if f := found[0]; f.Level != weir.LevelProblem || !strings.Contains(f.Fix, "the verb plan") {
		t.Errorf("found %+v", found)
	}
	x := s.given[0]
	if x.UUID == "" || len(x.Checkpoints) == 0 || len(x.Positions) == 0 {
		t.Fatalf("it is given %+v", x)
	}
	uuid, again, err := x.Refresh(t.Context())
	if err != nil || uuid != x.UUID || len(again) != len(x.Checkpoints) || again[0].ID != x.Checkpoints[0].ID {
		t.Errorf("read again: %s, %+v, %v", uuid, again, err)
	}
}
