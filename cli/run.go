package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
)

func (a *app) runCommand() *cobra.Command {
	return a.verb("run", "run the job: from the start, or where its last checkpoint stands", a.run)
}

// run runs the job and prints a progress line now and then.
func (a *app) run(c *cobra.Command, job *weir.Job, e *engine, opts []weir.RunOption) error {
	log, err := a.logger(e)
	if err != nil {
		return err
	}
	p := &printer{w: a.stderr, now: time.Now}
	opts = append(opts, weir.Logger(log), weir.OnStart(p.started), weir.OnCheckpoint(p.committed), weir.OnWait(p.waiting))
	began := time.Now()
	running := job.Start(c.Context(), opts...)
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	var tick <-chan time.Time
	if e.progress > 0 {
		t := time.NewTicker(e.progress)
		defer t.Stop()
		tick = t.C
		running.Progress() // asks for the first figures
	}
	for {
		select {
		case <-tick:
			p.progress(running.Progress())
		case err := <-ended:
			if err != nil {
				return err
			}
			p.ended(running.Progress(), time.Since(began), c.Context().Err() != nil)
			return nil
		}
	}
}

// clockTime is how event times are printed in progress lines.
func clockTime(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
