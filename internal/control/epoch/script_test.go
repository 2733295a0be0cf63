package epoch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata; review the diff")

// TestScripts runs testdata/*.txt. A line that begins at the margin is an
// event, the indented lines behind it are what it must lead to:
//
//	new tasks=2 sources=1 last=4 chain=count/2100/500/3
//	tick
//	    emit 5 full=count
//	acked 5 a/0 ended count/full/10/10
//	    write 5 a/0
//
// A chain is STEP/ENTRIES/LIVE/PARTS, optionally with /rewrite; what was saved
// is STEP/full or delta/ENTRIES/LIVE. What was merged is STEP, its parts, what
// they became, its entries, and what they became.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runScript(string(b))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(b), got); diff != "" {
				t.Errorf("decisions differ (-script +machine):\n%s", diff)
			}
		})
	}
}

// runScript returns the script with what the machine decided in place of what
// the script expects.
func runScript(script string) (string, error) {
	var out strings.Builder
	var m *Machine
	for i, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line + "\n")
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if f[0] == "new" {
			c, err := parseConfig(f[1:])
			if err != nil {
				return "", fmt.Errorf("line %d: %w", i+1, err)
			}
			m = New(c)
			continue
		}
		e, err := parseEvent(f)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
		for _, d := range m.Step(e) {
			out.WriteString("    " + show(d) + "\n")
		}
	}
	return out.String(), nil
}

func parseConfig(args []string) (c Config, err error) {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		if key == "chain" {
			p := strings.Split(value, "/")
			c.Chains = append(c.Chains, Chain{Step: p[0], Entries: num(p[1]), Live: num(p[2]), Parts: int(num(p[3])), Rewrite: len(p) > 4})
			continue
		}
		switch n := num(value); key {
		case "tasks":
			c.Tasks = int(n)
		case "sources":
			c.Sources = int(n)
		case "last":
			c.Last = n
		case "merge-above":
			c.Limits = DefaultLimits()
			c.Limits.MergeAbove = n
		default:
			return c, fmt.Errorf("what is %q?", a)
		}
	}
	return c, nil
}

func num(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func parseEvent(f []string) (Event, error) {
	n := func() int64 { return num(f[1]) }
	switch f[0] {
	case "tick":
		return Tick{}, nil
	case "asked":
		return Asked{}, nil
	case "wants":
		return Wants{Hold: len(f) > 1}, nil
	case "stop":
		return Stop{}, nil
	case "ended":
		return Ended{f[1]}, nil
	case "failed":
		return Failed{strings.Join(f[1:], " ")}, nil
	case "written":
		return Written{n(), f[2]}, nil
	case "prepared":
		return Prepared{n()}, nil
	case "entered":
		return Entered{n()}, nil
	case "decided":
		return Decided{n()}, nil
	case "followed":
		return Followed{n()}, nil
	case "retired":
		return Retired{n()}, nil
	case "merged":
		return Merged{Step: f[1], Parts: int(num(f[2])), Into: int(num(f[3])), Entries: num(f[4]), Holds: num(f[5])}, nil
	case "unmerged":
		return Unmerged{f[1]}, nil
	case "acked":
		a := Acked{Epoch: n(), Task: f[2]}
		for _, s := range f[3:] {
			if s == "ended" {
				a.AllEnded = true
				continue
			}
			p := strings.Split(s, "/")
			a.Saved = append(a.Saved, Saved{Step: p[0], Full: p[1] == "full", Entries: num(p[2]), Live: num(p[3])})
		}
		return a, nil
	}
	return nil, fmt.Errorf("no event %q", f[0])
}

func show(d Decision) string {
	switch d := d.(type) {
	case Emit:
		if len(d.Full) > 0 {
			return fmt.Sprintf("emit %d full=%s", d.Epoch, strings.Join(d.Full, ","))
		}
		return fmt.Sprintf("emit %d", d.Epoch)
	case Hold:
		if d.On {
			return "hold"
		}
		return "go on"
	case Write:
		return fmt.Sprintf("write %d %s", d.Epoch, d.Task)
	case Prepare:
		return fmt.Sprintf("prepare %d", d.Epoch)
	case Enter:
		if d.Finished {
			return fmt.Sprintf("enter %d finished", d.Epoch)
		}
		return fmt.Sprintf("enter %d", d.Epoch)
	case Decide:
		return fmt.Sprintf("decide %d", d.Epoch)
	case Follow:
		return fmt.Sprintf("follow %d", d.Epoch)
	case Publish:
		return fmt.Sprintf("publish %d", d.Epoch)
	case Retire:
		return fmt.Sprintf("retire %d", d.Epoch)
	case Merge:
		return "merge " + d.Step
	case End:
		if d.Finished {
			return "end finished"
		}
		return "end stopped"
	case Fail:
		return "fail: " + d.Reason
	}
	return fmt.Sprintf("%#v", d)
}
