package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// proxy stands between one process and the brokers: it understands the protocol,
// shows every request and every answer of the kinds that matter before it goes
// on, and can cut the connection there. A request that is cut was never sent on;
// an answer that is cut was given, and isn't heard.
type proxy struct {
	see     func(req kmsg.Request, resp kmsg.Response) (cut bool)
	address map[string]string // a broker's own, and what stands for it here
	order   []string          // brokers' own

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool
	work   sync.WaitGroup
}

func newProxy(brokers []string, see func(kmsg.Request, kmsg.Response) bool) (*proxy, error) {
	p := &proxy{see: see, address: map[string]string{}, order: brokers, open: map[io.Closer]bool{}}
	for _, b := range brokers {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by close
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.address[b] = l.Addr().String()
		p.open[l] = true
		p.work.Go(func() { p.accept(l, b) })
	}
	return p, nil
}

func (p *proxy) brokers() (all []string) {
	for _, b := range p.order {
		all = append(all, p.address[b])
	}
	return all
}

func (p *proxy) accept(l net.Listener, broker string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !p.keep(c) {
			return
		}
		p.work.Go(func() {
			defer p.drop(c)
			up, err := net.Dial("tcp", broker) //nolint:noctx // loopback answers at once
			if err != nil || !p.keep(up) {
				return
			}
			defer p.drop(up)
			p.both(c, up)
		})
	}
}

// keep takes a connection in, which close will close.
func (p *proxy) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *proxy) drop(c io.Closer) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	_ = c.Close()
}

// close ends all connections and waits for whoever serves them.
func (p *proxy) close() error {
	p.mu.Lock()
	p.closed = true
	var err error
	for c := range p.open {
		if e := c.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}

// asked is a request whose answer hasn't come: on one connection answers come in
// the order of the requests.
type asked struct {
	correlation int32
	req         kmsg.Request // nil: of a kind that isn't known
}

// both serves one connection until one side ends it, or it is cut.
func (p *proxy) both(client, broker net.Conn) {
	pending := make(chan asked, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.answers(client, broker, pending) // whatever ended it, the connection is over
		_ = client.Close()
		_ = broker.Close()
	}()
	_ = p.requests(client, broker, pending)
	_ = client.Close()
	_ = broker.Close()
	close(pending)
	<-done
}

var errCut = errors.New("cut")

func (p *proxy) requests(client, broker net.Conn, pending chan<- asked) error {
	for {
		frame, err := readFrame(client)
		if err != nil {
			return err
		}
		a, err := parseRequest(frame[4:])
		if err != nil {
			return err
		}
		if a.req != nil && p.see(a.req, nil) {
			return errCut
		}
		pending <- a
		if _, err := broker.Write(frame); err != nil {
			return err
		}
	}
}

func (p *proxy) answers(client, broker net.Conn, pending <-chan asked) error {
	for {
		frame, err := readFrame(broker)
		if err != nil {
			return err
		}
		a, more := <-pending
		if !more {
			return io.EOF
		}
		if got := int32(binary.BigEndian.Uint32(frame[4:])); got != a.correlation {
			return fmt.Errorf("answer %d to request %d", got, a.correlation)
		}
		if frame, err = p.answer(frame, a.req); err != nil {
			return err
		}
		if _, err := client.Write(frame); err != nil {
			return err
		}
	}
}

// answer shows an answer, and puts the proxy's addresses in place of the brokers'.
func (p *proxy) answer(frame []byte, req kmsg.Request) ([]byte, error) {
	if req == nil || req.Key() == 18 { // ApiVersions, whose header isn't like the others'
		return frame, nil
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	body := 8
	if resp.IsFlexible() {
		if frame[8] != 0 {
			return nil, errors.New("a tag in the header of an answer")
		}
		body++
	}
	if err := resp.ReadFrom(frame[body:]); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	if p.see(req, resp) {
		return nil, errCut
	}
	if !p.rewrite(resp) {
		return frame, nil
	}
	frame = resp.AppendTo(frame[:body:body])
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// rewrite reports whether it has changed anything.
func (p *proxy) rewrite(resp kmsg.Response) bool {
	n := 0
	put := func(host *string, port *int32) {
		at, known := p.address[net.JoinHostPort(*host, strconv.Itoa(int(*port)))]
		if !known {
			return
		}
		h, s, _ := net.SplitHostPort(at)
		to, _ := strconv.Atoi(s)
		*host, *port = h, int32(to)
		n++
	}
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			put(&r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		put(&r.Host, &r.Port)
		for i := range r.Coordinators {
			put(&r.Coordinators[i].Host, &r.Coordinators[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			put(&r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.ProduceResponse:
		for i := range r.Brokers {
			put(&r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.FetchResponse:
		for i := range r.Brokers {
			put(&r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	}
	return n > 0
}

// readFrame reads a request or an answer with the four bytes of its length.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > 1<<27 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// parseRequest reads a request: key, version, correlation, the client's name, and
// in flexible versions tags.
func parseRequest(b []byte) (asked, error) {
	if len(b) < 10 {
		return asked{}, errors.New("a request without a header")
	}
	key, version := int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	a := asked{correlation: int32(binary.BigEndian.Uint32(b[4:]))}
	name := max(0, int(int16(binary.BigEndian.Uint16(b[8:]))))
	if len(b) < 10+name {
		return a, errors.New("a request whose client has half a name")
	}
	body := b[10+name:]
	req := kmsg.RequestForKey(key)
	if req == nil || key == 18 {
		return a, nil
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		if len(body) == 0 || body[0] != 0 {
			return a, errors.New("a tag in the header of a request")
		}
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		return a, fmt.Errorf("%s: %w", kmsg.NameForKey(key), err)
	}
	a.req = req
	return a, nil
}
