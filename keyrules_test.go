package weir_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/connector/sqlite"
	"github.com/weirstream/weir/window"
)

// TestNullEmptyAndAbsentKeys: a key is what the key function returns, and the
// empty text is one like any other; a JSON null and a missing member are the empty
// text. That holds alike for a fold, a window and a Distinct, and nothing is
// dropped. A line that is null as a whole is no record.
func TestNullEmptyAndAbsentKeys(t *testing.T) {
	eachShape(t, func(t *testing.T, opts ...weir.RunOption) {
		path := filepath.Join(t.TempDir(), "in.jsonl")
		at := `"t":"2026-03-01T12:00:00Z"`
		lines := []string{`{"k":null,"n":1,` + at + `}`, `{"k":"","n":2,` + at + `}`, `{"n":3,` + at + `}`, `null`,
			`{"k":"null","n":4,` + at + `}`, `{"k":" ","n":5,` + at + `}`, `{"k":"","n":null,` + at + `}`}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		var fold, win, seen, repeats gathered[string]
		var dead gathered[weir.DeadLetter]
		job := weir.NewJob("keys")
		job.DeadLetters("dead", dead.sink())
		in := job.From("lines", file.Lines(path, codec.JSON[line]()), weir.EventTime(lineTime, 0))
		key := func(l line) string { return l.K }
		in.KeyBy(key).Count("fold", weir.EachBarrier()).Map(func(p weir.Pair[string, int64]) string { return fmt.Sprintf("%q %d", p.Key, p.Value) }).
			To("to-fold", fold.sink())
		in.KeyBy(key).Window(window.Tumbling(time.Minute)).Count("window").
			Map(func(r weir.Result[string, int64]) string { return fmt.Sprintf("%q %d", r.Key, r.Value) }).To("to-window", win.sink())
		d := in.KeyBy(key).Distinct("distinct", time.Hour, weir.Admit(time.Hour))
		d.Map(func(l line) string { return fmt.Sprintf("%q", l.K) }).To("to-seen", seen.sink())
		d.Repeats().Map(func(l line) string { return fmt.Sprintf("%q", l.K) }).To("to-repeats", repeats.sink())
		mustRun(t, job, opts...)
		want := []string{`" " 1`, `"" 4`, `"null" 1`}
		wantSame(t, sorted(fold.all()), want)
		wantSame(t, sorted(win.all()), want)
		wantSame(t, sorted(seen.all()), []string{`" "`, `""`, `"null"`})
		wantSame(t, sorted(repeats.all()), []string{`""`, `""`, `""`})
		if l := dead.all(); len(l) != 1 || string(l[0].Raw) != "null" || l[0].Kind != "decode" {
			t.Errorf("dead letters %+v, want the null", l)
		}
	})
}

// hugeKeys are keys that nothing compresses.
func hugeKeys(seed uint64) map[string]int64 {
	r := rand.New(rand.NewPCG(seed, 1))
	keys := map[string]int64{}
	for i, n := range []int{1, 20, 3 << 10, 3<<10 + 1, 1 << 20} {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[r.IntN(64)]
		}
		keys[string(b)] = int64(i + 1)
	}
	return keys
}

// hugeSource has each key as often as its number says.
func hugeSource(keys map[string]int64) weir.Source[string] {
	var recs []string
	for k, n := range keys {
		for range n {
			recs = append(recs, k)
		}
	}
	return weir.Slice(recs...)
}

// TestHugeKeys: keys of 3 KB and 1 MB go through state, a checkpoint, a restore
// and SQLite like any other.
func TestHugeKeys(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, p := range []int{1, 2, 7} {
		keys := hugeKeys(seed)
		dir := t.TempDir()
		db := filepath.Join(dir, "out.db")
		src := hugeSource(keys) // in one order for both lives
		for life := range 2 {
			job := weir.NewJob("huge")
			job.From("in", src).KeyBy(func(k string) string { return k }).Count("count", weir.EachBarrier()).
				Map(func(p weir.Pair[string, int64]) lineCount { return lineCount{p.Key, p.Value} }).
				To("counts", sqlite.Upsert[lineCount](db, "counts", "k"))
			ctx, cancel := context.WithCancel(t.Context())
			err := job.Run(ctx, weir.StateDir(filepath.Join(dir, "state")), weir.EveryRecords(2), weir.Parallelism(p), weir.OnCheckpoint(func(c weir.Checkpoint) {
				if life == 0 && c.Epoch == 3 {
					cancel()
				}
			}))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := counts(t, db); !maps.Equal(got, keys) {
			for k, n := range keys {
				if got[k] != n {
					t.Errorf("parallelism %d: the key of %d bytes is counted %d times, want %d", p, len(k), got[k], n)
				}
			}
		}
	}
}

// narrow is a sink whose keys have at most 2,704 bytes, as an index of PostgreSQL
// has: it rejects a longer one.
type narrow struct{ vault[lineCount] }

func (s *narrow) Open(_ context.Context, p weir.Participant, _ string) (weir.Outlet[lineCount], error) {
	return narrowRun{p.(*vaultRun[lineCount])}, nil
}

type narrowRun struct{ r *vaultRun[lineCount] }

func (r narrowRun) Writer(int) weir.Writer[lineCount] {
	return &narrowWriter{vaultWriter[lineCount]{r: r.r}}
}

type narrowWriter struct{ vaultWriter[lineCount] }

func (w *narrowWriter) Write(recs []lineCount, at []int64) error {
	for i := range recs {
		if n := len(recs[i].K); n > 2704 {
			return wideError{i, n}
		}
		if err := w.vaultWriter.Write(recs[i:i+1], at[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

type wideError struct{ i, n int }

func (e wideError) Error() string { return fmt.Sprintf("index row size %d exceeds maximum 2704", e.n) }
func (e wideError) Rejected() int { return e.i }

// TestHugeKeysThatASinkRejects: the rows are visible among the dead letters, the
// others are written, and the job goes on to its end.
func TestHugeKeysThatASinkRejects(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	keys := hugeKeys(seed)
	for _, barrier := range []bool{false, true} {
		for _, p := range []int{1, 7} {
			var out narrow
			var dead gathered[weir.DeadLetter]
			job := weir.NewJob("huge")
			job.DeadLetters("dead", dead.sink(), weir.MaxDeadLetters(-1, 0))
			var opts []weir.EmitOption
			if barrier {
				opts = append(opts, weir.EachBarrier())
			}
			job.From("in", hugeSource(keys)).KeyBy(func(k string) string { return k }).Count("count", opts...).
				Map(func(p weir.Pair[string, int64]) lineCount { return lineCount{p.Key, p.Value} }).To("out", &out)
			mustRun(t, job, weir.Interval(0), weir.Parallelism(p), weir.StateDir(t.TempDir()))
			got := map[string]int64{}
			for _, r := range out.all() {
				got[r.K] = max(got[r.K], r.N)
			}
			want, rejected := map[string]int64{}, 0
			for k, n := range keys {
				switch {
				case len(k) <= 2704:
					want[k] = n
				case barrier:
					rejected++
				default:
					rejected += int(n)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("barrier %t, parallelism %d: %d keys are written, want %d", barrier, p, len(got), len(want))
			}
			marks := map[int64]bool{}
			for _, l := range dead.all() {
				marks[l.Mark] = true
				if l.Step != "out (sink)" || l.Kind != "sink" || !strings.Contains(l.Reason, "exceeds maximum 2704") {
					t.Errorf("letter of step %s, kind %s: %s", l.Step, l.Kind, l.Reason)
				}
				if whole := len(l.Raw) > 2704 && len(l.Raw) <= weir.MaxRejected; barrier && (l.Mark >= 0 || l.Source != "" || !whole) {
					t.Errorf("letter of mark %d, source %q, %d bytes: want the row itself", l.Mark, l.Source, len(l.Raw))
				}
			}
			if len(marks) != rejected {
				t.Errorf("barrier %t, parallelism %d: %d letters, want %d", barrier, p, len(marks), rejected)
			}
		}
	}
}
