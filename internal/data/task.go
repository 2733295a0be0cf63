package data

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// MinTime is before every event time.
	MinTime = math.MinInt64 / 2
	// EndOfTime is the watermark behind a bounded source's last record.
	EndOfTime = math.MaxInt64
	// MaxBatch is the most records that a batch can hold.
	MaxBatch = 1024
)

// MarkKind tells the marks apart.
type MarkKind uint8

// The marks. A watermark's N is an event time, a barrier's an epoch, a probe's
// a number of control's. Idle says, with N 1, that nobody need wait for the
// watermark of this input, until there is more of it or N is 0. wake is internal:
// it ends a source's wait.
const (
	Watermark MarkKind = iota
	Barrier
	Probe
	Idle
	wake
)

func idleMark(on bool) Mark {
	if on {
		return Mark{Idle, 1}
	}
	return Mark{Idle, 0}
}

// Mark travels through a stream between batches.
type Mark struct {
	Kind MarkKind
	N    int64
}

// Marker takes marks.
type Marker interface{ Mark(m Mark) }

// Out receives a stream within one task, in that task's goroutine. What p
// points at is valid during the call only, and must not be changed.
type Out[T any] interface {
	Push(p *T, at int64)
	Marker
}

type msg struct {
	in    int32
	mark  Mark
	batch any // *Batch[K, T], handled before the mark; or nil
}

// inbound is one input of a task: an edge from one sender.
type inbound struct {
	recv  func(batch any)
	wm    int64
	probe int64
	ahead bool // has delivered the barrier that is being aligned
	idle  bool // its watermark isn't waited for
}

// Task is one goroutine with the steps of a stage that run in it.
type Task struct {
	// Behind is the watermark of a record's own split while a record that is
	// behind it, or a result that such a record caused, is on its way; else
	// MinTime. Lateness is decided by it and never by the task's watermark,
	// which depends on how splits happened to interleave.
	Behind int64
	// Origin is the input record being processed: its split's number and its
	// mark there, or noOrigin for what a watermark or a barrier caused.
	Origin int64
	// Step is the number of the declared step whose user function runs.
	Step int32

	name   string
	index  int // of the stage's tasks
	of     int
	run    *Run
	mail   chan msg
	ins    []inbound
	stash  []msg // of inputs that are ahead
	align  int   // inputs that have delivered the barrier
	head   Marker
	idle   []func()
	onLoad []func(Restorer) error
	parts  []Part
	splits func() []SplitState // of a source task
	grows  bool                // they may become more
	quiet  bool                // all inputs are idle, and what follows knows it
	wm     int64
	err    error
	// writing is the sink that is being handed a batch, if any.
	writing interface{ culprit() int64 }
	meters  []*stepMeter
	letters *letters     // nil: a record that can't be taken ends the task
	body    func() error // of a source task
	cmd     chan Mark    // to a source task
}

const noOrigin = -1

// OnRestore registers what loads a step's state before the task starts.
func (t *Task) OnRestore(f func(Restorer) error) { t.onLoad = append(t.onLoad, f) }

// OnIdle registers a flush for when the task has nothing else to do.
func (t *Task) OnIdle(f func()) { t.idle = append(t.idle, f) }

// Save is called by a step at a barrier; the part goes with the task's ack.
func (t *Task) Save(p Part) { t.parts = append(t.parts, p) }

// SetHead names the step that gets the task's marks.
func (t *Task) SetHead(m Marker) { t.head = m }

// Fail ends the run. The first error counts; the rest of the batch is wasted.
func (t *Task) Fail(err error) {
	if t.err == nil && err != nil {
		t.err = t.blame(err)
	}
}

// owns says which key groups belong to the task: a contiguous range.
func (t *Task) owns(group int) bool { return group*t.of/t.run.Groups == t.index }

// groups is the range of key groups that the task owns.
func (t *Task) groups() (from, to int) {
	g := t.run.Groups
	return (t.index*g + t.of - 1) / t.of, ((t.index+1)*g + t.of - 1) / t.of
}

// loop runs the task until it fails or the run ends. A panic here is a user
// function's: the engine's own invariants are checked by tests.
func (t *Task) loop() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = t.blame(newPanic(p))
		}
	}()
	if t.body != nil {
		return t.body()
	}
	done := t.run.done
	for {
		var m msg
		select {
		case m = <-t.mail:
		default:
			t.flushIdle()
			if t.err != nil {
				return t.err
			}
			select {
			case m = <-t.mail:
			case <-done:
				return nil
			}
		}
		t.accept(m)
		t.unstash()
		if t.err != nil {
			return t.err
		}
	}
}

// flushIdle flushes what stands upstream first: steps are made from the sinks
// up, and what a keyer lets go of may end in the buffer of a sink.
func (t *Task) flushIdle() {
	for _, f := range slices.Backward(t.idle) {
		f()
	}
}

// unstash handles what was kept back, once the barrier has been aligned. The
// messages may contain the next barrier: then the rest stays back again.
func (t *Task) unstash() {
	for t.align == 0 && len(t.stash) > 0 && t.err == nil {
		kept := t.stash
		t.stash = nil
		for i, m := range kept {
			if t.accept(m); t.align > 0 {
				t.stash = append(t.stash, kept[i+1:]...)
				break
			}
		}
	}
}

// accept handles one message, or keeps it back while its input is ahead: a
// record behind barrier n must not touch the state that n saves.
func (t *Task) accept(m msg) {
	in := &t.ins[m.in]
	if in.ahead {
		t.stash = append(t.stash, m)
		return
	}
	switch m.mark.Kind {
	case Watermark:
		if m.batch != nil {
			in.recv(m.batch)
		}
		if m.mark.N > in.wm || in.idle {
			in.wm, in.idle = max(in.wm, m.mark.N), false
			t.advance()
		}
	case Idle:
		in.idle = m.mark.N == 1
		t.advance()
	case Barrier:
		in.ahead = true
		if t.align++; t.align == len(t.ins) {
			t.barrier(m.mark)
			t.align = 0
			for i := range t.ins {
				t.ins[i].ahead = false
			}
		}
	case Probe:
		in.probe = m.mark.N
		for i := range t.ins {
			if t.ins[i].probe < m.mark.N {
				return
			}
		}
		t.probe(m.mark)
	}
}

// advance passes the lowest watermark of the inputs on, without those that are
// idle or have ended. When all that go on are idle, time has come as far as the
// furthest of them, and there it stands still.
func (t *Task) advance() {
	low, idle := lowest(t.ins)
	if t.quiet && !idle {
		t.head.Mark(t.rest(false))
	}
	if low > t.wm {
		t.wm = low
		t.caused()
		t.head.Mark(Mark{Watermark, low})
		t.measure()
	}
	if idle && !t.quiet {
		t.head.Mark(t.rest(true))
	}
}

func (t *Task) rest(on bool) Mark {
	t.quiet = on
	t.caused()
	return idleMark(on)
}

// lowest is how far time has come by the inputs of a task, and whether it stands
// still there.
func lowest(ins []inbound) (wm int64, idle bool) {
	low, high, ended := int64(EndOfTime), int64(MinTime), true
	for i := range ins {
		wm := ins[i].wm
		if wm == EndOfTime {
			continue
		}
		ended, high = false, max(high, wm)
		if !ins[i].idle {
			low = min(low, wm)
		}
	}
	if ended || low != EndOfTime {
		return low, false
	}
	return high, true
}

// caused says that what follows isn't caused by a record.
func (t *Task) caused() { t.Behind, t.Origin = MinTime, noOrigin }

// barrier lets the steps emit, save and pass the barrier on, in this order, and
// then acknowledges.
func (t *Task) barrier(m Mark) {
	began := time.Now()
	t.caused()
	t.head.Mark(m)
	t.sealLetters(m.N)
	t.measure()
	if t.err != nil {
		t.release()
		return
	}
	a := Ack{Epoch: m.N, Task: t.name, Parts: t.parts, Pause: time.Since(began)}
	if t.splits != nil {
		a.Splits, a.Growing = t.splits(), t.grows
	}
	t.parts = nil
	t.run.ctl.Acked(a)
}

func (t *Task) release() {
	for _, p := range t.parts {
		p.Release()
	}
	t.parts = nil
}

func (t *Task) probe(m Mark) {
	t.caused()
	t.head.Mark(m)
	if t.err == nil {
		t.run.ctl.Probed(m.N)
	}
}

// String returns STAGE/INDEX.
func (t *Task) String() string { return t.name }

func taskName(stage string, index int) string { return fmt.Sprintf("%s/%d", stage, index) }
