package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// story is a job in several lives, whose epochs write what their number says. It
// plays the part of control, and of its store.
type story struct {
	*scene
	source  string // a topic whose offsets are committed with each epoch; "": none
	at      position
	starts  atomic.Int64
	entered atomic.Bool // there is a checkpoint in the store
}

func newStory(t *testing.T) *story {
	t.Helper()
	return storyOn(stage(t, 2))
}

// storyOn gives the story a source.
func storyOn(sc *scene) *story {
	sc.t.Helper()
	s := &story{scene: sc, source: sc.job.Name + ".in"}
	kafkatest.CreateTopic(s.t, s.brokers, s.source, 1)
	for s.at.topic == (topicID{}) { // a broker may not have heard of it yet
		meta, err := kadm.NewClient(s.cl).Metadata(s.t.Context(), s.source)
		check(s.t, err)
		s.at = position{cluster: meta.Cluster, topic: topicID(meta.Topics[s.source].ID), end: noEnd}
	}
	return s
}

// storyEpochs is how many there are: the second has no output.
const storyEpochs = 3

func (s *story) output(epoch int64) []Message {
	if epoch == 2 {
		return nil
	}
	var out []Message
	for i := range 3 {
		m := message(fmt.Sprintf("e%d-%d", epoch, i), "v")
		m.Partition = int32(i % 2)
		out = append(out, m)
	}
	return out
}

func (s *story) positions(epoch int64) []weir.Position {
	if s.source == "" {
		return nil
	}
	at := s.at
	at.offset = 10 * epoch
	return []weir.Position{{Source: "in", Split: splitName(s.source, 0), At: at.append(nil)}}
}

// live runs an incarnation to the end of an epoch. call is asked about each request
// that changes something; nil: nobody is.
func (s *story) live(ctx context.Context, last int64, call func(name string, req []byte, do func() error) error) error {
	c := s.cluster()
	if call != nil {
		m := newMachine(ctx, call)
		c.more = []kgo.Opt{kgo.Dialer(m.dial)}
	}
	sink := Sink(c, s.topic, copies, Linger(0))
	p, err := sink.Connect(ctx, []string{"out"})
	if err != nil {
		return err
	}
	defer p.Close()
	n := s.starts.Add(1)
	l := &life[Message]{scene: s.scene, by: weir.Incarnation{Number: n, Nonce: nonce(n)}, p: p}
	ledgers, err := p.Fence(ctx, weir.Fence{Job: s.job, By: l.by, Create: !s.entered.Load()})
	for temporaryError(err) && ctx.Err() == nil && call == nil { // as control does
		ledgers, err = p.Fence(ctx, weir.Fence{Job: s.job, By: l.by, Create: !s.entered.Load()})
	}
	if err != nil {
		return err
	}
	o, err := sink.Open(ctx, p, "out")
	if err != nil {
		return err
	}
	l.w, l.parent, l.epoch = o.Writer(0), ledgers["out"].ID, ledgers["out"].ID.Slot-1
	if l.parent.IsZero() {
		s.entered.Store(true)
		if err := l.commit(ctx, 0, s.positions(0)); err != nil {
			return err
		}
	}
	for n := l.epoch + 1; n <= last; n++ {
		if err := l.run(ctx, s.positions(n), s.output(n)...); err != nil {
			return err
		}
	}
	return nil
}

// check compares the topic with what the epochs up to the last one wrote.
func (s *story) check(last int64) {
	s.t.Helper()
	var want []string
	for p := range int32(2) {
		for n := int64(1); n <= last; n++ {
			for _, m := range s.output(n) {
				if m.Partition == p {
					want = append(want, string(m.Key)+"=v")
				}
			}
		}
	}
	equal(s.t, "topic", s.read(s.topic), want...)
	offsets, err := kadm.NewClient(s.cl).FetchOffsets(kadm.RequireStable(s.t.Context()), s.job.Name)
	check(s.t, err)
	if o, ok := offsets.Lookup(s.source, 0); !ok || o.At != 10*last || o.Err != nil || !strings.HasPrefix(o.Metadata, fmt.Sprintf("%d-", last+1)) {
		s.t.Errorf("the group has offset %d with %q of the source, want %d with the checkpoint of epoch %d", o.At, o.Metadata, 10*last, last)
	}
}

// An incarnation is paused before each request that changes something, and a newer
// one takes over. When the older one wakes, it changes nothing, and what a reader
// sees is what the newer one has found and written.
func TestZombie(t *testing.T) {
	for _, through := range []bool{false, true} {
		t.Run(fmt.Sprintf("newer one goes on %v", through), func(t *testing.T) {
			n := 1
			for ; ; n++ {
				s := newStory(t)
				if !s.overtaken(t, n, through) {
					break
				}
			}
			t.Logf("%d pauses", n-1)
			if n < 15 {
				t.Errorf("the older one was paused %d times, before fewer requests than it makes", n-1)
			}
		})
	}
}

func (s *story) overtaken(t *testing.T, pause int, through bool) bool {
	t.Helper()
	var calls atomic.Int64
	paused, woken := "", make(chan struct{})
	err := s.live(t.Context(), storyEpochs, func(name string, _ []byte, do func() error) error {
		if calls.Add(1) != int64(pause) {
			return do()
		}
		paused = name
		defer close(woken)
		last := int64(0)
		if through {
			last = storyEpochs
		}
		if err := s.recovering(t.Context(), last); err != nil {
			t.Errorf("paused before call %d, %s: the newer one: %v", pause, name, err)
		}
		return do()
	})
	if calls.Load() < int64(pause) {
		check(t, err)
		return false
	}
	<-woken // it may have ended because of another request
	where := fmt.Sprintf("paused before call %d, %s", pause, paused)
	if err == nil && through {
		t.Errorf("%s: the older one has come to its end, too", where)
	}
	if through {
		s.check(storyEpochs)
	}
	if last := s.live(t.Context(), storyEpochs, nil); last != nil {
		t.Errorf("%s: the last one: %v", where, last)
	}
	s.check(storyEpochs)
	s.chain(where)
	if t.Failed() {
		t.Fatalf("%s: the older one ended with %v", where, err)
	}
	return true
}

// recovering is an incarnation, and those that are started in its place because of an
// error that may pass: a request of an older one that comes late shuts out a newer one.
func (s *story) recovering(ctx context.Context, last int64) (err error) {
	for range 4 {
		if err = s.live(ctx, last, nil); err == nil || errors.Is(err, weir.ErrFenced) || errors.Is(err, weir.ErrRefused) {
			return err
		}
	}
	return err
}

// chain checks that the control records follow one on another.
func (s *story) chain(where string) {
	s.t.Helper()
	records := s.records()
	for i, r := range records {
		switch {
		case r.Number != int64(i):
			s.t.Errorf("%s: the record at offset %d has number %d, want %d", where, r.offset, r.Number, i)
		case i > 0 && r.Incarnation < records[i-1].Incarnation:
			s.t.Errorf("%s: record %d was written by incarnation %d, behind one of %d", where, i, r.Incarnation, records[i-1].Incarnation)
		case i > 0 && r.Parent != records[i-1].Checkpoint:
			s.t.Errorf("%s: record %d goes on from %q, and the one before it names %q", where, i, r.Parent, records[i-1].Checkpoint)
		case i > 0 && r.Epoch != records[i-1].Epoch && r.Epoch != records[i-1].Epoch+1:
			s.t.Errorf("%s: record %d is of epoch %d, behind one of %d", where, i, r.Epoch, records[i-1].Epoch)
		}
	}
}

// A zombie that was stopped with output on its way, and an epoch prepared, is told
// that it is fenced whatever it tries next.
func TestFencedZombie(t *testing.T) {
	s := stage(t, 1)
	old := begin(t, s, s.sink(), 1)
	check(t, old.run(t.Context(), nil, message("k", "1")))
	check(t, old.write(message("k", "old 2")))
	check(t, old.seal(t.Context()))
	check(t, old.write(message("k", "old 3")))
	newer := begin(t, s, s.sink(), 2)
	check(t, newer.run(t.Context(), nil, message("k", "2")))
	err := old.commit(t.Context(), 2, nil)
	says(t, err, weir.ErrFenced, "incarnation 1 (nonce-1) can't write", "names incarnation 2 (nonce-2)")
	if t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err); !ok || t.Temporary() {
		s.t.Errorf("%v says that it may be repeated", err)
	}
	says(t, old.write(message("k", "old 3")), weir.ErrFenced)
	says(t, old.commit(t.Context(), 2, nil), weir.ErrFenced)
	_, err = old.p.Prepare(t.Context(), 3)
	says(t, err, weir.ErrFenced)
	check(t, newer.run(t.Context(), nil, message("k", "3")))
	equal(t, "topic", s.read(s.topic), "k=1", "k=2", "k=3")
}

// The answer to a request is lost, or the request itself, at each one in turn: the
// incarnation ends or goes on, and in the end everything is there once.
func TestLostRequests(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer %v", after), func(t *testing.T) {
			names := map[string]int{}
			for n := 1; ; n++ {
				s := newStory(t)
				name := s.loses(t, n, after)
				if name == "" {
					break
				}
				names[name]++
			}
			t.Log(names)
			for _, want := range []string{"InitProducerID", "Produce", "TxnOffsetCommit", "EndTxn", "CreateTopics"} {
				if names[want] == 0 {
					t.Errorf("no %s was lost", want)
				}
			}
		})
	}
}

// errCut is a connection that is cut at a request; the machine lives on.
var errCut = errors.New("the connection was cut")

func (s *story) loses(t *testing.T, at int, after bool) (name string) {
	t.Helper()
	var calls atomic.Int64
	err := s.live(t.Context(), storyEpochs, func(n string, _ []byte, do func() error) error {
		if calls.Add(1) != int64(at) {
			return do()
		}
		name = n
		if after {
			if err := do(); err != nil {
				return err
			}
		}
		return errCut
	})
	if name == "" {
		check(t, err)
		return ""
	}
	where := fmt.Sprintf("cut at call %d, %s, after it: %v", at, name, after)
	if errors.Is(err, weir.ErrFenced) || errors.Is(err, weir.ErrRefused) {
		t.Errorf("%s: %v, want an error that a new incarnation is made after", where, err)
	}
	for range 2 {
		if err := s.live(t.Context(), storyEpochs, nil); err != nil {
			t.Errorf("%s: the next one: %v", where, err)
		}
		s.check(storyEpochs)
		s.chain(where)
	}
	if t.Failed() {
		t.Fatalf("%s: %v", where, err)
	}
	return name
}

// Two zombies, one paused inside the other, and the newest going on.
func TestTwoZombies(t *testing.T) {
	for _, at := range [][2]int{{3, 4}, {8, 5}, {9, 7}, {12, 9}, {13, 12}, {15, 6}} {
		s := newStory(t)
		var ended []string
		var live func(pauses []int)
		live = func(pauses []int) {
			var calls atomic.Int64
			err := s.live(t.Context(), storyEpochs, func(_ string, _ []byte, do func() error) error {
				if n := calls.Add(1); len(pauses) > 0 && n == int64(pauses[0]) {
					live(pauses[1:])
				}
				return do()
			})
			ended = append(ended, fmt.Sprint(err))
		}
		live(at[:])
		if err := s.live(t.Context(), storyEpochs, nil); err != nil {
			t.Errorf("%v: the last one: %v", at, err)
		}
		s.check(storyEpochs)
		s.chain(fmt.Sprint(at))
		if !slices.Contains(ended, "<nil>") {
			t.Errorf("%v: nobody came to the end: %s", at, strings.Join(ended, "; "))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}
