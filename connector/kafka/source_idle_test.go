package kafka_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/internal/sys"
)

// handClock goes on when it is told to. What waits on it waits for that.
type handClock struct {
	mu    sync.Mutex
	now   time.Time
	waits []handWait
}

type handWait struct {
	at time.Time
	c  chan time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := handWait{c.now.Add(d), make(chan time.Time, 1)}
	c.waits = append(c.waits, w)
	return w.c
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.waits = slices.DeleteFunc(c.waits, func(w handWait) bool {
		if w.at.After(c.now) {
			return false
		}
		w.c <- c.now
		return true
	})
}

// withClock is a context whose source lives by a clock of the test's.
func withClock(ctx context.Context) (context.Context, *handClock) {
	c := &handClock{now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	env := *sys.From(ctx)
	env.Clock = c
	return sys.With(ctx, &env), c
}

// An empty partition is idle from the start, one that has been read up to its end
// then, and none while there is something to read; each comes back.
func TestIdle(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 2)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 3)...)
	src := texts(brokers, topic)
	full, empty := open(t.Context(), t, src, topic+"/0", nil), open(t.Context(), t, src, topic+"/1", nil)
	if st := status(empty); !st.Idle || st.Lag != 0 {
		t.Errorf("empty: %+v", st)
	}
	if st := status(full); st.Idle || st.Lag != 3 {
		t.Errorf("not read yet: %+v", st)
	}
	if _, err := readSome(t, full, 2); err != nil || status(full).Idle || status(full).Lag != 1 {
		t.Errorf("two of three read: %+v, error %v", status(full), err)
	}
	if _, err := readIdle(t, full, 10); err != nil || status(full).Lag != 0 {
		t.Errorf("all read: %+v, error %v", status(full), err)
	}
	for range 3 {
		kafkatest.Produce(t, brokers, record(topic, 0, "more"), record(topic, 1, "more"))
		for _, r := range []interface{ Ready() <-chan struct{} }{full, empty} {
			<-r.Ready()
		}
		for name, r := range map[string]any{"full": full, "empty": empty} {
			got, err := readSome(t, r.(reader), 1)
			if err != nil || !slices.Equal(got, []string{"more"}) {
				t.Errorf("%s: %v, error %v", name, got, err)
			}
			if _, err := readIdle(t, r.(reader), 1); err != nil {
				t.Error(err)
			}
		}
	}
}

// While a transaction is open a partition isn't idle: others wait for what it
// holds. Its end wakes the reader, also when nothing comes of it.
func TestNotIdleBehindAnOpenTransaction(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for name, how := range map[string]kgo.TransactionEndTry{"committed": kgo.TryCommit, "aborted": kgo.TryAbort} {
		t.Run(name, func(t *testing.T) {
			topic := kafkatest.Topic(t, brokers, 1)
			kafkatest.Produce(t, brokers, numbered(topic, 0, 2)...)
			end := kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), record(topic, 0, "in it"))
			ctx, clock := withClock(t.Context())
			r := open(ctx, t, texts(brokers, topic), topic+"/0", nil)
			impatient := open(ctx, t, texts(brokers, topic, kafka.IdleAfter(time.Minute)), topic+"/0", nil)
			for _, x := range []reader{r, impatient} {
				if got, err := readSome(t, x, 2); err != nil || !slices.Equal(got, numbers(0, 2)) {
					t.Fatalf("read %v, error %v", got, err)
				}
				if got, _, err := x.Read(nil, 10); err != nil || len(got) > 0 || status(x).Idle || status(x).Lag != 1 {
					t.Fatalf("before the open transaction: %v, error %v, %+v", got, err, status(x))
				}
			}
			// By the clock it counts as idle after a minute, where that was asked for.
			for !status(impatient).Idle {
				clock.advance(20 * time.Second)
				if _, _, err := impatient.Read(nil, 10); err != nil {
					t.Fatal(err)
				}
			}
			if clock.Now().Before(time.Date(2026, 1, 1, 12, 1, 0, 0, time.UTC)) || status(r).Idle {
				t.Errorf("at %v: %+v, and without IdleAfter %+v", clock.Now(), status(impatient), status(r))
			}
			end(how)
			want := []string{"in it"}
			if how == kgo.TryAbort {
				want = nil
			}
			for _, x := range []reader{r, impatient} {
				got, err := readUntil(t, x, 10, func(got []string, found int) bool {
					return found == 0 && len(got) == len(want) && status(x).Lag == 0 && status(x).Idle
				})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("read %v, error %v; want %v", got, err, want)
				}
			}
		})
	}
}
