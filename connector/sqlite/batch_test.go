package sqlite

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
	"pgregory.net/rapid"
)

func put[R any](b *batch, row R) error { return b.put(unsafe.Pointer(&row)) }

type mixed struct {
	Text string
	N    int32
	Raw  []byte
	At   time.Time
	Note string
	Sum  uint64
}

func mixedLayout() *layout {
	return Upsert[mixed]("x.db", "t", "text", "n", "raw", "at").layout
}

// A batch keeps the last row of each key, and sorted lists each key once, that
// of the last batch, in order.
func TestBatch(t *testing.T) {
	l := mixedLayout()
	batches := []*batch{newBatch(l), newBatch(l), newBatch(l)}
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.Custom(func(t *rapid.T) mixed {
			return mixed{
				Text: rapid.SampledFrom([]string{"", "a", "ab", "longer than eight", "longer than eighu"}).Draw(t, "text"),
				N:    rapid.Int32Range(-1, 0).Draw(t, "n"),
				Raw:  []byte(rapid.SampledFrom([]string{"\x00", "\x00\x00"}).Draw(t, "raw")),
				At:   time.Unix(rapid.Int64Range(0, 1).Draw(t, "at"), rapid.SampledFrom([]int64{0, 5e8}).Draw(t, "fraction")),
				Note: rapid.StringMatching(`[a-z]{0,4}`).Draw(t, "note"),
				Sum:  rapid.Uint64Range(0, 1<<62).Draw(t, "sum"),
			}
		})
		want := map[string]mixed{}
		for _, b := range batches {
			b.reset()
			for _, r := range rapid.SliceOfN(row, 0, 200).Draw(t, "rows") {
				if err := put(b, r); err != nil {
					t.Fatal(err)
				}
				want[fmt.Sprintf("%q %d %q %d", r.Text, r.N, r.Raw, r.At.UnixNano())] = r
			}
		}
		got := map[string]mixed{}
		refs := sorted(batches, nil)
		for i, ref := range refs {
			b := batches[ref.batch]
			r := mixed{Text: b.value(int(ref.row), 0).(string), N: int32(b.value(int(ref.row), 1).(int64)),
				Raw: b.value(int(ref.row), 2).([]byte), Note: b.value(int(ref.row), 4).(string), Sum: uint64(b.value(int(ref.row), 5).(int64))}
			at, err := time.Parse(time.RFC3339Nano, b.value(int(ref.row), 3).(string))
			if err != nil {
				t.Fatal(err)
			}
			r.At = at
			got[fmt.Sprintf("%q %d %q %d", r.Text, r.N, r.Raw, r.At.UnixNano())] = r
			if i > 0 {
				before := batches[refs[i-1].batch]
				if bytes.Compare(before.bytes(before.keys[refs[i-1].row]), b.bytes(b.keys[ref.row])) >= 0 {
					t.Fatalf("row %d isn't behind row %d", i, i-1)
				}
			}
		}
		if len(refs) != len(want) {
			t.Fatalf("%d rows, want %d", len(refs), len(want))
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// Keys come out in the order in which SQLite keeps them.
func TestOrder(t *testing.T) {
	type row struct {
		Name string
		N    int64
	}
	l := Upsert[row]("x.db", "t", "name", "n").layout
	b := newBatch(l)
	rows := []row{{"b", 1}, {"a", -1}, {"", 0}, {"a", 1 << 62}, {"ab", -1 << 62}, {"a", 0}, {"ü", 3}, {"a\x01", 3}}
	for _, r := range rows {
		check(t, put(b, r))
	}
	slices.SortFunc(rows, func(x, y row) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.N, y.N)) })
	var got []row
	for _, ref := range sorted([]*batch{b}, nil) {
		got = append(got, row{b.value(int(ref.row), 0).(string), b.value(int(ref.row), 1).(int64)})
	}
	if diff := gocmp.Diff(rows, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A batch owes nothing to the memory of the rows it was given.
func TestBatchCopies(t *testing.T) {
	b := newBatch(mixedLayout())
	text := []byte("text")
	raw := []byte("raw")
	note := []byte("note")
	check(t, put(b, mixed{Text: unsafe.String(&text[0], 4), Raw: raw, Note: unsafe.String(&note[0], 4)}))
	copy(text, "XXXX")
	copy(raw, "XXX")
	copy(note, "XXXX")
	got := []string{b.value(0, 0).(string), string(b.value(0, 2).([]byte)), b.value(0, 4).(string)}
	if diff := gocmp.Diff([]string{"text", "raw", "note"}, got); diff != "" {
		t.Error(diff)
	}
}

// A buffer that has been used before takes rows without allocating.
func TestWriteAllocates(t *testing.T) {
	tab := &table{layout: mixedLayout(), limit: limit{1000, 1 << 20}, sealed: map[int64][]share{}}
	w := &writer[mixed]{t: tab, b: tab.fresh()}
	rows := make([]mixed, 256)
	for i := range rows {
		rows[i] = mixed{Text: fmt.Sprint(i), N: int32(i), Raw: []byte("raw"), Note: "note", At: time.Unix(int64(i), 0)}
	}
	epoch := func() {
		if err := w.Write(rows, nil); err != nil {
			t.Fatal(err)
		}
		w.b.reset()
	}
	epoch()
	if n := testing.AllocsPerRun(20, epoch); n != 0 {
		t.Errorf("%v allocations for %d rows, want none", n, len(rows))
	}
}

func TestFull(t *testing.T) {
	tab := &table{layout: mixedLayout(), limit: limit{3, 1 << 20}, sealed: map[int64][]share{}}
	w := &writer[mixed]{t: tab, b: tab.fresh()}
	var got []bool
	for _, text := range []string{"a", "b", "b", "c"} {
		check(t, w.Write([]mixed{{Text: text}}, nil))
		got = append(got, w.Full())
	}
	check(t, w.Seal(1))
	got = append(got, w.Full())
	tab.limit = limit{100, 1000}
	check(t, w.Write([]mixed{{Note: string(make([]byte, 0))}}, nil))
	got = append(got, w.Full())
	check(t, w.Write([]mixed{{Raw: make([]byte, 1000)}}, nil))
	got = append(got, w.Full())
	if diff := gocmp.Diff([]bool{false, false, false, true, false, false, true}, got); diff != "" {
		t.Error(diff)
	}
}

// Staged rows that were cut off anywhere are an error.
func TestStagedTruncated(t *testing.T) {
	path := database(t)
	s := Upsert[mixed](path, "t", "text")
	p, err := connect(t.Context(), path, s.name(), false, []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	tab, err := p.attach(t.Context(), "out", s.layout, s.limit)
	check(t, err)
	p.Follow()
	w := &writer[mixed]{t: tab, b: tab.fresh()}
	check(t, w.Write([]mixed{{Text: "a", Raw: []byte("b"), Note: "c", Sum: 7}, {Text: "d", At: time.Unix(0, 1)}}, nil))
	check(t, w.Seal(1))
	staged, err := p.Prepare(t.Context(), 1)
	check(t, err)
	for n := range staged {
		if all, err := p.unstage(staged[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as %d sinks, want an error", n, len(staged), len(all))
		}
	}
	if _, err := p.unstage(append(staged, 0)); err == nil {
		t.Error("a byte too many was ignored")
	}
	all, err := p.unstage(staged)
	check(t, err)
	if len(all) != 1 || all[0].rows.len() != 2 {
		t.Errorf("read %d sinks, want one with 2 rows", len(all))
	}
	tab.layout = Upsert[count](path, "t", "ad").layout
	if _, err := p.unstage(staged); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("rows with other columns: got %v, want weir.ErrRefused", err)
	}
}

// Of two tasks that write one key the later task's row stays, in whatever
// order they seal; what is committed is kept no longer than its transaction.
func TestTasks(t *testing.T) {
	s := counts(database(t))
	p, err := s.Connect(t.Context(), []string{"out"})
	check(t, err)
	defer func() { check(t, p.Close()) }()
	_, err = p.Fence(t.Context(), weir.Fence{Job: job, By: weir.Incarnation{Number: 1}, Create: true})
	check(t, err)
	o, err := s.Open(t.Context(), p, "out")
	check(t, err)
	writers := []weir.Writer[count]{o.Writer(0), o.Writer(1), o.Writer(2)}
	var parent weir.CheckpointID
	for i, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		epoch := int64(i + 1)
		for _, task := range order {
			check(t, writers[task].Write([]count{{"a", int64(task)}, {fmt.Sprint(task), epoch}}, []int64{0, 0}))
			check(t, writers[task].Seal(epoch))
		}
		id := weir.CheckpointID{Slot: epoch}
		check(t, p.Commit(t.Context(), weir.Commit{Epoch: epoch, ID: id, Parent: parent}))
		parent = id
		want := []string{fmt.Sprint("0 ", epoch), fmt.Sprint("1 ", epoch), fmt.Sprint("2 ", epoch), "a 2"}
		if diff := gocmp.Diff(want, list(t, other(t, s.path), "SELECT * FROM counts ORDER BY 1")); diff != "" {
			t.Errorf("sealed in the order %v (-want +got):\n%s", order, diff)
		}
	}
	if tab := o.(outlet[count]).t; len(tab.sealed) != 0 || len(tab.spare) != len(writers) {
		t.Errorf("%d epochs are kept and %d buffers can be used again, want none and %d", len(tab.sealed), len(tab.spare), len(writers))
	}
}
