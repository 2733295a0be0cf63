package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DefaultTransactionTimeout is how long an epoch's transaction may be open unless
// [TransactionTimeout] says otherwise: 1 minute.
const DefaultTransactionTimeout = time.Minute

// DefaultLinger is how long a message waits for others to be sent with: 2 ms. A
// copy at full speed is quicker with it, and takes less CPU time, than with 10 ms:
// what is sent meanwhile needn't wait for room. One of a few records a second takes
// little more.
const DefaultLinger = 2 * time.Millisecond

// SinkOption configures a sink.
type SinkOption interface{ sink(*sinkConfig) }

type sinkOption func(*sinkConfig)

func (f sinkOption) sink(c *sinkConfig) { f(c) }

// sinkConfig is how a sink is declared.
type sinkConfig struct {
	topic       string
	also        []string // further topics that messages may name
	atLeastOnce bool
	create      *creation // nil: topics must exist
	choose      func(m *Message, partitions int32) int32
	eventTime   bool
	cut         func(m *Message, over int) // makes a message shorter, by so many bytes at least; nil: that can't be done
	sending     sending                    // what was given, and zero otherwise
	errs        []error
}

// creation is how topics are made that don't exist.
type creation struct {
	partitions  int32
	replication int16
	settings    map[string]*string
}

// sending is what the sinks on one cluster must agree on, because they share
// their producers.
type sending struct {
	timeout time.Duration
	codec   Compressor
	linger  *time.Duration
}

// AtLeastOnce makes the sink send messages outside of transactions, as soon as
// they are computed: any reader sees them at once, and after a crash those since
// the last checkpoint again.
func AtLeastOnce() SinkOption { return sinkOption(func(c *sinkConfig) { c.atLeastOnce = true }) }

// AlsoTo names further topics that messages of the sink may name. One that names
// any other is rejected.
func AlsoTo(topics ...string) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.also = append(c.also, topics...) })
}

// Partitioner chooses the partition of each message to which its encoder gave
// none, of as many as its topic had when the sink was opened. -1 leaves the choice
// to the key, or to chance where there is none.
func Partitioner(choose func(m *Message, partitions int32) int32) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.choose = choose })
}

// StampEventTime gives messages the event time of their records as their
// timestamp, unless the encoder sets another one; records without one get none. It
// isn't the default because a topic's retention counts from the timestamp: of
// events of last month, a topic that keeps a week keeps nothing.
func StampEventTime() SinkOption { return sinkOption(func(c *sinkConfig) { c.eventTime = true }) }

// TransactionTimeout is how long an epoch's transaction may be open before the
// brokers abort it, which costs a replay of the epoch and loses nothing. The job
// takes a checkpoint early when half of it has passed. A worker that has died or
// hangs holds back readers of its topics for that long, unless another one takes
// over. It is at most the brokers' transaction.max.timeout.ms; the default is
// [DefaultTransactionTimeout]. All sinks on one cluster share it.
func TransactionTimeout(d time.Duration) SinkOption {
	return sinkOption(func(c *sinkConfig) {
		if d < 100*time.Millisecond || d > 24*time.Hour {
			c.fail(fmt.Errorf("TransactionTimeout(%v): give a time from 100ms to 24h", d))
			return
		}
		c.sending.timeout = d
	})
}

// Compressor is how batches of messages are compressed.
type Compressor string

// The compressors. Readers must know the one that is chosen.
const (
	Uncompressed Compressor = "none"
	Gzip         Compressor = "gzip"
	Snappy       Compressor = "snappy"
	LZ4          Compressor = "lz4"
	Zstd         Compressor = "zstd"
)

// codecs are the client's names for them.
var codecs = map[Compressor]func() kgo.CompressionCodec{
	Uncompressed: kgo.NoCompression, Gzip: kgo.GzipCompression, Snappy: kgo.SnappyCompression,
	LZ4: kgo.Lz4Compression, Zstd: kgo.ZstdCompression,
}

// Compression chooses how batches are compressed; the default is Snappy. All
// sinks on one cluster share it.
func Compression(by Compressor) SinkOption {
	return sinkOption(func(c *sinkConfig) {
		if codecs[by] == nil {
			c.fail(fmt.Errorf("Compression(%q): give none, gzip, snappy, lz4 or zstd", by))
			return
		}
		c.sending.codec = by
	})
}

// Linger is how long a message waits for others to be sent together with; an
// epoch that ends never waits. The default is [DefaultLinger]. All sinks on one
// cluster share it.
func Linger(d time.Duration) SinkOption {
	return sinkOption(func(c *sinkConfig) {
		if d < 0 || d > time.Minute {
			c.fail(fmt.Errorf("Linger(%v): give a time from 0 to 1m", d))
			return
		}
		c.sending.linger = &d
	})
}

func (c *sinkConfig) fail(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// check adds what is wrong with the names of topics.
func (c *sinkConfig) check() {
	names := c.topics()
	for i, name := range names {
		if err := checkTopic(name); err != nil {
			c.fail(err)
		} else if slices.Contains(names[:i], name) {
			c.fail(fmt.Errorf("topic %s is named twice", name))
		}
	}
}

// topics are all that messages may go to; the sink's own comes first.
func (c *sinkConfig) topics() []string { return append([]string{c.topic}, c.also...) }

// shared is what the sources and sinks on one cluster know of each other.
type shared struct {
	mu      sync.Mutex
	sending sending
	groups  map[string]string // by topic: see commitTo
	carried map[string]int    // by job: see carry
	loops   map[string]*loop  // by job: see reads
}

// declare takes what a sink says about the producers that it will share. Of two
// that contradict each other the later one is wrong.
func (s *shared) declare(c *sinkConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	differ := func(what string, have, want any) {
		c.fail(fmt.Errorf("%s is %v here and %v for another sink on the cluster, and they share their producers: "+
			"give both the same, or each a Cluster of its own with a Name", what, want, have))
	}
	if w := c.sending.timeout; w != 0 {
		if h := s.sending.timeout; h != 0 && h != w {
			differ("TransactionTimeout", h, w)
		}
		s.sending.timeout = w
	}
	if w := c.sending.codec; w != "" {
		if h := s.sending.codec; h != "" && h != w {
			differ("Compression", h, w)
		}
		s.sending.codec = w
	}
	if w := c.sending.linger; w != nil {
		if h := s.sending.linger; h != nil && *h != *w {
			differ("Linger", *h, *w)
		}
		s.sending.linger = w
	}
}

// agreed returns what the sinks have declared, or the defaults.
func (s *shared) agreed() sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.sending
	a.timeout = cmp.Or(a.timeout, DefaultTransactionTimeout)
	a.codec = cmp.Or(a.codec, Snappy)
	if a.linger == nil {
		d := DefaultLinger
		a.linger = &d
	}
	return a
}

// commitTo is a source's word that the offsets of a topic go to a group.
func (s *shared) commitTo(topic, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups = map[string]string{}
	}
	s.groups[topic] = group
}

// groupOf is where the offsets of a topic go; otherwise is the job's own group.
func (s *shared) groupOf(topic, otherwise string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.groups[topic], otherwise)
}

// carry notes that transactions of a job commit the offsets of its sources, by 1,
// or that they no longer do, by -1.
func (s *shared) carry(job string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carried == nil {
		s.carried = map[string]int{}
	}
	s.carried[job] += by
}

// carries reports whether transactions of a job commit the offsets of its sources,
// so that these needn't.
func (s *shared) carries(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carried[job] > 0
}

// topicSettings parses settings of topics, each as name=value.
func topicSettings(all []string) (map[string]*string, error) {
	set := map[string]*string{}
	for _, s := range all {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("CreateTopics: the setting %q isn't name=value", s)
		}
		if set[name] != nil {
			return nil, errors.New("CreateTopics: the setting " + name + " is given twice")
		}
		set[name] = &value
	}
	return set, nil
}
