package weir_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// A golden is a store that every later build must restore: how it came to be, and
// how a job goes on from it.
type golden struct {
	name  string
	build func(t *testing.T, dir string)
	goOn  func(t *testing.T, dir string, parallelism int) []string // sorted
}

func goldens() []golden {
	kinds := func(t *testing.T, dir string, parallelism int) []string {
		return goOnKinds(t, dir, weir.Parallelism(parallelism), weir.EveryRecords(7))
	}
	return []golden{
		{"steps", func(t *testing.T, dir string) {
			stopKinds(t, dir, 3, weir.Parallelism(2), weir.EveryRecords(6))
		}, kinds},
		{"finished", func(t *testing.T, dir string) {
			goOnKinds(t, dir, weir.Parallelism(1), weir.EveryRecords(12))
		}, func(t *testing.T, dir string, parallelism int) []string {
			return append(goOnKinds(t, dir, weir.Parallelism(parallelism)), "nothing")
		}},
		{"retired", func(t *testing.T, dir string) { // deltas by other tasks than their base, and checkpoints that went
			stopKinds(t, dir, 2, weir.Parallelism(1), weir.EveryRecords(4))
			stopKinds(t, dir, 5, weir.Parallelism(3), weir.EveryRecords(4), weir.Retain(1))
		}, kinds},
		{"rolled-back", func(t *testing.T, dir string) { // and one removed from the middle
			stopKinds(t, dir, 5, weir.Parallelism(2), weir.EveryRecords(4))
			all, err := weir.ReadCheckpoints(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kindsJob(nil).Rollback(t.Context(), weir.Rollback{To: all[2].ID.Slot}, weir.StateDir(dir)); err != nil {
				t.Fatal(err)
			}
			if err := weir.RemoveCheckpoints(t.Context(), dir, all[3].ID.Slot); err != nil {
				t.Fatal(err)
			}
		}, kinds},
		{"output-log", makeOutputLog, goOnOutputLog},
	}
}

// goldenReading is a record of the golden jobs. Second counts from noon.
type goldenReading struct {
	Site   string
	Sensor int32
	Value  int64
	Second int64
}

// readings are two splits, somewhat out of order, with keys that repeat after a
// while.
func goldenReadings() [][]goldenReading {
	all := make([][]goldenReading, 2)
	for s := range all {
		for i := range int64(24) {
			r := goldenReading{fmt.Sprintf("site-%d", (i*7+int64(s))%5), int32(i%3) - 1, 2*i*i - 41 + int64(s), i*20 + (i*13)%17}
			if i%6 == 5 {
				r.Site = "süd \u2028 <&>"
			}
			all[s] = append(all[s], r)
		}
	}
	return all
}

type (
	goldenStats struct { // flat
		Min, Max int64
		Mean     float64
		N        uint16
		Odd      bool
		Last     [2]int32
	}
	goldenHistory struct { // boxed
		First  time.Time
		Values []int64
		Seen   map[string]int `json:"seen"`
		Best   *goldenStats
		Note   string
	}
	goldenPlace struct { // composite key
		Site   string
		Sensor int32
	}
	goldenPair struct{ A, B int32 } // fixed key
)

// kindsJob has a step of every kind that keeps state.
func kindsJob(out func(string) error) *weir.Job {
	if out == nil {
		out = func(string) error { return nil }
	}
	job := weir.NewJob("golden")
	in := job.From("readings", weir.Slices(goldenReadings()...),
		weir.EventTime(func(r goldenReading) time.Time { return time.UnixMilli(noon + 1000*r.Second) }, 30*time.Second))
	bySite := in.KeyBy(func(r goldenReading) string { return r.Site })
	show := weir.Each(out)
	bySite.Count("count").Map(func(p weir.Pair[string, int64]) string { return fmt.Sprint("count ", p) }).To("counts", show)
	in.KeyBy(func(r goldenReading) int64 { return int64(r.Sensor) }).Reduce("reduce", func(a, b goldenReading) goldenReading {
		if b.Value > a.Value {
			return b
		}
		return a
	}).Map(func(r goldenReading) string { return fmt.Sprint("reduce ", r) }).To("reduced", show)
	in.KeyBy(func(r goldenReading) goldenPlace { return goldenPlace{r.Site, r.Sensor} }).Fold("flat", goldenStats{Min: 1 << 40, Max: -1 << 40}, addStats).
		Map(func(p weir.Pair[goldenPlace, goldenStats]) string { return fmt.Sprint("flat ", p) }).To("flats", show)
	in.KeyBy(func(r goldenReading) goldenPair { return goldenPair{r.Sensor, int32(r.Value % 2)} }).Fold("boxed", goldenHistory{}, addHistory).
		Map(func(p weir.Pair[goldenPair, goldenHistory]) string {
			b, _ := json.Marshal(p.Value)
			return fmt.Sprint("boxed ", p.Key, string(b))
		}).To("boxes", show)
	bySite.Distinct("distinct", 90*time.Second, weir.Admit(5*time.Minute)).
		Map(func(r goldenReading) string { return fmt.Sprint("distinct ", r) }).To("distincts", show)
	bySite.Window(window.Tumbling(time.Minute, window.Lateness(time.Minute), window.EachBarrier)).Count("window").
		Map(func(r weir.Result[string, int64]) string {
			return fmt.Sprint("window ", r.Key, r.Start.Unix(), r.Value)
		}).To("windows", show)
	return job
}

func addStats(a goldenStats, r goldenReading) goldenStats {
	a.Min, a.Max = min(a.Min, r.Value), max(a.Max, r.Value)
	a.Mean = (a.Mean*float64(a.N) + float64(r.Value)) / float64(a.N+1)
	a.N++
	a.Odd, a.Last[0], a.Last[1] = r.Value%2 != 0, a.Last[1], int32(r.Value)
	return a
}

func addHistory(h goldenHistory, r goldenReading) goldenHistory {
	h.Values = append(slices.Clone(h.Values), r.Value)
	if len(h.Values) > 4 {
		h.Values = h.Values[1:]
	}
	seen := map[string]int{r.Site: 1}
	for k, v := range h.Seen {
		seen[k] += v
	}
	h.Seen, h.Note = seen, strings.Repeat("ä", len(seen))
	if h.First.IsZero() {
		h.First = time.UnixMilli(noon + 1000*r.Second).UTC()
	}
	if h.Best == nil || h.Best.Max < r.Value {
		h.Best = &goldenStats{Max: r.Value, N: 1}
	}
	return h
}

// stopKinds runs the job and stops it politely behind an epoch.
func stopKinds(t *testing.T, dir string, epoch int64, opts ...weir.RunOption) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opts = append(opts, weir.StateDir(dir), weir.OnCheckpoint(func(c weir.Checkpoint) {
		if c.Epoch == epoch {
			stop()
		}
	}))
	if err := kindsJob(nil).Run(ctx, opts...); err != nil {
		t.Fatal(err)
	}
}

// goOnKinds runs the job to its end, and returns what depends on nothing but the
// state and the records: of each step and key the last word. Where two splits
// share a key, what came in between isn't the same in each run.
func goOnKinds(t *testing.T, dir string, opts ...weir.RunOption) []string {
	t.Helper()
	var mu sync.Mutex
	rows := 0
	job := kindsJob(func(string) error {
		mu.Lock()
		defer mu.Unlock()
		rows++
		return nil
	})
	mustRun(t, job, append(opts, weir.StateDir(dir))...)
	all, err := weir.ReadCheckpoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	if !last.Finished {
		t.Fatalf("checkpoint %d isn't a finished one", last.ID.Slot)
	}
	out := []string{fmt.Sprint("records ", last.Records)}
	for _, step := range []string{"count", "flat", "reduce"} {
		for e, err := range weir.ReadState(t.Context(), dir, last.ID.Slot, step) {
			if err != nil {
				t.Fatal(err)
			}
			if step != "flat" {
				out = append(out, fmt.Sprint(step, " ", string(e.Key), " ", string(e.Value)))
				continue
			}
			var s goldenStats
			if err := json.Unmarshal(e.Value, &s); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(step, " ", string(e.Key), " ", s.Min, s.Max, s.N))
		}
	}
	slices.Sort(out)
	return out
}

// outputJob has two transactional sinks of participants of their own: one decides,
// the other follows.
func outputJob(decider, follower *ledgered) *weir.Job {
	job := weir.NewJob("golden-outputs")
	counts := job.From("readings", weir.Slices(goldenReadings()[0])).KeyBy(func(r goldenReading) string { return r.Site }).Count("count", weir.EachBarrier())
	counts.To("decided", decider)
	counts.To("followed", follower)
	return job
}

// makeOutputLog ends a run between the decision about an epoch and its follower's
// commit, and keeps what their ledgers name beside the log.
func makeOutputLog(t *testing.T, dir string) {
	decider, follower := &ledgered{name: "decider"}, &ledgered{name: "follower", failAt: 3}
	err := outputJob(decider, follower).Run(t.Context(), weir.StateDir(dir), weir.Parallelism(2), weir.EveryRecords(5), weir.Restarts(0))
	if err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Fatalf("the run ended with %v", err)
	}
}

// goOnOutputLog lets the follower be rolled forward from the output log.
func goOnOutputLog(t *testing.T, dir string, parallelism int) []string {
	all, err := weir.ReadCheckpoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n := all[len(all)-1] // decided, and not followed
	decider, follower := &ledgered{name: "decider", ledger: weir.Ledger{Found: true, ID: n.ID}}, &ledgered{name: "follower", ledger: weir.Ledger{Found: true, ID: n.Parent}}
	mustRun(t, outputJob(decider, follower), weir.StateDir(dir), weir.Parallelism(parallelism), weir.EveryRecords(5))
	var out []string
	for _, r := range follower.rows {
		out = append(out, "followed "+r)
	}
	for _, r := range decider.rows {
		out = append(out, "decided "+r)
	}
	slices.Sort(out)
	return out
}

// ledgered is a transactional sink in memory that can follow.
type ledgered struct {
	name   string
	failAt int64 // the epoch whose commit fails; 0: none
	mu     sync.Mutex
	ledger weir.Ledger
	sealed map[int64][]string
	rows   []string
}

func (l *ledgered) Spec() weir.SinkSpec {
	return weir.SinkSpec{Kind: weir.Transactional, Target: l.name, Participant: l.name, Readers: "each row once", Needs: []string{"memory"}}
}

func (l *ledgered) Connect(context.Context, []string) (weir.Participant, error) {
	l.sealed = map[int64][]string{}
	return l, nil
}

func (l *ledgered) Open(context.Context, weir.Participant, string) (weir.Outlet[weir.Pair[string, int64]], error) {
	return l, nil
}

func (l *ledgered) Writer(int) weir.Writer[weir.Pair[string, int64]] { return &ledgeredWriter{l: l} }
func (l *ledgered) Follow()                                          {}
func (l *ledgered) Flush(context.Context) error                      { return nil }
func (l *ledgered) Close() error                                     { return nil }

func (l *ledgered) Fence(_ context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	l.ledger.Found = l.ledger.Found || f.Create
	return map[string]weir.Ledger{map[string]string{"decider": "decided", "follower": "followed"}[l.name]: l.ledger}, nil
}

// Prepare keeps the rows, with enough behind them to fill a file of its own.
func (l *ledgered) Prepare(_ context.Context, epoch int64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := slices.Sorted(slices.Values(l.sealed[epoch]))
	return json.Marshal(append(rows, strings.Repeat("-", int(epoch%2)*5000)))
}

func (l *ledgered) Commit(_ context.Context, c weir.Commit) error {
	if l.failAt > 0 && c.Epoch == l.failAt {
		return fmt.Errorf("the sink is out of order")
	}
	if l.ledger.ID == c.ID {
		return nil
	}
	if l.ledger.ID != c.Parent {
		return fmt.Errorf("the ledger names %s, and the epoch's parent is %s", l.ledger.ID, c.Parent)
	}
	l.ledger.ID = c.ID
	if c.Empty {
		return nil
	}
	var rows []string
	if err := json.Unmarshal(c.Staged, &rows); err != nil {
		return err
	}
	l.rows = append(l.rows, rows[:len(rows)-1]...)
	return nil
}

type ledgeredWriter struct {
	l    *ledgered
	rows []string
}

func (w *ledgeredWriter) Write(recs []weir.Pair[string, int64], _ []int64) error {
	for _, r := range recs {
		w.rows = append(w.rows, fmt.Sprint(r.Key, " ", r.Value))
	}
	return nil
}

func (w *ledgeredWriter) Seal(epoch int64) error {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.l.sealed[epoch] = append(w.l.sealed[epoch], w.rows...)
	w.rows = nil
	return nil
}
