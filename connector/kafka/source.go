package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/codec"
)

// Source reads topics whose messages' values a codec takes: nothing else of a
// message is looked at. A message without a value can't be taken; see [SourceOf] for
// topics with tombstones.
//
// Each partition is a split, called TOPIC/NUMBER. Where reading stands is kept in
// the job's checkpoints, with the ids of the cluster and of the topic: what isn't
// there any more, because retention has passed it, the topic was made anew or its
// log was truncated, stops the job, which names it; see [AcceptLoss]. The offsets
// are also committed to a consumer group ([Group]), for tools that show a job's
// lag, and never read from there.
//
// Only what is committed is read, unless [ReadUncommitted] says otherwise. New
// partitions are found while the job runs and read from their beginning
// ([Discover]); a source that is [Bounded] or [StopAtEnd] keeps those of its start.
//
// A partition counts as idle, so that others needn't wait for it, while all of it
// was read up to the end that the broker has last told. While a transaction is
// open, the records behind its start aren't to be seen yet, and the partition isn't
// idle; see [IdleAfter].
//
// A source has a connection of its own to each broker, and takes up to [Buffer] of
// memory, and for each partition one batch more, unpacked.
func Source[T any](c *Cluster, topics Topics, value codec.Codec[T], opts ...SourceOption) weir.Source[T] {
	s := newSource[T](c, topics, opts)
	s.conf.require |= Value
	if value == nil {
		s.err = errors.Join(s.err, fmt.Errorf("kafka.Source of %s needs a codec, and was given nil", topics))
		return s
	}
	s.decode = func(m *Message, rec *T) error { return value.Decode(m.Value, rec) }
	return s
}

// SourceOf is [Source] with a function that gets the whole message: its key,
// headers and time, and its value, which may be nil. Everything in m is valid during
// the call only: what the record is to keep must be copied. It may be called by many
// goroutines at once. An error says that the message can't be taken.
func SourceOf[T any](c *Cluster, topics Topics, decode func(m *Message, rec *T) error, opts ...SourceOption) weir.Source[T] {
	s := newSource[T](c, topics, opts)
	s.decode, s.whole = decode, true
	if decode == nil {
		s.err = errors.Join(s.err, fmt.Errorf("kafka.SourceOf of %s needs a function, and was given nil", topics))
	}
	return s
}

// SourceOption is an option of Source and SourceOf.
type SourceOption interface{ source(*sourceConfig) }

type sourceOption func(*sourceConfig)

func (f sourceOption) source(c *sourceConfig) { f(c) }

type sourceConfig struct {
	topics               Topics
	start                Start
	bounded, stopAtEnd   bool
	discover             time.Duration
	group                string
	uncommitted          bool
	acceptLoss           bool
	require              Part
	maxMessage, maxBatch int
	buffer               int
	idleAfter            time.Duration
}

// The limits and times of a source, unless its options say otherwise.
const (
	DefaultDiscover   = 10 * time.Second
	DefaultMaxMessage = 16 << 20 // bytes
	DefaultMaxBatch   = 64 << 20 // bytes
	DefaultBuffer     = 64 << 20 // bytes
)

// StartAt says where reading begins when the job starts for the first time. The
// default is [Earliest]. It is resolved once, for all partitions together, and kept
// in the job's first checkpoint; a partition that is found later is always read
// from its beginning.
func StartAt(s Start) SourceOption { return sourceOption(func(c *sourceConfig) { c.start = s }) }

// Bounded reads each partition to the end that it had when the job first started,
// and no further, also after a restart. Then the input has ended: windows close, and
// the job finishes. What belongs to a transaction that was open at that moment is
// waited for.
func Bounded() SourceOption { return sourceOption(func(c *sourceConfig) { c.bounded = true }) }

// StopAtEnd reads each partition to the end that it has at each start of the job,
// and then stops it as SIGTERM would: no window is closed, and a later run goes on.
// What belongs to a transaction that was open at that moment is waited for.
func StopAtEnd() SourceOption { return sourceOption(func(c *sourceConfig) { c.stopAtEnd = true }) }

// Discover sets how often partitions, and topics that match, are looked for that
// are new, and how often retention is compared with the job's checkpoint. The
// default is [DefaultDiscover]; 0 means never.
func Discover(every time.Duration) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.discover = every })
}

// Group names the consumer group that the offsets are committed to, for tools that
// show lag. The job doesn't join it, and nobody else may use it. The default is the
// cluster's prefix and the job's name.
func Group(name string) SourceOption { return sourceOption(func(c *sourceConfig) { c.group = name }) }

// ReadUncommitted also reads what belongs to transactions that are open, or were
// aborted.
func ReadUncommitted() SourceOption {
	return sourceOption(func(c *sourceConfig) { c.uncommitted = true })
}

// AcceptLoss lets a job go on where what it would have read is gone, at the start
// or while it runs, instead of stopping: behind what retention has deleted, at the
// beginning of a topic that was made anew, at the end of a log that was truncated.
// Each time the log says what is missing. It is for one start of the job, with a
// person watching.
func AcceptLoss() SourceOption { return sourceOption(func(c *sourceConfig) { c.acceptLoss = true }) }

// Require says what a message must have, besides what is read from it: one without
// can't be taken, and goes to the dead letters or stops the job. An empty key or
// value is one.
func Require(parts ...Part) SourceOption {
	return sourceOption(func(c *sourceConfig) {
		for _, p := range parts {
			c.require |= p
		}
	})
}

// MaxMessage sets the size of the largest message that is taken, in bytes of key
// and value. A larger one goes to the dead letters or stops the job. The default is
// [DefaultMaxMessage].
func MaxMessage(bytes int) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.maxMessage = bytes })
}

// MaxBatch sets how large a batch of messages may become when it is decompressed,
// in bytes. A batch of more stops the job, which names its offsets. The default is
// [DefaultMaxBatch].
func MaxBatch(bytes int) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.maxBatch = bytes })
}

// Buffer sets how much may be fetched ahead, in bytes as they come from the
// brokers, all partitions together. The default is [DefaultBuffer]; each partition
// takes 32 KiB at least, and one batch.
func Buffer(bytes int) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.buffer = bytes })
}

// IdleAfter makes a partition count as idle also when nothing has come from it for
// so long by the clock, whatever the reason: a transaction that stays open, or a
// broker that is away. Others then go on without it, and what comes from it later
// may be late. The default is 0: never.
func IdleAfter(d time.Duration) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.idleAfter = d })
}

func (c *sourceConfig) check() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.topics.err != nil || c.topics.match != nil || len(c.topics.names) > 0, "the source has no topics: name one with kafka.Named, or give a pattern with kafka.Matching")
	check(!c.bounded || !c.stopAtEnd, "kafka.Bounded and kafka.StopAtEnd: choose one; the one ends the input, the other only the run")
	check(c.discover >= 0, "kafka.Discover(%v): it can't be negative; 0 means never", c.discover)
	check(c.discover == 0 || c.discover >= time.Millisecond, "kafka.Discover(%v): that is too often; a millisecond at least", c.discover)
	check(c.idleAfter >= 0, "kafka.IdleAfter(%v): it can't be negative; 0 means never", c.idleAfter)
	for _, l := range []struct {
		name string
		n    int
	}{{"MaxMessage", c.maxMessage}, {"MaxBatch", c.maxBatch}, {"Buffer", c.buffer}} {
		check(l.n >= 1 && l.n <= 1<<30, "kafka.%s(%d): give a number of bytes from 1 to %d", l.name, l.n, 1<<30)
	}
	return errors.Join(append(errs, c.topics.err, c.start.check(c.topics))...)
}

// source is what Source and SourceOf return.
type source[T any] struct {
	c      *Cluster
	conf   sourceConfig
	decode func(m *Message, rec *T) error
	whole  bool // decode looks at more than the value
	err    error

	mu      sync.Mutex
	feed    *feed // nil while nothing is open
	readers int   // that are open
	topics  []string
}

func newSource[T any](c *Cluster, topics Topics, opts []SourceOption) *source[T] {
	s := &source[T]{c: c, conf: sourceConfig{topics: topics, discover: DefaultDiscover,
		maxMessage: DefaultMaxMessage, maxBatch: DefaultMaxBatch, buffer: DefaultBuffer}}
	for _, o := range opts {
		o.source(&s.conf)
	}
	s.err = s.conf.check()
	if c == nil {
		s.err = errors.Join(s.err, fmt.Errorf("kafka.Source of %s needs a cluster, and was given nil", topics))
	}
	return s
}

// Check reports what is wrong with the declaration, or nil. It does no I/O.
func (s *source[T]) Check() error { return s.err }

// Describe names the topics, the cluster and the isolation level.
func (s *source[T]) Describe() string {
	text := s.conf.topics.String()
	if s.c != nil {
		text += " on kafka cluster " + s.c.String()
	}
	if s.conf.uncommitted {
		text += ", read_uncommitted"
	} else {
		text += ", read_committed"
	}
	switch {
	case s.conf.bounded:
		text += ", to the end as of the first start"
	case s.conf.stopAtEnd:
		text += ", to the end as of each start"
	}
	return text
}

// Poll is how often new partitions are looked for.
func (s *source[T]) Poll() time.Duration {
	if s.conf.bounded || s.conf.stopAtEnd {
		return 0
	}
	return s.conf.discover
}

// Splits lists the partitions, by the names of their topics and their numbers.
func (s *source[T]) Splits(ctx context.Context) ([]string, error) {
	if s.err != nil {
		return nil, s.err
	}
	var topics []found
	err := s.asking(ctx, func(a *ask, running bool) error {
		look := func() (err error) {
			topics, err = a.topics(ctx, s.conf.topics, s.c.prefix+weir.JobName(ctx)+".ckpt")
			return err
		}
		what := "look for " + s.conf.topics.String()
		if running {
			return a.c.explain(what, look()) // whoever asks will ask again
		}
		return a.patiently(ctx, what, look)
	})
	if err != nil {
		return nil, err
	}
	if err := s.c.shared.reads(weir.JobName(ctx), s.conf.topics); err != nil {
		return nil, err
	}
	var splits, names []string
	for _, t := range topics {
		names = append(names, t.name)
		if s.conf.group != "" {
			s.c.shared.commitTo(t.name, s.conf.group)
		}
		for _, p := range t.partitions {
			splits = append(splits, splitName(t.name, p))
		}
	}
	if len(splits) == 0 && s.Poll() == 0 {
		return nil, fmt.Errorf("%w: no topic on kafka cluster %s is among the %s", weir.ErrInput, s.c, s.conf.topics)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics = names
	return splits, nil
}

// asking calls f with the client of the readers, if some are open, or one that
// lives as long as the call.
func (s *source[T]) asking(ctx context.Context, f func(a *ask, running bool) error) error {
	feed, release, err := s.acquire(ctx, false)
	if err != nil {
		return err
	}
	if feed != nil {
		defer release()
		return f(feed.ask, true)
	}
	a, err := newAsk(s.c)
	if err != nil {
		return err
	}
	defer a.close()
	return f(a, false)
}

// acquire keeps the feed open until release, and makes it if making says so; without
// that it may be nil.
func (s *source[T]) acquire(ctx context.Context, making bool) (f *feed, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed == nil && !making {
		return nil, func() {}, nil
	}
	if s.feed == nil {
		a, err := newAsk(s.c)
		if err != nil {
			return nil, nil, err
		}
		s.feed = newFeed(ctx, a, s.conf)
	}
	s.readers++
	return s.feed, sync.OnceFunc(s.release), nil
}

func (s *source[T]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers--; s.readers == 0 {
		s.feed.close()
		s.feed = nil
	}
}

// Locate says which message an offset is.
func (s *source[T]) Locate(split string, mark int64) string {
	topic, partition, err := parseSplit(split)
	if err != nil {
		return fmt.Sprintf("split %s, offset %d", split, mark)
	}
	return fmt.Sprintf("topic %s, partition %d, offset %d", topic, partition, mark)
}
