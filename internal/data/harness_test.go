package data

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirstream/weir/internal/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rec is a record of the tests: a key, an event time in ns, a number.
type rec struct {
	key string
	at  int64
	n   int64
}

// feed is a split that a test feeds while the run goes on.
type feed struct {
	mu    sync.Mutex
	recs  []rec
	ended bool
	idle  bool // while there is nothing to read
	ready chan struct{}
}

func newFeed(recs ...rec) *feed { return &feed{recs: recs, ready: make(chan struct{}, 1)} }

func (f *feed) send(recs ...rec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recs = append(f.recs, recs...)
	f.wake()
}

func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.wake()
}

func (f *feed) rest(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = on
	f.wake()
}

func (f *feed) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

type feedReader struct {
	f   *feed
	pos int
}

func (r *feedReader) Read(dst []rec, limit int) ([]rec, bool, error) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	n := min(limit, len(r.f.recs)-r.pos)
	dst = append(dst, r.f.recs[r.pos:r.pos+n]...)
	r.pos += n
	if r.pos < len(r.f.recs) {
		r.f.wake()
	}
	return dst, r.f.ended && r.pos == len(r.f.recs), nil
}
func (r *feedReader) Ready() <-chan struct{} { return r.f.ready }
func (r *feedReader) Position() []byte       { return strconv.AppendInt(nil, int64(r.pos), 10) }
func (r *feedReader) Close() error           { return nil }

// boss is the Control of a test.
type boss struct {
	acks   chan Ack
	probes chan int64
	ended  chan string
	rests  chan string
	wants  chan bool
	failed chan error
}

func newBoss() *boss {
	return &boss{make(chan Ack, 1000), make(chan int64, 1000), make(chan string, 1000), make(chan string, 1000), make(chan bool, 1000), make(chan error, 1000)}
}

func (b *boss) Acked(a Ack)       { b.acks <- a }
func (b *boss) Wants(hold bool)   { b.wants <- hold }
func (b *boss) Probed(n int64)    { b.probes <- n }
func (b *boss) Ended(task string) { b.ended <- task }
func (b *boss) Rests(task string) { b.rests <- task }
func (b *boss) Failed(err error)  { b.failed <- err }

// kept is a checkpoint in memory.
type kept struct {
	splits map[string]SplitState
	secs   map[string][]Section
	clocks map[string][]Clock
}

func (k *kept) Split(_, split string) (SplitState, bool) { s, ok := k.splits[split]; return s, ok }
func (k *kept) Splits(string) (out []SplitState) {
	for _, s := range k.splits {
		out = append(out, s)
	}
	return out
}
func (k *kept) Sections(step string) ([]Section, error) { return k.secs[step], nil }
func (k *kept) Began(string) bool                       { return k.splits != nil }
func (k *kept) Clocks(step string) []Clock              { return k.clocks[step] }

// take adds the acks of one epoch to a checkpoint.
func (k *kept) take(t *testing.T, acks []Ack) {
	t.Helper()
	if k.splits == nil {
		k.splits, k.secs, k.clocks = map[string]SplitState{}, map[string][]Section{}, map[string][]Clock{}
	}
	fresh := map[string]bool{}
	for _, a := range acks {
		for _, s := range a.Splits {
			k.splits[s.Split] = s
		}
		for _, p := range a.Parts {
			i := p.Info()
			if !fresh[i.Step] {
				fresh[i.Step] = true
				k.clocks[i.Step] = nil
				if i.Full {
					k.secs[i.Step] = nil
				}
			}
			k.clocks[i.Step] = append(k.clocks[i.Step], i.Clocks...)
			if i.Entries > 0 {
				var b buffer
				if err := p.Encode(&b); err != nil {
					t.Fatal(err)
				}
				k.secs[i.Step] = append(k.secs[i.Step], Section{Bytes: b, Key: i.Key, Value: i.Value})
			}
			p.Release()
		}
	}
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

// flow is a run of one source over feeds, with what follows it made by chain.
type flow struct {
	*Run
	*boss
	t   *testing.T
	out *collected
}

// collected is what came out.
type collected struct {
	mu  sync.Mutex
	out []string
}

func (c *collected) Write(recs []string, _ []int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, recs...)
	return nil
}
func (c *collected) Seal(epoch int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, fmt.Sprint("-- ", epoch))
	return nil
}

func (c *collected) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.out
	c.out = nil
	return out
}

// chain makes what follows the source in one of its tasks.
type chain func(f *flow, t *Task) Out[rec]

type shape struct {
	parallelism, batch int
	bound              int64
	every              int64
}

func start(t *testing.T, s shape, from *kept, feeds []*feed, mk chain) *flow {
	t.Helper()
	return startWith(t, s, from, feeds, func(*Run) {}, mk)
}

// startWith is start of a run that was prepared before it has tasks.
func startWith(t *testing.T, s shape, from *kept, feeds []*feed, prepare func(*Run), mk chain) *flow {
	t.Helper()
	return startAs(t, s, from, feeds, prepare, func(*SourceConfig[rec]) {}, mk)
}

// startAs is startWith, with a source that isn't like the others.
func startAs(t *testing.T, s shape, from *kept, feeds []*feed, prepare func(*Run), change func(*SourceConfig[rec]), mk chain) *flow {
	t.Helper()
	f := &flow{Run: NewRun(Config{Parallelism: s.parallelism, Groups: 128, BatchLen: s.batch, ReadLen: min(s.batch, 256),
		Names: []string{"source", "key", "step", "sink"}}), boss: newBoss(), t: t, out: &collected{}}
	prepare(f.Run)
	var names []string
	for i := range feeds {
		names = append(names, strconv.Itoa(i))
	}
	conf := SourceConfig[rec]{ID: "in", Time: func(r rec) time.Time { return time.Unix(0, r.at) }, Bound: s.bound, Every: s.every, Now: time.Now,
		Open: func(_ context.Context, split string, at []byte) (Reader[rec], error) {
			i, _ := strconv.Atoi(split)
			pos, _ := strconv.Atoi(string(at))
			return &feedReader{f: feeds[i], pos: pos}, nil
		}}
	change(&conf)
	NewSource(f.Run, conf, names, func(t *Task) Out[rec] { return mk(f, t) })
	if from == nil {
		from = &kept{}
	}
	if _, err := f.Open(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	f.Start(f.boss)
	t.Cleanup(f.end)
	return f
}

func (f *flow) end() {
	f.Stop()
	f.Wait()
	if err := f.Close(); err != nil {
		f.t.Error(err)
	}
	select {
	case err := <-f.failed:
		f.t.Errorf("the run failed: %v", err)
	default:
	}
}

// settle returns when everything that was fed has passed every task.
func (f *flow) settle(n int64) []string {
	f.t.Helper()
	f.Probe(n)
	for range f.Tasks() {
		select {
		case <-f.probes:
		case err := <-f.failed:
			f.t.Fatal(err)
		}
	}
	return f.out.take()
}

// barrier takes a checkpoint.
func (f *flow) barrier(epoch int64, full ...string) []Ack {
	f.t.Helper()
	m := map[string]bool{}
	for _, s := range full {
		m[s] = true
	}
	f.Barrier(epoch, m)
	return f.acked()
}

func (f *flow) acked() (acks []Ack) {
	f.t.Helper()
	for range f.Tasks() {
		select {
		case a := <-f.acks:
			acks = append(acks, a)
		case err := <-f.failed:
			f.t.Fatal(err)
		}
	}
	return acks
}

// keyed makes an exchange and a step behind it, which ends in the sink.
func keyed(mk func(at At, next Out[string]) (Op[string, rec], Marker)) chain {
	memo := new(byte)
	return func(f *flow, t *Task) Out[rec] {
		kind, err := table.KeyOf[string]()
		if err != nil {
			f.t.Fatal(err)
		}
		stage, ok := f.Stages[memo].(*Stage[string, rec])
		if !ok {
			stage = NewStage(f.Run, "step", func(t *Task) (Op[string, rec], Marker) {
				return mk(At{t, 2}, NewSink(At{t, 3}, SinkWriter[string](f.out)))
			})
			f.Stages[memo] = stage
		}
		return NewKeyer(t, 1, kind, func(r rec) string { return r.key }, stage)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
