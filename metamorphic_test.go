package weir_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/window"
)

// pipeline is a job made by a seed.
func pipeline(seed uint64, in [][]event, crash int, out weir.Sink[string]) *weir.Job {
	rnd := rand.New(rand.NewPCG(seed, 1))
	job := weir.NewJob("random")
	s := job.From("in", weir.Slices(in...), weir.EventTime(eventTime, time.Duration(rnd.IntN(40))*time.Second)).TryMap(crashAt[event](crash))
	id := 0
	next := func(op string) string { id++; return fmt.Sprintf("%s-%d", op, id) }
	for range rnd.IntN(4) {
		switch rnd.IntN(5) {
		case 0:
			m := rnd.Int64N(4) + 2
			s = s.Filter(func(e event) bool { return e.N%m != 0 })
		case 1:
			s = s.Map(func(e event) event { e.N = e.N*3 + 1; return e })
		case 2:
			s = s.FlatMap(func(e event, emit func(event)) {
				for range e.N & 1 {
					emit(e)
				}
				emit(e)
			})
		case 3:
			yes, no := s.Split(func(e event) bool { return e.N%2 == 0 })
			s = yes.Map(func(e event) event { e.Key += "!"; return e }).Union(no)
		case 4:
			// By the whole record: which of two equal ones passes makes no difference.
			s = s.KeyBy(func(e event) string { return fmt.Sprint(e) }).
				Distinct(next("distinct"), time.Duration(rnd.IntN(300)+1)*time.Second, weir.Admit(time.Hour)).Stream
		}
	}
	w := window.Tumbling(time.Duration(rnd.IntN(90)+10)*time.Second, window.Lateness(time.Duration(rnd.IntN(30))*time.Second))
	k := s.KeyBy(keyOf).Window(w)
	lines := k.Count(next("count")).Map(windowLine[int64])
	late := k.Late().Map(func(e event) string { return fmt.Sprint("late ", e) })
	sums := s.KeyBy(func(e event) int64 { return e.N % 5 }).
		Fold(next("fold"), int64(0), func(n int64, e event) int64 { return n + e.N }).
		Map(func(p weir.Pair[int64, int64]) string { return fmt.Sprint("sum ", p.Key) })
	lines.Union(late, sums).To("out", out)
	return job
}

// TestSameInputSameOutput runs random pipelines with random parallelism, batch
// sizes, checkpoints and crashes. WEIR_SEED repeats one.
func TestSameInputSameOutput(t *testing.T) {
	first, n := rand.Uint64(), uint64(12)
	if s := os.Getenv("WEIR_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Logf("repeat with WEIR_SEED=%d", seed)
			rnd := rand.New(rand.NewPCG(seed, 2))
			in := make([][]event, rnd.IntN(4)+1)
			for i := range 400 + rnd.IntN(800) {
				j := rnd.IntN(len(in))
				in[j] = append(in[j], event{fmt.Sprint("k", rnd.IntN(12)), rnd.Int64N(50), noon + int64(i)*1000 + rnd.Int64N(60_000) + int64(j)*100_000})
			}
			var plain, shaken vault[string]
			mustRun(t, pipeline(seed, in, 0, &plain), weir.StateDir(t.TempDir()), weir.Parallelism(1), weir.Interval(0))
			dir := weir.StateDir(t.TempDir())
			for life := 0; ; life++ {
				crash := 0
				if life < 4 {
					crash = rnd.IntN(500) + 1
				}
				p, batch, every := rnd.IntN(7)+1, rnd.IntN(1024)+1, rnd.Int64N(300)+20
				t.Logf("life %d: parallelism %d, batch %d, a checkpoint every %d, crash at %d", life, p, batch, every, crash)
				err := pipeline(seed, in, crash, &shaken).Run(t.Context(), dir, weir.Parallelism(p), weir.BatchSize(batch), weir.EveryRecords(every))
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
			}
			wantSame(t, sorted(shaken.all()), sorted(plain.all()))
		})
	}
}
