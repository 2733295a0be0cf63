package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// Work is what a lap does with the clicks.
type Work string

// What a lap can do.
const (
	Count Work = "count" // clicks by ad and minute
	Copy  Work = "copy"  // each record as it is
	Dedup Work = "dedup" // count, each click id once
)

// Side is who does it.
type Side string

// The sides.
const (
	Weir Side = "weir" // a job
	Raw  Side = "raw"  // a loop by hand
)

// Spec is one lap: a process that reads Input from its beginning to its end, as
// of the start, and writes to Output.
type Spec struct {
	Side          Side
	Work          Work
	Brokers       []string
	Input, Output string
	Name          string // of the job, or the group and the transactional id
	StateDir      string
	DefaultCodec  bool // encoding/json/v2 instead of the fast one
	Tasks         int
	AtLeastOnce   bool // no transactions
	Interval      time.Duration
	Follow        bool   // go on until stdin ends
	Profile       string // a file for a CPU profile; "": none
}

// Lap is what a lap took.
type Lap struct {
	Records     int64
	Commits     int64
	CPU         time.Duration // user and system time of the process
	Wall        time.Duration // from the first read to the last commit
	FirstCommit time.Duration // from the start of the process to its first committed output
	Mallocs     uint64
	PeakBytes   int64         // resident, at its peak; 0: the system doesn't tell
	Broker      time.Duration // CPU time of the broker meanwhile; 0: not known
}

// meter sees what a lap does.
type meter struct {
	born, began, ended time.Time
	lap                Lap
}

func (m *meter) begin() { m.began = time.Now() }

// commit notes a commit after so many records.
func (m *meter) commit(records int64) {
	m.ended = time.Now()
	if m.lap.Commits == 0 {
		m.lap.FirstCommit = m.ended.Sub(m.born)
	}
	m.lap.Commits++
	m.lap.Records = records
}

// Lapping is the first argument of the process of a lap; the spec is the second.
const Lapping = "lap"

// startedAt is the variable that tells a lap when its process was started.
const startedAt = "WEIR_BENCH_STARTED"

// Main is the process of a lap: it reads the spec from the argument, and writes
// what the lap took to w.
func Main(ctx context.Context, spec string, w io.Writer) (err error) {
	var s Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	m := &meter{born: time.Now()}
	if t, err := time.Parse(time.RFC3339Nano, os.Getenv(startedAt)); err == nil {
		m.born = t
	}
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if s.Follow {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the process at the latest
			stop(errStopped)
		}()
	}
	if s.Side == Weir {
		err = runJob(ctx, s, m)
	} else {
		err = runLoop(ctx, s, m)
	}
	if err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.lap.Mallocs, m.lap.CPU, m.lap.PeakBytes, m.lap.Wall = mem.Mallocs, CPU(), peakBytes(), m.ended.Sub(m.began)
	return json.NewEncoder(w).Encode(m.lap)
}

var errStopped = errors.New("stopped")

// peakBytes is the most memory that the process had resident. What getrusage
// says won't do: it includes what the parent had before the exec.
func peakBytes() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0
	}
	return kib << 10
}

// process is a lap under way.
type process struct {
	spec           Spec
	cmd            *exec.Cmd
	stdin          io.Closer
	stdout, stderr bytes.Buffer
}

// start starts a lap as a process of this very program.
func start(ctx context.Context, s Spec) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{spec: s, cmd: exec.CommandContext(ctx, self, Lapping, string(arg))}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), startedAt+"="+time.Now().Format(time.RFC3339Nano))
	return p, p.cmd.Start()
}

// end waits for the process; one that follows its input ends for it.
func (p *process) end() (l Lap, err error) {
	if p.spec.Follow {
		err = p.stdin.Close()
	}
	if err = errors.Join(err, p.cmd.Wait()); err == nil {
		err = json.Unmarshal(p.stdout.Bytes(), &l)
	}
	if err != nil {
		return l, fmt.Errorf("%s %s: %w\n%s", p.spec.Side, p.spec.Work, err, &p.stderr)
	}
	return l, nil
}

// Run runs a lap in a process of its own.
func Run(ctx context.Context, s Spec) (Lap, error) {
	p, err := start(ctx, s)
	if err != nil {
		return Lap{}, err
	}
	return p.end()
}
