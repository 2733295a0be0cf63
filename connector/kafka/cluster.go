package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is how to reach a Kafka cluster. It is made once and shared by all
// sources and sinks on that cluster. Making it connects nothing and reads no
// file, and what is wrong with it is said when it is first used.
type Cluster struct {
	name   string
	prefix string
	given  settings
	named  map[string]string // by parameters: see Connect
	file   string            // with the settings that no parameter names

	mu   sync.Mutex
	full *settings // given and file together, once that has worked

	shared shared    // by the sources and sinks on the cluster
	more   []kgo.Opt // behind all others; for tests
}

// settings are what a connection is made with.
type settings struct {
	brokers  []string
	clientID string
	tls      tlsSettings
	sasl     saslSettings
	within   time.Duration // one request must have been answered, with all its repetitions
	errs     []error
}

// ClusterOption configures a Cluster.
type ClusterOption interface{ apply(*Cluster) }

type clusterOption func(*Cluster)

func (f clusterOption) apply(c *Cluster) { f(c) }

// NewCluster describes the cluster that brokers belong to, each as HOST:PORT. One
// is enough; more are tried in turn while one is away.
//
// Without options a connection is plain text and nobody logs in.
func NewCluster(brokers []string, opts ...ClusterOption) *Cluster {
	c := &Cluster{given: settings{brokers: slices.Clone(brokers)}}
	for _, o := range opts {
		o.apply(c)
	}
	return c
}

// Name tells a cluster from the other one that the same job uses. It is part of
// what the job's checkpoints know the cluster by, so it must stay the same; the
// default is none. It is made of letters, digits, dots, dashes and underscores.
func Name(name string) ClusterOption {
	return clusterOption(func(c *Cluster) { c.name = name; c.fail(legal("name", name)) })
}

// Prefix stands before the names that a job makes for itself: the control topic
// <prefix><job>.ckpt, the transactional ids <prefix><job>-0-a and -b, and the
// group <prefix><job>. It must stay the same. The default is none. It is made of
// letters, digits, dots, dashes and underscores, as the names of topics are.
func Prefix(prefix string) ClusterOption {
	return clusterOption(func(c *Cluster) { c.prefix = prefix; c.fail(legal("prefix", prefix)) })
}

// ClientID is what brokers' logs, metrics and quotas know the job by. The default
// is "weir".
func ClientID(id string) ClusterOption {
	return clusterOption(func(c *Cluster) { c.given.clientID = id })
}

func (c *Cluster) fail(err error) {
	if err != nil {
		c.given.errs = append(c.given.errs, err)
	}
}

// participant is what the sinks on the cluster commit with.
func (c *Cluster) participant() string {
	if c.name == "" {
		return "kafka"
	}
	return "kafka " + c.name
}

// String returns what messages call the cluster.
func (c *Cluster) String() string {
	if c.name != "" {
		return c.name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	brokers := c.given.brokers
	if c.full != nil {
		brokers = c.full.brokers
	} else if b := c.named["brokers"]; b != "" {
		brokers = strings.Split(b, ",")
	}
	switch n := len(brokers); {
	case n == 0 && c.file != "":
		return "of " + c.file
	case n > 3:
		return fmt.Sprintf("%s and %d more", strings.Join(brokers[:3], ","), n-3)
	}
	return strings.Join(brokers, ",")
}

// Format never shows more than String does, whatever the verb.
func (c *Cluster) Format(f fmt.State, _ rune) { fmt.Fprint(f, c.String()) }

// How long a client waits. A broker that restarts is back within seconds, and a
// client must notice; one that is gone must be named soon.
const (
	dialTimeout    = 5 * time.Second       // of the connection, and again of its TLS handshake
	requestTimeout = 10 * time.Second      // for an answer, beyond what the request itself allows
	retryTimeout   = 5 * time.Second       // for one request with all its repetitions
	decideTimeout  = 30 * time.Second      // the same for EndTxn: without its answer the epoch is done again
	firstRetry     = 50 * time.Millisecond // doubled each time
	longestRetry   = time.Second           // the most that it becomes
	idleTimeout    = 4 * time.Minute       // below the 10 minutes of brokers: a slow job needn't log in for each commit
	freshMetadata  = 50 * time.Millisecond // at least between two requests for metadata
	oldMetadata    = time.Minute           // at most between them
	keyEndTxn      = 26
)

// client makes a client with the cluster's settings, and then those of opts. It
// connects nothing; files are read. Whoever makes it closes it.
func (c *Cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	s, err := c.settings()
	if err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", c, err)
	}
	base := []kgo.Opt{
		kgo.SeedBrokers(s.brokers...),
		kgo.ClientID(s.clientID),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			if key == keyEndTxn {
				return decideTimeout
			}
			return s.within
		}),
		kgo.RetryBackoffFn(retryAfter),
		kgo.ConnIdleTimeout(idleTimeout),
		kgo.MetadataMinAge(freshMetadata),
		kgo.MetadataMaxAge(oldMetadata),
		// A connection that ends at once is what a broker that restarts looks
		// like, too. Where TLS or a login is missing the error still says so,
		// after retryTimeout.
		kgo.AlwaysRetryEOF(),
		// Brokers can ask clients for metrics. What a job tells, it tells its user.
		kgo.DisableClientMetrics(),
	}
	dial, err := s.dialer()
	if err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", c, err)
	}
	base = append(base, kgo.Dialer(dial))
	if m := s.sasl.mechanism(s.tls.on); m != nil {
		base = append(base, kgo.SASL(m))
	}
	cl, err := kgo.NewClient(append(append(base, opts...), c.more...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", c, err)
	}
	return cl, nil
}

// retryAfter is how long a client waits before it repeats what has failed so
// often. A fifth is luck, so that clients don't come back all at once.
func retryAfter(fails int) time.Duration {
	d := longestRetry
	if fails < 6 {
		d = min(d, firstRetry<<max(fails-1, 0))
	}
	return d*9/10 + rand.N(d/5)
}

// settings returns those given together with those of the file, checked. What
// failed is tried again by the next call: a file may be mended meanwhile.
func (c *Cluster) settings() (*settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		return c.full, nil
	}
	s := c.given
	s.errs = slices.Clone(s.errs)
	if err := s.fill(c.named, c.file); err != nil {
		return nil, err
	}
	s.clientID = cmp.Or(s.clientID, "weir")
	s.within = cmp.Or(s.within, retryTimeout)
	s.check()
	if err := errors.Join(s.errs...); err != nil {
		return nil, err
	}
	s.sasl.last = new(atomic.Pointer[Secret])
	c.full = &s
	return c.full, nil
}

// check adds what is wrong with the settings, as far as no file tells.
func (s *settings) check() {
	if len(s.brokers) == 0 {
		s.errs = append(s.errs, errors.New("no broker is named: give the address of at least one, as HOST:PORT"))
	}
	for _, b := range s.brokers {
		if err := checkAddress(b); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	s.errs = append(s.errs, s.tls.check()...)
	s.errs = append(s.errs, s.sasl.check(s.tls.on, s.brokers)...)
}

// checkAddress wants HOST:PORT.
func checkAddress(a string) error {
	bad := func(what string) error { return fmt.Errorf("broker %q: %s", a, what) }
	switch {
	case strings.TrimSpace(a) == "":
		return bad("the address is empty; it must be HOST:PORT")
	case strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return bad("there is a blank in it; addresses are separated by commas")
	case strings.Contains(a, "://"):
		return bad("it must be HOST:PORT, without a protocol before it")
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		if strings.Count(a, ":") > 1 && !strings.HasPrefix(a, "[") {
			return bad("an IPv6 address goes into brackets, as [::1]:9092")
		}
		return bad("it must be HOST:PORT; brokers usually listen on 9092, with TLS on 9093")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad(fmt.Sprintf("the port %q is no number from 1 to 65535", port))
	}
	if host == "" || strings.ContainsAny(host, "/,;@\"'") {
		return bad(fmt.Sprintf("%q is no host", host))
	}
	return nil
}

// legal wants what may be part of a topic's name.
func legal(what, s string) error {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r) {
			return fmt.Errorf("the %s %q: %q can't be in it; letters, digits, '.', '-' and '_' can", what, s, r)
		}
	}
	return nil
}
