package data

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/table"
)

// TestMovedClocks restores a window step whose clocks are ahead of the split's
// watermark, and not equally far in all key groups: what they have closed stays
// closed, in each group by itself, however the groups are divided into tasks.
func TestMovedClocks(t *testing.T) {
	shutFor := func(key string) bool { return table.GroupOf([]byte(key), 128) < 64 }
	var before, after string // keys of groups whose clocks differ
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if shutFor(k) {
			after = k
		} else {
			before = k
		}
	}
	if before == "" || after == "" {
		t.Fatal("no key was found for one of the halves")
	}
	from := func() *kept {
		return &kept{splits: map[string]SplitState{"0": {Source: "in", Split: "0", Watermark: 12}},
			clocks: map[string][]Clock{"step": {{From: 0, To: 64, At: 20}, {From: 64, To: 128, At: 10}}}}
	}
	for _, tasks := range []int{1, 2, 3} {
		in := newFeed()
		f := start(t, shape{parallelism: tasks, batch: 4}, from(), []*feed{in}, windowing(10, 0, OnClose))
		// The window from 10 to 20 is closed for the groups whose clock is at 20.
		in.send(rec{before, 15, 0}, rec{after, 16, 0}, rec{after, 25, 0}, rec{before, 26, 0}, rec{before, 31, 0})
		got := f.settle(1)
		slices.Sort(got)
		want := []string{after + "@20=1", before + "@10=1", before + "@20=1"}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d tasks: %q, want %q", tasks, got, want)
		}
		if n := f.Late()["step"]; n != 1 {
			t.Errorf("%d tasks: %d late records, want 1", tasks, n)
		}
	}
}
