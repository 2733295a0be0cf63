package weir_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/agg"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// order is a record of the job that is changed. At is in milliseconds since 1970.
type order struct {
	ID, Shop string
	Cents    int64
	At       int64
}

func orderTime(o order) time.Time { return time.UnixMilli(o.At) }

func shopOf(o order) string { return o.Shop }

// What the job is declared with before it is changed.
const (
	shopDisorder = 5 * time.Second
	shopLateness = 30 * time.Second
	shopTTL      = 4 * time.Minute
	shopAdmit    = 2 * time.Minute

	shopOpens = int64(1_772_366_400_000) // 2026-03-01T12:00:00Z
)

// manyOrders is two hours of orders in one split: out of order by a few seconds,
// some late for their minute, some repeated soon, later, and after they were
// forgotten. No time is a whole second.
func manyOrders(n int) []order {
	all := make([]order, n)
	for i := range all {
		o := order{fmt.Sprint("o", i), fmt.Sprint("shop-", i*i%7), int64(100 + i*37%900), shopOpens + int64(i)*8_000 + 137 - int64(i*i%4)*1_000}
		switch {
		case i >= ordersBefore && i < ordersBefore+16 && i%3 == 0: // behind the change, for windows that were closed before it
			o.At -= 120_000 - int64(i-ordersBefore)*10_000
		case i%11 == 5 && i > 20:
			o.ID, o.Shop = all[i-4].ID, all[i-4].Shop
		case i%11 == 7 && i > 60:
			o.ID, o.Shop = all[i-45].ID, all[i-45].Shop
		case i%13 == 3 && i > 30:
			o.At -= 75_000
		case i%17 == 9 && i > 40:
			o.At -= 140_000
		}
		all[i] = o
	}
	return all
}

type (
	totalRow struct {
		Shop   string `db:"shop"`
		Orders int64  `db:"orders"`
		Cents  int64  `db:"cents"`
		Most   int64  `db:"most"`
		Last   string `db:"last"`
	}
	minuteRow struct {
		Shop   string `db:"shop"`
		Minute int64  `db:"minute"`
		Cents  int64  `db:"cents"`
	}
	uniqueRow struct {
		Shop   string `db:"shop"`
		Orders int64  `db:"orders"`
	}
)

// shop is one version of the job: what a change may touch.
type shop struct {
	source   string
	extra    bool // another source
	disorder time.Duration
	groups   int
	tasks    int
	totals   func(*weir.Stream[order]) *weir.Stream[totalRow]
	minutes  func(*weir.Stream[order]) *weir.Stream[minuteRow]
	uniques  func(*weir.Stream[order]) *weir.Stream[uniqueRow] // nil: none

	totalSinks  map[string]func(l *lab) weir.Sink[totalRow] // by id, in the order of the ids
	minuteSinks map[string]func(l *lab) weir.Sink[minuteRow]
	uniqueSink  func(l *lab) weir.Sink[uniqueRow]
	early       bool // the totals' sinks are declared first
	renamed     [][2]string
}

func firstShop() shop {
	return shop{source: "orders", disorder: shopDisorder, groups: 128, tasks: 2,
		totals: countAndCents("totals"), minutes: centsPerMinute("minutes", shopLateness, window.EachBarrier), uniques: distinctOrders("seen", shopTTL, shopAdmit),
		totalSinks:  map[string]func(*lab) weir.Sink[totalRow]{"total-rows": totalTable("shop.db", "total")},
		minuteSinks: map[string]func(*lab) weir.Sink[minuteRow]{"minute-rows": minuteTable("shop.db", "minute")},
		uniqueSink: func(l *lab) weir.Sink[uniqueRow] {
			return sqlite.Upsert[uniqueRow](l.path("shop.db"), "uniques", "shop")
		}}
}

func totalTable(db, table string) func(*lab) weir.Sink[totalRow] {
	return func(l *lab) weir.Sink[totalRow] { return sqlite.Upsert[totalRow](l.path(db), table, "shop") }
}

func minuteTable(db, table string) func(*lab) weir.Sink[minuteRow] {
	return func(l *lab) weir.Sink[minuteRow] {
		return sqlite.Upsert[minuteRow](l.path(db), table, "shop", "minute")
	}
}

// fold declares totals with the given state.
func fold[A any](id string, add func(A, order) A, row func(A) totalRow) func(*weir.Stream[order]) *weir.Stream[totalRow] {
	return func(s *weir.Stream[order]) *weir.Stream[totalRow] {
		var zero A
		return s.KeyBy(shopOf).Fold(id, zero, add, weir.EachBarrier()).Map(func(p weir.Pair[string, A]) totalRow {
			r := row(p.Value)
			r.Shop = p.Key
			return r
		})
	}
}

type countCents struct{ Count, Cents int64 }

func countAndCents(id string) func(*weir.Stream[order]) *weir.Stream[totalRow] {
	return fold(id, func(a countCents, o order) countCents { return countCents{a.Count + 1, a.Cents + o.Cents} },
		func(a countCents) totalRow { return totalRow{Orders: a.Count, Cents: a.Cents} })
}

// perMinute declares an aggregate in windows.
func perMinute[A, R any](id string, a agg.Aggregate[order, A, R], cents func(R) int64, w window.Window) func(*weir.Stream[order]) *weir.Stream[minuteRow] {
	return func(s *weir.Stream[order]) *weir.Stream[minuteRow] {
		return s.KeyBy(shopOf).Window(w).Aggregate(id, a).Map(func(r weir.Result[string, R]) minuteRow {
			return minuteRow{r.Key, r.Start.Unix(), cents(r.Value)}
		})
	}
}

func cents(o order) int64 { return o.Cents }

func same(n int64) int64 { return n }

func centsPerMinute(id string, lateness time.Duration, emission window.Emission) func(*weir.Stream[order]) *weir.Stream[minuteRow] {
	return perMinute(id, agg.Sum(cents), same, window.Tumbling(time.Minute, window.Lateness(lateness), emission))
}

func distinctOrders(id string, ttl, admit time.Duration) func(*weir.Stream[order]) *weir.Stream[uniqueRow] {
	return func(s *weir.Stream[order]) *weir.Stream[uniqueRow] {
		return s.KeyBy(func(o order) string { return o.ID }).Distinct(id, ttl, weir.Admit(admit)).
			KeyBy(shopOf).Count("uniques", weir.EachBarrier()).Map(func(p weir.Pair[string, int64]) uniqueRow { return uniqueRow{p.Key, p.Value} })
	}
}

// declare makes the job; the orders end at upTo, as if more were to come.
func (s shop) declare(l *lab, upTo int) *weir.Job {
	job := weir.NewJob("shop").KeyGroups(s.groups)
	in := job.From(s.source, arrived(l.orders, upTo), weir.EventTime(orderTime, s.disorder)).TryMap(l.failing())
	if s.extra {
		in = in.Union(job.From("extra", arrived(l.extra, len(l.extra)-len(l.orders)+upTo), weir.EventTime(orderTime, s.disorder)))
	}
	totals := func() {
		out := s.totals(in)
		for _, id := range sortedKeys(s.totalSinks) {
			out.To(id, s.totalSinks[id](l))
		}
	}
	if s.early {
		totals()
	}
	minutes := s.minutes(in)
	for _, id := range sortedKeys(s.minuteSinks) {
		minutes.To(id, s.minuteSinks[id](l))
	}
	if !s.early && s.totals != nil {
		totals()
	}
	if s.uniques != nil {
		s.uniques(in).To("unique-rows", s.uniqueSink(l))
	}
	for _, r := range s.renamed {
		job.Renamed(r[0], r[1])
	}
	return job
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// arrived is orders of which only the first have come so far: it doesn't end
// before the last.
func arrived(orders []order, upTo int) weir.Source[order] {
	if upTo >= len(orders) {
		return weir.Slice(orders...)
	}
	return &soFar{weir.Slice(orders...), int64(max(upTo, 0))}
}

type soFar struct {
	weir.Source[order]
	n int64
}

func (s *soFar) Open(ctx context.Context, split string, at []byte) (weir.Reader[order], error) {
	r, err := s.Source.Open(ctx, split, at)
	return &soFarReader{r, s.n}, err
}

type soFarReader struct {
	weir.Reader[order]
	n int64
}

func (r *soFarReader) Read(dst []order, limit int) ([]order, bool, error) {
	var at int64
	if _, err := fmt.Sscan(string(r.Position()), &at); err != nil {
		return dst, false, err
	}
	limit = int(min(int64(limit), r.n-at))
	if limit <= 0 {
		return dst, false, nil
	}
	dst, _, err := r.Reader.Read(dst, limit)
	return dst, false, err
}

// Ready says that nothing more comes.
func (r *soFarReader) Ready() <-chan struct{} { return make(chan struct{}) }

// lab is where one change is tried.
type lab struct {
	t      *testing.T
	dir    string
	orders []order
	extra  []order
	at     int // orders read when the job is changed
	fail   int // the order at which the next run fails, from 1; 0: none
}

var errBroken = errors.New("the run was made to fail")

// failing fails at one order of a run, in whichever task it is.
func (l *lab) failing() func(order) (order, error) {
	var seen atomic.Int64
	fail := int64(l.fail)
	return func(o order) (order, error) {
		if seen.Add(1) == fail {
			return o, errBroken
		}
		return o, nil
	}
}

func (l *lab) path(db string) string { return filepath.Join(l.dir, db) }

func (l *lab) state() string { return filepath.Join(l.dir, "state") }

func (l *lab) options(s shop, drop []string) []weir.RunOption {
	opts := []weir.RunOption{weir.StateDir(l.state()), weir.Interval(5 * time.Millisecond), weir.Parallelism(s.tasks), weir.Restarts(0)}
	if len(drop) > 0 {
		opts = append(opts, weir.Drop(drop...))
	}
	return opts
}

// runTo runs a version until the first orders are read and committed, and stops
// it politely; or to the end, if these are all.
func (l *lab) runTo(s shop, upTo int, drop []string) error {
	run := s.declare(l, upTo).Start(l.t.Context(), l.options(s, drop)...)
	if upTo >= len(l.orders) {
		return run.Wait()
	}
	err := run.Settle(l.t.Context())
	run.Stop()
	return cmp.Or(run.Wait(), err)
}

// files is all that is in the lab, with sizes and times: what a look must not change.
func (l *lab) files() []string {
	l.t.Helper()
	var out []string
	err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out = append(out, fmt.Sprint(path, info.Size(), info.ModTime().UnixNano()))
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// rows reads tables: each row with its table's name.
func (l *lab) rows(db string, tables ...string) []string {
	l.t.Helper()
	out := []string{}
	c, err := sql.Open("sqlite", "file:"+l.path(db)+"?mode=ro")
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	for _, table := range tables {
		out = append(out, l.table(c, table)...)
	}
	slices.Sort(out)
	return out
}

func (l *lab) table(c *sql.DB, table string) (out []string) {
	l.t.Helper()
	rows, err := c.QueryContext(l.t.Context(), "SELECT * FROM "+table)
	if err != nil {
		l.t.Fatal(err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		l.t.Fatal(err)
	}
	for rows.Next() {
		vals := make([]any, len(cols))
		for i := range vals {
			vals[i] = new(any)
		}
		if err := rows.Scan(vals...); err != nil {
			l.t.Fatal(err)
		}
		words := []string{table}
		for _, v := range vals {
			words = append(words, fmt.Sprint(*v.(*any)))
		}
		out = append(out, strings.Join(words, " "))
	}
	if err := rows.Err(); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// move moves a database with what SQLite keeps beside it.
func (l *lab) move(from, to string) {
	l.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(l.path(from)+suffix, l.path(to)+suffix); err != nil && !(suffix != "" && errors.Is(err, fs.ErrNotExist)) {
			l.t.Fatal(err)
		}
	}
}

func sumOfCents() agg.Aggregate[order, agg.Total, int64] { return agg.Sum(cents) }

func average() agg.Aggregate[order, agg.Total, float64] { return agg.Mean(cents) }

func smallest() agg.Aggregate[order, agg.Extreme[int64], int64] { return agg.Min(cents) }

func largest() agg.Aggregate[order, agg.Extreme[int64], int64] { return agg.Max(cents) }

// eagerTotals emits each update, as what is written at once must.
func eagerTotals(s *weir.Stream[order]) *weir.Stream[totalRow] {
	return s.KeyBy(shopOf).Fold("totals", countCents{}, func(a countCents, o order) countCents { return countCents{a.Count + 1, a.Cents + o.Cents} }).
		Map(func(p weir.Pair[string, countCents]) totalRow {
			return totalRow{Shop: p.Key, Orders: p.Value.Count, Cents: p.Value.Cents}
		})
}

func eagerTable(l *lab, db, table string) weir.Sink[totalRow] {
	return sqlite.Upsert[totalRow](l.path(db), table, "shop").Eager()
}
