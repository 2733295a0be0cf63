package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// askMetadata asks the cluster for its metadata, as the first request of a source or a
// sink does.
func askMetadata(t testing.TB, c *Cluster) error {
	t.Helper()
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	return c.explain("ask for metadata", metadata(t.Context(), cl))
}

// soon makes a client give up sooner than a job's does.
func soon() ClusterOption {
	return clusterOption(func(c *Cluster) { c.given.within = 300 * time.Millisecond })
}

func metadata(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := cl.Request(ctx, req)
	if err != nil {
		return err
	}
	if len(resp.(*kmsg.MetadataResponse).Brokers) == 0 {
		return errors.New("the answer names no broker")
	}
	return nil
}

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q doesn't say %q", err, p)
		}
	}
}

func TestBrokerAddresses(t *testing.T) {
	for _, tt := range []struct{ address, want string }{
		{"127.0.0.1:9092", ""},
		{"[::1]:9092", ""},
		{"kafka_1.example.org:65535", ""},
		{"", "the address is empty"},
		{"  ", "the address is empty"},
		{"localhost", "it must be HOST:PORT"},
		{"::1", "an IPv6 address goes into brackets"},
		{"::1:9092", "an IPv6 address goes into brackets"},
		{"localhost:", `the port "" is no number from 1 to 65535`},
		{"localhost:0", `the port "0" is no number from 1 to 65535`},
		{"localhost:65536", "from 1 to 65535"},
		{"localhost:http", "from 1 to 65535"},
		{"localhost:-1", "from 1 to 65535"},
		{":9092", `"" is no host`},
		{"kafka://localhost:9092", "without a protocol"},
		{"SASL_SSL://localhost:9092", "without a protocol"},
		{"a:9092 b:9092", "separated by commas"},
		{"a:9092\n", "there is a blank in it"},
		{"user@a:9092", "is no host"},
		{"a/b:9092", "is no host"},
	} {
		cl, err := NewCluster([]string{tt.address}).client()
		if err == nil {
			cl.Close()
		}
		if tt.want == "" && err != nil {
			t.Errorf("%q: %v", tt.address, err)
		}
		if tt.want != "" {
			wantText(t, err, tt.want, fmt.Sprintf("%q", tt.address))
		}
	}
}

func TestClusterSaysAllThatIsWrong(t *testing.T) {
	_, err := NewCluster(nil, Name("a b"), Prefix("x/"), SASLPlain("", Secret{}), TLSCertificate("cert.pem", ""),
		SASLScramSHA256("u", SecretText("p"))).client()
	wantText(t, err, "no broker is named", `the name "a b"`, `the prefix "x/"`, "two ways to log in, SASL PLAIN and SCRAM-SHA-256",
		"needs both its files")
}

// Nothing is connected or read before the first use, and what was wrong then is
// looked at again by the next use.
func TestClusterIsLazy(t *testing.T) {
	c := NewCluster([]string{"127.0.0.1:1"}, TLSRoots(t.TempDir()+"/none.pem"))
	for range 2 {
		_, err := c.client()
		wantText(t, err, "none.pem", "no such file")
	}
}

func TestClusterNames(t *testing.T) {
	for _, tt := range []struct {
		c                 *Cluster
		text, participant string
	}{
		{NewCluster([]string{"a:1", "b:2"}), "a:1,b:2", "kafka"},
		{NewCluster([]string{"a:1", "b:2", "c:3", "d:4", "e:5"}), "a:1,b:2,c:3 and 2 more", "kafka"},
		{NewCluster([]string{"a:1"}, Name("east")), "east", "kafka east"},
	} {
		if got := tt.c.String(); got != tt.text {
			t.Errorf("String() = %q, want %q", got, tt.text)
		}
		if got := tt.c.participant(); got != tt.participant {
			t.Errorf("participant() = %q, want %q", got, tt.participant)
		}
	}
}

func TestClientReachesTheCluster(t *testing.T) {
	if err := askMetadata(t, NewCluster(kafkatest.Brokers(t), ClientID("weir-test"))); err != nil {
		t.Fatal(err)
	}
}

func TestClientID(t *testing.T) {
	for _, tt := range []struct {
		opts []ClusterOption
		want string
	}{{nil, "weir"}, {[]ClusterOption{ClientID("billing")}, "billing"}} {
		cl, err := NewCluster([]string{"127.0.0.1:1"}, tt.opts...).client()
		if err != nil {
			t.Fatal(err)
		}
		if got := cl.OptValue("ClientID"); got != tt.want {
			t.Errorf("client id %q, want %q", got, tt.want)
		}
		cl.Close()
	}
}

// A wrong address is an error that names it, long before anybody loses patience,
// and one that says it may pass: the broker may only be late.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	l.Close()
	for _, tt := range []struct{ brokers []string }{{[]string{gone}}, {[]string{gone, "127.0.0.1:1"}}} {
		err := askMetadata(t, NewCluster(tt.brokers, soon()))
		wantText(t, err, gone, "refused")
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the client went on until its caller gave up: %v", tt.brokers, err)
		}
		if !temporary(err) {
			t.Errorf("%v: %v isn't worth waiting for", tt.brokers, err)
		}
		if errors.Is(err, weir.ErrRefused) {
			t.Errorf("%v: %v ends the job for good", tt.brokers, err)
		}
	}
}

// One of several brokers is enough.
func TestOneBrokerIsEnough(t *testing.T) {
	if err := askMetadata(t, NewCluster(append([]string{"127.0.0.1:1"}, kafkatest.Brokers(t)...))); err != nil {
		t.Fatal(err)
	}
}

// A broker that hangs up at once may be one that is just ending, or a proxy in
// front of one: it isn't taken for a wrong setting.
func TestBrokerThatHangsUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	err = askMetadata(t, NewCluster([]string{l.Addr().String()}, soon()))
	wantText(t, err, l.Addr().String())
	if !temporary(err) || errors.Is(err, weir.ErrRefused) {
		t.Errorf("%v: must be worth waiting for", err)
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		fails    int
		from, to time.Duration
	}{
		{-1, 45 * time.Millisecond, 55 * time.Millisecond}, {0, 45 * time.Millisecond, 55 * time.Millisecond},
		{1, 45 * time.Millisecond, 55 * time.Millisecond}, {2, 90 * time.Millisecond, 110 * time.Millisecond},
		{5, 720 * time.Millisecond, 880 * time.Millisecond}, {6, 900 * time.Millisecond, 1100 * time.Millisecond},
		{1 << 40, 900 * time.Millisecond, 1100 * time.Millisecond},
	} {
		for range 100 {
			if d := retryAfter(tt.fails); d < tt.from || d > tt.to {
				t.Fatalf("retryAfter(%d) = %v, want %v to %v", tt.fails, d, tt.from, tt.to)
			}
		}
	}
}
