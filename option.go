package weir

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirstream/weir/internal/control/epoch"
	"github.com/weirstream/weir/internal/data"
)

const defaultKeyGroups = 128

// SourceOption configures From. It is typed by the source's records, so that
// an event-time function of another type doesn't compile.
type SourceOption[T any] interface{ source(*sourceConfig[T]) }

type sourceConfig[T any] struct {
	time  func(T) time.Time
	timed bool // event time was asked for
	bound time.Duration
	ahead time.Duration
}

// TimeOption is what EventTime returns.
type TimeOption[T any] struct{ c sourceConfig[T] }

func (o TimeOption[T]) source(c *sourceConfig[T]) { *c = o.c }

// EventTime says when a record happened, and how much records of one split may
// be out of order: a split's watermark is its newest event time less disorder.
// Records may be later than that; what becomes of them is up to the steps.
//
// A record without an event time (the zero time), with one outside the years
// 1900 to 2261, or with one more than a year ahead of the clock stops the job:
// such a time would make everything after it late.
func EventTime[T any](at func(T) time.Time, disorder time.Duration) TimeOption[T] {
	return TimeOption[T]{sourceConfig[T]{time: at, timed: true, bound: disorder, ahead: 366 * 24 * time.Hour}}
}

// MaxAhead sets how far ahead of the clock an event time may be before it is
// taken for a mistake. The default is 366 days; 0 allows any.
func (o TimeOption[T]) MaxAhead(d time.Duration) TimeOption[T] {
	o.c.ahead = d
	return o
}

// EmitOption configures when Fold, Reduce and Count emit.
type EmitOption interface{ emit(*emitConfig) }

type emitConfig struct{ barrier bool }

type emitOption func(*emitConfig)

func (f emitOption) emit(c *emitConfig) { f(c) }

// EachBarrier makes a Fold, Reduce or Count emit the values that changed, once
// an epoch. The default is to emit every update at once. What is emitted at a
// barrier has no event time of a record's, so no window and no Distinct can
// follow.
func EachBarrier() EmitOption { return emitOption(func(c *emitConfig) { c.barrier = true }) }

// DistinctOption configures Distinct.
type DistinctOption interface{ distinct(*distinctConfig) }

type distinctConfig struct{ admit time.Duration }

type distinctOption func(*distinctConfig)

func (f distinctOption) distinct(c *distinctConfig) { f(c) }

// Admit sets how far behind its own split's watermark a record may be before
// Distinct takes it for late. The default is the largest size plus lateness of
// the windows downstream; where a branch downstream has no window, Admit is
// required.
func Admit(d time.Duration) DistinctOption {
	return distinctOption(func(c *distinctConfig) { c.admit = d })
}

// RunOption configures one run of a job.
type RunOption interface{ run(*runConfig) }

type runConfig struct {
	stateDir    string
	interval    time.Duration
	every       int64
	parallelism int
	batch       int
	retain      int
	takeover    bool
	startOver   bool
	drop        []string
	downtime    time.Duration // Doctor's alone
	guessed     guesses       // none: all parameters are known
	restarts    int
	log         *slog.Logger
	stateMemory int64
	tracer      trace.Tracer // nil: none
	onStart     []func(Started)
	onCheck     []func(Checkpoint)
	onWait      []func(string)
	onRestart   []func(Restart)
	limits      epoch.Limits // of chains of base and deltas; tests make them small
}

func defaultRun() runConfig {
	return runConfig{interval: time.Second, parallelism: runtime.GOMAXPROCS(0), batch: data.MaxBatch, retain: 10, restarts: 5, downtime: 24 * time.Hour,
		log: slog.New(slog.DiscardHandler)}
}

func (c *runConfig) validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.interval >= 0, "checkpoint interval %v: it can't be negative; 0 means none by time", c.interval)
	check(c.every >= 0, "checkpoint every %d records: it can't be negative; 0 means none by count", c.every)
	check(c.parallelism >= 1 && c.parallelism <= 1024, "parallelism %d: 1 to 1024 tasks a keyed step", c.parallelism)
	check(c.batch >= 1 && c.batch <= data.MaxBatch, "batch size %d: 1 to %d records", c.batch, data.MaxBatch)
	check(c.stateMemory >= 0, "state memory of %d bytes: it can't be negative; 0 means no limit", c.stateMemory)
	check(c.retain >= 1, "retain %d checkpoints: at least 1", c.retain)
	check(c.downtime >= 0, "downtime budget %v: it can't be negative; 0 means that the job never stands still", c.downtime)
	check(c.restarts >= 0, "%d restarts: it can't be negative; 0 means none", c.restarts)
	return errs
}

type runOption func(*runConfig)

func (f runOption) run(c *runConfig) { f(c) }

// StateDir names the folder for checkpoints, made when missing. One job, one
// folder, one process at a time. Without it checkpoints live in memory and end
// with the run: the input is then read again from its start.
func StateDir(dir string) RunOption { return runOption(func(c *runConfig) { c.stateDir = dir }) }

// Interval sets the time between checkpoints. The default is 1 s; 0: none by
// time. Without any trigger a transactional sink shows rows only at the end, and
// whenever its buffer is full.
func Interval(d time.Duration) RunOption { return runOption(func(c *runConfig) { c.interval = d }) }

// EveryRecords takes a checkpoint whenever a split has read n records since the
// last barrier; the split waits there for the barrier, and no timer runs. It is
// for tests and demonstrations: where the checkpoints fall is then exact. It sets
// the interval to 0; an Interval given after it adds a timer again.
func EveryRecords(n int64) RunOption {
	return runOption(func(c *runConfig) { c.every, c.interval = n, 0 })
}

// Parallelism sets the number of tasks of each keyed step: 1 to 1,024, and not
// more than there are key groups. The default is one a core. It can change
// between runs.
func Parallelism(n int) RunOption { return runOption(func(c *runConfig) { c.parallelism = n }) }

// BatchSize sets how many records go from task to task at once, at most: 1 to
// 1,024, the default. Smaller batches cost throughput and change no result.
func BatchSize(n int) RunOption { return runOption(func(c *runConfig) { c.batch = n }) }

// Retain sets how many checkpoints are kept. The default is 10.
func Retain(n int) RunOption { return runOption(func(c *runConfig) { c.retain = n }) }

// StateMemory sets how many bytes of memory state may take, in all steps
// together: tables with their indexes and keys, an estimate of what values point
// to, and the copies that are made for checkpoints. The default is 0: no limit.
// Reaching it ends the run with ErrStateMemory, before memory is taken where that
// can be told, and a restore that needs more is refused with it. Batches, the
// buffers of sinks and what the garbage collector needs on top aren't part of it:
// leave them half of the machine, or set GOMEMLIMIT.
func StateMemory(bytes int64) RunOption {
	return runOption(func(c *runConfig) { c.stateMemory = bytes })
}

// Tracer makes spans of the path of an epoch: one a start, one a checkpoint with
// its phases and the calls to sinks below it, one a restart in place. Spans of
// epochs that failed have the error. There is none of a record. The default is
// none; a span is handed over when it has ended, with the times that it had.
func Tracer(t trace.Tracer) RunOption { return runOption(func(c *runConfig) { c.tracer = t }) }

// Takeover starts although another process holds the state directory, and
// fences that process: from then on it can't change anything.
func Takeover() RunOption { return runOption(func(c *runConfig) { c.takeover = true }) }

// StartOver gives up what the job has done so far and begins from nothing: its
// checkpoints in the state directory are forgotten, its ledgers in the sinks are
// fenced, and the input is read from its start. Rows that were written stay in
// their tables until they are written again. Use it once, not for every start.
func StartOver() RunOption { return runOption(func(c *runConfig) { c.startOver = true }) }

// Logger sets where structured logs go. The default is nowhere.
func Logger(l *slog.Logger) RunOption {
	return runOption(func(c *runConfig) {
		if l != nil {
			c.log = l
		}
	})
}

// OnStart calls f before the first record is read, and after each recovery. f
// runs on the path of an epoch: it must be quick.
func OnStart(f func(Started)) RunOption {
	return runOption(func(c *runConfig) {
		if f != nil {
			c.onStart = append(c.onStart, f)
		}
	})
}

// Restarts sets how often in a row the job recovers in place from an error that
// may pass, before Run returns it. The default is 5; 0: never. A recovery drops
// everything but what is committed and goes on from the last checkpoint, under a
// new incarnation; before it the job waits for 1 s, and each time in a row twice
// as long, at most a minute. An incarnation that has gone on for a minute and has
// committed a checkpoint begins a new row.
//
// Errors that a restart would meet again end the run at once: [ErrInput],
// [ErrRefused], [ErrGrown], [ErrCorrupt], [ErrFenced], [ErrLocked]. So does one
// before the first record of the first start, unless it says Temporary() bool. A
// disk that is full, read-only or reports errors isn't counted: unless n is 0 the
// job waits for it as long as it takes, which OnWait is told, and goes on.
func Restarts(n int) RunOption { return runOption(func(c *runConfig) { c.restarts = n }) }

// OnRestart calls f when an incarnation has failed, before the wait for the next
// one. Nothing of the job runs then.
func OnRestart(f func(Restart)) RunOption {
	return runOption(func(c *runConfig) {
		if f != nil {
			c.onRestart = append(c.onRestart, f)
		}
	})
}

// OnCheckpoint calls f after each committed checkpoint. f runs on the path of
// an epoch: it must be quick.
func OnCheckpoint(f func(Checkpoint)) RunOption {
	return runOption(func(c *runConfig) {
		if f != nil {
			c.onCheck = append(c.onCheck, f)
		}
	})
}

// OnWait calls f when a start or a commit has to wait, with what for.
func OnWait(f func(what string)) RunOption {
	return runOption(func(c *runConfig) {
		if f != nil {
			c.onWait = append(c.onWait, f)
		}
	})
}
