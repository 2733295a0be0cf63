package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/connector/kafka"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
	"github.com/weirstream/weir/window"
)

// collected is what a job has put out, over all its runs.
type collected[T any] struct {
	mu   sync.Mutex
	all  []T
	news chan struct{}
}

func (c *collected[T]) add(rec T) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, rec)
	select {
	case c.news <- struct{}{}:
	default:
	}
	return nil
}

// take returns what has come since it was last asked.
func (c *collected[T]) take() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// await waits until there are so many.
func (c *collected[T]) await(t testing.TB, n int) {
	t.Helper()
	late := time.After(kafkatest.Patience)
	for {
		c.mu.Lock()
		have := len(c.all)
		c.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-c.news:
		case <-late:
			t.Fatalf("after %v there are %d of %d: %v", kafkatest.Patience, have, n, c.take())
		}
	}
}

// copying is a job that hands on what a source has.
type copying struct {
	name, dir string
	src       func() weir.Source[string]
	out, dead collected[string]
}

func newCopying(t testing.TB, src func() weir.Source[string]) *copying {
	c := &copying{name: kafkatest.Name(t), dir: t.TempDir(), src: src}
	c.out.news, c.dead.news = make(chan struct{}, 1), make(chan struct{}, 1)
	return c
}

func (c *copying) start(ctx context.Context, opts ...weir.RunOption) *weir.Running {
	job := weir.NewJob(c.name)
	job.From("in", c.src()).To("out", weir.Each(c.out.add))
	job.DeadLetters("dead", weir.Each(func(d weir.DeadLetter) error { return c.dead.add(d.Where + ": " + d.Kind) }), weir.MaxDeadLetters(-1, 0))
	return job.Start(ctx, append([]weir.RunOption{weir.StateDir(c.dir), weir.Interval(50 * time.Millisecond), weir.Parallelism(2)}, opts...)...)
}

// run runs it until its end, or its stop.
func (c *copying) run(t testing.TB) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
	defer cancel()
	if err := c.start(ctx).Wait(); err != nil || ctx.Err() != nil {
		t.Fatalf("the job ends with %v (%v)", err, ctx.Err())
	}
	return c.out.take()
}

// group is what the job's group has committed, by partition.
func (c *copying) group(t testing.TB, brokers []string, topic string) map[int32]int64 {
	t.Helper()
	resp, err := kadm.NewClient(kafkatest.Client(t, brokers)).FetchOffsets(t.Context(), c.name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int32]int64{}
	for p, o := range resp[topic] {
		out[p] = o.At
	}
	return out
}

// The checkpoint says where a job goes on, whatever has become of the group's
// offsets; these follow it.
func TestCheckpointWinsOverTheGroup(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 10)...)
	job := newCopying(t, func() weir.Source[string] { return texts(brokers, topic, kafka.StopAtEnd()) })
	if got := job.run(t); !slices.Equal(got, numbers(0, 10)) {
		t.Fatalf("the first run has %v", got)
	}
	if at := job.group(t, brokers, topic); at[0] != 10 {
		t.Errorf("the group stands at %v", at)
	}
	for i, moved := range []int64{20, 0, -1} {
		if moved >= 0 {
			commit(t, brokers, job.name, topic, map[int32]int64{0: moved})
		} else if _, err := kadm.NewClient(kafkatest.Client(t, brokers)).DeleteGroup(t.Context(), job.name); err != nil {
			t.Fatal(err)
		}
		from := 10 * (i + 1)
		kafkatest.Produce(t, brokers, numbered(topic, from, from+10)...)
		if got := job.run(t); !slices.Equal(got, numbers(from, from+10)) {
			t.Errorf("the group moved to %d: the next run has %v", moved, got)
		}
		if at := job.group(t, brokers, topic); at[0] != int64(from+10) {
			t.Errorf("after it the group stands at %v", at)
		}
	}
}

// A job that has read everything, stopped and started again without input, reads
// nothing twice, and its lag is 0.
func TestStartsWithoutInput(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 2)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 7)...)
	kafkatest.ProduceIn(t, brokers, kafkatest.Name(t), record(topic, 1, "committed"))(kgo.TryCommit)
	kafkatest.Settle(t, brokers, topic)
	job := newCopying(t, func() weir.Source[string] { return texts(brokers, topic, kafka.StopAtEnd()) })
	if got := job.run(t); len(got) != 8 {
		t.Fatalf("the first run has %v", got)
	}
	for range 3 {
		if got := job.run(t); len(got) > 0 {
			t.Errorf("without input there is %v", got)
		}
		if at := job.group(t, brokers, topic); at[0] != 7 || at[1] != 2 {
			t.Errorf("the group stands at %v", at)
		}
	}
}

// A job that begins at the end reads partitions that come later from their
// beginning, with what was written before they were found.
func TestPartitionsThatCome(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 5)...)
	job := newCopying(t, func() weir.Source[string] {
		return texts(brokers, topic, kafka.StartAt(kafka.Latest()), kafka.Discover(20*time.Millisecond))
	})
	run := job.start(t.Context())
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		if _, err := run.Checkpoint(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	<-begun // it has its first checkpoint, which holds where it begins
	addPartitions(t, brokers, topic, 3)
	kafkatest.Produce(t, brokers, record(topic, 0, "a"), record(topic, 1, "b"), record(topic, 2, "c"), record(topic, 1, "d"))
	job.out.await(t, 4)
	run.Stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(job.out.take())); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("it has read %v", got)
	}
	kafkatest.Produce(t, brokers, record(topic, 2, "e"))
	run = job.start(t.Context())
	job.out.await(t, 1)
	run.Stop()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := job.out.take(); !slices.Equal(got, []string{"e"}) {
		t.Errorf("after a restart it has read %v", got)
	}
}

// Messages that can't be taken are counted and passed, once.
func TestOnlyPoison(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	var recs []*kgo.Record
	for i := range 2000 {
		r := &kgo.Record{Topic: topic, Value: []byte("\xff")}
		if i%2 == 1 {
			r.Value, r.Timestamp = []byte("good, but for its time"), time.UnixMilli(-1)
		}
		recs = append(recs, r)
	}
	kafkatest.Produce(t, brokers, recs...)
	job := newCopying(t, func() weir.Source[string] {
		return texts(brokers, topic, kafka.StopAtEnd(), kafka.Require(kafka.Timestamp))
	})
	for n := 2000; n >= 0; n -= 2000 {
		if got := job.run(t); len(got) > 0 {
			t.Errorf("it has taken %v", got)
		}
		dead := job.dead.take()
		if len(dead) != n || n > 0 && (dead[17] != fmt.Sprintf("topic %s, partition 0, offset 17: decode", topic)) {
			t.Errorf("%d dead letters, want %d: %.3q", len(dead), n, dead)
		}
		if at := job.group(t, brokers, topic); at[0] != 2000 {
			t.Errorf("the group stands at %v", at)
		}
	}
}

// What stops a job is named: topic, partition and offset.
func TestPoisonStopsTheJob(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, append(numbered(topic, 0, 17), record(topic, 0, "\xff"))...)
	job := weir.NewJob(kafkatest.Name(t))
	job.From("in", texts(brokers, topic)).To("out", weir.Each(func(string) error { return nil }))
	err := job.Run(t.Context())
	wantError(t, err, "step in (source)", "topic "+topic+", partition 0, offset 17: invalid UTF-8", "dead letters")
	if !errors.Is(err, weir.ErrInput) {
		t.Errorf("%v isn't bad input", err)
	}
}

// What retention has passed stops the job for good, and not only its incarnation.
func TestLossStopsTheJob(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic := kafkatest.Topic(t, brokers, 1)
	kafkatest.Produce(t, brokers, numbered(topic, 0, 10)...)
	accept := false
	job := newCopying(t, func() weir.Source[string] {
		opts := []kafka.SourceOption{kafka.StopAtEnd()}
		if accept {
			opts = append(opts, kafka.AcceptLoss())
		}
		return texts(brokers, topic, opts...)
	})
	job.run(t)
	kafkatest.Produce(t, brokers, numbered(topic, 10, 20)...)
	deleteUpTo(t, brokers, topic, 15)
	err := job.start(t.Context()).Wait()
	wantError(t, err, "topic "+topic+", partition 0: offsets 10 to 14, 5 in all", "AcceptLoss")
	if !errors.Is(err, weir.ErrRefused) {
		t.Errorf("%v doesn't refuse to run", err)
	}
	accept = true
	if got := job.run(t); !slices.Equal(got, numbers(15, 20)) {
		t.Errorf("with AcceptLoss it goes on with %v", got)
	}
	accept = false
	if got := job.run(t); len(got) > 0 {
		t.Errorf("and then it has %v", got)
	}
}

type tick struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// minutes is a job that counts ticks by the minute.
func minutes(name string, src weir.Source[tick], out *collected[string]) *weir.Job {
	job := weir.NewJob(name)
	job.From("in", src, weir.EventTime(func(t tick) time.Time { return t.At }, 0)).
		KeyBy(func(t tick) string { return t.Key }).
		Window(window.Tumbling(time.Minute)).
		Count("minutes").
		To("out", weir.Each(func(r weir.Result[string, int64]) error {
			return out.add(fmt.Sprintf("%s %s %d", r.Key, r.Start.UTC().Format("15:04"), r.Value))
		}))
	return job
}

func tickAt(topic string, partition int32, at string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(`{"key":"k","at":"2026-01-01T` + at + `Z"}`)}
}

// Windows close although two of three partitions never had a message, before and
// after a restart.
func TestEmptyPartitionsHoldNothingBack(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, name, dir := kafkatest.Topic(t, brokers, 3), kafkatest.Name(t), t.TempDir()
	src := kafka.Source(kafka.NewCluster(brokers), kafka.Named(topic), codec.JSON[tick]())
	out := &collected[string]{news: make(chan struct{}, 1)}
	for i, want := range []string{"k 12:00 1", "k 12:01 2", "k 12:02 2"} {
		kafkatest.Produce(t, brokers, tickAt(topic, 1, fmt.Sprintf("12:0%d:59", i)), tickAt(topic, 1, fmt.Sprintf("12:0%d:00", i+1)))
		run := minutes(name, src, out).Start(t.Context(), weir.StateDir(dir), weir.Parallelism(2))
		out.await(t, 1)
		run.Stop()
		if err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := out.take(); !slices.Equal(got, []string{want}) {
			t.Errorf("run %d has put out %v, want %s", i, got, want)
		}
	}
}

// A stop at the end closes no window: the next run goes on with it. The end of a
// bounded input closes all.
func TestStopAndEnd(t *testing.T) {
	brokers := kafkatest.Brokers(t)
	topic, name, dir := kafkatest.Topic(t, brokers, 2), kafkatest.Name(t), t.TempDir()
	c := kafka.NewCluster(brokers)
	out := &collected[string]{news: make(chan struct{}, 1)}
	run := func(name, dir string, opt kafka.SourceOption) []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
		defer cancel()
		if err := minutes(name, kafka.Source(c, kafka.Named(topic), codec.JSON[tick](), opt), out).Run(ctx, weir.StateDir(dir), weir.Parallelism(2)); err != nil || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
		return out.take()
	}
	kafkatest.Produce(t, brokers, tickAt(topic, 0, "12:00:10"), tickAt(topic, 1, "12:00:20"))
	if got := run(name, dir, kafka.StopAtEnd()); len(got) > 0 {
		t.Errorf("a stop has closed %v", got)
	}
	kafkatest.Produce(t, brokers, tickAt(topic, 0, "12:00:30"), tickAt(topic, 0, "12:01:10"), tickAt(topic, 1, "12:01:20"))
	if got := run(name, dir, kafka.StopAtEnd()); !slices.Equal(got, []string{"k 12:00 3"}) {
		t.Errorf("the second run has put out %v", got)
	}
	if got := slices.Sorted(slices.Values(run(kafkatest.Name(t), t.TempDir(), kafka.Bounded()))); !slices.Equal(got, []string{"k 12:00 3", "k 12:01 2"}) {
		t.Errorf("the bounded run has put out %v", got)
	}
}
