package connectortest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// race is incarnations that start one after the other and whose calls come in
// an order that the seed chooses: a few calls of one of them, then of another.
type race struct {
	rng  *rand.Rand
	disk *sim.Disk
}

// racer is one incarnation, in a goroutine of its own that runs only between
// turn and its next arrive.
type racer struct {
	turn, arrive chan struct{}
	err          error // once arrive is closed
}

func (r *race) run(t *testing.T, w *world, seed uint64) {
	t.Helper()
	w.env = sim.NewMachine(r.disk).Env()
	var all, alive []*racer
	for len(all) < 3 || len(alive) > 0 {
		if len(all) < 3 && (len(alive) == 0 || r.rng.IntN(4) == 0) {
			next := r.start(t.Context(), w)
			all, alive = append(all, next), append(alive, next)
			<-next.arrive
		}
		i := r.rng.IntN(len(alive))
		for range r.rng.IntN([]int{2, 8, 30, 100}[r.rng.IntN(4)]) {
			alive[i].turn <- struct{}{}
			if _, more := <-alive[i].arrive; !more {
				alive = slices.Delete(alive, i, i+1)
				break
			}
		}
	}
	for _, one := range all {
		if one.err != nil && !errors.Is(one.err, weir.ErrFenced) {
			t.Errorf("seed %d: one ended with %v, want weir.ErrFenced", seed, one.err)
		}
	}
	w.check(t, diskEpochs) // the newest one has come to the end
	last, _ := w.on(r.disk.Image(sim.Lost()))
	if err := last.run(t); err != nil {
		t.Errorf("seed %d: the last one: %v", seed, err)
	}
	last.check(t, diskEpochs)
	if t.Failed() {
		t.Fatal("seed", seed)
	}
}

// start begins an incarnation, which waits for its first turn.
func (r *race) start(ctx context.Context, w *world) *racer {
	one := &racer{turn: make(chan struct{}), arrive: make(chan struct{})}
	env := pausing(sim.NewMachine(r.disk).Env(), func(string) {
		one.arrive <- struct{}{}
		<-one.turn
	})
	go func() { // run waits for its end
		defer close(one.arrive)
		one.err = w.live(sys.With(ctx, env), diskEpochs)
	}()
	return one
}
