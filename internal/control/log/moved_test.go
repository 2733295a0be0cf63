package log

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirstream/weir/internal/data"
)

func TestMovedClocks(t *testing.T) {
	m := &Manifest{Epoch: 3, Steps: []Step{
		{ID: "minute", Clocks: []data.Clock{{From: 0, To: 2, At: 100}, {From: 2, To: 4, At: data.MinTime}, {From: 4, To: 5, At: data.EndOfTime}}},
		{ID: "total", Clocks: []data.Clock{{From: 0, To: 5, At: 100}}},
	}}
	for by, want := range map[int64]int64{7: 107, -130: -30, math.MaxInt64: data.EndOfTime, math.MinInt64: data.MinTime} {
		got := m.Moved(map[string]int64{"minute": by, "gone": 1})
		if d := cmp.Diff([]Step{
			{ID: "minute", Clocks: []data.Clock{{From: 0, To: 2, At: want}, {From: 2, To: 4, At: data.MinTime}, {From: 4, To: 5, At: data.EndOfTime}}},
			{ID: "total", Clocks: []data.Clock{{From: 0, To: 5, At: 100}}},
		}, got.Steps); d != "" {
			t.Errorf("moved by %d (-want +got):\n%s", by, d)
		}
	}
	if m.Steps[0].Clocks[0].At != 100 {
		t.Error("the manifest itself was changed")
	}
	if m.Moved(nil) != m {
		t.Error("nothing to move made another manifest")
	}
}
