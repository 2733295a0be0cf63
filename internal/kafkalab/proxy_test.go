package kafkalab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// behind is a listener that says that it is where its proxy is, so that the
// broker advertises the proxy.
type behind struct {
	net.Listener
	proxy *Proxy
	addr  net.Addr
}

func (b *behind) Addr() net.Addr { return b.addr }

func (b *behind) Close() error {
	b.proxy.Close()
	return b.Listener.Close()
}

// proxied starts a kfake cluster of one broker with a proxy before it, and
// returns the broker's own address too.
func proxied(t *testing.T) (p *Proxy, direct string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		var config net.ListenConfig
		l, err := config.Listen(context.Background(), network, address)
		if err != nil {
			return nil, err
		}
		direct = l.Addr().String()
		if p, err = NewProxy(Route{Listen: "127.0.0.1:0", Upstream: direct}); err != nil {
			return nil, err
		}
		return &behind{l, p, p.listeners[0].Addr()}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if got := c.ListenAddrs(); !slices.Equal(got, p.Addrs()) {
		t.Fatalf("the broker advertises %v, the proxy is at %v", got, p.Addrs())
	}
	return p, direct
}

// once makes a client that sends a request once and says how that went.
func once(t *testing.T, addr []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr...), kgo.RequestRetries(0), kgo.RetryTimeout(1),
		kgo.RecordRetries(0), kgo.ConcurrentTransactionsBackoff(2 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func limit(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// wait waits until the cut has happened.
func wait(t *testing.T, c *Cut) Request {
	t.Helper()
	select {
	case <-c.Done():
	case <-limit(t, 30*time.Second).Done():
		t.Fatalf("%v did not happen", c)
	}
	r, at, ok := c.Request()
	if !ok || at.IsZero() || r.Key != c.key {
		t.Fatalf("%v says %+v, %v, %t", c, r, at, ok)
	}
	return r
}

// A txn is a transaction made by hand, so that every request is sent once and
// what became of it is known.
type txn struct {
	t        *testing.T
	ctx      context.Context
	cl       *kgo.Client // through the proxy
	id       string
	producer int64
	epoch    int16
}

func (x *txn) init() error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &x.id, 60000
	resp, err := req.RequestWith(x.ctx, x.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil {
		x.producer, x.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return err
}

func (x *txn) offsets(topic string, id [16]byte, at int64) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = x.id, x.id, x.producer, x.epoch, -1
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: id,
		Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: at, LeaderEpoch: -1}}}}
	resp, err := req.RequestWith(x.ctx, x.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	return err
}

func (x *txn) end(commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.producer, x.epoch, commit
	resp, err := req.RequestWith(x.ctx, x.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil {
		x.producer, x.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return err
}

// state asks the broker directly.
func (x *txn) state(direct *kgo.Client) kmsg.DescribeTransactionsResponseTransactionState {
	x.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{x.id}
	resp, err := req.RequestWith(x.ctx, direct)
	if err != nil || len(resp.TransactionStates) != 1 {
		x.t.Fatalf("describe %s: %v, %+v", x.id, err, resp)
	}
	return resp.TransactionStates[0]
}

// cutLab is what the cuts are tried on, kfake or a real broker.
type cutLab struct {
	proxy  *Proxy
	direct *kgo.Client // not through the proxy
	topic  string
	id     [16]byte
}

func newCutLab(t *testing.T, p *Proxy, direct, topic string) *cutLab {
	cl := once(t, []string{direct}, kgo.RequestRetries(20), kgo.RetryTimeout(20*time.Second))
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), topic)
	if err != nil || topics[topic].Err != nil {
		t.Fatal(err, topics[topic].Err)
	}
	return &cutLab{p, cl, topic, topics[topic].ID}
}

// begin makes a transaction with an id of its own, ready to go through the proxy.
func (l *cutLab) begin(t *testing.T, id string) *txn {
	x := &txn{t: t, ctx: limit(t, 60*time.Second), cl: once(t, l.proxy.Addrs()), id: id + strings.ReplaceAll(t.Name(), "/", "-")}
	// The coordinators of a fresh cluster may still be loading.
	if err := again(x.ctx, x.init, nil); err != nil {
		t.Fatalf("no producer id: %v", err)
	}
	if err := again(x.ctx, func() error {
		offsets, err := kadm.NewClient(x.cl).FetchOffsets(x.ctx, x.id)
		if errors.Is(err, kerr.GroupIDNotFound) { // how kfake says that there are none
			return nil
		}
		return errors.Join(err, offsets.Error())
	}, nil); err != nil {
		t.Fatalf("no group coordinator: %v", err)
	}
	return x
}

// again calls f until it succeeds, or fails with something else than meanwhile,
// if that is given, or ctx ends.
func again(ctx context.Context, f func() error, meanwhile error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || meanwhile != nil && !errors.Is(err, meanwhile) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// cutEveryKind cuts each of the four requests before and after, and looks at
// the broker to see whether it took effect.
func cutEveryKind(t *testing.T, l *cutLab) {
	t.Run("InitProducerId", func(t *testing.T) {
		for _, when := range []Moment{Before, After} {
			x := l.begin(t, when.String())
			was := x.state(l.direct)
			cut := l.proxy.Cut(when, kmsg.InitProducerID, nil)
			if err := x.init(); err == nil {
				t.Fatalf("%v: the client got an answer", cut)
			}
			wait(t, cut)
			now := x.state(l.direct)
			if took := now.ProducerEpoch != was.ProducerEpoch; took != (when == After) {
				t.Errorf("%v: the epoch was %d and is %d", cut, was.ProducerEpoch, now.ProducerEpoch)
			}
			if err := x.init(); err != nil {
				t.Errorf("%v: again: %v", cut, err)
			}
		}
	})
	t.Run("TxnOffsetCommit", func(t *testing.T) {
		for _, when := range []Moment{Before, After} {
			x := l.begin(t, when.String())
			cut := l.proxy.Cut(when, kmsg.TxnOffsetCommit, nil)
			if err := x.offsets(l.topic, l.id, 7); err == nil {
				t.Fatalf("%v: the client got an answer", cut)
			}
			r := wait(t, cut)
			if req, err := r.Decode(); err != nil || req.(*kmsg.TxnOffsetCommitRequest).Topics[0].Partitions[0].Offset != 7 {
				t.Errorf("%v: the request can't be read: %v, %+v", cut, err, req)
			}
			if took := x.state(l.direct).State == "Ongoing"; took != (when == After) {
				t.Errorf("%v: the transaction is %s", cut, x.state(l.direct).State)
			}
			if err := x.offsets(l.topic, l.id, 8); err != nil {
				t.Errorf("%v: again: %v", cut, err)
			}
			if err := x.end(false); err != nil {
				t.Errorf("%v: abort: %v", cut, err)
			}
		}
	})
	t.Run("EndTxn", func(t *testing.T) {
		for _, when := range []Moment{Before, After} {
			x := l.begin(t, when.String())
			if err := x.offsets(l.topic, l.id, 7); err != nil {
				t.Fatal(err)
			}
			cut := l.proxy.Cut(when, kmsg.EndTxn, nil)
			if err := x.end(true); err == nil {
				t.Fatalf("%v: the client got an answer", cut)
			}
			wait(t, cut)
			if took := x.state(l.direct).State != "Ongoing"; took != (when == After) {
				t.Errorf("%v: the transaction is %s", cut, x.state(l.direct).State)
			}
			if err := again(x.ctx, func() error { return x.end(true) }, kerr.ConcurrentTransactions); err != nil {
				t.Errorf("%v: again: %v", cut, err)
			}
		}
	})
	t.Run("Produce", func(t *testing.T) {
		for _, when := range []Moment{Before, After} {
			end := func() int64 {
				ends, err := kadm.NewClient(l.direct).ListEndOffsets(t.Context(), l.topic)
				if err != nil || ends.Error() != nil {
					t.Fatal(err, ends.Error())
				}
				o, _ := ends.Lookup(l.topic, 0)
				return o.Offset
			}
			was := end()
			cut := l.proxy.Cut(when, kmsg.Produce, nil)
			cl := once(t, l.proxy.Addrs(), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := cl.ProduceSync(limit(t, 30*time.Second), &kgo.Record{Topic: l.topic, Value: []byte(when.String())}).FirstErr(); err == nil {
				t.Fatalf("%v: the client got an answer", cut)
			}
			wait(t, cut)
			want := was
			if when == After {
				want++
			}
			if got := end(); got != want {
				t.Errorf("%v: the topic ended at %d and ends at %d, want %d", cut, was, got, want)
			}
		}
	})
}

func TestCutEveryKind(t *testing.T) {
	p, direct := proxied(t)
	cutEveryKind(t, newCutLab(t, p, direct, "t"))
}

// The client's own machinery gets over every cut, and nothing is doubled.
func TestClientGetsOverCuts(t *testing.T) {
	p, direct := proxied(t)
	ctx := limit(t, 60*time.Second)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Addrs()...), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i, when := range []Moment{Before, After, Before, After} {
		cut := p.Cut(when, kmsg.Produce, nil)
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatalf("%v: %v", cut, err)
		}
		wait(t, cut)
	}
	ends, err := kadm.NewClient(once(t, []string{direct})).ListEndOffsets(ctx, "t")
	if o, _ := ends.Lookup("t", 0); err != nil || o.Offset != 4 {
		t.Fatalf("the topic ends at %d (%v), want 4", o.Offset, err)
	}
}

func TestCutTakesOneAndChooses(t *testing.T) {
	p, direct := proxied(t)
	l := newCutLab(t, p, direct, "t")
	mine, other := l.begin(t, "mine-"), l.begin(t, "other-")
	cut := p.Cut(After, kmsg.InitProducerID, func(r Request) bool {
		req, err := r.Decode()
		if err != nil {
			t.Error(err)
			return false
		}
		return *req.(*kmsg.InitProducerIDRequest).TransactionalID == mine.id
	})
	if err := other.init(); err != nil {
		t.Fatalf("a request that doesn't match was cut: %v", err)
	}
	if _, _, ok := cut.Request(); ok {
		t.Fatal("the cut says that it has happened")
	}
	if err := mine.init(); err == nil {
		t.Fatal("a request that matches was not cut")
	}
	wait(t, cut)
	if err := mine.init(); err != nil {
		t.Fatalf("the second one was cut too: %v", err)
	}
	if cut.Disarm() != true {
		t.Fatal("a cut that has happened could be taken back")
	}
	before := p.Passed(kmsg.InitProducerID)
	never := p.Cut(Before, kmsg.InitProducerID, nil)
	if never.Disarm() {
		t.Fatal("a cut that was taken back at once has happened")
	}
	if err := mine.init(); err != nil || p.Passed(kmsg.InitProducerID) != before+1 {
		t.Fatalf("after a disarmed cut: %v, %d passed, want %d", err, p.Passed(kmsg.InitProducerID), before+1)
	}
}

// An answer that says no is not the effect that After waits for.
func TestCutAfterWaitsForTheEffect(t *testing.T) {
	p, direct := proxied(t)
	l := newCutLab(t, p, direct, "t")
	x := l.begin(t, "")
	if err := x.offsets(l.topic, l.id, 1); err != nil {
		t.Fatal(err)
	}
	cut := p.Cut(After, kmsg.EndTxn, nil)
	right := x.epoch
	x.epoch = right + 5
	if err := x.end(true); err == nil || !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Fatalf("EndTxn with a wrong epoch: %v, want the broker's refusal", err)
	}
	if _, _, ok := cut.Request(); ok {
		t.Fatal("a refusal was cut off")
	}
	x.epoch = right
	if err := x.end(true); err == nil {
		t.Fatal("the client got an answer")
	}
	wait(t, cut)
}

func TestProxyWithoutBroker(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy(Route{Listen: "127.0.0.1:0", Upstream: gone})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := once(t, p.Addrs()).Ping(limit(t, 30*time.Second)); err == nil {
		t.Fatal("somebody answered")
	}
	p.Close() // twice is once
}

func TestSever(t *testing.T) {
	p, direct := proxied(t)
	l := newCutLab(t, p, direct, "t")
	x := l.begin(t, "")
	p.Sever()
	for range 3 { // each connection of the client may find out by itself
		if err := x.init(); err == nil {
			return
		}
	}
	t.Fatal("no request came through any more")
}

func TestNotKafka(t *testing.T) {
	p, _ := proxied(t)
	for name, bytes := range map[string]string{
		"HTTP":             "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"TLS":              "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a short header":   "\x00\x00\x00\x04\x00\x00\x00\x00",
		"a long client id": "\x00\x00\x00\x0a\x00\x03\x00\x00\x00\x00\x00\x01\x7f\xff",
		"endless tags":     "\x00\x00\x00\x0c\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\xff\x7f",
	} {
		t.Run(name, func(t *testing.T) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(t.Context(), "tcp", p.Addrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(make([]byte, 1))
			var timeout net.Error
			if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatalf("read %d bytes, %v; the connection should be closed", n, err)
			}
		})
	}
}
