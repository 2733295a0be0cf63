package kafkalab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Route is where a proxy listens, and the broker's listener that it stands
// for, which must advertise the proxy's address and not its own.
type Route struct{ Listen, Upstream string }

// A Moment is when a [Cut] cuts, seen from the broker.
type Moment int

// The moments. Before: the request never reaches the broker. After: the broker
// has answered that it was carried out, and the client doesn't learn it.
const (
	Before Moment = iota
	After
)

func (m Moment) String() string { return [...]string{"before", "after"}[m] }

// A Proxy stands between clients and brokers, forwards everything, and cuts a
// connection at a request that it was told to wait for. To the client that
// looks like a broken network: other connections, and new ones, work on.
//
// It understands Kafka's framing, so the connections must not be encrypted.
type Proxy struct {
	listeners []net.Listener
	running   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
	armed  []*Cut // in their order
	passed map[kmsg.Key]int
}

// NewProxy listens on every route. Port 0 takes a free one: see [Proxy.Addrs].
// The brokers need not be there yet.
func NewProxy(routes ...Route) (*Proxy, error) {
	p := &Proxy{links: map[*link]struct{}{}, passed: map[kmsg.Key]int{}}
	for _, r := range routes {
		var config net.ListenConfig
		l, err := config.Listen(context.Background(), "tcp", r.Listen)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("proxy of %s: %w", r.Upstream, err)
		}
		p.listeners = append(p.listeners, l)
		p.running.Go(func() { p.accept(l, r.Upstream) })
	}
	return p, nil
}

// Addrs returns the addresses that the proxy listens on, in the routes' order.
func (p *Proxy) Addrs() []string {
	var all []string
	for _, l := range p.listeners {
		all = append(all, l.Addr().String())
	}
	return all
}

// Close ends the proxy with all connections through it, and returns when its
// goroutines have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	links := p.links
	p.links = nil
	p.mu.Unlock()
	for _, l := range p.listeners {
		_ = l.Close() // it is only closed once
	}
	for l := range links {
		l.close()
	}
	p.running.Wait()
}

// Sever cuts every connection that is open now, wherever it is.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Passed returns how many requests of an API have been forwarded to a broker.
func (p *Proxy) Passed(key kmsg.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[key]
}

// Cut arms the proxy: the connection of the next request of that API, of those
// that match says yes to (nil: of any), is cut before or after it. match runs
// on the connection's goroutine, under a lock: it must not block or call the
// proxy.
//
// After waits for an answer that says that the request was carried out, if it
// is Produce, TxnOffsetCommit, EndTxn or InitProducerId: an answer with an
// error code in it passes, and the cut stays armed.
//
// Cuts that are armed at the same time are independent; a request is taken by
// the first that it fits.
func (p *Proxy) Cut(when Moment, key kmsg.Key, match func(Request) bool) *Cut {
	c := &Cut{p: p, when: when, key: key, match: match, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, c)
	return c
}

// A Cut is one armed cut. It happens once.
type Cut struct {
	p     *Proxy
	when  Moment
	key   kmsg.Key
	match func(Request) bool
	done  chan struct{}

	// Guarded by the proxy's mutex, and constant once done is closed.
	claimed bool // a request is under way whose answer decides
	request Request
	at      time.Time
}

// Done is closed when the connection has been cut.
func (c *Cut) Done() <-chan struct{} { return c.done }

// Request returns the request at which was cut, and when that was; ok is false
// as long as nothing was. Its body stays valid.
func (c *Cut) Request() (r Request, at time.Time, ok bool) {
	select {
	case <-c.done:
		return c.request, c.at, true
	default:
		return Request{}, time.Time{}, false
	}
}

// Disarm takes the cut back, unless it has happened: it reports whether it has.
func (c *Cut) Disarm() (happened bool) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.drop(c)
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *Cut) String() string { return fmt.Sprintf("cut %s %s", c.when, c.key.Name()) }

// drop takes c out of what is armed. The caller holds the mutex.
func (p *Proxy) drop(c *Cut) {
	p.armed = slices.DeleteFunc(p.armed, func(a *Cut) bool { return a == c })
}

// happened notes that c cut at r. The caller holds the mutex.
func (p *Proxy) happened(c *Cut, r Request) {
	r.Body = bytes.Clone(r.Body)
	c.request, c.at = r, time.Now()
	p.drop(c)
	close(c.done)
}

// accept makes a link of every connection.
func (p *Proxy) accept(l net.Listener, upstream string) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // one that went before it was accepted, or no file handle is left
			<-time.After(10 * time.Millisecond)
			continue
		}
		p.running.Go(func() { p.serve(client, upstream) })
	}
}

// serve forwards between the client and its broker until one of them ends.
func (p *Proxy) serve(client net.Conn, upstream string) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	broker, err := dialer.DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		_ = client.Close() // the broker isn't there: so it is for the client
		return
	}
	l := &link{p: p, client: client, broker: broker, waiting: map[int32]*claim{}}
	defer l.close()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		defer l.close()
		l.answers()
	}()
	l.requests()
	l.close()
	<-answers
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for _, w := range l.waiting { // the answer never came: another request decides
		w.cut.claimed = false
	}
}

// A link is a client's connection and the one to its broker.
type link struct {
	p              *Proxy
	client, broker net.Conn
	waiting        map[int32]*claim // by correlation id; guarded by the proxy's mutex
}

// A claim is a request whose answer shall not arrive.
type claim struct {
	cut     *Cut
	request Request
}

func (l *link) close() {
	_ = l.client.Close() // closed more than once: both directions end with either
	_ = l.broker.Close()
}

// requests forwards from the client to the broker.
func (l *link) requests() {
	var frame []byte
	var err error
	for {
		if frame, err = readFrame(l.client, frame); err != nil {
			return
		}
		if !l.lets(frame) {
			return
		}
		if _, err = l.broker.Write(frame); err != nil {
			return
		}
	}
}

// lets reports whether the request goes on to the broker.
func (l *link) lets(frame []byte) bool {
	r, err := parseRequest(frame)
	if err != nil {
		return false // not Kafka's protocol: there is nothing to be had
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for _, c := range l.p.armed {
		if c.key != r.Key || c.claimed || c.match != nil && !c.match(r) {
			continue
		}
		if c.when == Before {
			l.p.happened(c, r)
			return false
		}
		c.claimed = true
		r.Body = bytes.Clone(r.Body)
		l.waiting[r.Correlation] = &claim{c, r}
		break
	}
	l.p.passed[r.Key]++
	return true
}

// answers forwards from the broker to the client.
func (l *link) answers() {
	var frame []byte
	var err error
	for {
		if frame, err = readFrame(l.broker, frame); err != nil {
			return
		}
		if l.swallows(frame) {
			return
		}
		if _, err = l.client.Write(frame); err != nil {
			return
		}
	}
}

// swallows reports whether the answer is one that must not arrive.
func (l *link) swallows(frame []byte) bool {
	correlation := int32(binary.BigEndian.Uint32(frame[4:]))
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	w, ok := l.waiting[correlation]
	if !ok {
		return false
	}
	delete(l.waiting, correlation)
	if !slices.Contains(l.p.armed, w.cut) {
		return false // disarmed meanwhile
	}
	resp, err := w.request.answer(frame)
	if err != nil || !applied(resp) {
		w.cut.claimed = false
		return false
	}
	l.p.happened(w.cut, w.request)
	return true
}
