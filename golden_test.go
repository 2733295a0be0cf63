package weir_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirstream/weir"
)

// makeGolden makes the golden stores of this build that aren't there yet. It never
// touches one that is there: see testdata/README.md.
var makeGolden = flag.Bool("golden.make", false, "make the golden stores that are missing")

// goldenGeneration is a folder in testdata/stores. Who changes a format in a way
// that other bytes are written, or adds a kind of state, raises it and makes the
// stores of the new generation; those of older ones stay, and must go on to be
// restored.
const goldenGeneration = "1"

// expected is what a golden store is known to hold.
type expected struct {
	Checkpoints []expectedCheckpoint
	// Output is what a run that goes on from the store gives, sorted.
	Output []string
}

type expectedCheckpoint struct {
	N, Epoch, Parent, Content, Records, Keys int64
	Standing                                 string
	Finished                                 bool
	Positions                                []string
	State                                    map[string][]string // by step, in the order of export; of the last two
}

// TestGoldenStores restores every store that an earlier build left, of all
// generations: what its checkpoints hold, as it is read without the job's types,
// and what the job makes of it when it goes on, at several parallelisms.
func TestGoldenStores(t *testing.T) {
	const root = "testdata/stores"
	if *makeGolden {
		for _, g := range goldens() {
			g.make(t, filepath.Join(root, goldenGeneration, g.name))
		}
	}
	for _, g := range goldens() {
		if _, err := os.Stat(filepath.Join(root, goldenGeneration, g.name)); err != nil {
			t.Errorf("%v: make it with go test -run TestGoldenStores . -golden.make", err)
		}
	}
	generations, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, gen := range generations {
		stores, err := os.ReadDir(filepath.Join(root, gen.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stores {
			if !s.IsDir() {
				continue
			}
			tried++
			t.Run(gen.Name()+"/"+s.Name(), func(t *testing.T) {
				i := slices.IndexFunc(goldens(), func(g golden) bool { return g.name == s.Name() })
				if i < 0 {
					t.Fatal("no job can be declared that goes on from it: its declaration must stay in this test")
				}
				restoreGolden(t, goldens()[i], filepath.Join(root, gen.Name(), s.Name()))
			})
		}
	}
	if tried < len(goldens()) {
		t.Errorf("only %d stores", tried)
	}
}

func restoreGolden(t *testing.T, g golden, dir string) {
	b, err := os.ReadFile(dir + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var want expected
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Checkpoints, holds(t, dir)); diff != "" {
		t.Errorf("what it holds (-want +got):\n%s", diff)
	}
	if len(want.Checkpoints) == 0 || len(want.Output) == 0 {
		t.Error("nothing is expected of it")
	}
	for _, c := range want.Checkpoints[max(0, len(want.Checkpoints)-2):] {
		if diff := cmp.Diff(countsAt(t, c.Positions), c.State["count"], cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("checkpoint %d: the counts of the records up to its positions, and what it holds (-want +got):\n%s", c.N, diff)
		}
	}
	for _, p := range []int{1, 2, 5} {
		copied := filepath.Join(t.TempDir(), "state")
		copyStore(t, dir, copied)
		if diff := cmp.Diff(want.Output, g.goOn(t, copied, p)); diff != "" {
			t.Errorf("going on with parallelism %d (-want +got):\n%s", p, diff)
		}
	}
}

// countsAt counts the golden jobs' records up to the positions of their splits, in
// the words of holds.
func countsAt(t *testing.T, positions []string) []string {
	t.Helper()
	counts := map[string]int{}
	for _, p := range positions {
		var split, n int
		if _, err := fmt.Sscanf(p, "readings/%d at %d", &split, &n); err != nil {
			t.Fatalf("position %q: %v", p, err)
		}
		for _, r := range goldenReadings()[split][:n] {
			counts[r.Site]++
		}
	}
	var out []string
	for site, n := range counts {
		name, err := json.Marshal(site)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %d", unescaped.Replace(string(name)), n))
	}
	return out
}

// unescaped takes back what encoding/json does for the sake of HTML.
var unescaped = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u2028`, "\u2028")

// holds reads everything that a store holds.
func holds(t *testing.T, dir string) []expectedCheckpoint {
	t.Helper()
	all, err := weir.ReadCheckpoints(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []expectedCheckpoint
	for i, c := range all {
		e := expectedCheckpoint{N: c.ID.Slot, Epoch: c.Epoch, Parent: c.Parent.Slot, Content: c.Content.Slot, Records: c.Records, Keys: c.Keys,
			Standing: c.Standing, Finished: c.Finished}
		for _, p := range c.Positions {
			e.Positions = append(e.Positions, fmt.Sprintf("%s/%s at %s", p.Source, p.Split, p.At))
		}
		for _, step := range c.Steps {
			if i < len(all)-2 {
				continue
			}
			if e.State == nil {
				e.State = map[string][]string{}
			}
			for s, err := range weir.ReadState(t.Context(), dir, c.ID.Slot, step) {
				if err != nil {
					t.Fatal(err)
				}
				line := string(s.Key) + " " + string(s.Value)
				if !s.Window.IsZero() {
					line = s.Window.Format("15:04:05 ") + line
				}
				e.State[step] = append(e.State[step], line)
			}
		}
		out = append(out, e)
	}
	return out
}

// copyStore copies a store but for what means nothing to a restart.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel == "tmp":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case rel == "lock", rel == "reserve":
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// make makes a store, and writes beside it what a look and a run say about it: who
// adds one reads that.
func (g golden) make(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	state := filepath.Join(t.TempDir(), "state")
	g.build(t, state)
	copyStore(t, state, dir)
	want := expected{Checkpoints: holds(t, dir), Output: g.goOn(t, state, 1)}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".json", b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %s: %s", dir, strings.Join(strings.Fields(fmt.Sprint(len(want.Checkpoints), "checkpoints,", len(want.Output), "rows")), " "))
}
