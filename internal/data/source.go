package data

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"time"
)

// Reader is the task's side of a split.
type Reader[T any] interface {
	Read(dst []T, limit int) (recs []T, end bool, err error)
	Ready() <-chan struct{}
	Position() []byte
	Close() error
}

// marked is a Reader that numbers its records.
type marked interface{ Marks() []int64 }

// punctuated is a Reader that knows that time has come further than its records
// tell.
type punctuated interface{ Watermark() time.Time }

// Standing is how a reader stands to its split.
type Standing struct {
	Done, Total, Lag int64
	Idle             bool
}

// SourceConfig is what a source step needs.
type SourceConfig[T any] struct {
	Step     int
	ID       string
	Time     func(T) time.Time // nil: records have no event time
	Bound    int64             // of disorder, ns
	MaxAhead time.Duration     // of the clock; 0: any
	Every    int64             // asks for a barrier after so many records of a split; 0: never
	Open     func(ctx context.Context, split string, at []byte) (Reader[T], error)
	Locate   func(split string, mark int64) string // may be nil
	Standing func(r Reader[T]) Standing            // may be nil
	Now      func() time.Time
}

// split is one split in the task that reads it.
type split[T any] struct {
	number int // in the run
	state  SplitState
	rd     Reader[T]
	marks  marked
	punct  punctuated
	high   int64     // newest event time
	step   time.Time // of a punctuated reader, the last one
	since  int64     // records since the last barrier
	idle   bool
}

// source is the body of a source task: it reads its splits in turn.
type source[T any] struct {
	t      *Task
	c      SourceConfig[T]
	out    Out[T]
	splits []*split[T]
	recs   []T
	turn   int
	wm     int64
	ended  bool
	told   bool   // control knows that it has ended
	shown  int64  // progress requests answered
	probes []Mark // asked for, not emitted yet
	since  int    // records read since it was asked for
}

// NewSource makes the tasks of a source step, at most one a split; mk makes
// what follows in one of them.
func NewSource[T any](r *Run, c SourceConfig[T], names []string, mk func(t *Task) Out[T]) {
	n := max(1, min(r.Parallelism, len(names)))
	for i := range n {
		t := r.newTask(c.ID, i, n)
		s := &source[T]{t: t, c: c, out: mk(t), wm: MinTime, recs: make([]T, 0, r.ReadLen)}
		for j := i; j < len(names); j += n {
			s.splits = append(s.splits, &split[T]{
				number: r.addSplit(c.ID, names[j], c.Locate),
				state:  SplitState{Source: c.ID, Split: names[j], Watermark: MinTime},
			})
		}
		t.head, t.cmd, t.splits = s.out, make(chan Mark, 64), s.states
		t.body = func() error { return s.loop() }
		r.sources = append(r.sources, sourceTask{t: t, open: s.open, atEnd: s.atEnd, close: s.close})
	}
}

// open opens the task's splits where the checkpoint left them.
func (s *source[T]) open(ctx context.Context, rs Restorer) error {
	for _, sp := range s.splits {
		if st, ok := rs.Split(s.c.ID, sp.state.Split); ok {
			sp.state = st
			sp.state.Ended = false // its end will be found again
		}
		rd, err := s.c.Open(ctx, sp.state.Split, sp.state.Position)
		if err != nil {
			return fmt.Errorf("source %s: open split %s at %q: %w", s.c.ID, sp.state.Split, sp.state.Position, err)
		}
		sp.rd = rd
		sp.marks, _ = rd.(marked)
		sp.punct, _ = rd.(punctuated)
		sp.state.Position = rd.Position()
		sp.high = MinTime
		if sp.state.Watermark != MinTime {
			sp.high = sp.state.Watermark + s.c.Bound
		}
	}
	return nil
}

func (s *source[T]) close() error {
	var first error
	for _, sp := range s.splits {
		if sp.rd == nil {
			continue
		}
		if err := sp.rd.Close(); err != nil && first == nil {
			first = fmt.Errorf("source %s: close split %s: %w", s.c.ID, sp.state.Split, err)
		}
		sp.rd = nil
	}
	return first
}

// atEnd checks that there is nothing behind the end of a finished job.
func (s *source[T]) atEnd() error {
	for _, sp := range s.splits {
		if err := s.splitAtEnd(sp); err != nil {
			return err
		}
	}
	return nil
}

func (s *source[T]) splitAtEnd(sp *split[T]) error {
	recs, end, err := sp.rd.Read(nil, 1)
	switch {
	case err != nil:
		return fmt.Errorf("source %s: read behind the end of split %s: %w", s.c.ID, sp.state.Split, err)
	case len(recs) > 0 || !end:
		return fmt.Errorf("source %s: split %s at position %q: %w; to read it, start a new job (another name and state directory)",
			s.c.ID, sp.state.Split, sp.state.Position, ErrGrown)
	}
	return nil
}

func (s *source[T]) states() []SplitState {
	out := make([]SplitState, len(s.splits))
	for i, sp := range s.splits {
		sp.state.Position = sp.rd.Position()
		sp.since = 0
		out[i] = sp.state
	}
	return out
}

func (s *source[T]) loop() error {
	t := s.t
	s.advance()
	for {
		if done, err := s.commands(); done || err != nil {
			return err
		}
		if s.ended || t.run.hold.Load() {
			s.emitProbe()
			if done, err := s.wait(nil); done || err != nil {
				return err
			}
			continue
		}
		read, waiting, err := s.round()
		if err == nil {
			err = t.err
		}
		if err != nil {
			return err
		}
		s.publish()
		if s.since += read; read == 0 || s.since >= patience {
			s.emitProbe()
		}
		if read == 0 && !s.ended {
			if done, err := s.wait(waiting); done || err != nil {
				return err
			}
		}
	}
}

// commands handles what control has asked for.
func (s *source[T]) commands() (done bool, err error) {
	for {
		select {
		case m := <-s.t.cmd:
			if err := s.obey(m); err != nil {
				return true, err
			}
		case <-s.t.run.done:
			return true, nil
		default:
			return false, s.t.err
		}
	}
}

func (s *source[T]) obey(m Mark) error {
	switch m.Kind {
	case Barrier:
		s.t.barrier(m)
	case Probe:
		if len(s.probes) == 0 {
			s.since = 0
		}
		s.probes = append(s.probes, m)
	}
	return s.t.err
}

// emitProbe sends the probes on that were asked for: when there is nothing more to
// read for now, or after a good deal of reading.
func (s *source[T]) emitProbe() {
	for _, m := range s.probes {
		s.t.probe(m)
	}
	s.probes = s.probes[:0]
}

// wait sleeps until control asks for something or one of the splits may have
// more. Before that everything buffered in the task is flushed.
func (s *source[T]) wait(splits []*split[T]) (done bool, err error) {
	s.t.flushIdle()
	if s.t.err != nil {
		return true, s.t.err
	}
	s.publish()
	cases := []reflect.SelectCase{
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.t.cmd)},
		{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(s.t.run.done)},
	}
	for _, sp := range splits {
		ready := sp.rd.Ready()
		if ready == nil {
			runtime.Gosched() // its reader is always worth a try
			return false, nil
		}
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ready)})
	}
	switch i, v, _ := reflect.Select(cases); i {
	case 0:
		return false, s.obey(v.Interface().(Mark))
	case 1:
		return true, nil
	}
	return false, nil
}

// round reads each split that may be read once. waiting are those without more
// for now.
func (s *source[T]) round() (read int, waiting []*split[T], err error) {
	for range s.splits {
		sp := s.splits[s.turn]
		s.turn = (s.turn + 1) % len(s.splits)
		if sp.state.Ended {
			continue
		}
		limit := cap(s.recs)
		if s.c.Every > 0 {
			if limit = int(min(int64(limit), s.c.Every-sp.since)); limit == 0 {
				continue // it waits for the barrier that it has asked for
			}
		}
		n, err := s.read(sp, limit)
		if err != nil {
			return read, nil, err
		}
		if read += n; n == 0 && !sp.state.Ended {
			waiting = append(waiting, sp)
		}
		if len(s.splits) > 1 && len(s.t.cmd) > 0 {
			break
		}
	}
	if s.ended = s.allEnded(); s.ended && !s.told {
		s.told = true
		s.advance()
		s.t.run.ctl.Ended(s.t.name)
	}
	return read, waiting, nil
}

// read reads and pushes one batch of a split. It returns how much was read, 0 if
// there is nothing more for now.
func (s *source[T]) read(sp *split[T], limit int) (int, error) {
	s.t.Step, s.t.Origin = int32(s.c.Step), noOrigin
	recs, end, err := sp.rd.Read(s.recs[:0], limit)
	if pushErr := s.push(sp, recs); pushErr != nil {
		return 0, pushErr
	}
	if err != nil {
		return 0, &RecordError{Step: s.t.run.stepName(int32(s.c.Step)), Task: s.t.name, Where: "split " + sp.state.Split, Err: err}
	}
	sp.state.Records += int64(len(recs))
	sp.since += int64(len(recs))
	if end {
		sp.state.Ended = true
	} else if s.c.Every > 0 && sp.since >= s.c.Every {
		s.t.run.ctl.Wants(false)
	}
	progress := len(recs)
	if sp.punct != nil {
		if wm := sp.punct.Watermark(); !wm.Equal(sp.step) {
			sp.step, progress = wm, max(progress, 1) // there may be records behind a step of time
			if at := wm.UnixNano(); at > sp.state.Watermark {
				sp.state.Watermark, sp.high = at, at+s.c.Bound
			}
		}
	}
	sp.idle = len(recs) == 0 && s.c.Standing != nil && s.c.Standing(sp.rd).Idle
	s.advance()
	return progress, s.t.err
}

// push sends a batch's records on, each with its event time and whether it is
// behind its own split: a replay of the split says the same.
func (s *source[T]) push(sp *split[T], recs []T) error {
	if len(recs) == 0 {
		return nil
	}
	t := s.t
	var marks []int64
	if sp.marks != nil {
		marks = sp.marks.Marks()
	}
	base := int64(sp.number) << markBits
	next := sp.state.Records // the mark of a record without one
	now := s.c.Now()
	arrived := now.UnixNano()
	latest := int64(farthest)
	if s.c.MaxAhead > 0 {
		latest = min(latest, now.Add(s.c.MaxAhead).Unix())
	}
	for i := range recs {
		if marks != nil {
			t.Origin = base | marks[i]&markMask
		} else {
			t.Origin = base | (next+int64(i))&markMask
		}
		if s.c.Time == nil {
			s.out.Push(&recs[i], arrived)
			continue
		}
		t.Step = int32(s.c.Step)
		tm := s.c.Time(recs[i])
		if sec := tm.Unix(); sec < earliest || sec > latest {
			return t.blame(badTime(tm, now, s.c.MaxAhead))
		}
		at := tm.UnixNano()
		if wm := sp.state.Watermark; at < wm {
			sp.state.Late++
			t.Behind = wm
			s.out.Push(&recs[i], at)
			t.Behind = MinTime
		} else {
			s.out.Push(&recs[i], at)
			if at > sp.high {
				sp.high = at
				sp.state.Watermark = at - s.c.Bound
			}
		}
		if t.err != nil {
			return t.err
		}
	}
	return nil
}

// advance passes the lowest watermark of the splits on. An ended split doesn't
// hold it back, nor does an idle one.
func (s *source[T]) advance() {
	low := int64(EndOfTime)
	for _, sp := range s.splits {
		if !sp.state.Ended && !sp.idle {
			low = min(low, sp.state.Watermark)
		}
	}
	if low == EndOfTime && !s.ended && !s.allEnded() {
		return // all idle: time stands still
	}
	if low > s.wm && (s.c.Time != nil || low == EndOfTime) {
		s.wm = low
		s.t.caused()
		s.out.Mark(Mark{Watermark, low})
	}
}

func (s *source[T]) allEnded() bool {
	for _, sp := range s.splits {
		if !sp.state.Ended {
			return false
		}
	}
	return true
}

// publish answers a request for progress, if there is one.
func (s *source[T]) publish() {
	r := s.t.run
	want := r.asked.Load()
	if s.shown == want {
		return
	}
	s.shown = want
	out := make([]SplitProgress, len(s.splits))
	for i, sp := range s.splits {
		out[i] = SplitProgress{SplitState: sp.state, Idle: sp.idle}
		if s.c.Standing != nil {
			out[i].Standing = s.c.Standing(sp.rd)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.progress[s.t.name] = out
}

const (
	patience = 1 << 20 // records that a probe lets a source read on
	markBits = 48
	markMask = 1<<markBits - 1
	// Event times outside these years are a mistake, and nanoseconds since
	// 1970 can't count much further.
	earliest = -2208988800 // 1900-01-01
	farthest = 9214646400  // 2262-01-01
)

func badTime(tm, now time.Time, ahead time.Duration) error {
	switch {
	case tm.IsZero():
		return fmt.Errorf("the record has no event time (the zero time): correct the input, or let the event-time function give such a record another time")
	case tm.Unix() < earliest || tm.Unix() > farthest:
		return fmt.Errorf("event time %s is absurd: years 1900 to 2261 are taken", tm.UTC().Format(time.RFC3339Nano))
	}
	return fmt.Errorf("event time %s is more than %.0f hours ahead of the clock (%s): it would make everything after it late; correct the input or, if it is right, raise MaxAhead",
		tm.UTC().Format(time.RFC3339Nano), ahead.Hours(), now.UTC().Format(time.RFC3339))
}
