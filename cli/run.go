package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
)

func (a *app) runCommand() *cobra.Command {
	c := &cobra.Command{Use: "run", Short: "run the job: from the start, or where its last checkpoint stands", Args: noArgs}
	e, w := &engine{}, &watch{}
	e.flags(c.Flags())
	w.flags(c.Flags())
	return a.bind(c, e, false, func(c *cobra.Command, job *weir.Job, e *engine, opts []weir.RunOption) error {
		return a.run(c.Context(), job, e, w, opts)
	})
}

// run runs the job and shows how it is doing: a view that is kept up to date, or
// a line now and then, and pages for machines if they were asked for.
func (a *app) run(ctx context.Context, job *weir.Job, e *engine, w *watch, opts []weir.RunOption) (err error) {
	addr, err := w.check()
	if err != nil {
		return err
	}
	if e.progress < 0 {
		return usageError{fmt.Errorf("--progress %v: it can't be negative; 0 means none", e.progress)}
	}
	screen := a.liveScreen(w, e) // it may take the place of a.stderr
	log, err := a.logger(e)
	if err != nil {
		return err
	}
	var lis net.Listener
	if addr != "" {
		if lis, err = listen(ctx, addr); err != nil {
			return err
		}
	}
	p := &printer{w: a.stderr, now: time.Now}
	if e.logFormat == "json" && a.log == nil {
		p.w = io.Discard // machines read it, and the log says it all
	}
	if lis != nil {
		fmt.Fprintf(p.w, "metrics: http://%s/metrics\n", lis.Addr())
		log.Info("metrics", "url", fmt.Sprintf("http://%s/metrics", lis.Addr()))
	}
	opts = append(opts, weir.Logger(log), weir.Tracer(a.tracer), weir.OnStart(p.started), weir.OnCheckpoint(p.committed),
		weir.OnWait(p.waiting), weir.OnRestart(p.restarting))
	began := time.Now()
	running := job.Start(ctx, opts...)
	if lis != nil {
		s := serve(lis, running.Metrics, maxAge(w.readyAge, e.interval, e.records != 0), w.pprof)
		defer func() { err = errors.Join(err, s.close()) }()
	}
	show, leave := func() error { p.progress(running.Progress()); return nil }, func() {}
	if screen != nil {
		l := &live{screen: screen, style: a.style(), running: running}
		show, leave = l.update, func() { _ = l.update(); screen.leave() }
	}
	err = follow(running, show, e.progress)
	leave()
	if err == nil {
		p.ended(running.Progress(), time.Since(began), ctx.Err() != nil)
	}
	return err
}

// follow shows how the job is doing until it ends.
func follow(running *weir.Running, show func() error, every time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	// The sources answer when they are asked next: somebody must ask now and then.
	pulse := time.NewTicker(fresh)
	defer pulse.Stop()
	running.Progress()
	for {
		select {
		case <-pulse.C:
			running.Progress()
		case <-tick:
			_ = show() // who can't see it can't be told either
		case err := <-ended:
			return err
		}
	}
}

// fresh is how old the figures of the splits are at most.
const fresh = 500 * time.Millisecond

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
