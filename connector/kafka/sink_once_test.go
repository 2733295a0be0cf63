package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// Messages of an at-least-once sink are visible before anything is committed, and a
// new incarnation may write them again.
func TestAtLeastOnce(t *testing.T) {
	s := stage(t, 0)
	sink := s.sink(AtLeastOnce(), CreateTopics(1, 0))
	if spec := sink.Spec(); spec.Kind != weir.AtLeastOnce || spec.Participant == s.sink().Spec().Participant {
		t.Errorf("the sink is %v in %q, together with transactional ones", spec.Kind, spec.Participant)
	}
	l := begin(t, s, sink, 1)
	check(t, l.write(message("k", "1"), message("k", "2")))
	check(t, l.p.Flush(t.Context()))
	equal(t, "before the barrier", s.read(s.topic), "k=1", "k=2")
	check(t, l.run(t.Context(), nil, message("k", "3")))
	check(t, l.run(t.Context(), nil))
	next := begin(t, s, sink, 2)
	check(t, next.run(t.Context(), nil, message("k", "3")))
	check(t, l.run(t.Context(), nil, message("k", "old"))) // nobody is shut out
	equal(t, "in the end", s.read(s.topic), "k=1", "k=2", "k=3", "k=3", "k=old")
	check(t, l.p.Close())
	if err := l.p.Flush(t.Context()); !errors.Is(err, errSinkClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A barrier waits for what was sent before it, and what wasn't taken fails the epoch.
func TestUnflushed(t *testing.T) {
	for _, opts := range [][]SinkOption{nil, {AtLeastOnce()}} {
		t.Run(fmt.Sprint(len(opts)), func(t *testing.T) {
			s := stage(t, 1)
			hold, sent := make(chan struct{}), make(chan struct{}, 100)
			var holding, answered atomic.Bool
			c := s.cluster()
			m := newMachine(t.Context(), func(name string, _ []byte, do func() error) error {
				if name != "Produce" || !holding.Load() {
					return do()
				}
				sent <- struct{}{}
				<-hold
				defer answered.Store(true)
				return do()
			})
			c.more = []kgo.Opt{kgo.Dialer(m.dial)}
			l := begin(t, s, Sink(c, s.topic, copies, append(opts, Linger(0))...), 1)
			check(t, l.run(t.Context(), nil, message("k", "1")))
			holding.Store(true)
			check(t, l.write(message("k", "2")))
			check(t, l.w.Seal(2))
			<-sent
			go close(hold)
			_, err := l.p.Prepare(t.Context(), 2)
			check(t, err)
			if !answered.Load() {
				t.Error("prepared before the broker has the message")
			}
			holding.Store(false)
			check(t, l.commit(t.Context(), 2, nil))
			equal(t, "topic", s.read(s.topic), "k=1", "k=2")
		})
	}
}

// What the brokers don't take fails the epoch of an at-least-once sink, too.
func TestAtLeastOnceRefused(t *testing.T) {
	fake := kafkatest.FakeOnly(t, "codes are injected")
	s := stage(t, 2)
	l := begin(t, s, s.sink(AtLeastOnce()), 1)
	h := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.topic, Partitions: []int32{1}, Err: kerr.InvalidRecord, Count: -1})
	defer h.Remove()
	bad := message("k", "bad")
	bad.Partition = 1
	check(t, l.write(message("k", "good"), bad))
	err := l.seal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "partition 1: INVALID_RECORD") || temporaryError(err) {
		t.Fatalf("got %v, want an error about partition 1, for good", err)
	}
	if err := l.write(message("k", "v")); err == nil {
		t.Error("the sink takes records after an epoch has failed")
	}
}

// Brokers that are away for too long end an epoch, and don't hold up the job for good.
func TestNobodyAnswers(t *testing.T) {
	for _, opts := range [][]SinkOption{nil, {AtLeastOnce()}} {
		t.Run(fmt.Sprint(len(opts)), func(t *testing.T) {
			s := stage(t, 1)
			c := s.cluster()
			gone := make(chan struct{})
			var away atomic.Bool
			m := newMachine(t.Context(), func(name string, _ []byte, do func() error) error {
				if away.Load() {
					<-gone
				}
				return do()
			})
			c.more = []kgo.Opt{kgo.Dialer(m.dial)}
			l := begin(t, s, Sink(c, s.topic, copies, append(opts, Linger(0), TransactionTimeout(1500*time.Millisecond))...), 1)
			check(t, l.run(t.Context(), nil, message("k", "1")))
			away.Store(true)
			check(t, l.write(message("k", "2")))
			err := l.seal(t.Context())
			close(gone)
			if !errors.Is(err, errAged) && !errors.Is(err, errStalled) || temporaryError(err) {
				t.Fatalf("got %v, want an error about brokers that don't answer, for good", err)
			}
		})
	}
}

// A writer that waits for room is let go when the run ends.
func TestBackPressure(t *testing.T) {
	s := stage(t, 1)
	c := s.cluster()
	gone := make(chan struct{})
	var away atomic.Bool
	m := newMachine(t.Context(), func(name string, _ []byte, do func() error) error {
		if away.Load() && name == "Produce" {
			<-gone
		}
		return do()
	})
	c.more = []kgo.Opt{kgo.Dialer(m.dial), kgo.MaxBufferedRecords(100)}
	ctx, cancel := context.WithCancelCause(t.Context())
	l, err := try(ctx, s, Sink(c, s.topic, copies, Linger(0)), 1)
	check(t, err)
	check(t, l.run(ctx, nil, message("k", "1")))
	away.Store(true)
	wrote := make(chan error, 1)
	full := make(chan struct{})
	go func() {
		check := func() error {
			for n := 0; ; n++ {
				if err := l.write(message("k", "2")); err != nil {
					return err
				}
				if n == 99 {
					close(full)
				}
			}
		}
		wrote <- check()
	}()
	<-full
	cause := errors.New("the run is over")
	cancel(cause)
	if err := <-wrote; err == nil {
		t.Fatal("the writer took more than there is room for")
	}
	close(gone)
	check(t, l.p.Close())
}

// A dead letter tells all about its record, and is cut where it doesn't fit.
func TestDeadLetter(t *testing.T) {
	s := stage(t, 1, "max.message.bytes=1000")
	sink := DeadLetters(s.cluster(), s.topic)
	l := begin(t, s, sink, 1)
	letter := weir.DeadLetter{Source: "clicks", Split: "clicks/3", Mark: 17, Step: "decode", Kind: "decode", Reason: "no comma", Where: "topic clicks, partition 3, offset 17", Raw: []byte(`{"a"`)}
	long := letter
	long.Mark, long.Raw = 18, bytes.Repeat([]byte("x"), 5000)
	unknown := weir.DeadLetter{Mark: -1, Step: "sink counts", Kind: "sink", Reason: "refused"}
	check(t, l.run(t.Context(), nil, letter, long, unknown))
	got := s.stored(s.topic)
	if len(got) != 3 {
		t.Fatalf("%d letters are there, want 3", len(got))
	}
	headers := []string{`weir-source="clicks" false`, `weir-split="clicks/3" false`, `weir-mark="17" false`, `weir-step="decode" false`,
		`weir-kind="decode" false`, `weir-reason="no comma" false`, `weir-where="topic clicks, partition 3, offset 17" false`}
	equal(t, "headers", got[0].Headers, headers...)
	if got[0].Key != "clicks/clicks/3#17" || got[0].Value != `{"a"` {
		t.Errorf("key %q and value %q", got[0].Key, got[0].Value)
	}
	cut := got[1]
	if n := len(cut.Value); n < 500 || n > 900 || strings.Trim(cut.Value, "x") != "" || !slices.Contains(cut.Headers, `weir-cut="5000" false`) {
		t.Errorf("the long letter has a value of %d bytes, and the headers %q", n, cut.Headers)
	}
	if got[2].Key != "/#-1" || got[2].Value != "" || got[2].Tombstone {
		t.Errorf("of an unknown record: %+v", got[2])
	}
	huge := letter
	huge.Reason = strings.Repeat("y", 4096)
	rejected(t, l.write(huge), 0, "max.message.bytes")
}
