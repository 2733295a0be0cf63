package sqlite

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
)

func TestCreate(t *testing.T) {
	type row struct {
		AdID   string `db:"ad"`
		Minute time.Time
		Clicks uint32
		Rate   float32
		Raw    []byte
		OK     bool
		Skip   map[string]int `db:"-"`
		hidden int
	}
	l, err := newLayout(reflect.TypeFor[row](), "t", []string{"minute", "AD"})
	check(t, err)
	want := `CREATE TABLE "t" ("ad" TEXT, "minute" TEXT, "clicks" INTEGER, "rate" REAL, "raw" BLOB, "ok" INTEGER, ` +
		`PRIMARY KEY ("minute", "ad")) WITHOUT ROWID`
	if diff := cmp.Diff(want, l.create()); diff != "" {
		t.Error(diff)
	}
	_ = row{hidden: 1}
}

func TestSnakeCase(t *testing.T) {
	for in, want := range map[string]string{
		"Ad": "ad", "AdID": "ad_id", "ID": "id", "HTTPStatus2": "http_status2", "Top10": "top10", "A_B": "a_b",
		"UserIDHash": "user_id_hash", "X": "x",
	} {
		if got := snakeCase(in); got != want {
			t.Errorf("snakeCase(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	type embedded struct{ count }
	type clash struct {
		A string
		B string `db:"A"`
	}
	type odd struct {
		A string
		M map[string]int
		P *int
	}
	type quoted struct {
		A string `db:"a\"b"`
	}
	type empty struct{ a int }
	type ratio struct{ F float64 }
	for name, c := range map[string]struct {
		sink weir.Sink[any]
		err  error
		want string
	}{
		"no key":         {err: Upsert[count]("x.db", "t").Check(), want: "needs a key"},
		"unknown key":    {err: Upsert[count]("x.db", "t", "nope").Check(), want: `which has ad, clicks`},
		"key twice":      {err: Upsert[count]("x.db", "t", "ad", "AD").Check(), want: "twice"},
		"float key":      {err: Upsert[ratio]("x.db", "t", "f").Check(), want: "use an integer or a text"},
		"table name":     {err: Upsert[count]("x.db", `a"b`, "ad").Check(), want: "can't be the name of a table"},
		"empty table":    {err: Upsert[count]("x.db", "", "ad").Check(), want: "can't be the name of a table"},
		"reserved":       {err: Upsert[count]("x.db", "SQLITE_x", "ad").Check(), want: "reserved"},
		"ledger":         {err: Upsert[count]("x.db", "Weir_Ledger", "ad").Check(), want: "reserved"},
		"not a struct":   {err: Upsert[int]("x.db", "t", "ad").Check(), want: "must be a struct"},
		"pointer":        {err: Upsert[*count]("x.db", "t", "ad").Check(), want: "must be a struct"},
		"embedded":       {err: Upsert[embedded]("x.db", "t", "ad").Check(), want: "embedded"},
		"clash":          {err: Upsert[clash]("x.db", "t", "a").Check(), want: "already that of the field A"},
		"map":            {err: Upsert[odd]("x.db", "t", "a").Check(), want: "odd.M: a column can't hold a map[string]int"},
		"and the next":   {err: Upsert[odd]("x.db", "t", "a").Check(), want: "odd.P: a column can't hold a *int"},
		"column name":    {err: Upsert[quoted]("x.db", "t", "a").Check(), want: "can't be the name of a column"},
		"no column":      {err: Upsert[empty]("x.db", "t", "a").Check(), want: "no exported field"},
		"empty path":     {err: Upsert[count]("", "t", "ad").Check(), want: "path of the database is empty"},
		"memory":         {err: Upsert[count](":memory:", "t", "ad").Check(), want: "isn't the path of a file"},
		"uri":            {err: Upsert[count]("file:x.db", "t", "ad").Check(), want: "isn't the path of a file"},
		"path and key":   {err: Upsert[count]("", "t").Check(), want: "needs a key"},
		"no buffer":      {err: counts("x.db").Buffer(0, 1).Check(), want: "at least 1"},
		"buffer of none": {err: counts("x.db").Buffer(1, 0).Check(), want: "at least 1"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, c.err, c.want)
		}
	}
	_ = empty{a: 1}
	check(t, counts("x.db").Check())
	s := Upsert[count]("", "t", "ad")
	if _, err := s.Connect(t.Context(), nil); err == nil {
		t.Error("Connect of a sink that Check refuses succeeded")
	}
}

type label string

type everything struct {
	K   string
	I8  int8
	I16 int16
	I   int64
	U8  uint8
	U16 uint16
	U32 uint32
	U   uint64
	B   bool
	F32 float32
	F   float64
	S   label
	Raw []byte
	T   time.Time
	D   time.Duration
}

// Values come back as they went in, to another program too.
func TestValues(t *testing.T) {
	path := database(t)
	at := time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	rows := []everything{
		{K: "max", I8: 127, I16: math.MaxInt16, I: math.MaxInt64, U8: 255, U16: math.MaxUint16, U32: math.MaxUint32,
			U: math.MaxInt64, B: true, F32: math.MaxFloat32, F: math.Inf(1), S: "ünï 🙂", Raw: []byte{0, 255, 0}, T: at, D: 1},
		{K: "min", I8: -128, I16: math.MinInt16, I: math.MinInt64, F: -math.MaxFloat64, F32: -0.5, Raw: []byte{}, T: at.Add(1500 * time.Millisecond)},
		{K: "", I: 1<<53 + 1, F: 5e-324, T: time.Date(0, 1, 1, 0, 0, 0, 1, time.UTC)},
		{K: "old", T: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
	}
	s := Upsert[everything](path, "t", "k")
	check(t, begin(t.Context(), t, s, 1).commit(t.Context(), rows...))
	got, err := readRows[everything](t.Context(), path, s.layout)
	check(t, err)
	byKey := map[string]everything{}
	for _, r := range got {
		byKey[r.K] = r
	}
	for _, want := range rows {
		want.T = want.T.UTC()
		if want.Raw == nil {
			want.Raw = []byte{}
		}
		if diff := cmp.Diff(want, byKey[want.K], cmp.Transformer("nil", func(b []byte) string { return string(b) })); diff != "" {
			t.Errorf("row %q (-want +got):\n%s", want.K, diff)
		}
	}
	db := other(t, path)
	want := []string{`9223372036854775807 9223372036854775807 2026-01-01T00:00:00Z integer integer real text blob text`}
	if diff := cmp.Diff(want, list(t, db, `SELECT i, u, CAST(t AS TEXT), typeof(i), typeof(b), typeof(f), typeof(s), typeof(raw), typeof(t)
		FROM t WHERE k = 'max'`)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2026-01-01T00:00:01.5Z"}, list(t, db, "SELECT t FROM t WHERE k = 'min'")); diff != "" {
		t.Error(diff)
	}
}

// A value that SQLite would change is an error that names row and column.
func TestValuesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		row  everything
		want []string
	}{
		"unsigned":     {everything{K: "k", U: math.MaxInt64 + 1}, []string{`k="k"`, `column "u"`, "9223372036854775808"}},
		"NaN":          {everything{K: "k", F: math.NaN()}, []string{`k="k"`, `column "f"`, "NaN"}},
		"NaN 32":       {everything{K: "k", F32: float32(math.NaN())}, []string{`column "f32"`}},
		"NUL":          {everything{K: "k", S: "a\x00b"}, []string{`k="k"`, `column "s"`, "NUL"}},
		"NUL in key":   {everything{K: "a\x00b"}, []string{`column "k"`, "NUL"}},
		"UTF-8":        {everything{K: "k", S: "a\xff"}, []string{`column "s"`, "UTF-8"}},
		"UTF-8 in key": {everything{K: "\xc3"}, []string{`column "k"`, "UTF-8"}},
		"year 10000":   {everything{K: "k", T: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, []string{`column "t"`, "10000"}},
		"year -1":      {everything{K: "k", T: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}, []string{`column "t"`, "-1"}},
	} {
		b := newBatch(Upsert[everything]("x.db", "t", "k").layout)
		err := put(b, c.row)
		if !errors.Is(err, weir.ErrInput) {
			t.Errorf("%s: got %v, want weir.ErrInput", name, err)
			continue
		}
		for _, want := range append(c.want, `table "t"`) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q doesn't say %q", name, err, want)
			}
		}
	}
}

// A row's key reads in an error as it does in the table.
func TestTimeKeyInErrors(t *testing.T) {
	type row struct {
		At time.Time
		S  string
	}
	at := time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600))
	err := put(newBatch(Upsert[row]("x.db", "t", "at").layout), row{at, "\x00"})
	if err == nil || !strings.Contains(err.Error(), `row at="2026-03-01T12:00:00Z": `) {
		t.Errorf("a bad value: %v", err)
	}
	s := Upsert[row](database(t), "t", "at")
	exec(t, other(t, s.path), s.layout.create(),
		"CREATE TRIGGER bad BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, 'no'); END")
	err = begin(t.Context(), t, s, 1).commit(t.Context(), row{at, "x"})
	if err == nil || !strings.Contains(err.Error(), `row at="2026-03-01T12:00:00Z": `) {
		t.Errorf("a refused row: %v", err)
	}
}

// A row that is refused leaves the batch as it was: the courier of an eager
// sink may still come for it.
func TestRefusedRowIsNotKept(t *testing.T) {
	s := Upsert[everything](database(t), "t", "k").Eager()
	r := begin(t.Context(), t, s, 1)
	check(t, r.w.Write([]everything{{K: "a", S: "first"}}, []int64{0}))
	for _, bad := range []everything{{K: "a", S: "later", F: math.NaN()}, {K: "b", S: "x", F: math.NaN()}} {
		if err := r.w.Write([]everything{bad}, []int64{0}); !errors.Is(err, weir.ErrInput) {
			t.Fatalf("%s: got %v, want weir.ErrInput", bad.K, err)
		}
	}
	check(t, r.p.Flush(t.Context()))
	if got := list(t, other(t, s.path), "SELECT k, s FROM t"); len(got) != 1 || got[0] != "a first" {
		t.Errorf("rows are %q, want only the first", got)
	}
}
