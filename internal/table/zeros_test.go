package table

import "testing"

// Entries that start from one zero must not share what it points to.
func TestZerosShareNothing(t *testing.T) {
	type acc struct {
		Seen map[string]int
		Last []string
	}
	v, err := ValueOf[acc]()
	if err != nil {
		t.Fatal(err)
	}
	zero := Zeros(v, acc{Seen: map[string]int{"a": 1}, Last: []string{"x"}})
	one, two := zero(), zero()
	one.Seen["b"], one.Last[0] = 2, "y"
	if len(two.Seen) != 1 || two.Seen["a"] != 1 || two.Last[0] != "x" || len(zero().Seen) != 1 {
		t.Fatalf("one changed the other: %v", two)
	}
	n, err := ValueOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	if got := Zeros(n, 7)(); got != 7 {
		t.Fatalf("a flat zero became %d", got)
	}
}
