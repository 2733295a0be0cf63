package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/file"
)

// The demo's story: where the checkpoint falls, and where the process dies.
const (
	checkpointAt = 5_000
	killAt       = 5_400
	storyAd      = "ad-42"
)

// report is what one life of the job tells the demo, a JSON line each time. The
// demo looks at the database and answers with a line, and the life goes on.
type report struct {
	At         string // "checkpoint", "held", "finished"
	Restored   bool
	Slot       int64 // of the checkpoint restored or taken
	Epoch      int64
	Offset     int64 // records of the input read so far
	Replayed   int64 // of these, read in this life
	Keys       int64 // state entries restored
	FirstCount int64 // the first total of storyAd computed in this life
}

// lifeCommand is one process of the demo: it runs the job up to killAt, and
// kills itself there, or was started again and runs to the end.
func lifeCommand() *cobra.Command {
	c := &cobra.Command{Use: "life", Hidden: true, Args: cobra.NoArgs}
	var input, db, state, sink string
	var again bool
	c.Flags().StringVar(&input, "input", "", "")
	c.Flags().StringVar(&db, "db", "", "")
	c.Flags().StringVar(&state, "state", "", "")
	c.Flags().StringVar(&sink, "sink", "", "")
	c.Flags().BoolVar(&again, "again", false, "")
	c.RunE = func(c *cobra.Command, _ []string) error {
		l := &life{in: bufio.NewReader(os.Stdin), out: os.Stdout, again: again}
		l.gate = newGate(file.Lines(input, codec.JSON[Click]()), checkpointAt)
		s := defaults(db, sink)
		s.watch = l.watch
		return l.run(c.Context(), build(l.gate, s), state)
	}
	return c
}

type life struct {
	in    *bufio.Reader
	out   io.Writer
	gate  *gate
	again bool
	first atomic.Int64
	start weir.Started
}

// watch notes the first total of the story's ad.
func (l *life) watch(ad string, clicks int64) {
	if ad == storyAd {
		l.first.CompareAndSwap(0, clicks)
	}
}

func (l *life) run(ctx context.Context, job *weir.Job, state string) error {
	started, committed := make(chan weir.Started, 1), make(chan weir.Checkpoint, 16)
	if l.again {
		l.gate.first = checkpointAt // as the checkpoint will confirm
		l.gate.until(killAt)
	}
	running := job.Start(ctx, weir.StateDir(state), weir.EveryRecords(checkpointAt), weir.Restarts(0),
		weir.OnStart(func(s weir.Started) { started <- s }),
		weir.OnCheckpoint(func(c weir.Checkpoint) { committed <- c }))
	ended := make(chan error, 1)
	go func() { ended <- running.Wait() }()
	var err error
	if l.start, err = wait(started, ended); err != nil {
		return err
	}
	if l.again && (!l.start.Restored || l.start.Records != checkpointAt) {
		return fmt.Errorf("restored %d records, not %d", l.start.Records, checkpointAt)
	}
	if !l.again {
		if err := l.untilCheckpoint(committed, ended); err != nil {
			return err
		}
		l.gate.until(killAt)
	}
	if err := l.untilKill(ctx, running, ended); err != nil {
		return err
	}
	if !l.again {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		return self.Kill() // SIGKILL: nothing can be tidied up any more
	}
	l.gate.until(-1)
	return l.untilEnd(committed, ended)
}

func (l *life) untilCheckpoint(committed chan weir.Checkpoint, ended chan error) error {
	for {
		c, err := wait(committed, ended)
		if err != nil {
			return err
		}
		if c.Records == checkpointAt {
			return l.tell(report{At: "checkpoint", Slot: c.ID.Slot, Epoch: c.Epoch, Offset: c.Records})
		}
	}
}

// untilKill returns when all that was read has passed every task and is
// confirmed by the sink, as far as it doesn't wait for a checkpoint.
func (l *life) untilKill(ctx context.Context, running *weir.Running, ended chan error) error {
	settled := make(chan error, 1)
	go func() { settled <- running.Settle(ctx) }()
	err, failed := wait(settled, ended)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return l.tell(report{At: "held", Restored: l.start.Restored, Slot: l.start.Checkpoint.Slot, Epoch: l.start.Epoch,
		Offset: l.gate.first + l.gate.read.Load(), Replayed: l.gate.read.Load(), Keys: l.start.Keys, FirstCount: l.first.Load()})
}

func (l *life) untilEnd(committed chan weir.Checkpoint, ended chan error) error {
	if err := <-ended; err != nil {
		return err
	}
	for {
		c := <-committed
		if c.Finished {
			return l.tell(report{At: "finished", Slot: c.ID.Slot, Epoch: c.Epoch, Offset: c.Records})
		}
	}
}

// tell sends a report and waits for the demo's answer.
func (l *life) tell(r report) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(l.out, "%s\n", b); err != nil {
		return err
	}
	_, err = l.in.ReadString('\n')
	return err
}

// wait returns what ch gives, or why the job ended first.
func wait[T any](ch <-chan T, ended <-chan error) (v T, err error) {
	select {
	case v = <-ch:
		return v, nil
	case err = <-ended:
		if err == nil {
			err = errors.New("the job ended too early")
		}
		return v, err
	}
}
