package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Growth is how the splits of a source become more while the job runs.
type Growth struct {
	Poll time.Duration // between two looks
	List func(ctx context.Context) ([]string, error)
	// After is the clock's, and Waiting tells an operator what is waited for.
	After   func(d time.Duration) <-chan time.Time
	Waiting func(what string)
}

// finder looks for splits that are new, in a goroutine of the run's own, opens
// them there, and gives each to the task that has the fewest. A split is in the
// checkpoint of the first barrier that its task passes on after that. After a
// crash before, it is found again, and read from its beginning as well.
type finder[T any] struct {
	c     SourceConfig[T]
	tasks []*source[T]
	count []int // splits of each
	// known has every split, with how often in a row it was missing from the list.
	known map[string]int
	wrong map[string]bool // what goes wrong, in words, and was said
}

func newFinder[T any](tasks []*source[T], names []string) func(r *Run) {
	f := &finder[T]{c: tasks[0].c, tasks: tasks, known: map[string]int{}}
	for _, s := range tasks {
		f.count = append(f.count, len(s.splits))
	}
	for _, n := range names {
		f.known[n] = 0
	}
	return f.run
}

// run looks until the run is over.
func (f *finder[T]) run(r *Run) {
	if len(f.known) == 0 {
		f.c.Growth.Waiting(fmt.Sprintf("source %s: it has no splits yet", f.c.ID))
	}
	for {
		select {
		case <-f.c.Growth.After(f.c.Growth.Poll):
		case <-r.done:
			return
		}
		if err := f.look(r.ctx); err != nil {
			r.ctl.Failed(err)
			return
		}
	}
}

// look lists the splits once. What may pass is said and tried again.
func (f *finder[T]) look(ctx context.Context) error {
	said := f.wrong
	f.wrong = map[string]bool{}
	names, err := f.c.Growth.List(ctx)
	if err != nil {
		f.say(ctx, said, fmt.Sprintf("source %s: list its splits, which fails for now: %v", f.c.ID, err))
		return nil
	}
	if err := f.missing(names); err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := f.known[name]; ok {
			continue
		}
		switch err := f.open(ctx, name); {
		case errors.Is(err, ErrRefused):
			return err
		case err != nil:
			f.say(ctx, said, fmt.Sprintf("%v, which fails for now", err))
		}
	}
	return nil
}

// say tells the operator, once for as long as it stays the same.
func (f *finder[T]) say(ctx context.Context, before map[string]bool, what string) {
	f.wrong[what] = true
	if ctx.Err() == nil && !before[what] {
		f.c.Growth.Waiting(what)
	}
}

// missing refuses a split that has gone, as a start would. It must be gone twice:
// a folder that is changing may leave a file out of a list.
func (f *finder[T]) missing(names []string) error {
	for name := range f.known {
		f.known[name]++
	}
	for _, name := range names {
		if _, ok := f.known[name]; ok {
			f.known[name] = 0
		}
	}
	for name, times := range f.known {
		if times > 1 {
			return fmt.Errorf("%w: source %s: split %s is missing now: bring it back, what was read of it couldn't be told from what wasn't",
				ErrRefused, f.c.ID, name)
		}
	}
	return nil
}

// open opens a new split at its beginning and gives it to a task.
func (f *finder[T]) open(ctx context.Context, name string) error {
	least := slices.Index(f.count, slices.Min(f.count))
	s := f.tasks[least]
	sp := s.newSplit(name)
	if err := s.openSplit(ctx, sp); err != nil {
		return err
	}
	sp.number = s.t.run.addSplit(f.c.ID, name, f.c.Locate)
	if err := s.t.run.tooMany(); err != nil {
		return errors.Join(err, sp.rd.Close())
	}
	f.known[name] = 0
	f.count[least]++
	s.give(sp)
	return nil
}

// give hands a split over to the task, which reads it from now on.
func (s *source[T]) give(sp *split[T]) {
	s.given.Lock()
	s.given.splits = append(s.given.splits, sp)
	s.given.Unlock()
	select {
	case s.t.cmd <- Mark{wake, 0}:
	case <-s.t.run.done:
	}
}

// takeOver makes the splits that were given the task's.
func (s *source[T]) takeOver() (n int) {
	s.given.Lock()
	defer s.given.Unlock()
	n = len(s.given.splits)
	s.splits = append(s.splits, s.given.splits...)
	s.given.splits = nil
	return n
}

// adopt takes new splits over. Until they have caught up, time stands still; it
// never goes back.
func (s *source[T]) adopt() {
	if s.takeOver() > 0 {
		s.advance()
	}
}
