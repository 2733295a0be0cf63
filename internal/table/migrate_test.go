package table

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// moves saves a value of one type, loads it as another, and asks Migration; the
// three must agree.
func moves[A, B any](a A, want B) func(*testing.T) error { return movesIf(a, &want) }

func refused[A, B any](a A) func(*testing.T) error { return movesIf[A, B](a, nil) }

func movesIf[A, B any](a A, want *B) func(*testing.T) error {
	return func(t *testing.T) error {
		k, from := layouts[string, A](t)
		_, to := layouts[string, B](t)
		old := New[string, A](k, from, 8)
		for i := range 300 { // more than a batch
			put(old, fmt.Sprint(i), a)
		}
		tab := New[string, B](k, to, 8)
		_, err := tab.Load(save(t, old, false), k.Schema(), from.Schema(), nil, nil)
		verdict := Migration(k.Schema(), k.Schema(), from.Schema(), to.Schema())
		if fmt.Sprint(err) != fmt.Sprint(verdict) {
			t.Errorf("Load says %v, Migration says %v", err, verdict)
		}
		if err != nil && !errors.Is(err, ErrMigration) {
			t.Errorf("%v isn't ErrMigration", err)
		}
		if err == nil && want != nil {
			if tab.Len() != 300 {
				t.Errorf("%d entries of 300", tab.Len())
			}
			for id := range tab.IDs() {
				if d := cmp.Diff(*want, *tab.Value(id)); d != "" {
					t.Fatalf("entry %d: %s", id, d)
				}
			}
		}
		return err
	}
}

func TestMigration(t *testing.T) {
	type flatAB struct {
		A int32
		B int64
		C bool
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC)
	type box struct {
		N    int64
		Name string
		List []mean
		At   time.Time
	}
	full := box{7, "x", []mean{{1, 2}, {3, 4}}, at}
	for _, c := range []struct {
		name string
		run  func(*testing.T) error
		err  []string // parts of the error; nil: it loads
	}{
		{"same", moves(mean{1.5, 2}, mean{1.5, 2}), nil},
		{"named alike", moves(mean{1.5, 2}, struct {
			Sum   float64
			Count int
		}{1.5, 2}), nil},
		{"field added", moves(mean{1.5, 2}, struct {
			Sum   float64
			Count int64
			Max   int8
		}{1.5, 2, 0}), nil},
		{"field added in front", moves(flatAB{1, 2, true}, struct {
			Z int8
			A int32
			B int64
			C bool
		}{0, 1, 2, true}), nil},
		{"field removed", moves(flatAB{1, 2, true}, struct{ B int64 }{2}), nil},
		{"fields reordered", moves(flatAB{1, 2, true}, struct {
			C bool
			B int64
			A int32
		}{true, 2, 1}), nil},
		{"same types, names swapped", moves(pair{1, 2}, struct{ B, A int32 }{2, 1}), nil},
		{"field renamed beside a kept one", moves(pair{1, 2}, struct{ A, C int32 }{1, 0}), nil},
		{"nested", moves(struct{ In [2]flatAB }{[2]flatAB{{1, 2, true}, {3, 4, false}}}, struct {
			X  int64
			In [2]struct {
				B int64
				A int32
			}
		}{0, [2]struct {
			B int64
			A int32
		}{{2, 1}, {4, 3}}}), nil},
		{"retyped", refused[mean, struct {
			Sum   float32
			Count int64
		}](mean{}), []string{"field Sum was float64, is float32"}},
		{"two retyped", refused[mean, struct {
			Sum   int64
			Count uint64
		}](mean{}), []string{"field Sum was float64, is int64", "field Count was int64, is uint64"}},
		{"nested retyped", refused[struct{ In [2]pair }, struct{ In [2]struct{ A, B int16 } }](struct{ In [2]pair }{}),
			[]string{"field In[0].A was int32, is int16"}},
		{"array length", refused[struct{ A [3]int8 }, struct{ A [4]int8 }](struct{ A [3]int8 }{}),
			[]string{"field A was [3]int8, is [4]int8"}},
		{"number", refused[int64, float64](1), []string{"values were int64, are float64"}},
		{"number to struct", refused[int64, mean](1), []string{"values were int64, are struct{Sum"}},
		{"nothing left", refused[pair, struct{ X, Y int32 }](pair{}), []string{"none of the stored fields is left"}},
		{"boxed: same", moves(full, full), nil},
		{"boxed: added, removed, reordered", moves(full, struct {
			List []struct {
				Count int64
				Max   string
			}
			Extra map[string]int
			Name  string
			N     int64
		}{[]struct {
			Count int64
			Max   string
		}{{2, ""}, {4, ""}}, nil, "x", 7}), nil},
		{"boxed: retyped", refused[box, struct {
			N    string
			Name string
		}](full), []string{"field N was int64, is string"}},
		{"boxed: retyped inside", refused[box, struct{ List []struct{ Sum float32 } }](full),
			[]string{"field List[].Sum was float64, is float32"}},
		{"boxed: slice to map", refused[box, struct{ List map[int]mean }](full), []string{"field List was []struct"}},
		{"boxed: value to pointer", refused[box, struct{ At *time.Time }](full), []string{"field At was time.Time, is *time.Time"}},
		{"boxed: map key", refused[map[string]int, map[int]int](nil), []string{"values were map[string]int64, are map[int64]int64"}},
		{"boxed: tag changed", refused[box, struct {
			N    int64  `json:"n"`
			Name string `json:"Name"`
		}](full), []string{"field N was stored as \"N\", is stored as \"n\""}},
		{"boxed: renamed under its tag", moves(struct {
			A string `json:"a"`
		}{"x"}, struct {
			B string `json:"a"`
		}{"x"}), nil},
		{"boxed: names differ in case", moves(struct {
			Ab string
			N  int
		}{"x", 1}, struct {
			AB string
			N  int
		}{"", 1}), nil},
		{"flat grows boxed", moves(flatAB{1, 2, true}, struct {
			Name string
			C    bool `json:"see"`
			B    int64
			A    int32
		}{"", true, 2, 1}), nil},
		{"flat grows boxed, nested", moves(struct {
			M embedsFlat2
			B [2]pair
		}{embedsFlat2{mean{1, 2}, 3}, [2]pair{{1, 2}, {3, 4}}}, struct {
			B    [2]pair
			M    embedsFlat2
			Text []string
		}{[2]pair{{1, 2}, {3, 4}}, embedsFlat2{mean{1, 2}, 3}, nil}), nil},
		{"flat grows boxed, laid out in another way", moves(struct{ In plain }{plain{1, 2, 3}}, struct {
			S  string
			In lifted
		}{"", lifted{Base{1, 2}, 3}}), nil},
		{"flat grows boxed, loses a field", refused[pair, struct {
			A int32
			S string
		}](pair{}), []string{"field B int32 is gone"}},
		{"flat grows boxed, retyped", refused[pair, struct {
			A, B int64
			S    string
		}](pair{}), []string{"field A was int32, is int64"}},
		{"boxed becomes flat", refused[box, struct{ N int64 }](full), []string{"values were encoded", "are plain memory now"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(t)
			if (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			for _, w := range c.err {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q doesn't say %q", err, w)
				}
			}
		})
	}
}

// plain and lifted have one schema where they are boxed, but C is at 12 and 16.
type (
	plain struct {
		A    int64
		B, C int32
	}
	Base struct {
		A int64
		B int32
	}
	lifted struct {
		Base
		C int32
	}
)

// embedsFlat2 is nested, not embedded: its parts keep their names.
type embedsFlat2 struct {
	In  mean
	Max float32
}

func TestKeyMigration(t *testing.T) {
	tab := filled(t, []string{"a"})
	b := save(t, tab, false)
	for _, key := range []string{"[]string", "struct{Key string}", "int64", ""} {
		err := Migration(key, "string", "int64", "int64")
		if !errors.Is(err, ErrMigration) || !strings.Contains(err.Error(), "keys were "+key+", are string") {
			t.Errorf("key schema %q: %v", key, err)
		}
		if _, load := tab.Load(b, key, "int64", nil, nil); fmt.Sprint(load) != fmt.Sprint(err) {
			t.Errorf("key schema %q: Load says %v, Migration says %v", key, load, err)
		}
	}
	if err := Migration("string", "string", "int64", "int64"); err != nil {
		t.Error(err)
	}
}

func TestSchemaRefused(t *testing.T) {
	for _, s := range []string{
		"", "int", "int64 ", "[3]", "[-1]int8", "[99999999999999999999]int8", "[2147483647][2147483647]int8", "[x]int8",
		"struct{", "struct{A}", "struct{A int8;B int8}", "struct{ int8}", "struct{A int8; }", "map[int8", `"x`, `struct{A "x}`,
		strings.Repeat("[]", 200) + "int8", strings.Repeat("*", maxText) + "int8",
	} {
		if err := Migration("string", "string", s, "struct{A int8}"); !errors.Is(err, ErrMigration) {
			t.Errorf("schema %.40q: %v", s, err)
		}
	}
}

func FuzzSchema(f *testing.F) {
	for _, s := range []string{"int64", "struct{A int8; B string}", `struct{A "a" [3]int16; M map[string]*"x/y.Z"; T time.Time}`, "struct{}", "[][]map[struct{X bool}]string"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseSchema(s)
		if err != nil {
			return
		}
		q, err := parseSchema(p.String())
		if err != nil || q.String() != p.String() || q.size != p.size {
			t.Errorf("%q: read as %q, then %v, %v", s, p, q, err)
		}
		if err := Migration("string", "string", s, "struct{A int8; B string}"); err != nil && !errors.Is(err, ErrMigration) {
			t.Errorf("%q: %v isn't ErrMigration", s, err)
		}
	})
}
