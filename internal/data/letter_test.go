package data

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/internal/table"
)

// picky is a writer that rejects some rows, or panics on them.
type picky struct {
	*collected
	bad    func(row string) bool
	panics bool
	at     int // of the row at hand, in the last Write
	wrong  int // the index that it claims, if above 0
}

type rowError struct{ i int }

func (e rowError) Error() string { return "it doesn't fit" }
func (e rowError) Rejected() int { return e.i }

func (p *picky) Write(recs []string, at []int64) error {
	for i := range recs {
		p.at = i
		if p.bad(recs[i]) {
			switch {
			case p.panics:
				panic("no such row")
			case p.wrong > 0:
				return rowError{p.wrong}
			}
			return fmt.Errorf("table x: %w", rowError{i})
		}
		if err := p.collected.Write(recs[i:i+1], at[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// function is picky as a user function: it knows where it is.
type function struct{ picky }

func (f *function) At() int { return f.at }

// The rows that a sink rejects are set aside, and all others are written, once
// and in order, wherever in a batch the bad ones stand.
func TestSinksReject(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  string // numbers of the bad rows
		mk   func(p picky) SinkWriter[string]
		kind Kind
	}{
		{"one in the middle", "4", func(p picky) SinkWriter[string] { return &p }, Refused},
		{"the first and the last", "0 9", func(p picky) SinkWriter[string] { return &p }, Refused},
		{"several in a row", "3 4 5 6", func(p picky) SinkWriter[string] { return &p }, Refused},
		{"all", "0 1 2 3 4 5 6 7 8 9", func(p picky) SinkWriter[string] { return &p }, Refused},
		{"a function that panics", "3 4 9", func(p picky) SinkWriter[string] { p.panics = true; return &function{p} }, Panicking},
		{"a function that rejects", "0 4", func(p picky) SinkWriter[string] { return &function{p} }, Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, batch := range []int{1, 4, 1024} {
				var b box
				bad := strings.Fields(c.bad)
				f := startWith(t, shape{parallelism: 1, batch: batch}, nil, []*feed{newFeed(numbered(10)...)}, b.aside(Limit{-1, 0}), func(f *flow, t *Task) Out[rec] {
					w := c.mk(picky{collected: f.out, bad: func(row string) bool { return slices.Contains(bad, row[1:]) }})
					return show(At{t, 2}, NewSink(At{t, 3}, w))
				})
				var want, origins []string
				for i := range 10 {
					if n := fmt.Sprint(i); slices.Contains(bad, n) {
						origins = append(origins, n)
					} else {
						want = append(want, string(rune('a'+i%3))+n)
					}
				}
				if got := f.settle(1); !slices.Equal(got, want) {
					t.Errorf("batch %d: wrote %q, want %q", batch, got, want)
				}
				letters := b.all()
				if len(letters) != len(origins) {
					t.Fatalf("batch %d: letters %q, want those of records %v", batch, letters, origins)
				}
				for i, l := range letters {
					if !strings.HasPrefix(l, "in/0/"+origins[i]+" sink "+string(c.kind)+": ") {
						t.Errorf("batch %d: letter %q, want record %s, kind %s", batch, l, origins[i], c.kind)
					}
				}
			}
		})
	}
}

// Without a sink for dead letters a rejection stops the task and names the very
// record; an index that can't be is the writer's fault, and stops it in any case.
func TestSinkRejectionsThatStop(t *testing.T) {
	sink := func(wrong int) chain {
		return func(f *flow, t *Task) Out[rec] {
			return show(At{t, 2}, NewSink(At{t, 3}, SinkWriter[string](&picky{collected: f.out, bad: func(row string) bool { return row == "b4" }, wrong: wrong})))
		}
	}
	f := start(t, shape{parallelism: 1, batch: 16}, nil, []*feed{newFeed(numbered(10)...)}, sink(0))
	if err := <-f.failed; !strings.Contains(err.Error(), "step sink") || !strings.Contains(err.Error(), "record 4") {
		t.Errorf("%v: want the step and record 4", err)
	}
	var b box
	g := startWith(t, shape{parallelism: 1, batch: 16}, nil, []*feed{newFeed(numbered(10)...)}, b.aside(Limit{-1, 0}), sink(10))
	if err := <-g.failed; !strings.Contains(err.Error(), "it doesn't fit") {
		t.Errorf("an index out of range: %v", err)
	}
}

// A row that no input record caused is set aside itself, and rows that differ
// make letters that differ.
func TestRowsWithoutAnInputRecord(t *testing.T) {
	var b box
	in := newFeed(rec{"a", 1, 0}, rec{"b", 2, 0}, rec{"b", 3, 0}, rec{"c", 4, 0})
	in.end()
	g := startWith(t, shape{parallelism: 2, batch: 4}, nil, []*feed{in}, b.aside(Limit{-1, 0}), keyed(func(at At, _ Out[string]) (Op[string, rec], Marker) {
		w := &picky{collected: &collected{}, bad: func(row string) bool { return row != "a@0=1" }}
		win := NewWindow(at, WindowConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()), Size: 10,
			Start: func(int64) int64 { return 0 }, Count: true, Make: func(k string, start, n int64) string { return fmt.Sprint(k, "@", start, "=", n) }},
			Out[string](NewSink(At{at.Task, 3}, SinkWriter[string](w))))
		return win, win
	}))
	for range g.Sources() {
		<-g.ended
	}
	g.settle(1)
	if len(b.letters) != 2 {
		t.Fatalf("letters %q", b.all())
	}
	slices.SortFunc(b.letters, func(x, y Letter) int { return bytes.Compare(x.Raw, y.Raw) })
	one, two := b.letters[0], b.letters[1]
	if string(one.Raw) != `"b@0=2"` || string(two.Raw) != `"c@0=1"` {
		t.Errorf("raw %s and %s", one.Raw, two.Raw)
	}
	if one.Source != "" || one.Split != "" || one.Where != "" || one.Mark >= 0 || one.Mark == two.Mark || one.At != MinTime || one.Kind != Refused || one.Step != "sink" {
		t.Errorf("%+v and %+v", one, two)
	}
}

// Letters are sealed in the epoch in which their record was read, by every task,
// whether it has any or not.
func TestLettersBelongToTheirEpoch(t *testing.T) {
	for _, p := range []int{1, 3} {
		var b box
		in := newFeed()
		f := startWith(t, shape{parallelism: p, batch: 4}, nil, []*feed{in}, b.aside(Limit{-1, 0}),
			keyedBy(func(r rec) string { boom(-1)(r); return r.key }, summing(EachRecord, func(r rec) { boom(-2)(r) })))
		for epoch := int64(1); epoch <= 3; epoch++ {
			in.send(rec{"k", epoch, -1}, rec{"k", epoch, 7}, rec{"l", epoch, -2})
			f.settle(epoch)
			f.barrier(epoch)
			if n := b.sealed[epoch]; n != f.Tasks() {
				t.Errorf("parallelism %d, epoch %d: sealed by %d of %d tasks", p, epoch, n, f.Tasks())
			}
			var marks []int64
			for _, l := range b.in[epoch] {
				marks = append(marks, l.Mark)
			}
			slices.Sort(marks)
			if want := []int64{3*epoch - 3, 3*epoch - 1}; !slices.Equal(marks, want) {
				t.Errorf("parallelism %d, epoch %d: letters of records %v, want %v", p, epoch, marks, want)
			}
		}
	}
}

// A full buffer asks for an early barrier, once an epoch; an error of the sink
// stops the task, and isn't bad input.
func TestLettersAskAndFail(t *testing.T) {
	b := box{full: true}
	in := newFeed(numbered(9)...)
	bad := func(f *flow, t *Task) Out[rec] {
		return NewTryMap(At{t, 2}, func(rec) (string, error) { return "", errors.New("bad") }, Out[string](NewSink(At{t, 3}, SinkWriter[string](f.out))))
	}
	f := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{in}, b.aside(Limit{-1, 0}), bad)
	for epoch := int64(1); epoch <= 2; epoch++ {
		f.settle(epoch)
		f.barrier(epoch)
		if n := len(f.wants); n != 1 || !<-f.wants {
			t.Errorf("epoch %d: %d requests for a barrier, want one that holds the sources", epoch, n)
		}
		in.send(numbered(9)...)
	}
	f.end()
	b = box{err: errors.New("the disk is full")}
	g := startWith(t, shape{parallelism: 1, batch: 4}, nil, []*feed{newFeed(numbered(9)...)}, b.aside(Limit{-1, 0}), bad)
	if err := <-g.failed; !errors.Is(err, b.err) || errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "step #9") {
		t.Errorf("%v: want the sink's error, with its step, and not ErrInput", err)
	}
}

// What a letter says, by what rejected the record and what the source can do.
func TestLetterOf(t *testing.T) {
	long := bytes.Repeat([]byte("x"), maxRaw+5)
	for _, c := range []struct {
		name   string
		about  about
		origin int64
		raw    []byte
		cause  error
		want   func(l Letter) bool
	}{
		{"undecodable", about{}, 7, []byte("{oops"), errors.New("not JSON"), func(l Letter) bool {
			return l.Kind == Undecodable && string(l.Raw) == "{oops" && l.Reason == "not JSON" && l.Mark == 7 && l.Source == "in" && l.Split == "s"
		}},
		{"too long", about{}, 7, long, fmt.Errorf("%w: the line has 2 MiB", ErrOversized), func(l Letter) bool { return l.Kind == TooLong && len(l.Raw) == maxRaw }},
		{"read again", about{reread: func(split string, mark int64) ([]byte, error) { return fmt.Append(nil, split, mark), nil }}, 7, nil, errors.New("bad"),
			func(l Letter) bool { return l.Kind == Erroneous && string(l.Raw) == "s7" }},
		{"not read again when the bytes are there", about{reread: func(string, int64) ([]byte, error) { panic("asked") }}, 7, []byte("b"), errors.New("bad"),
			func(l Letter) bool { return string(l.Raw) == "b" }},
		{"can't be read again", about{reread: func(string, int64) ([]byte, error) { return []byte("part"), errors.New("it is gone") }}, 7, nil, errors.New("bad"),
			func(l Letter) bool {
				return len(l.Raw) == 0 && l.Reason == "bad; its bytes can't be read again: it is gone"
			}},
		{"a source that can't", about{}, 7, nil, errors.New("bad"), func(l Letter) bool { return l.Raw == nil && l.Reason == "bad" }},
		{"an event time", about{timed: true}, 7, nil, errors.New("bad"), func(l Letter) bool { return l.At == 99 }},
		{"the arrival isn't one", about{timed: false}, 7, nil, errors.New("bad"), func(l Letter) bool { return l.At == MinTime }},
		{"a reason without end", about{}, 7, nil, errors.New(strings.Repeat("ü", maxReason)), func(l Letter) bool {
			return len(l.Reason) <= maxReason+3 && utf8.ValidString(l.Reason) && strings.HasSuffix(l.Reason, "ü...")
		}},
		{"no record", about{timed: true}, noOrigin, []byte("row"), as(Refused, errors.New("bad")), func(l Letter) bool {
			return l.Source == "" && l.Where == "" && l.Mark < 0 && l.At == MinTime && string(l.Raw) == "row"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRun(Config{Names: []string{"step"}})
			r.SetAside(Aside{})
			r.abouts["in"] = c.about
			r.addSplit("in", "s", func(split string, mark int64) string { return fmt.Sprint(split, " no. ", mark) })
			l := r.letter(0, c.origin, 99, c.raw, c.cause)
			if !c.want(l) || l.Step != "step" || l.Where != "" && l.Where != "s no. 7" {
				l.Raw = l.Raw[:min(len(l.Raw), 50)]
				t.Errorf("%+v", l)
			}
		})
	}
}

// Late records go to the dead letters besides where their stream goes.
func TestLateRecordsBecomeLetters(t *testing.T) {
	for _, side := range []bool{false, true} {
		var b box
		in := newFeed(rec{"k", 5, 0}, rec{"k", 100, 1}, rec{"k", 7, 2}, rec{"k", 101, 3})
		f := startWith(t, shape{parallelism: 2, batch: 1}, nil, []*feed{in}, b.aside(Limit{0, 0}), keyed(func(at At, next Out[string]) (Op[string, rec], Marker) {
			m := NewMerge(next)
			out := m.Way()
			var late Out[rec]
			if side {
				late = show(at, m.Way())
			}
			w := NewWindow(at, WindowConfig[string, rec, int64, string]{ID: "step", Key: must(table.KeyOf[string]()), Value: must(table.ValueOf[int64]()), Size: 10,
				Start: func(at int64) int64 { return at / 10 * 10 }, Count: true, Late: NewLate(at, late),
				Make: func(k string, start, n int64) string { return fmt.Sprint(k, "@", start, "=", n) }}, out)
			return w, w
		}))
		got := f.settle(1)
		if want := "late: the watermark of its split was " + time.Unix(0, 100).UTC().Format(time.RFC3339Nano) + " when it was read"; len(b.letters) != 1 ||
			b.letters[0].Kind != TooLate || b.letters[0].Mark != 2 || b.letters[0].At != 7 || b.letters[0].Reason != want || b.letters[0].Step != "step" {
			t.Errorf("side %t: letters %+v", side, b.letters)
		}
		if slices.Contains(got, "k2") != side {
			t.Errorf("side %t: got %q", side, got)
		}
	}
}
