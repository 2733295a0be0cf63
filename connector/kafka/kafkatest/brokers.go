package kafkatest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Env names the variable that puts the tests on a cluster that is there
// already: its value is host:port, more of them separated by commas.
const Env = "KAFKA_BROKERS"

// Patience is how long a helper tries what takes a moment on a busy machine:
// to reach a broker, to see a topic in all of the cluster, to read to the end.
const Patience = 30 * time.Second

// Brokers returns the addresses of the test's cluster: what KAFKA_BROKERS
// names, or a kfake cluster of three brokers, made now and closed when t has
// ended. Asked again in the same test, or below a test that asked, it returns
// the same cluster. Which of the two it is, is printed once.
func Brokers(t testing.TB) []string {
	t.Helper()
	if c := Fake(t); c != nil {
		return c.ListenAddrs()
	}
	return given()
}

// Fake returns the kfake cluster that [Brokers] names, for a test that injects
// faults, or nil when the tests run on a real one: see [FakeOnly].
func Fake(t testing.TB) *kfake.Cluster {
	t.Helper()
	brokers := given()
	announce(brokers)
	if len(brokers) > 0 {
		if err := reach(); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	return clusters.of(t)
}

// FakeOnly is [Fake] for a test that can't run elsewhere. On a real cluster it
// skips the test and says why: what kfake is made to do there, that can't be
// asked of a real broker.
func FakeOnly(t testing.TB, why string) *kfake.Cluster {
	t.Helper()
	c := Fake(t)
	if c == nil {
		t.Skipf("runs on kfake alone, and %s names a real cluster: %s", Env, why)
	}
	return c
}

// RealOnly returns the addresses of the real cluster. Without one it skips the
// test and says why: where kfake differs.
func RealOnly(t testing.TB, why string) []string {
	t.Helper()
	if c := Fake(t); c != nil {
		t.Skipf("needs a real cluster, named by %s (see make kafka): %s", Env, why)
	}
	return given()
}

// NewFake returns a further kfake cluster like the one of [Brokers], but with
// opts over its settings: SASL, TLS, ACLs. It is closed when t has ended.
func NewFake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(like44(), opts...)...)
	if err != nil {
		t.Fatalf("start a kfake cluster: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// like44 sets kfake up as a Kafka 4.4 with default settings: its API versions
// and finalized features, transaction.version 2 among them, and the session
// timeouts that short-lived members need and a broker under test is given.
func like44() []kfake.Opt {
	return []kfake.Opt{
		kfake.NumBrokers(3),
		kfake.MaxVersions(kversion.V4_4_0()),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
	}
}

// given returns the addresses in KAFKA_BROKERS, none if it isn't set.
func given() []string {
	var brokers []string
	for _, b := range strings.Split(os.Getenv(Env), ",") {
		if b = strings.TrimSpace(b); b != "" {
			brokers = append(brokers, b)
		}
	}
	return brokers
}

var announced sync.Once // a process says once what its tests run on

func announce(brokers []string) {
	announced.Do(func() {
		on := "kfake, in this process (a real cluster: " + Env + "=host:port)"
		if len(brokers) > 0 {
			on = strings.Join(brokers, ",")
		}
		fmt.Fprintln(os.Stderr, "kafkatest: the tests run on", on)
	})
}

// reach tries the given cluster once a process, so that a broker that isn't
// there is named at once and not by the time limit of every test.
var reach = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(given()...))
	if err != nil {
		return fmt.Errorf("%s=%s: %w", Env, os.Getenv(Env), err)
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("%s=%s: no broker answers (make kafka starts one): %w", Env, os.Getenv(Env), err)
	}
	return nil
})

// A registry knows the kfake cluster of every running test, by the test's
// name, so that helpers which are given the same t mean the same cluster.
type registry struct {
	mu   sync.Mutex
	made map[string]*kfake.Cluster
}

// The state is the process's and not a value in callers' hands because a
// testing.TB is all that they share.
var clusters registry

// of returns the cluster of t or of the nearest test above it, or makes one.
func (r *registry) of(t testing.TB) *kfake.Cluster {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := t.Name(); name != "." && name != "/"; name = path.Dir(name) {
		if c := r.made[name]; c != nil {
			return c
		}
	}
	c, err := kfake.NewCluster(like44()...)
	if err != nil {
		t.Fatalf("start a kfake cluster: %v", err)
	}
	if r.made == nil {
		r.made = map[string]*kfake.Cluster{}
	}
	name := t.Name()
	r.made[name] = c
	t.Cleanup(func() {
		r.mu.Lock()
		maps.DeleteFunc(r.made, func(_ string, v *kfake.Cluster) bool { return v == c })
		r.mu.Unlock()
		c.Close()
	})
	return c
}
