package log

import (
	"math"
	"slices"

	"github.com/weirstream/weir/internal/data"
)

// Moved returns the checkpoint with the clocks of some steps moved, in
// nanoseconds by step. A window is closed, and a key forgotten, when the clock is
// a certain time past it: where the job allows another time than the one that
// wrote the checkpoint, a clock moved by the difference keeps closed what was
// closed, and open what was open. m isn't changed, and shares what stays the same.
func (m *Manifest) Moved(by map[string]int64) *Manifest {
	if len(by) == 0 {
		return m
	}
	as := *m
	as.Steps = slices.Clone(m.Steps)
	for i, s := range as.Steps {
		d := by[s.ID]
		if d == 0 {
			continue
		}
		s.Clocks = slices.Clone(s.Clocks)
		for j := range s.Clocks {
			s.Clocks[j].At = moved(s.Clocks[j].At, d)
		}
		as.Steps[i] = s
	}
	return &as
}

// moved keeps the ends of time where they are.
func moved(at, by int64) int64 {
	switch {
	case at == data.MinTime, at == data.EndOfTime:
		return at
	case by > 0 && at > math.MaxInt64-by:
		return data.EndOfTime
	case by < 0 && at < data.MinTime-by:
		return data.MinTime
	}
	return at + by
}
