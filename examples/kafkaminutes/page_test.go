package main

import (
	"os"
	"strings"
	"testing"
)

// TestPageShowsThisProgram holds the first program of the page about Kafka to the one
// that is compiled here.
func TestPageShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "\n```go\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		t.Fatal("the page has no block of Go")
	}
	_, code, found := strings.Cut(string(program), "\npackage main\n") // behind what says where it is from
	if !found || block != "package main\n"+code {
		t.Errorf("the first program of the page isn't main.go, but:\n%s", block)
	}
}
