package weir_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// jobChange is one way in which a job is changed between two runs.
type jobChange struct {
	name string
	old  func(*shop) // what differs from the first version already before
	now  func(*shop)
	drop []string
	// fates are those of the ids that aren't simply kept.
	fates map[string]weir.Fate
	diffs []string // "id what" of what is kept and declared in another way
	// refused: neither plan nor run accept it, and nothing has changed.
	refused bool
	// ledger: plan can't see it, but a sink's ledger does, which says so.
	ledger string
	before func(*lab) // between the two versions
	rules  func(*rules)
	// want is the tables at the end. then are the books as they stood when the
	// job was changed. The default is that of the first version.
	want func(l *lab, then, end *books) []string
	db   func(l *lab) []string // reads the tables; default: the first version's
}

const (
	ordersInAll   = 900
	ordersBefore  = 425 // no multiple of what a checkpoint is taken after
	ordersMidway  = 700
	ordersOfExtra = 400
)

// TestChangedJobs tries each change on a real state directory and a real
// database: the first version runs for a while, the changed one is planned, and
// then run. What plan says, run does; and where a job goes on, its tables are
// what they must be, also after another restart.
func TestChangedJobs(t *testing.T) {
	for _, c := range jobChanges() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.try(t)
		})
	}
}

func (c jobChange) try(t *testing.T) {
	l := &lab{t: t, dir: t.TempDir(), orders: manyOrders(ordersInAll), at: ordersBefore}
	l.extra = extraOrders(l.orders)
	first := firstShop()
	if c.old != nil {
		c.old(&first)
	}
	if err := l.runTo(first, l.at, nil); err != nil {
		t.Fatalf("the first version: %v", err)
	}
	if c.before != nil {
		c.before(l)
	}
	changed := firstShop()
	if c.old != nil {
		c.old(&changed)
	}
	c.now(&changed)
	c.planned(l, changed)
	switch {
	case c.refused || c.ledger != "":
		c.goesOnAsItWas(l, first, changed)
	default:
		c.goesOn(l, changed)
	}
}

// planned compares what plan says of the change, and that it touches nothing.
func (c jobChange) planned(l *lab, changed shop) {
	l.t.Helper()
	before := l.files()
	p, err := changed.declare(l, l.at).Plan(l.t.Context(), l.options(changed, c.drop)...)
	if err != nil {
		l.t.Fatal(err)
	}
	if d := cmp.Diff(before, l.files()); d != "" {
		l.t.Errorf("plan changed files (-before +after):\n%s", d)
	}
	fates, diffs := map[string]weir.Fate{}, []string{}
	for _, ch := range p.Changes {
		if ch.Fate != weir.FateKept {
			fates[ch.ID] = ch.Fate
		}
		for _, d := range ch.Diffs {
			if d.Fate == weir.FateKept {
				diffs = append(diffs, strings.TrimSpace(ch.ID+" "+d.What))
			}
		}
	}
	want := c.fates
	if want == nil {
		want = map[string]weir.Fate{}
	}
	if d := cmp.Diff(want, fates); d != "" {
		l.t.Errorf("fates in the plan (-want +got):\n%s", d)
	}
	slices.Sort(diffs)
	if d := cmp.Diff(slices.Sorted(slices.Values(c.diffs)), diffs, cmp.Transformer("all", func(s []string) string { return strings.Join(s, ", ") })); d != "" {
		l.t.Errorf("what the plan calls different (-want +got):\n%s", d)
	}
	if (p.Err() != nil) != c.refused {
		l.t.Errorf("plan refuses: %v, want %v", p.Err(), c.refused)
	}
}

// goesOnAsItWas runs a change that is refused, and then the first version.
func (c jobChange) goesOnAsItWas(l *lab, first, changed shop) {
	l.t.Helper()
	p, err := changed.declare(l, l.at).Plan(l.t.Context(), l.options(changed, c.drop)...)
	if err != nil {
		l.t.Fatal(err)
	}
	err = l.runTo(changed, ordersMidway, c.drop)
	says := c.ledger
	if c.refused {
		says = strings.TrimPrefix(p.Err().Error(), "job shop: ")
	}
	if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), says) {
		l.t.Fatalf("run says %v, want a refusal with %q", err, says)
	}
	if c.ledger != "" {
		return
	}
	if err := l.runTo(first, ordersInAll, nil); err != nil {
		l.t.Fatalf("the first version doesn't go on after the refusal: %v", err)
	}
	b := newBooks(firstRules())
	b.add(l.orders...)
	want := b.all()
	if c.want != nil {
		want = c.want(l, nil, b)
	}
	l.compare(want, l.rows("shop.db", "total", "minute", "uniques"))
}

// goesOn runs a change, once more without what was asked for once, and compares
// the tables at the end.
func (c jobChange) goesOn(l *lab, changed shop) {
	l.t.Helper()
	// The first try goes wrong before it has taken a checkpoint.
	l.fail = 5
	if err := l.runTo(changed, ordersMidway, c.drop); !errors.Is(err, errBroken) {
		l.t.Fatalf("plan accepts the change, and a run that fails says: %v", err)
	}
	l.fail = 0
	if err := l.runTo(changed, ordersMidway, c.drop); err != nil {
		l.t.Fatalf("plan accepts the change, and run says: %v", err)
	}
	p, err := changed.declare(l, ordersMidway).Plan(l.t.Context(), l.options(changed, nil)...)
	if err != nil {
		l.t.Fatal(err)
	}
	if p.Changed() || p.Err() != nil {
		l.t.Errorf("after a checkpoint there are still changes:\n%s", p)
	}
	if len(p.Notes) != len(changed.renamed) {
		l.t.Errorf("%d aliases, of which none is needed any more, and the plan notes %q", len(changed.renamed), p.Notes)
	}
	if err := l.runTo(changed, ordersInAll, nil); err != nil {
		l.t.Fatalf("the second run of the changed job: %v", err)
	}
	now := firstRules()
	if c.rules != nil {
		c.rules(&now)
	}
	then, end := newBooks(firstRules()), newBooks(firstRules())
	then.add(l.orders[:l.at]...)
	end.add(l.orders[:l.at]...)
	end.change(now)
	end.add(l.orders[l.at:]...)
	want, db := end.all(), c.db
	if c.want != nil {
		want = c.want(l, then, end)
	}
	if db == nil {
		db = func(l *lab) []string { return l.rows("shop.db", "total", "minute", "uniques") }
	}
	l.compare(want, db(l))
}

func (l *lab) compare(want, got []string) {
	l.t.Helper()
	var wrong []string
	for _, row := range want {
		if !slices.Contains(got, row) {
			wrong = append(wrong, "-"+row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			wrong = append(wrong, "+"+row)
		}
	}
	if len(wrong) > 0 || len(want) != len(got) {
		slices.SortFunc(wrong, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
		l.t.Errorf("tables of %d rows (want %d), of which these differ (-want +got):\n%s", len(got), len(want), strings.Join(wrong[:min(30, len(wrong))], "\n"))
	}
}

// extraOrders are of another source: the first are of windows that were closed
// long ago, the others are spread over what is still to come.
func extraOrders(orders []order) []order {
	out := make([]order, ordersOfExtra)
	for i := range out {
		at := orders[ordersBefore].At + int64(i)*9_000 + 400_000
		if i < 20 {
			at = orders[0].At + int64(i)*1_000
		}
		out[i] = order{fmt.Sprint("x", i), fmt.Sprint("shop-", i%7), int64(i), at}
	}
	return out
}

func fates(pairs ...any) map[string]weir.Fate {
	m := map[string]weir.Fate{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1].(weir.Fate)
	}
	return m
}

func jobChanges() []jobChange {
	return slices.Concat(runChanges(), stateChanges(), idChanges(), windowChanges(), sinkChanges())
}

// runChanges are of the job as a whole and of its sources.
func runChanges() []jobChange {
	return []jobChange{
		{name: "nothing changed", now: func(*shop) {}},
		{name: "more tasks", now: func(s *shop) { s.tasks = 5 }},
		{name: "fewer tasks", now: func(s *shop) { s.tasks = 1 }},
		{name: "number of key groups", now: func(s *shop) { s.groups = 64 }, fates: fates("", weir.FateRefused), refused: true},
		{name: "event-time bound raised", now: func(s *shop) { s.disorder = 40 * time.Second }, diffs: []string{"orders disorder"},
			rules: func(r *rules) { r.disorder = 40_000 }},
		{name: "event-time bound lowered", now: func(s *shop) { s.disorder = time.Second }, diffs: []string{"orders disorder"},
			rules: func(r *rules) { r.disorder = 1_000 }},
		{name: "source renamed, with an alias", now: func(s *shop) { s.source, s.renamed = "sales", [][2]string{{"orders", "sales"}} },
			fates: fates("sales", weir.FateRenamed)},
		{name: "source renamed, without", now: func(s *shop) { s.source = "sales" },
			fates: fates("sales", weir.FateNew, "orders", weir.FateRefused), refused: true},
		{name: "source added", now: func(s *shop) { s.extra = true }, fates: fates("extra", weir.FateNew), want: wantExtra},
		{name: "source added, and lateness raised", fates: fates("extra", weir.FateNew), diffs: []string{"minutes lateness"}, want: wantExtra,
			now: func(s *shop) {
				s.extra, s.minutes = true, centsPerMinute("minutes", 100*time.Second, window.EachBarrier)
			},
			rules: func(r *rules) { r.lateness = 100_000 }},
		{name: "source dropped, with the flag", old: func(s *shop) { s.extra = true }, now: func(s *shop) { s.extra = false }, drop: []string{"extra"},
			fates: fates("extra", weir.FateDropped)},
		{name: "source dropped, without", old: func(s *shop) { s.extra = true }, now: func(s *shop) { s.extra = false },
			fates: fates("extra", weir.FateRefused), refused: true, want: wantExtra},
	}
}

// wantExtra adds the orders of the other source. They are in order, so that none
// is late by its own split; but where the source was added, they are read from
// the start, and the windows that the job had closed by then stay closed.
func wantExtra(l *lab, then, end *books) []string {
	const inOrder = -1 << 62
	if end.shut = inOrder; then != nil {
		end.shut = then.watermark - then.lateness
	}
	for _, o := range l.extra {
		end.total(o)
		end.minute(o, inOrder)
		end.unique(o, inOrder)
	}
	return end.all()
}

// stateChanges are of what steps keep.
func stateChanges() []jobChange {
	type more struct{ Count, Cents, Most int64 }
	type fewer struct{ Cents int64 }
	type swapped struct{ Cents, Count int64 }
	type narrow struct {
		Count int32
		Cents int64
	}
	type named struct {
		Count, Cents int64
		Last         string
	}
	keep := func(f func(*weir.Stream[order]) *weir.Stream[totalRow]) func(*shop) {
		return func(s *shop) { s.totals = f }
	}
	migrated := fates("totals", weir.FateMigrated)
	wide := fold("totals", func(a narrow, o order) narrow { return narrow{a.Count + 1, a.Cents + o.Cents} },
		func(a narrow) totalRow { return totalRow{Orders: int64(a.Count), Cents: a.Cents} })
	return []jobChange{
		{name: "field of the state added", fates: migrated,
			now: keep(fold("totals", func(a more, o order) more { return more{a.Count + 1, a.Cents + o.Cents, max(a.Most, o.Cents)} },
				func(a more) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents, Most: a.Most} })),
			want: func(_ *lab, _, end *books) []string {
				return slices.Concat(end.totalRows("total", func(shop string) string { return fmt.Sprintf("%d ", end.most[shop]) }), end.minuteRows("minute", summed), end.uniqueRows())
			}},
		{name: "field of the state added, and a source", fates: fates("totals", weir.FateMigrated, "extra", weir.FateNew),
			now: func(s *shop) {
				s.extra = true
				s.totals = fold("totals", func(a more, o order) more { return more{a.Count + 1, a.Cents + o.Cents, max(a.Most, o.Cents)} },
					func(a more) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents, Most: a.Most} })
			},
			want: func(l *lab, then, end *books) []string {
				wantExtra(l, then, end)
				return slices.Concat(end.totalRows("total", func(shop string) string { return fmt.Sprintf("%d ", end.most[shop]) }), end.minuteRows("minute", summed), end.uniqueRows())
			}},
		{name: "field of the state removed", fates: migrated,
			now: keep(fold("totals", func(a fewer, o order) fewer { return fewer{a.Cents + o.Cents} },
				func(a fewer) totalRow { return totalRow{Cents: a.Cents} })),
			want: func(_ *lab, then, end *books) []string {
				var rows []string
				for shop := range end.orders {
					rows = append(rows, fmt.Sprintf("total %s 0 %d 0 ", shop, end.cents[shop]))
				}
				return slices.Concat(rows, end.minuteRows("minute", summed), end.uniqueRows())
			}},
		{name: "fields of the state reordered", fates: migrated,
			now: keep(fold("totals", func(a swapped, o order) swapped { return swapped{a.Cents + o.Cents, a.Count + 1} },
				func(a swapped) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents} }))},
		{name: "text added to flat state", fates: migrated,
			now: keep(fold("totals", func(a named, o order) named { return named{a.Count + 1, a.Cents + o.Cents, o.ID} },
				func(a named) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents, Last: a.Last} })),
			want: func(_ *lab, _, end *books) []string {
				return slices.Concat(end.totalRows("total", func(shop string) string { return "0 " + end.last[shop] }), end.minuteRows("minute", summed), end.uniqueRows())
			}},
		{name: "field of the state retyped", fates: fates("totals", weir.FateRefused), refused: true, now: keep(wide)},
		{name: "field of the state widened", fates: fates("totals", weir.FateRefused), refused: true, old: keep(wide), now: keep(countAndCents("totals"))},
		{name: "type of the key", fates: fates("totals", weir.FateRefused), refused: true,
			now: keep(func(s *weir.Stream[order]) *weir.Stream[totalRow] {
				return s.KeyBy(func(o order) int64 { return int64(o.Shop[5]) }).
					Fold("totals", countCents{}, func(a countCents, o order) countCents { return countCents{a.Count + 1, a.Cents + o.Cents} }, weir.EachBarrier()).
					Map(func(p weir.Pair[int64, countCents]) totalRow { return totalRow{Shop: fmt.Sprint(p.Key)} })
			})},
		{name: "another operation", fates: fates("totals", weir.FateRefused), refused: true,
			now: keep(func(s *weir.Stream[order]) *weir.Stream[totalRow] {
				return s.KeyBy(shopOf).Count("totals", weir.EachBarrier()).
					Map(func(p weir.Pair[string, int64]) totalRow { return totalRow{Shop: p.Key, Orders: p.Value} })
			})},
	}
}

// idChanges are of the ids of steps.
func idChanges() []jobChange {
	without := func(s *shop) { s.uniques = nil }
	return []jobChange{
		{name: "step renamed, with an alias", now: func(s *shop) { s.totals, s.renamed = countAndCents("sums"), [][2]string{{"totals", "sums"}} },
			fates: fates("sums", weir.FateRenamed)},
		{name: "step renamed and its state changed", fates: fates("sums", weir.FateMigrated),
			now: func(s *shop) {
				type more struct {
					Count, Cents int64
					N            int8
				}
				s.renamed = [][2]string{{"totals", "sums"}}
				s.totals = fold("sums", func(a more, o order) more { return more{a.Count + 1, a.Cents + o.Cents, 1} },
					func(a more) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents} })
			}},
		{name: "step renamed, without", now: func(s *shop) { s.totals = countAndCents("sums") },
			fates: fates("sums", weir.FateNew, "totals", weir.FateRefused), refused: true},
		{name: "steps dropped, with the flag", now: without, drop: []string{"seen", "uniques", "unique-rows"},
			fates: fates("seen", weir.FateDropped, "uniques", weir.FateDropped, "unique-rows", weir.FateDropped),
			want: func(_ *lab, then, end *books) []string {
				return slices.Concat(end.totalRows("total", noMore), end.minuteRows("minute", summed), then.uniqueRows())
			}},
		{name: "steps dropped, one without", now: without, drop: []string{"seen", "unique-rows"},
			fates: fates("seen", weir.FateDropped, "uniques", weir.FateRefused, "unique-rows", weir.FateDropped), refused: true},
		{name: "steps added", old: without, now: func(s *shop) { s.uniques = distinctOrders("seen", shopTTL, shopAdmit) },
			fates: fates("seen", weir.FateNew, "uniques", weir.FateNew, "unique-rows", weir.FateNew),
			want: func(l *lab, then, end *books) []string {
				b := newBooks(firstRules())
				b.watermark, b.newest = then.watermark, then.newest
				b.add(l.orders[l.at:]...)
				return slices.Concat(end.totalRows("total", noMore), end.minuteRows("minute", summed), b.uniqueRows())
			}},
	}
}

// windowChanges are of what windows and distinct steps are set to.
func windowChanges() []jobChange {
	minutes := func(lateness time.Duration, e window.Emission) func(*shop) {
		return func(s *shop) { s.minutes = centsPerMinute("minutes", lateness, e) }
	}
	seen := func(ttl, admit time.Duration) func(*shop) {
		return func(s *shop) { s.uniques = distinctOrders("seen", ttl, admit) }
	}
	refused := fates("minutes", weir.FateRefused)
	return []jobChange{
		{name: "window size", fates: refused, refused: true,
			now: func(s *shop) {
				s.minutes = perMinute("minutes", sumOfCents(), same, window.Tumbling(2*time.Minute, window.Lateness(shopLateness), window.EachBarrier))
			}},
		{name: "window size, under another id", fates: fates("two-minutes", weir.FateNew, "minutes", weir.FateDropped, "two-minute-rows", weir.FateNew, "minute-rows", weir.FateDropped),
			drop: []string{"minutes", "minute-rows"},
			now: func(s *shop) {
				s.minutes = perMinute("two-minutes", sumOfCents(), same, window.Tumbling(2*time.Minute, window.Lateness(shopLateness), window.EachBarrier))
				s.minuteSinks = map[string]func(*lab) weir.Sink[minuteRow]{"two-minute-rows": minuteTable("shop.db", "two_minutes")}
			},
			want: func(_ *lab, then, end *books) []string {
				return slices.Concat(end.totalRows("total", noMore), then.minuteRows("minute", summed), end.uniqueRows())
			}},
		{name: "lateness raised", now: minutes(100*time.Second, window.EachBarrier), diffs: []string{"minutes lateness"},
			rules: func(r *rules) { r.lateness = 100_000 }},
		{name: "lateness lowered", now: minutes(0, window.EachBarrier), diffs: []string{"minutes lateness"},
			rules: func(r *rules) { r.lateness = 0 }},
		{name: "lateness lowered, windows on close", old: minutes(2*shopLateness, window.OnClose), now: minutes(0, window.OnClose), diffs: []string{"minutes lateness"},
			rules: func(r *rules) { r.lateness = 0 },
			want:  wantLateness(2*shopLateness, 0)},
		{name: "lateness raised, windows on close", old: minutes(0, window.OnClose), now: minutes(2*shopLateness, window.OnClose), diffs: []string{"minutes lateness"},
			want: wantLateness(0, 2*shopLateness)},
		{name: "results on close, and then at barriers", old: minutes(shopLateness, window.OnClose), now: minutes(shopLateness, window.EachBarrier), fates: refused, refused: true},
		{name: "results at barriers, and then on close", now: minutes(shopLateness, window.OnClose), diffs: []string{"minutes emission"}},
		{name: "another aggregate", fates: refused, refused: true,
			now: func(s *shop) {
				s.minutes = perMinute("minutes", smallest(), same, window.Tumbling(time.Minute, window.Lateness(shopLateness), window.EachBarrier))
			}},
		{name: "another aggregate of the same state", fates: refused, refused: true,
			old: func(s *shop) {
				s.minutes = perMinute("minutes", smallest(), same, window.Tumbling(time.Minute, window.Lateness(shopLateness), window.EachBarrier))
			},
			now: func(s *shop) {
				s.minutes = perMinute("minutes", largest(), same, window.Tumbling(time.Minute, window.Lateness(shopLateness), window.EachBarrier))
			},
			want: func(_ *lab, _, end *books) []string {
				return slices.Concat(end.totalRows("total", noMore), end.minuteRows("minute", slices.Min), end.uniqueRows())
			}},
		{name: "another aggregate that means the same", diffs: []string{"minutes aggregate"},
			now: func(s *shop) {
				s.minutes = perMinute("minutes", average(), func(f float64) int64 { return int64(f) }, window.Tumbling(time.Minute, window.Lateness(shopLateness), window.EachBarrier))
			},
			want: wantMeans},
		{name: "time-to-live raised", now: seen(3*shopTTL, shopAdmit), diffs: []string{"seen time-to-live"}, rules: func(r *rules) { r.ttl *= 3 }},
		{name: "time-to-live lowered", now: seen(time.Minute, shopAdmit), diffs: []string{"seen time-to-live"}, rules: func(r *rules) { r.ttl = 60_000 }},
		{name: "admission lowered", now: seen(shopTTL, 30*time.Second), diffs: []string{"seen admission"}, rules: func(r *rules) { r.admit = 30_000 }},
		{name: "admission raised", now: seen(shopTTL, 2*shopAdmit), fates: fates("seen", weir.FateRefused), refused: true},
	}
}

// wantLateness is the minutes of a job whose lateness was another one than the
// first version's before the change, too.
func wantLateness(before, after time.Duration) func(*lab, *books, *books) []string {
	return func(l *lab, _, end *books) []string {
		r := firstRules()
		r.lateness = ms(before)
		b := newBooks(r)
		b.add(l.orders[:l.at]...)
		r.lateness = ms(after)
		b.change(r)
		b.add(l.orders[l.at:]...)
		return slices.Concat(end.totalRows("total", noMore), b.minuteRows("minute", summed), end.uniqueRows())
	}
}

// wantMeans has sums where the windows got nothing after the change: their
// results were put out before it.
func wantMeans(_ *lab, then, end *books) []string {
	var rows []string
	for shop, minutes := range end.minutes {
		for start, cents := range minutes {
			value := summed(cents)
			if end.touched[fmt.Sprint(shop, " ", start)] {
				value /= int64(len(cents))
			}
			rows = append(rows, fmt.Sprintf("minute %s %d %d", shop, start, value))
		}
	}
	return slices.Concat(end.totalRows("total", noMore), rows, end.uniqueRows())
}

// sinkChanges are of what a job writes to.
func sinkChanges() []jobChange {
	totals := func(id, db, table string) func(*shop) {
		return func(s *shop) {
			s.totalSinks = map[string]func(*lab) weir.Sink[totalRow]{id: totalTable(db, table)}
		}
	}
	eager := func(s *shop) {
		s.totals = eagerTotals
		s.totalSinks["total-rows"] = func(l *lab) weir.Sink[totalRow] { return eagerTable(l, "shop.db", "total") }
	}
	elsewhere := totals("total-rows", "other.db", "total")
	inBoth := func(l *lab) []string {
		return slices.Concat(l.rows("other.db", "total"), l.rows("shop.db", "minute", "uniques"))
	}
	return []jobChange{
		{name: "sink added", now: func(s *shop) { s.totalSinks["more-rows"] = totalTable("shop.db", "more") }, fates: fates("more-rows", weir.FateNew),
			want: func(_ *lab, _, end *books) []string { return slices.Concat(end.all(), end.totalRows("more", noMore)) },
			db:   func(l *lab) []string { return l.rows("shop.db", "total", "minute", "uniques", "more") }},
		{name: "sink added in another database", now: func(s *shop) { s.totalSinks["more-rows"] = totalTable("other.db", "more") }, fates: fates("more-rows", weir.FateNew),
			want: func(_ *lab, _, end *books) []string { return slices.Concat(end.all(), end.totalRows("more", noMore)) },
			db: func(l *lab) []string {
				return slices.Concat(l.rows("shop.db", "total", "minute", "uniques"), l.rows("other.db", "more"))
			}},
		{name: "sink removed, with the flag", old: func(s *shop) { s.totalSinks["more-rows"] = totalTable("shop.db", "more") },
			now: func(s *shop) { delete(s.totalSinks, "more-rows") }, drop: []string{"more-rows"}, fates: fates("more-rows", weir.FateDropped),
			want: func(_ *lab, then, end *books) []string {
				return slices.Concat(end.all(), then.totalRows("more", noMore))
			},
			db: func(l *lab) []string { return l.rows("shop.db", "total", "minute", "uniques", "more") }},
		{name: "sink removed, without", old: func(s *shop) { s.totalSinks["more-rows"] = totalTable("shop.db", "more") },
			now: func(s *shop) { delete(s.totalSinks, "more-rows") }, fates: fates("more-rows", weir.FateRefused), refused: true},
		{name: "database of a sink removed, with the flag", old: func(s *shop) { s.totalSinks["more-rows"] = totalTable("other.db", "more") },
			now: func(s *shop) { delete(s.totalSinks, "more-rows") }, drop: []string{"more-rows"}, fates: fates("more-rows", weir.FateDropped)},
		{name: "sink renamed, with an alias", now: func(s *shop) {
			totals("sum-rows", "shop.db", "total")(s)
			s.renamed = [][2]string{{"total-rows", "sum-rows"}}
		}, fates: fates("sum-rows", weir.FateRenamed)},
		{name: "sink renamed, without", now: totals("sum-rows", "shop.db", "total"), fates: fates("sum-rows", weir.FateNew, "total-rows", weir.FateRefused), refused: true},
		{name: "table of a sink", now: totals("total-rows", "shop.db", "sums"), fates: fates("total-rows", weir.FateRefused), refused: true},
		{name: "transactional sink made eager", now: eager, diffs: []string{"total-rows kind", "totals emission"}},
		{name: "eager sink made transactional", old: eager, now: func(s *shop) {
			s.totals = countAndCents("totals")
			totals("total-rows", "shop.db", "total")(s)
		}, diffs: []string{"total-rows kind", "totals emission"}},
		{name: "database of a sink moved", old: elsewhere, now: totals("total-rows", "moved.db", "total"), before: func(l *lab) { l.move("other.db", "moved.db") },
			diffs: []string{"total-rows place"},
			db: func(l *lab) []string {
				return slices.Concat(l.rows("moved.db", "total"), l.rows("shop.db", "minute", "uniques"))
			}},
		{name: "database of a sink is another one", old: elsewhere, now: totals("total-rows", "empty.db", "total"),
			diffs: []string{"total-rows place"}, ledger: "sink total-rows has no ledger"},
		{name: "another database decides", old: elsewhere, now: func(s *shop) { s.early = true }, diffs: []string{"decider"}, db: inBoth},
		{name: "function sink made transactional", old: func(s *shop) {
			s.totalSinks["total-rows"] = func(*lab) weir.Sink[totalRow] { return weir.Each(func(totalRow) error { return nil }) }
		}, now: totals("total-rows", "shop.db", "total"), diffs: []string{"total-rows kind"}},
		{name: "transactional sink made a function", now: func(s *shop) {
			s.totalSinks["total-rows"] = func(*lab) weir.Sink[totalRow] { return weir.Each(func(totalRow) error { return nil }) }
		}, fates: fates("total-rows", weir.FateRefused), refused: true},
	}
}

// TestChangesAreDocumented holds the page on changing jobs to what is tried here.
func TestChangesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("docs", "changing-jobs.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	tried := map[string]bool{}
	for _, c := range jobChanges() {
		tried[c.name] = true
		want := c.outcome()
		if rows[c.name] != want {
			t.Errorf("docs/changing-jobs.md says %q of %q, and what is tried comes to %q", rows[c.name], c.name, want)
		}
	}
	delete(rows, "change")
	delete(rows, "---")
	for name := range maps.Keys(rows) {
		if !tried[name] {
			t.Errorf("docs/changing-jobs.md has a row %q that isn't tried", name)
		}
	}
	if len(tried) < 20 {
		t.Errorf("only %d changes are tried", len(tried))
	}
}

// outcome is one word for what becomes of the job's state or sink.
func (c jobChange) outcome() string {
	has := func(f weir.Fate) bool { return slices.Contains(slices.Collect(maps.Values(c.fates)), f) }
	switch {
	case c.refused || c.ledger != "":
		return "refused"
	case has(weir.FateMigrated):
		return "migrated"
	case has(weir.FateRenamed):
		return "kept, renamed"
	case has(weir.FateDropped) && has(weir.FateNew):
		return "dropped and new"
	case has(weir.FateDropped):
		return "dropped"
	case has(weir.FateNew):
		return "new"
	}
	return "kept"
}
