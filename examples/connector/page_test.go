package connector

import (
	"os"
	"strings"
	"testing"
)

// TestPageShowsThisCode holds the excerpts in the page about connectors to what
// is in the files: line by line, but for how far a whole excerpt is indented.
func TestPageShowsThisCode(t *testing.T) {
	var code []string
	for _, name := range []string{"rows.go", "table.go", "ledger.go", "connector_test.go", "../../example_sink_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, flush(string(b)))
	}
	page, err := os.ReadFile("../../docs/writing-connectors.md")
	if err != nil {
		t.Fatal(err)
	}
	excerpts := 0
	for i, block := range strings.Split(string(page), "\n```") {
		block, isGo := strings.CutPrefix(block, "go\n")
		if !isGo {
			continue
		}
		if i%2 == 0 {
			t.Fatalf("fences of the page don't come in pairs before:\n%s", block)
		}
		excerpts++
		found := false
		for _, c := range code {
			found = found || strings.Contains(c, "\n"+flush(block)+"\n")
		}
		if !found {
			t.Errorf("the page shows what isn't in the code:\n%s", block)
		}
	}
	if excerpts < 10 {
		t.Errorf("found %d excerpts in the page: is it still written in this way?", excerpts)
	}
}

// flush takes the indentation away.
func flush(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}
