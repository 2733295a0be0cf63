package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir"
)

// TestRestarts counts the recoveries of a job whose sink fails a number of times.
func TestRestarts(t *testing.T) {
	for _, tt := range []struct {
		failures int
		args     []string
		code     int
		restarts int
	}{
		{0, nil, ExitOK, 0},
		{5, nil, ExitOK, 5},
		{6, nil, ExitFailed, 5},
		{1, []string{"--restarts", "1"}, ExitOK, 1},
		{1, []string{"--restarts", "0"}, ExitFailed, 0},
	} {
		t.Run(fmt.Sprint(tt.failures, tt.args), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := tt.failures
				code, _, stderr := invoke(t, func(*Params) *weir.Job {
					job := weir.NewJob("flaky")
					job.From("numbers", weir.Generate(3, func(i int64) int64 { return i })).To("out", weir.Each(func(int64) error {
						if failures--; failures >= 0 {
							return errors.New("the receiver is away")
						}
						return nil
					}))
					return job
				}, nil, append([]string{"run", "--progress", "0"}, tt.args...)...)
				if n := strings.Count(stderr, "failed (task), restart"); code != tt.code || n != tt.restarts {
					t.Errorf("code %d after %d restarts, want %d after %d:\n%s", code, n, tt.code, tt.restarts, stderr)
				}
				if tt.restarts == 5 && !strings.Contains(stderr, "restart 5 in 16s") {
					t.Errorf("the last wait isn't said:\n%s", stderr)
				}
			})
		})
	}
}
