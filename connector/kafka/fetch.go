package kafka

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/internal/sys"
)

// feed is a client and what it fetches for the readers of one source. It is made
// for the first reader and ends with the last one. Its goroutines: one fetches from
// each broker, one finds out which broker that is and what is wrong with a
// partition, and some look after the clock and the group. None of them waits for a
// reader: a partition whose reader is slow isn't asked for meanwhile.
type feed struct {
	*ask
	conf   sourceConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	stray  chan struct{} // there are taps that no fetcher has
	group  *groupCommits
	share  atomic.Int32 // bytes that a tap may hold before it isn't asked for
	spare  spare

	mu struct {
		sync.Mutex
		taps     []*tap
		fetchers map[int32]*fetcher
		bounds   map[string]bounds // by split: asked for all at once, each used by one Open
		second   *ask              // see apart; nil: not needed yet
	}
}

// apart is a client beside the one that fetches: a broker answers what comes on one
// connection in turn, and on that of the fetchers there is always a request that
// waits for something new.
func (f *feed) apart() (*ask, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.second == nil {
		a, err := newAsk(f.c)
		if err != nil {
			return nil, err
		}
		f.mu.second = a
	}
	return f.mu.second, nil
}

// newFeed makes a feed. ctx gives it the clock and the job's name, and doesn't
// end it: the last reader does.
func newFeed(ctx context.Context, a *ask, conf sourceConfig) *feed {
	f := &feed{ask: a, conf: conf, stray: make(chan struct{}, 1), spare: spare{max: conf.maxBatch}}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.mu.fetchers, f.mu.bounds = map[int32]*fetcher{}, map[string]bounds{}
	f.group = newGroupCommits(f, conf.groupOf(ctx, a.c))
	f.wg.Go(f.route)
	f.wg.Go(f.group.run)
	if conf.idleAfter > 0 {
		f.wg.Go(f.watchQuiet)
	}
	if conf.discover > 0 {
		f.wg.Go(f.watchRetention)
	}
	return f
}

// close ends the feed and waits for all of it.
func (f *feed) close() {
	f.group.flush()
	f.cancel()
	f.wg.Wait()
	f.spare.close()
	f.ask.close()
	if f.mu.second != nil { // nobody else is left
		f.mu.second.close()
	}
}

// tap is one reader's side of a feed: what was fetched for it and hasn't been read.
type tap struct {
	f         *feed
	topic     string
	partition int32
	ready     chan struct{}

	mu      sync.Mutex
	id      topicID
	leader  int32 // the broker that is asked; -1: the router looks for it
	term    int32 // the epoch of the leader that what was read was last compared with
	trouble trouble
	failed  int // how often in a row the router has had it
	missed  int // how often in a row it wasn't there
	next    int64
	epoch   int32 // of the leader that wrote what is before next; -1: not known
	alone   int   // how often nothing came although there should be something
	parcels []*parcel
	held    int // bytes of these, and of the one that is being read
	end     int64
	stable  int64
	start   int64
	quiet   time.Time // when something came last
	idled   bool      // nothing came for IdleAfter
	gone    bool      // its reader is closed, or finds an error
	keep    keep      // what is known of its retention
}

// trouble is what the router has to look into.
type trouble int

const (
	noLeader trouble = iota
	outOfRange
	otherTopic
	newLeader // it hasn't been compared yet with what was read under another one
	noRecords // nothing comes although there should be something
)

// parcel is what one answer of a broker holds for a tap, or that something
// happened: data until next, nothing until next, or an error.
type parcel struct {
	raw     []byte
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	next    int64
	lost    *loss   // it is reading on behind this
	id      topicID // of the topic from here on, then
	err     error
}

// newTap makes a tap that goes on at a position.
func (f *feed) newTap(topic string, partition int32, b bounds, at position) *tap {
	t := &tap{f: f, topic: topic, partition: partition, ready: make(chan struct{}, 1),
		id: b.id, leader: -1, term: noEpoch, next: at.offset, epoch: at.epoch, end: b.end, stable: b.stable, start: b.start, quiet: f.now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.taps = append(f.mu.taps, t)
	f.divide()
	return t
}

// close takes the tap out of the feed.
func (t *tap) close() {
	f := t.f
	f.mu.Lock()
	for i, o := range f.mu.taps {
		if o == t {
			f.mu.taps = append(f.mu.taps[:i:i], f.mu.taps[i+1:]...)
			break
		}
	}
	f.divide()
	f.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone, t.parcels = true, nil
}

// smallShare is what a tap may hold at least, largeShare at most.
const (
	smallShare = 16 << 10
	largeShare = 1 << 20
)

// divide gives each tap its share of the memory: it is asked for as long as it
// holds less, and then gets as much again, or one batch, at most.
func (f *feed) divide() {
	share := f.conf.buffer / 2 / max(1, len(f.mu.taps))
	f.share.Store(int32(min(max(share, smallShare), largeShare)))
}

// taps returns all taps.
func (f *feed) taps() []*tap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*tap(nil), f.mu.taps...)
}

// signal makes the reader's task read again, or ask for the status.
func (t *tap) signal() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// take returns what was fetched next, nil if there is nothing yet.
func (t *tap) take() *parcel {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.parcels) == 0 {
		return nil
	}
	p := t.parcels[0]
	t.parcels[0] = nil
	t.parcels = t.parcels[1:]
	return p
}

// done says that a parcel has been read: there is room for another.
func (t *tap) done(p *parcel) {
	share := int(t.f.share.Load())
	t.mu.Lock()
	before := t.held
	t.held -= len(p.raw)
	wanted := before >= share && t.held < share
	leader := t.leader
	t.mu.Unlock()
	if wanted {
		t.f.nudge(leader)
	}
}

// nudge wakes the fetcher of a broker, if it sleeps.
func (f *feed) nudge(broker int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.mu.fetchers[broker]; b != nil {
		b.nudge()
	}
}

// put hands a parcel to the reader.
func (t *tap) put(p *parcel) {
	t.parcels = append(t.parcels, p)
	t.held += len(p.raw)
	t.quiet, t.idled = t.f.now(), false
	t.signal()
}

// fail ends the tap: behind what was fetched, its reader finds the error.
func (t *tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse(err)
}

// refuse is fail for who holds the lock.
func (t *tap) refuse(err error) {
	if !t.gone {
		t.put(&parcel{next: t.next, err: err})
		t.gone = true
	}
}

// drained reports whether nothing waits to be read, and where the partition ends.
func (t *tap) drained() (empty bool, end int64, idled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parcels) == 0, t.end, t.idled
}

// begin starts the fetching for a tap. It is called when its reader first reads,
// so that what was opened together is asked for together.
func (t *tap) begin() {
	select {
	case t.f.stray <- struct{}{}:
	default:
	}
}

// watchQuiet looks for taps for which nothing has come for long.
func (f *feed) watchQuiet() {
	for f.sleep(max(f.conf.idleAfter/4, time.Millisecond)) {
		now := f.now()
		for _, t := range f.taps() {
			t.mu.Lock()
			if !t.idled && len(t.parcels) == 0 && now.Sub(t.quiet) >= f.conf.idleAfter {
				t.idled = true
				t.signal()
			}
			t.mu.Unlock()
		}
	}
}

// now is the machine's time.
func (f *feed) now() time.Time { return f.env().Clock.Now() }

// sleep waits, and reports whether the feed goes on.
func (f *feed) sleep(d time.Duration) bool {
	select {
	case <-f.env().Clock.After(d):
		return f.ctx.Err() == nil
	case <-f.ctx.Done():
		return false
	}
}

// waiting tells an operator what is waited for.
func waiting(ctx context.Context, what string) {
	if tell := sys.From(ctx).Waiting; tell != nil {
		tell(what)
		return
	}
	slog.WarnContext(ctx, "waiting for "+what)
}

// warn tells an operator what should be known.
func warn(ctx context.Context, what string) {
	if tell := sys.From(ctx).Warn; tell != nil {
		tell(what)
		return
	}
	slog.WarnContext(ctx, what)
}

// spare keeps what unpacks batches, and the memory that it unpacks them into,
// while nobody needs them.
type spare struct {
	max int
	mu  sync.Mutex
	un  []*decompressor
	buf [][]byte
}

// Buffers that are kept: more of them, or larger ones, are rarely used again.
const (
	spareBuffers = 32
	spareSize    = 4 << 20
)

func (s *spare) decompressor() *decompressor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.un); n > 0 {
		d := s.un[n-1]
		s.un = s.un[:n-1]
		return d
	}
	return &decompressor{max: s.max}
}

func (s *spare) giveBack(d *decompressor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.un = append(s.un, d)
}

func (s *spare) buffer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.buf); n > 0 {
		b := s.buf[n-1]
		s.buf = s.buf[:n-1]
		return b
	}
	return nil
}

func (s *spare) giveBuffer(b []byte) {
	if cap(b) == 0 || cap(b) > spareSize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buf) < spareBuffers {
		s.buf = append(s.buf, b[:0])
	}
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.un {
		d.close()
	}
	s.un = nil
}

// env is the machine.
func (f *feed) env() *sys.Env { return sys.From(f.ctx) }
