package weir_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
	"github.com/weirstream/weir/window"
)

// A folder holds files that a test writes to.
type folder struct {
	dir  string
	data map[string]string
}

func newFolder(t *testing.T) *folder { return &folder{dir: t.TempDir(), data: map[string]string{}} }

// write appends to files, by their names.
func (f *folder) write(t *testing.T, texts map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		w, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.WriteString(texts[name])
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		f.data[name] += texts[name]
	}
}

// lines are all that have an end, sorted.
func (f *folder) lines() (out []string) {
	for _, data := range f.data {
		for line := range strings.Lines(data) {
			if strings.HasSuffix(line, "\n") && strings.TrimSpace(line) != "" {
				out = append(out, strings.TrimRight(line, "\r\n"))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (f *folder) follow(pattern string) weir.Source[string] {
	return file.Lines(filepath.Join(f.dir, pattern), codec.String(), file.Follow())
}

// until takes checkpoints until a vault holds so many rows, or the run has ended.
func until(t *testing.T, r *weir.Running, v *vault[string], rows int) error {
	t.Helper()
	for range 1000 {
		if _, err := r.Checkpoint(t.Context()); err != nil {
			return err
		}
		if len(v.all()) >= rows {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // virtual: until the files are looked at again
	}
	t.Fatalf("the vault holds %d rows, want %d", len(v.all()), rows)
	return nil
}

// growth is what is written to a folder, a step at a time: whole lines, halves of
// lines, ends of lines and new files.
var growth = []map[string]string{
	{"a.log": "a1\na2\na"},
	{"a.log": "3\r"},
	{"a.log": "\na4\n", "b.log": ""},
	{"b.log": "b1\nb2\nb\xc3"},
	{"b.log": "\xa9\n", "c.log": "c1\nc2\n\nc3"},
	{"c.log": "\n", "a.log": "a5\na6\n"},
}

// TestFollowedFilesAcrossCrashes crashes a job that follows a folder, which is
// empty at its start, at each effect on its store, lets it go on while more is
// written, and stops it politely once on the way. Each line that has an end must
// be there once, and no other.
func TestFollowedFilesAcrossCrashes(t *testing.T) {
	effects, crashes := 0, 0
	for k := 0; k == 0 || k <= effects; k++ {
		if k > 1 && (underRace || testing.Short()) && k%7 != 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			n, crashed := followAcross(t, k)
			if k == 0 {
				effects = n
			}
			if crashed {
				crashes++
			}
		})
		if t.Failed() {
			t.Fatalf("crash at effect %d of %d", k, effects)
		}
	}
	t.Logf("%d effects, %d crashes", effects, crashes)
	if least := effects * 9 / 10; crashes < least && !underRace && !testing.Short() || effects < 50 {
		t.Errorf("%d crashes at %d effects", crashes, effects)
	}
}

// followAcross is one job; k is the effect of its first life at which it crashes,
// or 0. It returns how many effects that life had.
func followAcross(t *testing.T, k int) (effects int, crashed bool) {
	f, v := newFolder(t), &vault[string]{}
	first := sim.NewMachine(sim.NewDisk())
	first.CrashAt(k, sim.Modes()[k%3])
	m := first
	run := func() *weir.Running {
		job := weir.NewJob("followed")
		job.From("lines", f.follow("*.log")).To("out", weir.Sink[string](v))
		return job.Start(sys.With(t.Context(), m.Env()), weir.StateDir("state"), weir.Interval(0), weir.Restarts(0), weir.Parallelism(1+k%3))
	}
	r := run()
	// over waits for the end of a life, which may be a crash, and begins the next.
	over := func(keep sim.Keep) {
		if err := r.Wait(); err != nil && !m.Dead() {
			t.Fatalf("the run ended with %v", err)
		}
		m = sim.NewMachine(m.Image(keep))
		r = run()
	}
	for i, step := range growth {
		f.write(t, step)
		for until(t, r, v, len(f.lines())) != nil {
			over(sim.Random(uint64(k)))
		}
		got := v.all()
		if slices.Sort(got); !slices.Equal(got, f.lines()) {
			t.Fatalf("after step %d the vault holds %q, want %q", i, got, f.lines())
		}
		if i == len(growth)*2/3 {
			r.Stop()
			over(sim.Lost())
		}
	}
	r.Stop()
	if err := r.Wait(); err != nil && !m.Dead() {
		t.Error(err)
	}
	return first.Effects(), first.Dead()
}

// A pattern without a file yet is waited for, and that is said.
func TestAFolderWithoutFilesYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, v := newFolder(t), &vault[string]{}
		job := weir.NewJob("followed")
		job.From("lines", f.follow("*.log")).To("out", weir.Sink[string](v))
		waits := make(chan string, 10)
		r := job.Start(t.Context(), weir.StateDir(t.TempDir()), weir.OnWait(func(what string) { waits <- what }))
		if what := <-waits; !strings.Contains(what, "source lines: it has no splits yet") {
			t.Errorf("it waits for %q", what)
		}
		f.write(t, map[string]string{"a.log": "one\n"})
		if err := until(t, r, v, 1); err != nil {
			t.Fatal(err)
		}
		p := r.Progress()
		for len(p.Splits) == 0 {
			time.Sleep(time.Millisecond) // virtual
			p = r.Progress()
		}
		if s := p.Splits[0]; s.Records != 1 || s.Ended || s.Since.IsZero() {
			t.Errorf("progress: %+v", s)
		}
		r.Stop()
		if err := r.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// What is wrong with a followed file stops the job as refused, and at once.
func TestAFollowedFileThatIsTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, v := newFolder(t), &vault[string]{}
		f.write(t, map[string]string{"a.log": "one\ntwo\n"})
		job := weir.NewJob("followed")
		job.From("lines", f.follow("a.log")).To("out", weir.Sink[string](v))
		state := t.TempDir()
		r := job.Start(t.Context(), weir.StateDir(state))
		if err := until(t, r, v, 2); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(f.dir, "a.log"), 4); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{r.Wait(), job.Run(t.Context(), weir.StateDir(state))} {
			if !errors.Is(err, weir.ErrRefused) || errors.Is(err, weir.ErrInput) || !strings.Contains(err.Error(), "a.log") {
				t.Errorf("the run ended with %v", err)
			}
		}
		if got := v.all(); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("the vault holds %q", got)
		}
	})
}

// A job that has finished has closed its windows: it can't be made to follow. One
// that was only stopped can, and the other way round.
func TestFollowingAfterABoundedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, pattern := range []string{"a.log", "*.log"} {
			f, v := newFolder(t), &vault[string]{}
			f.write(t, map[string]string{"a.log": "one\ntwo\n"})
			state := weir.StateDir(t.TempDir())
			declare := func(opts ...file.Option) *weir.Job {
				job := weir.NewJob("lines")
				job.From("lines", file.Lines(filepath.Join(f.dir, pattern), codec.String(), opts...)).To("out", weir.Sink[string](v))
				return job
			}
			r := declare(file.Follow()).Start(t.Context(), state)
			if err := until(t, r, v, 2); err != nil {
				t.Fatal(err)
			}
			r.Stop()
			if err := r.Wait(); err != nil {
				t.Fatal(err)
			}
			f.write(t, map[string]string{"a.log": "three\n"})
			mustRun(t, declare(), state)
			if got := v.all(); !slices.Equal(got, []string{"one", "two", "three"}) {
				t.Errorf("%s: the vault holds %q", pattern, got)
			}
			err := declare(file.Follow()).Run(t.Context(), state)
			if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "finished") || !strings.Contains(err.Error(), "--start-over") {
				t.Errorf("%s: following a finished job: %v", pattern, err)
			}
		}
	})
}

// Windows close without a file to which nothing is written, or never was.
func TestWindowsCloseWithoutQuietFiles(t *testing.T) {
	for _, parallelism := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			f, v := newFolder(t), &vault[string]{}
			at := func(sec int) string { return time.Unix(int64(sec), 0).UTC().Format(time.RFC3339) + "\n" }
			f.write(t, map[string]string{"busy.log": at(5), "quiet.log": at(7), "empty.log": ""})
			job := weir.NewJob("followed")
			job.From("lines", f.follow("*.log"), weir.EventTime(func(s string) time.Time {
				tm, err := time.Parse(time.RFC3339, s)
				if err != nil {
					t.Error(err)
				}
				return tm
			}, 0)).
				KeyBy(func(string) string { return "k" }).
				Window(window.Tumbling(time.Minute, window.OnClose)).Count("count").
				Map(func(r weir.Result[string, int64]) string { return fmt.Sprint(r.Start.Unix(), "=", r.Value) }).
				To("out", weir.Sink[string](v))
			r := job.Start(t.Context(), weir.StateDir(t.TempDir()), weir.Parallelism(parallelism), weir.Interval(0))
			f.write(t, map[string]string{"busy.log": at(61)})
			if err := until(t, r, v, 1); err != nil {
				t.Fatal(err)
			}
			// It comes back with one record for a window that has been closed without it.
			f.write(t, map[string]string{"quiet.log": at(59) + at(62)})
			time.Sleep(100 * time.Millisecond) // virtual
			f.write(t, map[string]string{"busy.log": at(130)})
			if err := until(t, r, v, 2); err != nil {
				t.Fatal(err)
			}
			if got := v.all(); !slices.Equal(got, []string{"0=2", "60=2"}) {
				t.Errorf("parallelism %d: windows %q", parallelism, got)
			}
			if late := r.Progress().Late["count"]; late != 1 {
				t.Errorf("parallelism %d: %d late, want 1", parallelism, late)
			}
			r.Stop()
			if err := r.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A bounded run flushes all windows at its end, also with an input that is empty.
func TestAnEmptyFileDoesNotKeepWindowsOpen(t *testing.T) {
	for _, parallelism := range []int{1, 2, 4} {
		f, v := newFolder(t), &vault[string]{}
		f.write(t, map[string]string{"a.log": "5\n61\n", "b.log": "", "c.log": "7\n"})
		job := weir.NewJob("bounded")
		job.From("lines", file.Lines(filepath.Join(f.dir, "*.log"), codec.String()), weir.EventTime(func(s string) time.Time {
			sec, err := strconv.Atoi(s)
			if err != nil {
				t.Error(err)
			}
			return time.Unix(int64(sec), 0)
		}, 0)).
			KeyBy(func(string) string { return "k" }).
			Window(window.Tumbling(time.Minute, window.OnClose)).Count("count").
			Map(func(r weir.Result[string, int64]) string { return fmt.Sprint(r.Start.Unix(), "=", r.Value) }).
			To("out", weir.Sink[string](v))
		mustRun(t, job, weir.StateDir(t.TempDir()), weir.Parallelism(parallelism))
		if got := v.all(); !slices.Equal(got, []string{"0=2", "60=1"}) {
			t.Errorf("parallelism %d: windows %q", parallelism, got)
		}
	}
}

// Records that were set aside move the position: they aren't read again.
func TestLinesThatWereSetAsideStayBehind(t *testing.T) {
	type number struct {
		N  int   `json:"n"`
		At int64 `json:"at"`
	}
	f, v := newFolder(t), &vault[string]{}
	var bad strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&bad, "undecodable %d\n", i)
		fmt.Fprintf(&bad, `{"n":%d,"at":-9000000000}`+"\n", i)
	}
	f.write(t, map[string]string{"a.log": bad.String()})
	state := weir.StateDir(t.TempDir())
	letters := map[string]int{}
	run := func(t *testing.T, opts ...weir.RunOption) {
		job := weir.NewJob("numbers")
		job.From("lines", file.Lines(filepath.Join(f.dir, "a.log"), codec.JSON[number](), file.Follow()),
			weir.EventTime(func(n number) time.Time { return time.Unix(n.At, 0) }, 0)).
			Map(func(n number) string { return fmt.Sprint(n.N) }).To("out", weir.Sink[string](v))
		job.DeadLetters("dead", weir.Each(func(l weir.DeadLetter) error {
			letters[fmt.Sprintf("%s %s", l.Kind, l.Raw)]++
			return nil
		}), weir.MaxDeadLetters(-1, 0))
		r := job.Start(t.Context(), append(opts, state, weir.Interval(0), weir.Parallelism(1))...)
		if err := until(t, r, v, len(v.all())+1); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		if err := r.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f.write(t, map[string]string{"a.log": `{"n":1}` + "\n"})
		run(t)
		if len(letters) != 2000 {
			t.Errorf("%d letters, want 2,000", len(letters))
		}
		f.write(t, map[string]string{"a.log": `{"n":2}` + "\n"})
		run(t, weir.OnStart(func(s weir.Started) {
			if s.Records != 2001 {
				t.Errorf("restored behind %d records, want 2,001", s.Records)
			}
		}))
	})
	for l, n := range letters {
		if n != 1 {
			t.Fatalf("%d letters of %s", n, l)
		}
	}
	if got := v.all(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the vault holds %q", got)
	}
}
