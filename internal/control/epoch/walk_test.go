package epoch

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestWalk lets a world of tasks, segment writers and a committer answer the
// machine in random order, and holds what it decides against the protocol.
func TestWalk(t *testing.T) {
	const walks = 1000
	var finished, stopped, barriers int
	for seed := range uint64(walks) {
		w := newWorld(seed)
		for range 400 {
			w.act()
		}
		w.drain()
		if w.broken == "" {
			w.broken = w.unfinished()
		}
		if w.broken != "" {
			t.Fatalf("seed %d: %s\ntrace:\n%s", seed, w.broken, w.trace)
		}
		if w.end.Finished {
			finished++
		} else {
			stopped++
		}
		barriers += int(w.emitted)
	}
	// A walk that never gets anywhere would prove nothing.
	if finished < walks/10 || stopped < walks/10 || barriers < 5*walks {
		t.Errorf("%d walks: %d finished, %d stopped, %d barriers: too few of a kind", walks, finished, stopped, barriers)
	}
}

// world is everything around a machine. What it remembers of the protocol, it
// remembers by itself.
type world struct {
	rng   *rand.Rand
	m     *Machine
	tasks []string // the first of them are sources
	srcs  int
	trace string

	answers []Event // that the world owes, in any order
	emitted int64
	wished  bool // since the last barrier
	stop    bool
	held    bool
	ended   map[string]bool
	acks    map[string]bool // of the barrier that is out
	allEnd  bool            // of these acks
	owed    map[string]bool // segments asked for and not written
	done    map[string]int64
	end     *End
	broken  string
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rng, ended: map[string]bool{}, owed: map[string]bool{}, done: map[string]int64{}}
	w.srcs = 1 + rng.IntN(2)
	for i := range w.srcs + rng.IntN(3) {
		w.tasks = append(w.tasks, fmt.Sprint("t/", i))
	}
	last := int64(rng.IntN(2) * 7)
	w.emitted = last
	for _, k := range []string{"acked", "prepare", "enter", "decide", "follow", "publish", "retire"} {
		w.done[k] = last
	}
	w.m = New(Config{Tasks: len(w.tasks), Sources: w.srcs, Last: last})
	return w
}

// act lets one thing happen: an answer that is owed, or something new.
func (w *world) act() {
	if len(w.answers) > 0 && w.rng.IntN(3) > 0 {
		w.answer(w.rng.IntN(len(w.answers)))
		return
	}
	switch n := w.rng.IntN(60); {
	case n < 10:
		w.wish(Tick{})
	case n < 14:
		w.wish(Asked{})
	case n < 20:
		w.wish(Wants{Hold: w.rng.IntN(2) == 0})
	case n == 20:
		w.stop = true
		w.wish(Stop{})
	case n < 23:
		w.endOne()
	}
}

func (w *world) wish(e Event) {
	if w.end == nil {
		w.wished = true
	}
	w.step(e)
}

func (w *world) endOne() {
	src := w.tasks[w.rng.IntN(w.srcs)]
	if w.ended[src] || w.end != nil {
		return
	}
	w.ended[src] = true
	if len(w.ended) == w.srcs {
		w.wished = true
	}
	w.step(Ended{src})
}

func (w *world) answer(i int) {
	e := w.answers[i]
	w.answers[i] = w.answers[len(w.answers)-1]
	w.answers = w.answers[:len(w.answers)-1]
	switch a := e.(type) {
	case Acked:
		// A task's splits end before it acknowledges or behind the barrier.
		a.AllEnded = w.ended[a.Task] || !w.source(a.Task)
		w.acks[a.Task] = true
		w.allEnd = w.allEnd && a.AllEnded
		if len(w.acks) == len(w.tasks) {
			w.done["acked"] = a.Epoch
		}
		e = a
	case Written:
		delete(w.owed, a.Task)
	case promise:
		w.done[a.phase]++
		e = a.Event
	}
	w.step(e)
}

func (w *world) source(task string) bool {
	for _, s := range w.tasks[:w.srcs] {
		if s == task {
			return true
		}
	}
	return false
}

func (w *world) step(e Event) {
	w.trace += fmt.Sprintf("%#v\n", e)
	for _, d := range w.m.Step(e) {
		w.trace += "    " + show(d) + "\n"
		if w.end != nil {
			w.fail("%s after the end", show(d))
		}
		w.obey(d)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// in checks that phase n comes next and that the one before it has been done.
func (w *world) in(phase, before string, n int64) {
	if w.done[phase] != n-1 {
		w.fail("%s %d, but the last one was %d", phase, n, w.done[phase])
	}
	if w.done[before] != n {
		w.fail("%s %d before %s %d", phase, n, before, n)
	}
}

func (w *world) obey(d Decision) {
	switch d := d.(type) {
	case Emit:
		if !w.wished {
			w.fail("barrier %d, which nobody asked for", d.Epoch)
		}
		if d.Epoch != w.emitted+1 || w.done["publish"] != w.emitted {
			w.fail("barrier %d, but %d is out and %d is committed", d.Epoch, w.emitted, w.done["publish"])
		}
		w.emitted, w.wished, w.acks, w.allEnd = d.Epoch, false, map[string]bool{}, true
		for _, t := range w.tasks {
			a := Acked{Epoch: d.Epoch, Task: t}
			if w.rng.IntN(2) == 0 {
				a.Saved = []Saved{{Step: "s", Entries: w.rng.Int64N(3), Live: 5}}
			}
			w.answers = append(w.answers, a)
		}
	case Hold:
		if d.On == w.held {
			w.fail("hold %v twice", d.On)
		}
		w.held = d.On
	case Write:
		w.owed[d.Task] = true
		w.answers = append(w.answers, Written(d))
	case Prepare:
		w.in("prepare", "acked", d.Epoch)
		w.answers = append(w.answers, promise{"prepare", Prepared(d)})
	case Enter:
		w.in("enter", "prepare", d.Epoch)
		if len(w.owed) > 0 {
			w.fail("enter %d without the segments of %v", d.Epoch, w.owed)
		}
		if d.Finished != w.allEnd {
			w.fail("enter %d finished %v, but the splits had ended: %v", d.Epoch, d.Finished, w.allEnd)
		}
		w.answers = append(w.answers, promise{"enter", Entered{d.Epoch}})
	case Decide:
		w.in("decide", "enter", d.Epoch)
		w.answers = append(w.answers, promise{"decide", Decided(d)})
	case Follow:
		w.in("follow", "decide", d.Epoch)
		w.answers = append(w.answers, promise{"follow", Followed(d)})
	case Publish:
		w.in("publish", "follow", d.Epoch)
		w.done["publish"] = d.Epoch
	case Retire:
		w.answers = append(w.answers, promise{"retire", Retired(d)})
	case End:
		w.end = &d
		if d.Finished != w.allEnd || !d.Finished && !w.stop {
			w.fail("end %+v, stop asked for: %v, all ended: %v", d, w.stop, w.allEnd)
		}
	case Fail:
		w.fail("machine failed: %s", d.Reason)
	}
}

// promise marks what its event completes when it arrives.
type promise struct {
	phase string
	Event
}

// drain lets the world go on until nothing is owed, and then stops the run.
func (w *world) drain() {
	w.flush()
	if w.end != nil {
		return
	}
	if w.wished || w.emitted != w.done["publish"] {
		w.fail("a wish was lost: barrier %d is out, %d committed", w.emitted, w.done["publish"])
	}
	if w.held && !w.stop {
		w.fail("the sources are held and no barrier is on its way")
	}
	w.stop = true
	w.wish(Stop{})
	w.flush()
}

func (w *world) flush() {
	for len(w.answers) > 0 {
		w.answer(w.rng.IntN(len(w.answers)))
	}
}

// unfinished says what is missing at the end of a walk.
func (w *world) unfinished() string {
	switch {
	case w.end == nil:
		return "no end"
	case w.done["publish"] != w.emitted:
		return fmt.Sprintf("ended with barrier %d out and %d committed", w.emitted, w.done["publish"])
	}
	return ""
}
