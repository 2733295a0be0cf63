package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// loss is something that happens to a topic that was read up to a position.
type lossCase struct {
	name   string
	before []*kgo.Record
	read   int                                                // before it happens
	happen func(t *testing.T, brokers []string, topic string) // nil: change alone
	change func(at string) string                             // of the position; nil: none
	says   []string
	rest   []string // what is read with AcceptLoss
}

func lossCases(topic string) []lossCase {
	return []lossCase{
		{name: "retention has passed it", before: numbered(topic, 0, 200), read: 50,
			happen: func(t *testing.T, brokers []string, topic string) { deleteUpTo(t, brokers, topic, 133) },
			says:   []string{"offsets 50 to 132, 83 in all", "starts at 133", "go on at offset 133"}, rest: numbers(133, 200)},
		{name: "retention has left nothing", before: numbered(topic, 0, 20), read: 5,
			happen: func(t *testing.T, brokers []string, topic string) {
				deleteUpTo(t, brokers, topic, 20)
				kafkatest.Produce(t, brokers, record(topic, 0, "new"))
			},
			says: []string{"offsets 5 to 19, 15 in all", "starts at 20"}, rest: []string{"new"}},
		{name: "made anew with fewer", before: numbered(topic, 0, 20), read: 20,
			happen: func(t *testing.T, brokers []string, topic string) {
				recreate(t, brokers, topic, record(topic, 0, "new"))
			},
			says: []string{"deleted and created again", "up to offset 20", "offsets 0 to 0"}, rest: []string{"new"}},
		{name: "made anew with more", before: numbered(topic, 0, 3), read: 3,
			happen: func(t *testing.T, brokers []string, topic string) {
				recreate(t, brokers, topic, numbered(topic, 100, 120)...)
			},
			says: []string{"deleted and created again", "up to offset 3", "offsets 0 to 19"}, rest: numbers(100, 120)},
	}
}

// What isn't there any more when a job starts again stops it, and is named; with
// AcceptLoss reading goes on where there is something, and that is said.
func TestLossWhileDown(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	cases := append(lossCases("x"),
		lossCase{name: "cut below it", before: numbered("x", 0, 5), read: 5, change: func(at string) string { return strings.Replace(at, ":5@0", ":60", 1) },
			says: []string{"offsets 5 to 59, 55 in all", "truncated to 5", "go on at offset 5"}},
		lossCase{name: "another cluster", before: numbered("x", 0, 5), read: 3, change: func(at string) string {
			p := strings.Split(at, ":")
			p[1] = "another"
			return strings.Join(p, ":")
		}, says: []string{"another cluster", "its id was another and is", "up to offset 3"}, rest: numbers(0, 5)})
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			topic, at := readBefore(t, brokers, tt)
			if tt.happen != nil {
				tt.happen(t, brokers, topic)
			}
			if tt.change != nil {
				at = []byte(tt.change(string(at)))
			}
			_, err := texts(brokers, topic).Open(t.Context(), topic+"/0", at)
			wantError(t, err, append(tt.says, "topic "+topic+", partition 0", "--accept-loss", "kafka.AcceptLoss")...)
			if !errors.Is(err, weir.ErrRefused) {
				t.Errorf("%v doesn't refuse to run", err)
			}
			ctx, h := listening(t)
			r := open(ctx, t, texts(brokers, topic, kafka.AcceptLoss()), topic+"/0", at)
			if !h.has(&h.warns, tt.says[:2]...) {
				t.Errorf("going on, it says %q", h.warns)
			}
			if got, err := readIdle(t, r, 10); err != nil || !slices.Equal(got, tt.rest) {
				t.Errorf("read on: %v, error %v; want %v", got, err, tt.rest)
			}
			if again := open(t.Context(), t, texts(brokers, topic), topic+"/0", r.Position()); status(again).Lag != 0 {
				t.Errorf("from %q: %+v", r.Position(), status(again))
			}
		})
	}
}

// readBefore makes a case's topic and reads its first messages.
func readBefore(t *testing.T, brokers []string, tt lossCase) (topic string, at []byte) {
	topic = kafkatest.Topic(t, brokers, 1)
	for _, r := range tt.before {
		r.Topic = topic
	}
	produceBatched(t, brokers, 10, tt.before)
	r := open(t.Context(), t, texts(brokers, topic), topic+"/0", nil)
	if got, err := readSome(t, r, tt.read); err != nil || len(got) != tt.read {
		t.Fatalf("read %v, error %v", got, err)
	}
	return topic, r.Position()
}

// The same happens to a job that runs: it was opened, and reads only afterwards.
func TestLossWhileRunning(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	for _, tt := range lossCases("x") {
		t.Run(tt.name, func(t *testing.T) {
			topic, at := readBefore(t, brokers, tt)
			ctx, h := listening(t)
			accepts := open(ctx, t, texts(brokers, topic, kafka.AcceptLoss()), topic+"/0", at)
			refuses := open(t.Context(), t, texts(brokers, topic), topic+"/0", at)
			idle := open(t.Context(), t, texts(brokers, topic), topic+"/0", at) // has read before
			before, err := readUntil(t, idle, 10, func(_ []string, found int) bool { return found == 0 && status(idle).Idle })
			if err != nil {
				t.Fatal(err)
			}
			tt.happen(t, brokers, topic)
			_, err = readToEnd(t, refuses, 10)
			wantError(t, err, append(tt.says, "topic "+topic+", partition 0")...)
			if !errors.Is(err, weir.ErrRefused) {
				t.Errorf("%v doesn't refuse to run", err)
			}
			if got, err := readSome(t, accepts, len(tt.rest)); err != nil || !slices.Equal(got, tt.rest) {
				t.Errorf("read on: %v, error %v; want %v", got, err, tt.rest)
			}
			if !h.has(&h.warns, tt.says[:2]...) {
				t.Errorf("going on, it says %q", h.warns)
			}
			if tt.name == "retention has passed it" {
				return // who had read everything waits for more
			}
			got, err := readUntil(t, idle, 10, func(got []string, _ int) bool { return len(got) > 0 })
			switch {
			case strings.HasPrefix(tt.name, "made anew"):
				wantError(t, err, "deleted and created again")
			case tt.name == "retention has left nothing":
				if err != nil || !slices.Equal(got, []string{"new"}) {
					t.Errorf("behind %d messages: %v, error %v", len(before), got, err)
				}
			}
		})
	}
}

// A topic that is deleted, and stays so, stops the reader; before that it waits.
func TestTopicThatIsGone(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 3)...)
	ctx, h := listening(t)
	src := texts(brokers, topic)
	r := open(ctx, t, src, topic+"/0", nil)
	if got, err := readIdle(t, r, 10); err != nil || len(got) != 3 {
		t.Fatalf("read %v, error %v", got, err)
	}
	deleteTopic(t, brokers, topic)
	_, err := readToEnd(t, r, 10)
	wantError(t, err, "topic "+topic+", partition 0", "no longer exists")
	if !errors.Is(err, weir.ErrRefused) || !h.has(&h.waits, topic, "isn't there") {
		t.Errorf("%v, and it has said %q", err, h.waits)
	}
	_, err = src.Splits(t.Context())
	wantError(t, err, "topic "+topic+" doesn't exist")
	_, err = texts(brokers, topic).Open(t.Context(), topic+"/0", r.Position())
	wantError(t, err, topic+"/0", "doesn't exist any more")
	if !errors.Is(err, weir.ErrRefused) {
		t.Errorf("%v doesn't refuse to run", err)
	}
}

func TestSplitsThatThereAreNot(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, missing := kafkatest.Topic(t, brokers, 1), kafkatest.Name(t)
	for name, tt := range map[string]struct {
		src  weir.Source[string]
		says []string
	}{
		"unknown":  {kafka.Source(kafka.NewCluster(brokers), kafka.Named(topic, missing), text()), []string{"topic " + missing + " doesn't exist", "create it"}},
		"no match": {kafka.Source(kafka.NewCluster(brokers), kafka.Matching(missing+".*"), text(), kafka.Bounded()), []string{"no topic", missing}},
	} {
		_, err := tt.src.Splits(t.Context())
		wantError(t, err, tt.says...)
		if !errors.Is(err, weir.ErrInput) {
			t.Errorf("%s: %v isn't bad input", name, err)
		}
	}
	splits, err := kafka.Source(kafka.NewCluster(brokers), kafka.Matching(missing+".*"), text()).Splits(t.Context())
	if err != nil || len(splits) != 0 {
		t.Errorf("topics that may still come: %v, %v", splits, err)
	}
	for _, split := range []string{topic, topic + "/1", topic + "/-1", topic + "/00", missing + "/0", ""} {
		if _, err := texts(brokers, topic).Open(t.Context(), split, nil); !errors.Is(err, weir.ErrRefused) {
			t.Errorf("split %q: %v", split, err)
		}
	}
}

// Without a broker a look at a job fails soon; a job waits, and says for what.
func TestNoBroker(t *testing.T) {
	src := texts([]string{"127.0.0.1:1"}, "clicks")
	_, err := src.Splits(t.Context())
	wantError(t, err, "127.0.0.1:1", "refused")
	ctx, h := listening(t)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := src.Splits(ctx)
		ended <- err
	}()
	h.await(t, &h.waits, "127.0.0.1:1", "refused")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it was stopped: %v", err)
	}
}
