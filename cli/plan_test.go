package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/sqlite"
)

// tallied is a job with parameters that plan can do without.
func tallied(p *Params) *weir.Job {
	type row struct {
		N     int64 `db:"n"`
		Count int64 `db:"count"`
	}
	n := p.Int("n", 20, "how many numbers")
	id := p.String("id", "counts", "the step's id")
	db := p.Need("db", "SQLite database")
	p.Need("note", "a text that nothing depends on")
	job := weir.NewJob("counted")
	job.From("numbers", weir.Generate(n, func(i int64) int64 { return i })).
		KeyBy(func(i int64) int64 { return i % 3 }).Count(id, weir.EachBarrier()).
		Map(func(p weir.Pair[int64, int64]) row { return row{p.Key, p.Value} }).
		To("rows", sqlite.Upsert[row](db, "counts", "n"))
	return job
}

func TestPlanVerb(t *testing.T) {
	dir := t.TempDir()
	state, db := filepath.Join(dir, "state"), filepath.Join(dir, "c.db")
	known := []string{"--state", state, "--db", db, "--note", "x"}
	if code, out, stderr := invoke(t, tallied, nil, "plan", "--state", state); code != ExitOK || !strings.Contains(out, "a run starts from nothing") {
		t.Fatalf("before the first run: code %d\n%s%s", code, out, stderr)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Fatalf("plan has made the state directory: %v", err)
	}
	if code, _, stderr := invoke(t, tallied, nil, append([]string{"run", "--progress", "0"}, known...)...); code != ExitOK {
		t.Fatalf("run: code %d: %s", code, stderr)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"the same", known, ExitOK, []string{"kept          sink rows", "nothing is different"}},
		{"the same, in detail", append([]string{"--detailed-exit-code"}, known...), ExitOK, []string{"nothing is different"}},
		{"without parameters", []string{"--state", state}, ExitOK, []string{"kept          count counts", "not compared  sink rows", "--db isn't given"}},
		{"another id", append([]string{"--id", "sums"}, known...), ExitRefused, []string{"new           count sums", "refused       count counts", "a run would be refused"}},
		{"another id, and the old one dropped", append([]string{"--id", "sums", "--drop", "counts"}, known...), ExitOK, []string{"dropped       count counts"}},
		{"the same, in detail: changed", append([]string{"--id", "sums", "--drop", "counts", "--detailed-exit-code"}, known...), ExitVerdict, []string{"dropped       count counts"}},
		{"drop of what is declared", append([]string{"--drop", "counts"}, known...), ExitUsage, nil},
		{"another database", []string{"--state", state, "--db", filepath.Join(dir, "d.db"), "--note", "x", "--detailed-exit-code"}, ExitVerdict, []string{"place:"}},
		{"as a picture", append([]string{"--format", "svg"}, known...), ExitOK, []string{"<svg ", ">kept<"}},
		{"for Graphviz", append([]string{"--format", "dot"}, known...), ExitOK, []string{"digraph", "counts (count): kept"}},
		{"in another form", append([]string{"--format", "pdf"}, known...), ExitUsage, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := invoke(t, tallied, nil, append([]string{"plan"}, c.args...)...)
			if code != c.code {
				t.Errorf("code %d, want %d: %s", code, c.code, stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(out, want) {
					t.Errorf("%q isn't in:\n%s", want, out)
				}
			}
			if quiet := c.code <= ExitVerdict; (stderr == "") != quiet {
				t.Errorf("standard error, with code %d: %q", c.code, stderr)
			}
		})
	}
	code, out, stderr := invoke(t, tallied, map[string]string{"WEIR_DROP": "a,b", "WEIR_FORMAT": "json"}, append([]string{"plan"}, known...)...)
	var p struct {
		Changed bool
		Notes   []string
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != ExitOK || p.Changed || len(p.Notes) != 2 {
		t.Errorf("code %d, %v, %+v: %s", code, err, p, stderr)
	}
}

// TestExplainWithoutParameters: what isn't known isn't promised.
func TestExplainWithoutParameters(t *testing.T) {
	code, out, stderr := invoke(t, tallied, nil, "explain", "--state", filepath.Join(t.TempDir(), "state"))
	if code != ExitOK || !strings.Contains(out, "--db isn't given") {
		t.Errorf("code %d: %s%s", code, out, stderr)
	}
}
