package data

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// split is one split in the task that reads it.
type split[T any] struct {
	number int // in the run
	state  SplitState
	rd     Reader[T]
	marks  marked
	punct  punctuated
	pause  pausing
	high   int64     // newest event time
	step   time.Time // of a punctuated reader, the last one
	since  int64     // records since the last barrier
	from   int64     // Standing.Done when it was opened
	idle   bool
	moved  time.Time // when its watermark last did, or it was opened
	// rejected returns what the last Read has passed over; nil where a record that
	// can't be taken is an error.
	rejected func() []Rejected
}

func (s *source[T]) newSplit(name string) *split[T] {
	return &split[T]{state: SplitState{Source: s.c.ID, Split: name, Watermark: MinTime}}
}

// open opens the task's splits where the checkpoint left them.
func (s *source[T]) open(ctx context.Context, rs Restorer) error {
	first, err := s.begin.at(ctx, rs)
	if err != nil {
		return err
	}
	for _, sp := range s.splits {
		sp.state.Position = first[sp.state.Split]
		if st, ok := rs.Split(s.c.ID, sp.state.Split); ok {
			sp.state = st
			sp.state.Ended = false // its end will be found again
		}
		if err := s.openSplit(ctx, sp); err != nil {
			return err
		}
	}
	return nil
}

// beginning is where the splits of a source begin at its very first start.
type beginning struct {
	source string
	splits []string
	start  func(ctx context.Context, splits []string) (map[string][]byte, error)
	asked  bool
	where  map[string][]byte
}

// at asks the source, once. It has nothing to say where a checkpoint knows it.
func (b *beginning) at(ctx context.Context, rs Restorer) (map[string][]byte, error) {
	if b.asked || b.start == nil || len(b.splits) == 0 || rs.Began(b.source) {
		return b.where, nil
	}
	var err error
	if b.where, err = b.start(ctx, b.splits); err != nil {
		return nil, fmt.Errorf("source %s: choose where to begin: %w", b.source, err)
	}
	b.asked = true
	return b.where, nil
}

func (s *source[T]) openSplit(ctx context.Context, sp *split[T]) error {
	rd, err := s.c.Open(ctx, sp.state.Split, sp.state.Position)
	if err != nil {
		return fmt.Errorf("source %s: open split %s at %q: %w", s.c.ID, sp.state.Split, sp.state.Position, err)
	}
	sp.rd = rd
	sp.marks, _ = rd.(marked)
	sp.punct, _ = rd.(punctuated)
	sp.pause, _ = rd.(pausing)
	if s.t.careful() && s.c.SetAside != nil {
		sp.rejected = s.c.SetAside(rd)
	}
	sp.state.Position = rd.Position()
	sp.high, sp.moved = MinTime, s.c.Now()
	if s.c.Standing != nil {
		sp.from = s.c.Standing(rd).Done
	}
	if sp.state.Watermark != MinTime {
		sp.high = sp.state.Watermark + s.c.Bound
	}
	return nil
}

func (s *source[T]) close() error {
	var first error
	s.takeOver() // the task has returned
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
	n := len(recs)
	if sp.rejected != nil {
		n += len(sp.rejected())
	}
	switch {
	case err != nil:
		return fmt.Errorf("source %s: read behind the end of split %s: %w", s.c.ID, sp.state.Split, err)
	case n > 0:
		return fmt.Errorf("source %s: split %s at position %q: %w; to read it, start a new job (another name and state directory)",
			s.c.ID, sp.state.Split, sp.state.Position, ErrGrown)
	case !end:
		return fmt.Errorf("%w: source %s: split %s has no end as it is declared now, but the job had read it to its end, has closed all windows, and is finished; %s",
			ErrRefused, s.c.ID, sp.state.Split, anotherJob)
	}
	return nil
}

// anotherJob is how input is read that a finished job can't read.
const anotherJob = "to read on, start a new job (another name and state directory), or start this one over with --start-over (StartOver)"

func (s *source[T]) states() []SplitState {
	out := make([]SplitState, len(s.splits))
	for i, sp := range s.splits {
		sp.state.Position = sp.rd.Position()
		sp.since = 0
		out[i] = sp.state
	}
	return out
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
	latest, ok, before := int64(farthest), false, sp.state.Watermark //nolint:wastedassign // declared once, not for each record
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
		var tm time.Time
		if s.try == nil {
			tm = s.c.Time(recs[i])
			if sec := tm.Unix(); sec < earliest || sec > latest {
				return t.blame(badTime(tm, now, s.c.MaxAhead))
			}
		} else if tm, ok = s.timed(recs[i], latest); !ok {
			if t.err != nil {
				return t.err
			}
			continue
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
	if sp.state.Watermark != before {
		sp.moved = now
	}
	return nil
}

// timed is the event time of a record in a careful task, which rejects one that
// has none.
func (s *source[T]) timed(rec T, latest int64) (time.Time, bool) {
	tm, err := s.try(rec)
	if err == nil {
		sec := tm.Unix()
		if sec >= earliest && sec <= latest {
			return tm, true
		}
		err = as(BadTime, badTime(tm, time.Time{}, s.c.MaxAhead))
	}
	s.t.reject(int32(s.c.Step), s.t.Origin, MinTime, nil, err)
	return tm, false
}

// reject hands on a record that the reader has passed over.
func (s *source[T]) reject(sp *split[T], rj Rejected) {
	err := rj.Err
	if !errors.Is(err, ErrOversized) {
		err = as(Undecodable, err)
	}
	if rj.Raw == nil {
		rj.Raw = []byte{} // known, and not to be read again
	}
	s.t.reject(int32(s.c.Step), int64(sp.number)<<markBits|rj.Mark&markMask, MinTime, rj.Raw, err)
}

// readError says where reading stopped.
func (s *source[T]) readError(sp *split[T], err error) error {
	if errors.Is(err, ErrRefused) { // the split is what is wrong, and no record
		return fmt.Errorf("source %s, split %s: %w", s.c.ID, sp.state.Split, err)
	}
	return &RecordError{Step: s.t.run.stepName(int32(s.c.Step)), Task: s.t.name, Where: "split " + sp.state.Split, Err: err}
}

// punctuate moves the watermark to where a punctuated reader says that time has
// come, and reports whether that has changed.
func (sp *split[T]) punctuate(c SourceConfig[T]) bool {
	if sp.punct == nil {
		return false
	}
	wm := sp.punct.Watermark()
	if wm.Equal(sp.step) {
		return false
	}
	sp.step = wm
	if at := wm.UnixNano(); at > sp.state.Watermark {
		sp.state.Watermark, sp.high, sp.moved = at, at+c.Bound, c.Now()
	}
	return true
}

const (
	// Event times outside these years are a mistake, and nanoseconds since
	// 1970 can't count much further.
	earliest = -2208988800 // 1900-01-01
	farthest = 9214646400  // 2262-01-01
)

// badTime says what is wrong with an event time. Without the time of now it says
// the same whenever it is asked.
func badTime(tm, now time.Time, ahead time.Duration) error {
	switch {
	case tm.IsZero():
		return fmt.Errorf("the record has no event time (the zero time): correct the input, or let the event-time function give such a record another time")
	case tm.Unix() < earliest || tm.Unix() > farthest:
		return fmt.Errorf("event time %s is absurd: years 1900 to 2261 are taken", tm.UTC().Format(time.RFC3339Nano))
	}
	clock := "the clock"
	if !now.IsZero() {
		clock = fmt.Sprintf("the clock (%s)", now.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("event time %s is more than %.0f hours ahead of %s: it would make everything after it late; correct the input or, if it is right, raise MaxAhead",
		tm.UTC().Format(time.RFC3339Nano), ahead.Hours(), clock)
}
