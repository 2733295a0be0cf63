package data

import (
	"context"
	"reflect"
	"runtime"
	"sync"
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

// pausing is a Reader that can be told to stop before its split's end.
type pausing interface{ AtStop() bool }

// Standing is how a reader stands to its split.
type Standing struct {
	Done, Total, Lag int64
	Idle             bool
	Bytes            bool // Done and Total count bytes
	Expires          time.Time
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
	// Start says where the splits begin that the source has at its very first
	// start. nil: at their beginning, as all others.
	Start    func(ctx context.Context, splits []string) (map[string][]byte, error)
	Locate   func(split string, mark int64) string          // may be nil
	Standing func(r Reader[T]) Standing                     // may be nil
	Reread   func(split string, mark int64) ([]byte, error) // of a rejected record; may be nil
	Now      func() time.Time
	// SetAside makes a reader pass over the records that it can't take, and
	// returns how to ask for them after a Read; nil, if it can't do that. May be nil.
	SetAside func(r Reader[T]) func() []Rejected
	Growth   *Growth // nil: the splits stay what they were at the start
}

// source is the body of a source task: it reads its splits in turn.
type source[T any] struct {
	t      *Task
	c      SourceConfig[T]
	begin  *beginning // of all the source's tasks
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
	meter  *sourceMeter
	quiet  bool                           // what follows knows that all splits are idle
	try    func(rec T) (time.Time, error) // of a careful task: Time, with its panics as errors

	given struct { // splits that are new, and not taken over yet
		sync.Mutex
		splits []*split[T]
	}
}

// NewSource makes the tasks of a source step, at most one a split, unless there
// may come more; mk makes what follows in one of them.
func NewSource[T any](r *Run, c SourceConfig[T], names []string, mk func(t *Task) Out[T]) {
	n := max(1, min(r.Parallelism, len(names)))
	if c.Growth != nil {
		n = r.Parallelism
	}
	r.abouts[c.ID] = about{c.Reread, c.Time != nil}
	var all []*source[T]
	begin := &beginning{source: c.ID, splits: names, start: c.Start}
	for i := range n {
		t := r.newTask(c.ID, i, n)
		s := &source[T]{t: t, c: c, out: mk(t), begin: begin, wm: MinTime, recs: make([]T, 0, r.ReadLen), meter: r.meterSource(c.ID)}
		if t.careful() && c.Time != nil {
			s.try = guarded(c.Time)
		}
		for j := i; j < len(names); j += n {
			sp := s.newSplit(names[j])
			sp.number = r.addSplit(c.ID, names[j], c.Locate)
			s.splits = append(s.splits, sp)
		}
		t.head, t.cmd, t.splits, t.grows = s.out, make(chan Mark, 64), s.states, c.Growth != nil
		t.body = func() error {
			defer s.report() // the last figures
			return s.loop()
		}
		r.sources = append(r.sources, sourceTask{t: t, open: s.open, atEnd: s.atEnd, close: s.close})
		all = append(all, s)
	}
	if c.Growth != nil {
		r.growths = append(r.growths, newFinder(all, names))
	}
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
	case wake:
		s.adopt()
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
			if limit = int(min(int64(limit), s.c.Every-sp.since)); limit <= 0 {
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
	if !s.told && s.atStop() {
		s.told = true
		s.t.run.ctl.Rests(s.t.name)
	}
	return read, waiting, nil
}

// read reads and pushes one batch of a split. It returns how much was read, 0 if
// there is nothing more for now.
func (s *source[T]) read(sp *split[T], limit int) (int, error) {
	s.t.Step, s.t.Origin = int32(s.c.Step), noOrigin
	recs, end, err := sp.rd.Read(s.recs[:0], limit)
	var rejected []Rejected
	if sp.rejected != nil {
		rejected = sp.rejected()
	}
	n := len(recs) + len(rejected)
	s.t.run.passed(n)
	if n > 0 && sp.idle {
		sp.idle = false // before its records go on
		s.advance()
	}
	s.meter.read(n)
	if pushErr := s.push(sp, recs); pushErr != nil {
		return 0, pushErr
	}
	for _, rj := range rejected {
		if s.reject(sp, rj); s.t.err != nil {
			return 0, s.t.err
		}
	}
	if err != nil {
		return 0, s.readError(sp, err)
	}
	sp.state.Records += int64(n)
	sp.since += int64(n)
	if end {
		sp.state.Ended = true
	} else if s.c.Every > 0 && sp.since >= s.c.Every {
		s.t.run.ctl.Wants(false)
	}
	if sp.punctuate(s.c) {
		n = max(n, 1) // there may be records behind a step of time
	}
	if n == 0 && !end {
		idle := s.c.Standing != nil && s.c.Standing(sp.rd).Idle
		if idle == sp.idle {
			return 0, s.t.err
		}
		sp.idle = idle
	}
	s.advance()
	return n, s.t.err
}

// advance passes the lowest watermark of the splits on. An ended split doesn't
// hold it back, nor does an idle one. When all are idle, time has come as far as
// the furthest of them, as if the others had been idle before it; there it stands
// still, and whoever has other inputs doesn't wait for this one.
func (s *source[T]) advance() {
	low, high := int64(EndOfTime), int64(MinTime)
	for _, sp := range s.splits {
		high = max(high, sp.state.Watermark)
		if !sp.state.Ended && !sp.idle {
			low = min(low, sp.state.Watermark)
		}
	}
	idle := low == EndOfTime && !s.allEnded()
	if idle {
		low = high
	} else if s.quiet {
		s.out.Mark(s.idle(false))
	}
	if low > s.wm && (s.c.Time != nil || low == EndOfTime) {
		s.wm = low
		s.t.caused()
		s.out.Mark(Mark{Watermark, low})
	}
	if idle && !s.quiet {
		s.out.Mark(s.idle(true))
	}
}

func (s *source[T]) idle(on bool) Mark {
	s.quiet = on
	s.t.caused()
	return idleMark(on)
}

func (s *source[T]) allEnded() bool {
	if s.c.Growth != nil {
		return false // there may come more
	}
	for _, sp := range s.splits {
		if !sp.state.Ended {
			return false
		}
	}
	return true
}

// atStop reports whether nothing is to be read any more, although not all splits
// have ended.
func (s *source[T]) atStop() bool {
	if s.c.Growth != nil || len(s.splits) == 0 {
		return false // there may come more, or there is nothing at all
	}
	for _, sp := range s.splits {
		if !sp.state.Ended && (sp.pause == nil || !sp.pause.AtStop()) {
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
	s.report()
}

// report tells how far the splits have come.
func (s *source[T]) report() {
	r := s.t.run
	out := make([]SplitProgress, len(s.splits))
	var bytes int64
	for i, sp := range s.splits {
		out[i] = SplitProgress{SplitState: sp.state, Idle: sp.idle, Since: sp.moved}
		if s.c.Standing != nil {
			out[i].Standing = s.c.Standing(sp.rd)
		}
		if out[i].Standing.Bytes {
			bytes += out[i].Standing.Done - sp.from
		}
	}
	s.meter.bytes.Store(bytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.progress[s.t.name] = out
}

const (
	patience = 1 << 20 // records that a probe lets a source read on
	markBits = 48
	markMask = 1<<markBits - 1
)
