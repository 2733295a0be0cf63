package weir_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
)

// foreignPositions are positions that no source in memory with less than 1,000 records
// has ever given out.
var foreignPositions = [][]byte{{}, []byte("x"), []byte("-1"), []byte("+1"), []byte("01"), []byte(" 1"), []byte("1.0"), []byte("1000"), []byte("99999999999999999999")}

func TestSliceIsASource(t *testing.T) {
	recs := make([]string, 37)
	for i := range recs {
		recs[i] = fmt.Sprint("record ", i)
	}
	connectortest.Source(t, connectortest.SourceUnderTest[string]{
		New:     func(*testing.T) weir.Source[string] { return weir.Slice(recs...) },
		Want:    map[string][]string{"0": recs},
		Refused: foreignPositions,
	})
}

func TestSlicesIsASource(t *testing.T) {
	connectortest.Source(t, connectortest.SourceUnderTest[int]{
		New:     func(*testing.T) weir.Source[int] { return weir.Slices([]int{1, 2, 3}, nil, []int{4}) },
		Want:    map[string][]int{"0": {1, 2, 3}, "1": nil, "2": {4}},
		Refused: append(foreignPositions, []byte("4")),
	})
}

func TestGenerateIsASource(t *testing.T) {
	square := func(i int64) int64 { return i * i }
	want := make([]int64, 41)
	for i := range want {
		want[i] = int64(i) * int64(i)
	}
	connectortest.Source(t, connectortest.SourceUnderTest[int64]{
		New:     func(*testing.T) weir.Source[int64] { return weir.Generate(41, square) },
		Want:    map[string][]int64{"0": want},
		Refused: append(foreignPositions, []byte("42")),
	})
}

func TestGenerateWithoutEnd(t *testing.T) {
	r, err := weir.Generate(0, func(i int64) int64 { return i }).Open(t.Context(), "0", []byte("123456789012"))
	if err != nil {
		t.Fatal(err)
	}
	recs, end, err := r.Read(nil, 3)
	if err != nil || end || fmt.Sprint(recs) != "[123456789012 123456789013 123456789014]" {
		t.Errorf("Read = %v, %v, %v", recs, end, err)
	}
	if got := string(r.Position()); got != "123456789015" {
		t.Errorf("Position = %s", got)
	}
	if st := r.(weir.StatusReader).Status(); st.Total != 0 || st.Lag != -1 {
		t.Errorf("Status = %+v; neither total nor lag can be known", st)
	}
}

func TestMemorySourceErrors(t *testing.T) {
	tests := []struct {
		name       string
		src        weir.Source[int]
		split, at  string
		splits, op string // parts of the messages; splits "": Splits gives no error
	}{
		{"no function", weir.Generate[int](1, nil), "0", "", "needs a function", "needs a function"},
		{"a negative number", weir.Generate(-1, func(int64) int { return 0 }), "0", "", "weir.Generate(-1, ...)", "weir.Generate(-1, ...)"},
		{"no slice", weir.Slices[int](), "0", "", "was given no slice", "was given no slice"},
		{"another split", weir.Slice(1), "1", "", "", `no split "1"`},
		{"another spelling", weir.Slice(1), "00", "", "", `no split "00"`},
		{"a file's name", weir.Slice(1), "a.jsonl", "", "", `no split "a.jsonl"`},
		{"no number", weir.Slice(1), "0", "x", "", `position "x" of split 0`},
		{"out of range", weir.Slice(1), "0", "2", "", "position 2 of split 0 is out of range, it has only 1 records"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.src.(interface{ Check() error }).Check()
			if (err == nil) != (tt.splits == "") || err != nil && !strings.Contains(err.Error(), tt.splits) {
				t.Errorf("Check = %v, want %q", err, tt.splits)
			}
			_, err = tt.src.Splits(t.Context())
			if (err == nil) != (tt.splits == "") || err != nil && !strings.Contains(err.Error(), tt.splits) {
				t.Errorf("Splits: %v; want %q", err, tt.splits)
			}
			var at []byte
			if tt.at != "" {
				at = []byte(tt.at)
			}
			if _, err = tt.src.Open(t.Context(), tt.split, at); err == nil || !strings.Contains(err.Error(), tt.op) {
				t.Errorf("Open: %v; want %q", err, tt.op)
			}
		})
	}
}

func TestSliceLocates(t *testing.T) {
	got := weir.Slice(1, 2, 3).(weir.Locator).Locate("0", 2)
	if want := "record 2 of split 0 (the first is 0)"; got != want {
		t.Errorf("Locate = %q, want %q", got, want)
	}
}

// Reading costs nothing but the records themselves.
func TestMemorySourcesDoNotAllocate(t *testing.T) {
	for name, src := range map[string]weir.Source[int]{
		"Slice":    weir.Slice(make([]int, 1<<20)...),
		"Generate": weir.Generate(0, func(i int64) int { return int(i) }),
	} {
		r, err := src.Open(t.Context(), "0", nil)
		if err != nil {
			t.Fatal(err)
		}
		batch := make([]int, 0, 256)
		if n := testing.AllocsPerRun(100, func() { batch, _, err = r.Read(batch[:0], 256) }); n > 0 || err != nil {
			t.Errorf("%s: %v allocations a Read, %v", name, n, err)
		}
	}
}
