package weir_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
)

// shopLab is a lab with the orders, in which nothing has run yet.
func shopLab(t *testing.T) *lab {
	t.Helper()
	return &lab{t: t, dir: t.TempDir(), orders: manyOrders(ordersInAll), at: ordersBefore}
}

func (l *lab) plan(s shop, opts ...weir.RunOption) *weir.Plan {
	l.t.Helper()
	p, err := s.declare(l, l.at).Plan(l.t.Context(), append(l.options(s, nil), opts...)...)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func TestAliasesThatMakeNoSense(t *testing.T) {
	for _, tt := range []struct {
		name    string
		renamed [][2]string
		drop    []string
		says    []string // nil: fine
	}{
		{name: "fine", renamed: [][2]string{{"sales", "orders"}, {"sums", "totals"}}, drop: []string{"long-gone"}},
		{name: "nobody has the new id", renamed: [][2]string{{"totals", "sums"}}, says: []string{`no step, source or sink has the id "sums"`}},
		{name: "the old id lives on", renamed: [][2]string{{"minutes", "totals"}}, says: []string{`still declares "minutes"`}},
		{name: "a chain", renamed: [][2]string{{"a", "b"}, {"b", "totals"}}, says: []string{"chain"}},
		{name: "a cycle", renamed: [][2]string{{"a", "totals"}, {"totals", "a"}}, says: []string{"chain"}},
		{name: "two old ids", renamed: [][2]string{{"a", "totals"}, {"b", "totals"}}, says: []string{"one alias"}},
		{name: "two new ids", renamed: [][2]string{{"a", "totals"}, {"a", "minutes"}}, says: []string{"one alias"}},
		{name: "no change", renamed: [][2]string{{"totals", "totals"}}, says: []string{"the same"}},
		{name: "empty", renamed: [][2]string{{"", "totals"}}, says: []string{"empty"}},
		{name: "drop of what is declared", drop: []string{"totals"}, says: []string{"totals", "the job declares it"}},
		{name: "drop of what was renamed", renamed: [][2]string{{"sums", "totals"}}, drop: []string{"sums"}, says: []string{"sums", "lives on"}},
		{name: "drop of nothing", drop: []string{""}, says: []string{"empty"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := shopLab(t)
			s := firstShop()
			s.renamed = tt.renamed
			_, err := s.declare(l, l.at).Plan(t.Context(), l.options(s, tt.drop)...)
			if tt.says == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, weir.ErrDeclaration) {
				t.Fatalf("%v, want an error of declaration", err)
			}
			for _, w := range tt.says {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q isn't in %v", w, err)
				}
			}
			if err := s.declare(l, l.at).Run(t.Context(), l.options(s, tt.drop)...); !errors.Is(err, weir.ErrDeclaration) {
				t.Errorf("Run says %v", err)
			}
		})
	}
}

// TestPlanBeforeTheFirstRun: there is nothing to compare with, and no folder is made.
func TestPlanBeforeTheFirstRun(t *testing.T) {
	l := shopLab(t)
	p := l.plan(firstShop())
	if p.Changed() || p.Err() != nil || !p.Checkpoint.IsZero() || !strings.Contains(p.String(), "a run starts from nothing") {
		t.Errorf("changed %v, %v:\n%s", p.Changed(), p.Err(), p)
	}
	if _, err := os.Stat(l.state()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory is there: %v", err)
	}
	p = l.plan(firstShop(), weir.StateDir(""))
	if !strings.Contains(p.String(), "nothing to compare it with") {
		t.Errorf("without a state directory:\n%s", p)
	}
}

// TestPlanWhileTheJobRuns looks again and again at a store from which the job
// retires checkpoints meanwhile. It takes no lock, so the job doesn't notice.
func TestPlanWhileTheJobRuns(t *testing.T) {
	l := shopLab(t)
	s := firstShop()
	looked := make(chan struct{})
	committed := make(chan int64, 1_000)
	run := s.declare(l, l.at).Start(t.Context(), append(l.options(s, nil), weir.Interval(time.Millisecond), weir.Retain(1),
		weir.OnCheckpoint(func(c weir.Checkpoint) {
			select {
			case committed <- c.Epoch:
			case <-looked:
			}
		}))...)
	wider := s
	wider.disorder = time.Hour
	for last := int64(0); last < 60; {
		select {
		case last = <-committed:
			if p := l.plan(wider); p.Err() != nil || !p.Changed() || p.Checkpoint.IsZero() {
				t.Fatalf("at epoch %d: changed %v, %v", last, p.Changed(), p.Err())
			}
		case <-t.Context().Done():
			t.Fatal("no checkpoints come")
		}
	}
	close(looked)
	run.Stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestPlanOfAnotherJobsDirectory is refused, as a run would be.
func TestPlanOfAnotherJobsDirectory(t *testing.T) {
	l := shopLab(t)
	if err := l.runTo(firstShop(), l.at, nil); err != nil {
		t.Fatal(err)
	}
	other := weir.NewJob("market")
	other.From("orders", weir.Slice(l.orders...)).To("out", weir.Each(func(order) error { return nil }))
	p, err := other.Plan(t.Context(), weir.StateDir(l.state()))
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(p.Err(), weir.ErrRefused) || !strings.Contains(p.String(), `belongs to job "shop"`) {
		t.Errorf("%v:\n%s", p.Err(), p)
	}
}

// TestPlanOfASplitThatIsMissing and of new ones behind a finished end.
func TestPlanOfSplits(t *testing.T) {
	dir := weir.StateDir(filepath.Join(t.TempDir(), "state"))
	declare := func(splits ...[]order) *weir.Job {
		job := weir.NewJob("shop")
		job.From("orders", weir.Slices(splits...)).To("out", weir.Each(func(order) error { return nil }))
		return job
	}
	some := manyOrders(10)
	if err := declare(some, some).Run(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		job  *weir.Job
		says string
		err  error // of Run
	}{
		{"all there", declare(some, some), "", nil},
		{"one is missing", declare(some), "1 is missing now", weir.ErrRefused},
		{"one is new, and the job is finished", declare(some, some, some), "2 is new, and the job has read its input to the end", weir.ErrGrown},
	} {
		p, err := tt.job.Plan(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if (p.Err() != nil) != (tt.says != "") || !strings.Contains(p.String(), tt.says) {
			t.Errorf("%s: %v\n%s", tt.name, p.Err(), p)
		}
		if err := tt.job.Run(t.Context(), dir); !errors.Is(err, tt.err) || (err != nil) != (tt.says != "") {
			t.Errorf("%s: Run says %v", tt.name, err)
		}
	}
}

// TestPlanWithGuesses: what depends on a parameter that isn't known is neither
// kept nor refused, and everything else is compared.
func TestPlanWithGuesses(t *testing.T) {
	l := shopLab(t)
	if err := l.runTo(firstShop(), l.at, nil); err != nil {
		t.Fatal(err)
	}
	at := func(path string, ttl time.Duration) *weir.Job {
		s := firstShop()
		s.uniques = distinctOrders("seen", ttl, shopAdmit)
		s.uniqueSink = func(*lab) weir.Sink[uniqueRow] { return sqlite.Upsert[uniqueRow](path, "uniques", "shop") }
		return s.declare(l, l.at)
	}
	guessed := []weir.RunOption{weir.StateDir(l.state()),
		weir.Guessed(at(filepath.Join(l.dir, "b.db"), shopTTL), "--db isn't given"),
		weir.Guessed(at(filepath.Join(l.dir, "a.db"), 2*shopTTL), "--ttl isn't given")}
	p, err := at(filepath.Join(l.dir, "a.db"), shopTTL).Plan(t.Context(), guessed...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Changes {
		want := weir.FateKept
		if c.ID == "unique-rows" || c.ID == "seen" {
			want = weir.FateUnknown
		}
		if c.Fate != want {
			t.Errorf("%s is %s, want %s: %+v", c.ID, c.Fate, want, c.Diffs)
		}
	}
	for _, want := range []string{"--db isn't given", "--ttl isn't given"} {
		if !strings.Contains(p.String(), want) {
			t.Errorf("%q isn't in\n%s", want, p)
		}
	}
	// A path that can't be one is no mistake of the declaration as long as it is a guess.
	if _, err := at("", shopTTL).Plan(t.Context(), weir.StateDir(l.state()), weir.Guessed(at("x.db", shopTTL), "--db isn't given")); err != nil {
		t.Error(err)
	}
	if _, err := at("", shopTTL).Plan(t.Context(), weir.StateDir(l.state())); !errors.Is(err, weir.ErrDeclaration) {
		t.Errorf("an empty path: %v", err)
	}
	if err := at(filepath.Join(l.dir, "a.db"), shopTTL).Run(t.Context(), guessed...); !errors.Is(err, weir.ErrDeclaration) || !strings.Contains(err.Error(), "--db") {
		t.Errorf("Run of a job that was guessed: %v", err)
	}
}

// TestFormsOfAPlan: each form has every id with its fate.
func TestFormsOfAPlan(t *testing.T) {
	l := shopLab(t)
	if err := l.runTo(firstShop(), l.at, nil); err != nil {
		t.Fatal(err)
	}
	changed := firstShop()
	changed.totals = countAndCents("sums")
	changed.groups = 64
	p := l.plan(changed)
	text, dot := p.String(), p.DOT()
	for _, want := range []string{"refused       the job", "key groups: 128 -> 64", "new           fold sums", "refused       fold totals", "--drop totals", "kept          distinct seen", "a run would be refused"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't in the text:\n%s", want, text)
		}
	}
	for _, want := range []string{"sums (fold): new", "seen (distinct): kept", "exchange by key"} {
		if !strings.Contains(dot, want) {
			t.Errorf("%q isn't in\n%s", want, dot)
		}
	}
	svg := p.SVG()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">sums<", ">new<", ">seen<", ">kept<", "2 tasks"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q isn't in the picture", want)
		}
	}
	b, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Job        string
		Changed    bool
		Refused    string
		Checkpoint struct{ Epoch int64 }
		Changes    []struct{ ID, Fate string }
		Graph      struct{ Nodes []struct{ ID, Op string } }
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out.Job != "shop" || !out.Changed || !strings.Contains(out.Refused, "key groups") || out.Checkpoint.Epoch != p.Epoch || len(out.Changes) != len(p.Changes) || len(out.Graph.Nodes) < 10 {
		t.Errorf("%+v of %s", out, b)
	}
}
