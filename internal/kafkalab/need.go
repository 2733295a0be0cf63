package kafkalab

import (
	"fmt"
	"os"
	"os/exec"
)

// Missing says what this machine lacks to run a real broker, or is nil.
func Missing() error {
	for _, c := range []struct{ name, what string }{
		{"java", "a JRE or JDK of 17 or later"}, {"mvn", "Maven"}, {"bash", "the shell"},
	} {
		if _, err := exec.LookPath(c.name); err != nil {
			return fmt.Errorf("%s is missing (%s): %w", c.name, c.what, err)
		}
	}
	return nil
}

// MissingKcat says that kcat isn't here, or is nil.
func MissingKcat() error {
	if _, err := exec.LookPath("kcat"); err != nil {
		return fmt.Errorf("kcat is missing: %w", err)
	}
	return nil
}

// TB is what [Need] and [NeedKcat] use of a testing.TB.
type TB interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}

// Need skips a test that starts a real broker where that can't be done, and
// says why. With CI=true in the environment that is a failure.
func Need(t TB) {
	t.Helper()
	need(t, Missing())
}

// NeedKcat is [Need] for a test that reads with kcat.
func NeedKcat(t TB) {
	t.Helper()
	need(t, MissingKcat())
}

func need(t TB, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv("CI") == "true":
		t.Fatal("left out, which CI=true forbids:", missing)
	default:
		t.Skip("left out:", missing)
	}
}
