package connectortest

import (
	"errors"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
)

// testRejection: a row that a sink doesn't take is named by its index; those
// before it were taken, and those behind it can be written again. The sink goes
// on as if the row had never been given to it.
func testRejection(t *testing.T, s SinkUnderTest) {
	if len(s.Rejected) == 0 {
		t.Log("SinkUnderTest.Rejected names no row that the sink rejects: nothing to test")
	}
	for i, bad := range s.Rejected {
		for _, places := range [][]int{{0}, {1}, {4}, {0, 4}, {1, 2, 3}, {0, 1, 2, 3, 4}} {
			t.Run(fmt.Sprintf("row %d at %v", i, places), func(t *testing.T) { rejectAt(t, s, bad, places) })
		}
	}
}

func rejectAt(t *testing.T, s SinkUnderTest, bad Row, places []int) {
	w := newWorld(t, s)
	must(t, w.live(t.Context(), 1))
	l := w.start(t)
	rows := make([]Row, 5)
	for i := range rows {
		rows[i] = Row{Key: "taken", Part: int64(i), Value: int64(10 + i), Note: fmt.Sprint("row ", i)}
	}
	for _, i := range places {
		rows[i] = bad
	}
	for _, writers := range l.writers {
		writeRejecting(t, writers[0], rows, places)
		must(t, writers[0].Seal(2))
		must(t, writers[1].Seal(2))
	}
	must(t, l.p.Flush(t.Context()))
	staged, err := l.p.Prepare(t.Context(), 2)
	must(t, err)
	must(t, l.p.Commit(t.Context(), w.next(2, l.by, staged)))
	must(t, l.close())
	for target, got := range w.rows(t) {
		var taken []Row
		for _, r := range got {
			if r.Key == "taken" {
				taken = append(taken, r)
			}
		}
		var want []Row
		for _, r := range rows {
			if r.Key == "taken" {
				want = append(want, r)
			}
		}
		if diff := gocmp.Diff(want, taken); diff != "" {
			t.Errorf("%q holds of the rows around the rejected ones (-want +got):\n%s", target, diff)
		}
	}
}

// writeRejecting writes as the engine does, and checks what it is told.
func writeRejecting(t *testing.T, w weir.Writer[Row], rows []Row, places []int) {
	t.Helper()
	from := 0
	for _, i := range places {
		err := w.Write(rows[from:], make([]int64, len(rows)-from))
		r, ok := errors.AsType[weir.Rejection](err)
		if !ok {
			t.Fatalf("Write of a bad row at %d got %v, want a weir.Rejection", i, err)
		}
		if got := from + r.Rejected(); got != i {
			t.Fatalf("Write rejected row %d, want %d: %v", got, i, err)
		}
		if r.Error() == "" {
			t.Errorf("the rejection of row %d doesn't say why", i)
		}
		from = i + 1
	}
	if from < len(rows) {
		must(t, w.Write(rows[from:], make([]int64, len(rows)-from)))
	}
}
