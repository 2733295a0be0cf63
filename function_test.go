package weir_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir"
)

// openSink takes a sink through the calls that precede the first record.
func openSink[T any](t *testing.T, sink weir.Sink[T]) (weir.Participant, weir.Outlet[T]) {
	t.Helper()
	p, err := sink.Connect(t.Context(), []string{"out"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := sink.Open(t.Context(), p, "out")
	if err != nil {
		t.Fatal(err)
	}
	return p, o
}

func TestEachCallsTheFunctionInOrder(t *testing.T) {
	var got []int
	p, o := openSink(t, weir.Each(func(n int) error { got = append(got, n); return nil }))
	w := o.Writer(0)
	for _, recs := range [][]int{{1, 2}, nil, {3}} {
		if err := w.Write(recs, make([]int64, len(recs))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(1); err != nil {
		t.Fatal(err)
	}
	// Nothing is held back: with Write everything was done.
	if want := []int{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("the function saw %v, want %v", got, want)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	full := errors.New("full")
	var got []int
	_, o := openSink(t, weir.Each(func(n int) error {
		got = append(got, n)
		if n == 2 {
			return full
		}
		return nil
	}))
	if err := o.Writer(0).Write([]int{1, 2, 3}, make([]int64, 3)); !errors.Is(err, full) {
		t.Errorf("Write = %v, want the function's error", err)
	}
	if want := []int{1, 2}; !slices.Equal(got, want) {
		t.Errorf("the function saw %v, want %v", got, want)
	}
}

// What explain derives the guarantee from: no ledger, and no claim to one.
func TestFunctionSinksPromiseAtLeastOnce(t *testing.T) {
	for _, sink := range []weir.Sink[int]{
		weir.Each(func(int) error { return nil }),
		weir.Print(&bytes.Buffer{}, func(n int) string { return fmt.Sprint(n) }),
		weir.Stdout[int](),
	} {
		spec := sink.Spec()
		if spec.Kind != weir.AtLeastOnce || spec.Participant != "" || spec.Target == "" || !strings.Contains(spec.Readers, "at least once") || len(spec.Needs) != 1 {
			t.Errorf("Spec = %+v", spec)
		}
		p, _ := openSink(t, sink)
		for _, create := range []bool{true, false} {
			got, err := p.Fence(t.Context(), weir.Fence{Create: create})
			if l, ok := got["out"]; err != nil || len(got) != 1 || !ok || l.Found || !l.ID.IsZero() {
				t.Errorf("Fence(Create %v) = %+v, %v; want the sink, without a ledger", create, got, err)
			}
		}
		staged, err := p.Prepare(t.Context(), 1)
		err = errors.Join(err, p.Commit(t.Context(), weir.Commit{Epoch: 1}), p.Commit(t.Context(), weir.Commit{Epoch: 1}), p.Flush(t.Context()), p.Close())
		if len(staged) > 0 || err != nil {
			t.Errorf("%s: staged %q, %v", spec.Target, staged, err)
		}
	}
}

func TestPrintWritesWholeLines(t *testing.T) {
	var out bytes.Buffer
	_, o := openSink(t, weir.Print(&out, func(n int) string { return fmt.Sprintf("task %d", n) }))
	var wg sync.WaitGroup
	const tasks, batches = 4, 50
	for task := range tasks {
		w := o.Writer(task)
		wg.Go(func() {
			for range batches {
				if err := w.Write([]int{task, task}, []int64{0, 0}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	count := map[string]int{}
	for line := range strings.Lines(out.String()) {
		count[line]++
	}
	for task := range tasks {
		line := fmt.Sprintf("task %d\n", task)
		if count[line] != 2*batches {
			t.Errorf("%q was written %d times, want %d", line, count[line], 2*batches)
		}
		delete(count, line)
	}
	if len(count) > 0 {
		t.Errorf("torn lines: %v", count)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestPrintReportsTheWritersError(t *testing.T) {
	cause := errors.New("broken pipe")
	_, o := openSink(t, weir.Print(failingWriter{cause}, func(n int) string { return "" }))
	if err := o.Writer(0).Write(nil, nil); err != nil {
		t.Errorf("nothing to write: %v", err)
	}
	if err := o.Writer(0).Write([]int{1}, []int64{0}); !errors.Is(err, cause) {
		t.Errorf("Write = %v, want the writer's error", err)
	}
}

func TestFunctionSinkDeclarations(t *testing.T) {
	for name, sink := range map[string]weir.Sink[int]{
		"weir.Each needs a function":               weir.Each[int](nil),
		"weir.Print needs a writer and a function": weir.Print(&bytes.Buffer{}, (func(int) string)(nil)),
		"weir.Print needs a writer":                weir.Print(nil, func(int) string { return "" }),
	} {
		if err := sink.(interface{ Check() error }).Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Check = %v, want %q", err, name)
		}
		if _, err := sink.Connect(t.Context(), []string{"out"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Connect = %v, want %q", err, name)
		}
	}
}
