package main

import (
	"testing"

	"github.com/weirstream/weir/internal/process"
)

var binary string // built by TestMain, and the same for all tests

func TestMain(m *testing.M) { process.Main(m, ".", "kafkaclicks", &binary) }

// running is a process that runs the job.
type running struct {
	*process.Process
	t *testing.T
}

func launch(t *testing.T, args ...string) *running {
	t.Helper()
	return &running{process.Launch(t, binary, args...), t}
}
