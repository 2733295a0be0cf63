package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestRowNames(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, r := range rows(&kafkaBench{}) {
		if !kebab.MatchString(r.name) || seen[r.name] {
			t.Errorf("row %q: its name isn't kebab-case, or isn't the only one", r.name)
		}
		seen[r.name] = true
		if got, err := choose(r.name, &kafkaBench{}); err != nil || len(got) != 1 || got[0].name != r.name {
			t.Errorf("choose(%q) = %d rows, %v", r.name, len(got), err)
		}
	}
	if _, err := choose("overhead", &kafkaBench{}); err == nil || !strings.Contains(err.Error(), "overhead-1k-keys") {
		t.Errorf("choose of an unknown row: %v, which should list the rows", err)
	}
}

// A line has exactly these fields first, in this order: scripts read them.
func TestJSONLines(t *testing.T) {
	for _, c := range []struct {
		least bool
		value float64
		want  string
	}{
		{false, 1.5, `{"name":"x","value":1.5,"unit":"ns","bound":2,"ok":true,`},
		{false, 2.5, `{"name":"x","value":2.5,"unit":"ns","bound":2,"ok":false,`},
		{true, 2.5, `{"name":"x","value":2.5,"unit":"ns","bound":2,"ok":true,`},
		{true, 1.5, `{"name":"x","value":1.5,"unit":"ns","bound":2,"ok":false,`},
	} {
		var b strings.Builder
		if err := jsonLines(&b)(row{name: "x", unit: "ns", bound: 2, least: c.least}, result{value: c.value}, 7); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasPrefix(got, c.want) || strings.Count(got, "\n") != 1 {
			t.Errorf("a value of %v is printed as %q, want %s...", c.value, got, c.want)
		}
	}
}
