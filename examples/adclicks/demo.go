package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// demoCommand tells the story of the checkpoint, the kill and the replay with
// what it sees happen: every number printed was read from a process, from its
// checkpoint or from the database.
func demoCommand() *cobra.Command {
	c := &cobra.Command{Use: "demo", Short: "kill the job half-way, start it again, and compare three sinks", Args: cobra.NoArgs}
	input := c.Flags().String("input", "testdata/clicks-10k.jsonl", "the clicks")
	c.RunE = func(c *cobra.Command, _ []string) error {
		dir, err := os.MkdirTemp("", "weir-demo-")
		if err != nil {
			return err
		}
		d := &demo{dir: dir, input: *input, out: c.OutOrStdout()}
		return errors.Join(d.run(c.Context()), os.RemoveAll(dir))
	}
	return c
}

func defaults(db, sink string) settings {
	return settings{db: db, sink: sink, dedup: time.Hour, outOfOrder: 30 * time.Second, lateness: 30 * time.Minute}
}

type demo struct {
	dir, input string
	out        io.Writer
	right      rows // of an uninterrupted run
}

// outcome is what the demo saw of one sink.
type outcome struct {
	checkpoint, before, after, finished report
	atCheckpoint, atKill, replayed, end rows
	twice                               int
}

func (d *demo) run(ctx context.Context) error {
	reference := filepath.Join(d.dir, "reference.db")
	job := build(file.Lines(d.input, codec.JSON[Click]()), defaults(reference, transactional))
	if err := job.Run(ctx, weir.StateDir(filepath.Join(d.dir, "reference"))); err != nil {
		return err
	}
	var err error
	if d.right, err = readRows(reference); err != nil {
		return err
	}
	seen := map[string]outcome{}
	for _, sink := range []string{upsert, transactional, increment} {
		if seen[sink], err = d.twoLives(ctx, sink); err != nil {
			return fmt.Errorf("%s: %w", sink, err)
		}
	}
	return d.tell(seen)
}

// twoLives runs the job with a sink, sees it kill itself, and starts it again.
func (d *demo) twoLives(ctx context.Context, sink string) (o outcome, err error) {
	db := filepath.Join(d.dir, sink+".db")
	args := []string{"life", "--input", d.input, "--db", db, "--state", filepath.Join(d.dir, sink), "--sink", sink}
	err = d.life(ctx, args, func(r report) (err error) {
		switch r.At {
		case "checkpoint":
			o.checkpoint = r
			o.atCheckpoint, err = readRows(db)
		case "held":
			o.before = r
			o.atKill, err = readRows(db)
		}
		return err
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return o, fmt.Errorf("the first life was to kill itself, but ended with: %w", err)
	}
	if err := watchWrites(db); err != nil {
		return o, err
	}
	return o, d.life(ctx, append(args, "--again"), func(r report) (err error) {
		switch r.At {
		case "held":
			o.after = r
			if o.replayed, err = readRows(db); err == nil {
				o.twice, err = rewritten(db, o.atKill)
			}
		case "finished":
			o.finished = r
			o.end, err = readRows(db)
		}
		return err
	})
}

// life runs one process and looks at the database whenever it reports.
func (d *demo) life(ctx context.Context, args []string, look func(report) error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	var failed error
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if failed = json.Unmarshal(lines.Bytes(), &r); failed == nil {
			failed = look(r)
		}
		if failed != nil {
			break
		}
		fmt.Fprintln(in, "go on") // a dead life shows in Wait
	}
	return errors.Join(failed, in.Close(), c.Wait())
}

func (d *demo) tell(seen map[string]outcome) error {
	o := seen[upsert]
	w := bufio.NewWriter(d.out)
	fmt.Fprintf(w, "\nAd clicks from %s into SQLite: each click counted once, the process killed half-way.\n\n", d.input)
	fmt.Fprintf(w, "Eager upsert: every update is written at once.              %s\n", storyAd)
	line := func(count int64, format string, args ...any) {
		fmt.Fprintf(w, "  %-58s %s\n", fmt.Sprintf(format, args...), comma(count))
	}
	line(o.atCheckpoint.story(), "checkpoint (log slot %d, epoch %d) at offset %s", o.checkpoint.Slot, o.checkpoint.Epoch, comma(o.checkpoint.Offset))
	line(o.atKill.story(), "killed with SIGKILL at offset %s", comma(o.before.Offset))
	line(o.after.FirstCount-1, "restored: log slot %d, offset %s, %s state entries", o.after.Slot, comma(o.after.Offset-o.after.Replayed), comma(o.after.Keys))
	line(o.replayed.story(), "replayed %s records, to offset %s", comma(o.after.Replayed), comma(o.after.Offset))
	fmt.Fprintf(w, "  rows written twice (a trigger counted them): %d; rows that then differ from before the kill: %d\n", o.twice, o.replayed.differ(o.atKill))
	same := "equal to those of an uninterrupted run"
	if n := o.end.differ(d.right); n > 0 {
		same = fmt.Sprintf("%d rows DIFFER from those of an uninterrupted run", n)
	}
	fmt.Fprintf(w, "  at the end, offset %s: %s rows in ad_minute, %d in ad_total, %s\n\n", comma(o.finished.Offset),
		comma(int64(len(o.end.minutes))), len(o.end.totals), same)
	fmt.Fprintf(w, "The same input and the same kill through three sinks:\n")
	fmt.Fprintf(w, "  %-34s %12s %12s %12s %12s\n", "", "at the kill", "at the end", "should be", "wrong rows")
	for _, s := range []struct{ sink, name string }{
		{upsert, "eager upsert"}, {transactional, "transaction with the checkpoint"}, {increment, "clicks = clicks + 1, on its own"},
	} {
		o := seen[s.sink]
		fmt.Fprintf(w, "  %-34s %12s %12s %12s %12d\n", s.name, comma(o.atKill.story()), comma(o.end.story()),
			comma(d.right.story()), o.end.differ(d.right))
	}
	fmt.Fprintf(w, "\nWhy: docs/exactly-once.md\n")
	return w.Flush()
}

func comma(n int64) string {
	if n < 0 {
		return "-" + comma(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", comma(n/1000), n%1000)
}
