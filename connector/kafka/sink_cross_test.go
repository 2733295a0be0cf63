package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// An older incarnation commits in the moment before it is shut out: the newer one goes
// on from there, and from nothing that it has read before.
func TestCommitBeforeFence(t *testing.T) {
	for _, which := range []string{"a", "b"} {
		t.Run(which, func(t *testing.T) {
			s := stage(t, 1)
			old := begin(t, s, s.sink(), 1)
			for n := range 2 {
				check(t, old.run(t.Context(), nil, message("k", fmt.Sprint(n+1))))
			}
			c := s.cluster()
			var once sync.Once
			m := newMachine(t.Context(), func(name string, req []byte, do func() error) error {
				if name == "InitProducerID" && lastLetter(req, s.job.Name+"-0-") == which {
					once.Do(func() {
						if err := old.run(t.Context(), nil, message("k", "3")); err != nil {
							t.Logf("the older one: %v", err) // its next producer is shut out already
						}
					})
				}
				return do()
			})
			c.more = []kgo.Opt{kgo.Dialer(m.dial)}
			l := begin(t, s, Sink(c, s.topic, copies, Linger(0)), 2)
			want := []string{"k=1", "k=2", "k=3"}[:old.epoch]
			if l.epoch != old.epoch || l.parent != old.parent {
				t.Errorf("the newer one goes on from epoch %d, and the older one has committed epoch %d", l.epoch, old.epoch)
			}
			check(t, l.run(t.Context(), nil, message("k", "4")))
			equal(t, "topic", s.read(s.topic), append(want, "k=4")...)
		})
	}
}

// Two starts at once, whose producers are initialized in such an order
// that each comes to own one: only one of them can go on.
func TestCrossedFencing(t *testing.T) {
	for _, order := range []string{"Xa Ya Yb Xb", "Xb Yb Ya Xa", "Xa Xb Ya Yb"} {
		t.Run(order, func(t *testing.T) {
			s := stage(t, 1)
			l := begin(t, s, s.sink(), 1)
			check(t, l.run(t.Context(), nil, message("k", "1")))
			turns := newTurns(strings.Fields(order)...)
			type answer struct {
				who byte
				l   *life[Message]
				err error
			}
			answers := make(chan answer, 2)
			for i, who := range []byte("XY") {
				c := s.cluster()
				m := newMachine(t.Context(), func(name string, req []byte, do func() error) error {
					if name == "InitProducerID" {
						return turns.wait(t.Context(), string(who)+lastLetter(req, s.job.Name+"-0-"), do)
					}
					if err := turns.over(t.Context()); err != nil {
						return err
					}
					return do()
				})
				c.more = []kgo.Opt{kgo.Dialer(m.dial)}
				go func() {
					l, err := try(t.Context(), s, Sink(c, s.topic, copies, Linger(0)), int64(2+i))
					if err == nil {
						err = l.run(t.Context(), nil, message("k", "2"))
					}
					answers <- answer{who, l, err}
				}()
			}
			a, b := <-answers, <-answers
			if (a.err == nil) == (b.err == nil) && a.err == nil {
				t.Fatal("both have committed the epoch")
			}
			t.Logf("%c: %v; %c: %v", a.who, a.err, b.who, b.err)
			want := []string{"k=1"}
			if a.err == nil || b.err == nil {
				want = append(want, "k=2")
			}
			last := begin(t, s, s.sink(), 4)
			check(t, last.run(t.Context(), nil, message("k", "3")))
			equal(t, "topic", s.read(s.topic), append(want, "k=3")...)
		})
	}
}

// lastLetter is what follows a text in a request.
func lastLetter(req []byte, text string) string {
	if i := strings.Index(string(req), text); i >= 0 {
		return string(req[i+len(text)])
	}
	return "?"
}

// turns lets calls happen in an order.
type turns struct {
	order []string
	done  []chan struct{}
}

func newTurns(order ...string) *turns {
	t := &turns{order: order}
	for range order {
		t.done = append(t.done, make(chan struct{}))
	}
	return t
}

// wait performs a call when those before it in the order are done.
func (t *turns) wait(ctx context.Context, name string, do func() error) error {
	i := slices.Index(t.order, name)
	if i < 0 {
		return do()
	}
	select {
	case <-t.done[i]:
		return do() // once more
	default:
	}
	if i > 0 {
		select {
		case <-t.done[i-1]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer close(t.done[i])
	return do()
}

// over waits for the last one, unless none has begun.
func (t *turns) over(ctx context.Context) error {
	select {
	case <-t.done[0]:
	default:
		return nil
	}
	select {
	case <-t.done[len(t.done)-1]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
