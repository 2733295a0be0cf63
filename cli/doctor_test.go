package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir"
)

// patient is a source that can be examined. Repairs take effect on it.
type patient struct {
	weir.Source[int64]
	found    []weir.Finding
	seen     weir.Examination
	repaired []string
	fails    error
}

func (p *patient) Examine(_ context.Context, x weir.Examination) ([]weir.Finding, error) {
	p.seen = x
	if len(p.repaired) > 0 {
		return []weir.Finding{{Level: weir.LevelOK, Subject: "transactions", Text: "none is open"}}, nil
	}
	return p.found, nil
}

// way is a repair that is noted.
func (p *patient) way(as string, evidence ...string) weir.Repair {
	return weir.Repair{Text: "end it as " + as, As: as, Evidence: evidence, Do: func(context.Context) error {
		p.repaired = append(p.repaired, as)
		return p.fails
	}}
}

func (p *patient) build(*Params) *weir.Job {
	p.Source = weir.Generate(3, func(i int64) int64 { return i })
	job := weir.NewJob("clicks")
	job.From("numbers", p).To("out", weir.Each(func(int64) error { return nil }))
	return job
}

// examine runs the verb, with a person who says answers.
func (p *patient) examine(t *testing.T, answers string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	a := &app{build: p.build, stdout: &o, stderr: &e, getenv: func(string) (string, bool) { return "", false }}
	if answers != "" {
		a.stdin = strings.NewReader(answers)
	}
	code = a.execute(t.Context(), append([]string{"doctor"}, args...))
	return code, o.String(), e.String()
}

var (
	healthy = weir.Finding{Level: weir.LevelOK, Subject: "cluster 127.0.0.1:9092", Text: "1 broker answers"}
	warned  = weir.Finding{Level: weir.LevelWarning, Subject: "topic clicks", Fix: "set it:\n  kafka-configs.sh --alter --entity-name clicks --add-config min.insync.replicas=2,and.one.more=so.that.it.is.long",
		Text: "4 partitions, 3 copies each, but min.insync.replicas=1: what a broker alone has acknowledged is lost with it, and nobody notices before it is too late"}
	unwell = weir.Finding{Level: weir.LevelProblem, Subject: "a subject that is so long that it can't be in a column", Text: "it is broken\x1b[31m", Fix: "mend it"}
)

func TestDoctorPrints(t *testing.T) {
	p := &patient{found: []weir.Finding{healthy, warned, unwell}}
	code, stdout, stderr := p.examine(t, "")
	want := `job clicks
  ok       state directory         none is given: checkpoints live in memory, and each start reads
                                   the input from its beginning

source numbers
  ok       cluster 127.0.0.1:9092  1 broker answers
  warning  topic clicks            4 partitions, 3 copies each, but min.insync.replicas=1: what a
                                   broker alone has acknowledged is lost with it, and nobody notices
                                   before it is too late
           do: set it:
             kafka-configs.sh --alter --entity-name clicks --add-config min.insync.replicas=2,and.one.more=so.that.it.is.long
  problem  a subject that is so long that it can't be in a column
                                   it is broken?[31m
           do: mend it

2 ok, 1 warning, 1 problem
`
	if code != ExitUnwell || stdout != want || stderr != "" {
		t.Errorf("code %d, want %d; stderr %q; printed:\n%s\nwant:\n%s", code, ExitUnwell, stderr, stdout, want)
	}
}

func TestDoctorInANarrowTerminal(t *testing.T) {
	lines := findings{"clicks", []weir.Finding{warned}}.render(50, style{color: true})
	for _, l := range lines {
		l = strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[33m", "").Replace(l)
		if cells(l) > 50 && !strings.Contains(l, "kafka-configs") {
			t.Errorf("a line of %d columns: %q", cells(l), l)
		}
	}
	if !strings.Contains(lines[1], "\x1b[33mwarning\x1b[0m  topic clicks") {
		t.Errorf("the level isn't coloured: %q", lines[1])
	}
}

func TestDoctorExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		found []weir.Finding
		code  int
	}{
		"nothing found": {nil, ExitOK}, "a warning": {[]weir.Finding{healthy, warned}, ExitOK}, "a problem": {[]weir.Finding{unwell, healthy}, ExitUnwell},
	} {
		t.Run(name, func(t *testing.T) {
			if code, stdout, _ := (&patient{found: c.found}).examine(t, ""); code != c.code {
				t.Errorf("code %d, want %d:\n%s", code, c.code, stdout)
			}
		})
	}
}

func TestDoctorJSON(t *testing.T) {
	p := &patient{}
	p.found = []weir.Finding{{Level: weir.LevelProblem, Subject: "hanging transaction", Text: "it hangs", Repairs: []weir.Repair{p.way("commit", "the coordinator says so")}}}
	code, stdout, _ := p.examine(t, "", "--json")
	var got struct {
		Job                string
		Problems, Warnings int
		Findings           []struct {
			Of, Level, Subject, Text string
			Repairs                  []struct {
				As       string
				Evidence []string
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v:\n%s", err, stdout)
	}
	last := got.Findings[len(got.Findings)-1]
	if code != ExitUnwell || got.Job != "clicks" || got.Problems != 1 || got.Warnings != 0 || last.Of != "source numbers" || last.Level != "problem" ||
		last.Repairs[0].As != "commit" || last.Repairs[0].Evidence[0] != "the coordinator says so" {
		t.Errorf("code %d, %+v", code, got)
	}
}

func TestDoctorRepairs(t *testing.T) {
	proof := []string{"the coordinator says so"}
	for name, c := range map[string]struct {
		evidence []string // of commit; nil: there is none for either
		answers  string
		args     []string
		fails    error
		code     int
		done     string
		says     string
	}{
		"not asked for":         {proof, "", nil, nil, ExitUnwell, "", "it hangs"},
		"agreed":                {proof, "y\n", []string{"--repair"}, nil, ExitOK, "commit", "because the coordinator says so"},
		"not agreed":            {proof, "n\n", []string{"--repair"}, nil, ExitUnwell, "", "left as it is"},
		"an empty answer":       {proof, "\n", []string{"--repair"}, nil, ExitUnwell, "", "left as it is"},
		"no more answers":       {proof, " ", []string{"--repair"}, nil, ExitUnwell, "", "left as it is"},
		"nobody to ask":         {proof, "", []string{"--repair"}, nil, ExitUsage, "", "--yes"},
		"without asking":        {proof, "", []string{"--repair", "--yes"}, nil, ExitOK, "commit", "examined again"},
		"as the evidence says":  {proof, "yes\n", []string{"--repair", "--as", "commit"}, nil, ExitOK, "commit", "done"},
		"against the evidence":  {proof, "y\n", []string{"--repair", "--yes", "--as", "abort"}, nil, ExitUnwell, "", "--as abort contradicts the evidence, which says commit"},
		"without evidence":      {nil, "y\n", []string{"--repair"}, nil, ExitUnwell, "", "--as commit or --as abort does it all the same"},
		"yes is no decision":    {nil, "", []string{"--repair", "--yes"}, nil, ExitUnwell, "", "nothing proves which way is right"},
		"on one's own decision": {nil, "y\n", []string{"--repair", "--as", "abort"}, nil, ExitOK, "abort", "your own decision"},
		"it fails":              {proof, "y\n", []string{"--repair"}, errors.New("the broker said no"), ExitOK, "commit", "failed: the broker said no"},
		"as nothing":            {proof, "y\n", []string{"--repair", "--as", "maybe"}, nil, ExitUsage, "", "commit or abort"},
		"yes to nothing":        {proof, "y\n", []string{"--yes"}, nil, ExitUsage, "", "--repair"},
		"json":                  {proof, "y\n", []string{"--repair", "--json"}, nil, ExitUsage, "", "--json"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &patient{fails: c.fails}
			ways := []weir.Repair{p.way("commit", c.evidence...)}
			if c.evidence == nil {
				ways = append(ways, p.way("abort"))
			}
			p.found = []weir.Finding{{Level: weir.LevelProblem, Subject: "hanging transaction", Text: "it hangs", Repairs: ways}}
			code, stdout, stderr := p.examine(t, c.answers, c.args...)
			if got := strings.Join(p.repaired, " "); code != c.code || got != c.done || !strings.Contains(stdout+stderr, c.says) {
				t.Errorf("code %d, want %d; done %q, want %q; %q must be in:\n%s%s", code, c.code, got, c.done, c.says, stdout, stderr)
			}
		})
	}
}

// Two repairs are asked for one by one: an answer is that to one question.
func TestDoctorAsksForEachRepair(t *testing.T) {
	p := &patient{}
	hangs := func(as string) weir.Finding {
		return weir.Finding{Level: weir.LevelProblem, Subject: "hanging transaction", Text: "it hangs", Repairs: []weir.Repair{p.way(as, "it was seen")}}
	}
	p.found = []weir.Finding{hangs("commit"), hangs("abort"), hangs("commit")}
	_, stdout, _ := p.examine(t, "y\nn\ny\n", "--repair")
	if got := strings.Join(p.repaired, " "); got != "commit commit" || strings.Count(stdout, "do it?") != 3 {
		t.Errorf("done: %s, in:\n%s", got, stdout)
	}
}

// An examination before the first start makes nothing; what it is given afterwards
// is what the job has left.
func TestDoctorLooksAtTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	p := &patient{}
	code, stdout, stderr := p.examine(t, "", "--state", dir, "--downtime", "90m", "--checkpoint-interval", "3s")
	if _, err := os.Stat(dir); code != ExitOK || !errors.Is(err, os.ErrNotExist) || !strings.Contains(stdout, "starts for the first time") {
		t.Fatalf("code %d, the folder: %v:\n%s%s", code, err, stdout, stderr)
	}
	if x := p.seen; x.Job != "clicks" || x.Source != "numbers" || x.UUID != "" || x.Downtime != 90*time.Minute || x.Interval != 3*time.Second || len(x.Checkpoints) != 0 {
		t.Errorf("before the first start it is given %+v", x)
	}
	if code, _, stderr := invoke(t, p.build, nil, "run", "--state", dir); code != ExitOK {
		t.Fatalf("code %d: %s", code, stderr)
	}
	code, stdout, _ = p.examine(t, "", "--state", dir)
	x := p.seen
	if code != ExitOK || x.UUID == "" || len(x.Checkpoints) < 2 || !strings.Contains(stdout, "newest checkpoint") {
		t.Fatalf("code %d, it is given %+v:\n%s", code, x, stdout)
	}
	last := x.Checkpoints[len(x.Checkpoints)-1]
	if len(x.Positions) != len(last.Positions) || len(x.Positions) == 0 || !bytes.Equal(x.Positions[0].At, last.Positions[0].At) {
		t.Errorf("it is given the positions %v, and the last checkpoint has %v", x.Positions, last.Positions)
	}
}

func TestDoctorNamesADamagedStore(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log", "000000000001"), []byte("not an entry"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &patient{found: []weir.Finding{healthy}}
	code, stdout, _ := p.examine(t, "", "--state", dir)
	if code != ExitUnwell || !strings.Contains(stdout, "000000000001") || !strings.Contains(stdout, "1 broker answers") {
		t.Errorf("code %d:\n%s", code, stdout)
	}
}
