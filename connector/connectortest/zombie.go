package connectortest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// testZombie pauses an incarnation before each of its calls. A newer one takes
// over meanwhile. When the older one goes on, it learns that it is fenced, and
// changes nothing that a reader sees.
func testZombie(t *testing.T, s SinkUnderTest) {
	if !s.Files {
		t.Log("SinkUnderTest.Files is false: nothing to test")
		return
	}
	bases := map[string]func() (*world, *sim.Disk){
		"from nothing": func() (*world, *sim.Disk) { return newDiskWorld(s), sim.NewDisk() },
		"behind":       func() (*world, *sim.Disk) { return behind(t, s) },
	}
	for name, base := range bases {
		for _, z := range []zombie{
			{rogue: false, through: false}, {rogue: false, through: true},
			{rogue: true, through: false}, {rogue: true, through: true},
		} {
			t.Run(fmt.Sprintf("%s, rogue %v, newer one goes on %v", name, z.rogue, z.through), func(t *testing.T) {
				n := 1
				for ; ; n++ {
					z := z
					z.at = []int{n}
					w, disk := base()
					if !z.play(t, w, disk) {
						break
					}
				}
				t.Logf("%d pauses", n-1)
			})
		}
		t.Run(name+", any order", func(t *testing.T) {
			for seed := range uint64(200) {
				w, disk := base()
				(&race{rng: rand.New(rand.NewPCG(seed, 1)), disk: disk}).run(t, w, seed)
			}
		})
		t.Run(name+", two zombies", func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range 150 {
				z := zombie{rogue: rng.IntN(2) == 0, through: rng.IntN(2) == 0, at: []int{1 + rng.IntN(120), 1 + rng.IntN(60)}}
				w, disk := base()
				z.play(t, w, disk)
			}
		})
	}
}

// behind is a world in which an epoch was entered and a part of it, at most,
// committed, when the process was killed.
func behind(t *testing.T, s SinkUnderTest) (*world, *sim.Disk) {
	w, m := newDiskWorld(s).on(sim.NewDisk())
	m.CrashIf(func(e sim.Effect) bool {
		return e.Op == sim.OpRename && len(w.log) == 2 && !strings.Contains(e.Name, "/.")
	}, sim.Before)
	err := w.run(t)
	if !m.Dead() || len(w.log) != 2 {
		t.Fatalf("the first life was to die when epoch 1 becomes visible: %v", err)
	}
	return w, m.Image(sim.Killed())
}

// zombie is one play: incarnations that are paused one inside the other, the
// innermost by one that takes over.
type zombie struct {
	at      []int // before which of its calls each is paused
	rogue   bool  // they commit even what they can't enter
	through bool  // the newest goes on to the end before they wake

	disk  *sim.Disk
	story string
	ended []error           // of those that were paused, and woke
	named weir.CheckpointID // what the newest found in the ledgers
	taken bool              // it has fenced
}

// play reports whether all of them were paused.
func (z *zombie) play(t *testing.T, w *world, disk *sim.Disk) bool {
	t.Helper()
	z.disk = disk
	w.env = sim.NewMachine(disk).Env() // for who looks at the rows
	var before map[string][]Row
	newest := false
	after := func() {} // what there is to do once all have woken
	z.live(t, w, z.at, func() {
		newest = true
		after = z.takeOver(t, w)
		before = w.rows(t)
	})
	for _, err := range z.ended {
		if err != nil && !errors.Is(err, weir.ErrFenced) {
			t.Errorf("one that woke ended with %v, want weir.ErrFenced", err)
		}
	}
	if newest {
		if diff := gocmp.Diff(before, w.rows(t)); diff != "" {
			t.Errorf("who woke has changed what readers see (-before +after):\n%s", diff)
		}
	}
	if !t.Failed() {
		after()
		last, _ := w.on(disk.Image(sim.Lost()))
		if err := last.run(t); err != nil {
			t.Errorf("the last one: %v", err)
		}
		last.check(t, diskEpochs)
	}
	if t.Failed() {
		t.Fatal(z.story)
	}
	return newest
}

// takeOver is the newest incarnation: it fences, and goes on to the end now or
// when it is told to.
func (z *zombie) takeOver(t *testing.T, w *world) func() {
	t.Helper()
	ctx := sys.With(t.Context(), sim.NewMachine(z.disk).Env())
	l, err := w.connect(ctx)
	must(t, err)
	w.starts++
	l.by = weir.Incarnation{Number: w.starts, Nonce: fmt.Sprintf("nonce-%d", w.starts)}
	ledgers, err := l.p.Fence(ctx, weir.Fence{Job: testJob, By: l.by, Create: len(w.log) == 0})
	if err != nil {
		t.Fatalf("%sthe newest one can't fence: %v", z.story, err)
	}
	z.taken, z.named = true, ledgers[w.ids()[0]].ID
	finish := func() {
		t.Helper()
		epoch, err := l.resume(ctx, ledgers)
		for n := epoch + 1; err == nil && n <= diskEpochs; n++ {
			err = l.epoch(ctx, n)
		}
		if err = errors.Join(err, l.close()); err != nil {
			t.Fatalf("%sthe newest one: %v", z.story, err)
		}
		w.check(t, diskEpochs)
	}
	if !z.through {
		return finish
	}
	finish()
	return func() {}
}

// live runs an incarnation, paused before its call at[0] by the one of at[1:],
// and that at last by pause.
func (z *zombie) live(t *testing.T, w *world, at []int, pause func()) {
	t.Helper()
	calls, starts := 0, w.starts
	env := pausing(sim.NewMachine(z.disk).Env(), func(call string) {
		if w.starts == starts {
			return // it hasn't got its number yet
		}
		if calls++; calls != at[0] {
			return
		}
		z.story += fmt.Sprintf("paused before call %d, %s; ", calls, call)
		if len(at) > 1 {
			z.live(t, w, at[1:], pause)
			return
		}
		pause()
	})
	ctx := sys.With(t.Context(), env)
	l, epoch, err := w.begin(ctx)
	for n := epoch + 1; err == nil && n <= diskEpochs; n++ {
		l.rogue = z.rogue
		err = l.epoch(ctx, n)
		if err == nil && z.taken && !w.covers(z.named, l.last) {
			t.Errorf("%sthe commit of epoch %d succeeded, and the newest one found %v in the ledgers", z.story, n, z.named)
		}
	}
	if l != nil {
		err = errors.Join(err, l.close())
	}
	z.ended = append(z.ended, err)
}

// covers reports whether a checkpoint is id or follows it in the log.
func (w *world) covers(named, id weir.CheckpointID) bool {
	at := func(id weir.CheckpointID) int {
		return slices.IndexFunc(w.log, func(c weir.Commit) bool { return c.ID == id })
	}
	return at(id) >= 0 && at(id) <= at(named)
}
