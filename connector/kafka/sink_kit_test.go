package kafka

import (
	"context"
	"encoding/binary"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/connectortest"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// machine is a process that talks to brokers through connections that a test can
// hold up, cut or crash at: each request that changes something is one call.
type machine struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	// call performs a request, whose bytes are req: do sends it and returns once its
	// answer is there. With an error the machine is dead: no other request is sent,
	// and no answer comes.
	call func(name string, req []byte, do func() error) error

	mu    sync.Mutex
	dead  error
	conns []net.Conn
	calls sync.WaitGroup // on their way
}

func newMachine(ctx context.Context, call func(name string, req []byte, do func() error) error) *machine {
	m := &machine{call: call}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	return m
}

// die cuts all connections, once the brokers are done with what was sent: a request
// that they take up later would be one of a machine that isn't dead yet.
func (m *machine) die(err error) {
	m.mu.Lock()
	if m.dead != nil {
		m.mu.Unlock()
		return
	}
	m.dead = err
	m.mu.Unlock()
	m.calls.Wait()
	m.cancel(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		_ = c.Close() // they are gone either way
	}
	m.conns = nil
}

func (m *machine) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// begin begins a call, unless the machine is dead.
func (m *machine) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead == nil {
		m.calls.Add(1)
	}
	return m.dead
}

func (m *machine) dial(ctx context.Context, network, host string) (net.Conn, error) {
	if err := m.err(); err != nil {
		return nil, err
	}
	inner, err := new(net.Dialer).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead != nil {
		return nil, errors.Join(m.dead, inner.Close())
	}
	c := &tapped{Conn: inner, m: m, asked: map[int32]*inFlight{}}
	c.out, c.in = io.Pipe()
	m.conns = append(m.conns, c)
	go c.pump() // ends with the connection
	return c, nil
}

// inFlight is a request on its way.
type inFlight struct {
	arrived chan struct{} // closed when its answer is there
	forward chan bool     // whether the client gets it
}

// tapped is a connection whose requests are calls of a machine.
type tapped struct {
	net.Conn
	m   *machine
	out *io.PipeReader
	in  *io.PipeWriter

	mu    sync.Mutex
	asked map[int32]*inFlight
	gone  bool
}

// changing are the requests that a broker isn't the same after.
var changing = []int16{0, 19, 22, 24, 25, 26, 28, 37}

func (c *tapped) Write(b []byte) (int, error) {
	if err := c.m.err(); err != nil {
		return 0, err
	}
	key, id := int16(binary.BigEndian.Uint16(b[4:])), int32(binary.BigEndian.Uint32(b[8:]))
	if !slices.Contains(changing, key) {
		return c.Conn.Write(b)
	}
	a := &inFlight{make(chan struct{}), make(chan bool, 1)}
	c.mu.Lock()
	if c.gone {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	c.asked[id] = a
	c.mu.Unlock()
	if err := c.m.begin(); err != nil {
		return 0, err
	}
	n := len(b)
	err := c.m.call(kmsg.NameForKey(key), b, func() (err error) {
		if n, err = c.Conn.Write(b); err == nil {
			<-a.arrived
		}
		return err
	})
	a.forward <- err == nil
	c.m.calls.Done()
	switch {
	case errors.Is(err, errCut):
		_ = c.Conn.Close() // the connection is gone, and the machine isn't
	case err != nil:
		c.m.die(err)
	}
	return n, err
}

// pump reads answers, and forwards those that the machine lives to see.
func (c *tapped) pump() {
	err := func() error {
		for {
			var size [4]byte
			if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
				return err
			}
			frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
			copy(frame, size[:])
			if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
				return err
			}
			id := int32(binary.BigEndian.Uint32(frame[4:]))
			c.mu.Lock()
			a := c.asked[id]
			delete(c.asked, id)
			c.mu.Unlock()
			if a != nil {
				close(a.arrived)
				if !<-a.forward {
					return net.ErrClosed
				}
			}
			if _, err := c.in.Write(frame); err != nil {
				return err
			}
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, a := range c.asked {
		close(a.arrived)
	}
	clear(c.asked)
	c.in.CloseWithError(err)
}

func (c *tapped) Read(b []byte) (int, error) { return c.out.Read(b) }

func (c *tapped) Close() error {
	return errors.Join(c.Conn.Close(), c.out.Close())
}

// rows is a sink of the conformance suite's rows.
type rows struct {
	c     *Cluster // whose connections belong to no machine
	topic string
	at    func() *Cluster // a new one like it
	opts  []SinkOption
}

var errUnwritable = errors.New("the row's note says so")

func encodeRow(r *connectortest.Row, m *Message) error {
	if r.Note == "can't be encoded" {
		return errUnwritable
	}
	m.Key = fmt.Appendf(m.Key, "%s/%d", r.Key, r.Part)
	b, err := json.Marshal(r)
	m.Value = append(m.Value, b...)
	return err
}

func (r rows) on(c *Cluster) weir.Sink[connectortest.Row] {
	return Sink(c, r.topic, encodeRow, slices.Concat([]SinkOption{CreateTopics(2, 0), Linger(0)}, r.opts)...)
}

func (r rows) Spec() weir.SinkSpec { return r.on(r.c).Spec() }

// Connect starts a machine that the suite can crash.
func (r rows) Connect(ctx context.Context, sinks []string) (weir.Participant, error) {
	m := newMachine(ctx, func(name string, _ []byte, do func() error) error { return connectortest.Call(ctx, name, do) })
	c := r.at()
	c.more = []kgo.Opt{kgo.Dialer(m.dial)}
	p, err := r.on(c).Connect(m.ctx, sinks)
	if err != nil {
		m.cancel(nil)
		return nil, errors.Join(err, m.err())
	}
	return &crashing{p, m, c}, nil
}

func (r rows) Open(_ context.Context, p weir.Participant, id string) (weir.Outlet[connectortest.Row], error) {
	c := p.(*crashing)
	o, err := r.on(c.c).Open(c.m.ctx, c.p, id)
	if err != nil {
		return nil, errors.Join(err, c.m.err())
	}
	return crashingOutlet{o, c.m}, nil
}

// crashing is a participant on a machine. Its errors are the machine's, once that
// has crashed.
type crashing struct {
	p weir.Participant
	m *machine
	c *Cluster
}

func (c *crashing) because(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, c.m.err())
}

func (c *crashing) Fence(_ context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	l, err := c.p.Fence(c.m.ctx, f)
	return l, c.because(err)
}

func (c *crashing) Adopt(_ context.Context, at weir.CheckpointID, sinks []weir.Adopted) error {
	return c.because(c.p.(weir.Adopter).Adopt(c.m.ctx, at, sinks))
}

func (c *crashing) Prepare(_ context.Context, epoch int64) ([]byte, error) {
	b, err := c.p.Prepare(c.m.ctx, epoch)
	return b, c.because(err)
}

func (c *crashing) Commit(_ context.Context, e weir.Commit) error {
	if err := c.p.Commit(c.m.ctx, e); err != nil {
		return c.because(err)
	}
	return c.because(c.p.(weir.Revealer).Visible(c.m.ctx, e.ID))
}

func (c *crashing) Flush(context.Context) error { return c.because(c.p.Flush(c.m.ctx)) }

func (c *crashing) Close() error {
	defer c.m.cancel(nil)
	if err := c.m.err(); err != nil {
		_ = c.p.(*participant).fail(err) // a dead machine aborts nothing
	}
	return c.p.Close()
}

type crashingOutlet struct {
	weir.Outlet[connectortest.Row]
	m *machine
}

func (o crashingOutlet) Writer(task int) weir.Writer[connectortest.Row] {
	return crashingWriter{o.Outlet.Writer(task), o.m}
}

type crashingWriter struct {
	weir.Writer[connectortest.Row]
	m *machine
}

func (w crashingWriter) Write(recs []connectortest.Row, at []int64) error {
	err := w.Writer.Write(recs, at)
	if _, ok := errors.AsType[weir.Rejection](err); ok || err == nil {
		return err
	}
	return errors.Join(err, w.m.err())
}

func (w crashingWriter) Seal(epoch int64) error {
	if err := w.Writer.Seal(epoch); err != nil {
		return errors.Join(err, w.m.err())
	}
	return nil
}

// softly lets helpers for tests be called where only an error can be returned.
type softly struct{ testing.TB }

type softError struct{ error }

func (s softly) Fatalf(format string, args ...any) { panic(softError{fmt.Errorf(format, args...)}) }
func (s softly) Fatal(args ...any)                 { panic(softError{errors.New(fmt.Sprint(args...))}) }

// seen are the committed messages of a topic; none if it doesn't exist.
func seen(t testing.TB, brokers []string, topic string) (got []*kgo.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			soft, ok := p.(softError)
			if !ok {
				panic(p)
			}
			err = soft.error
		}
	}()
	return kafkatest.ReadCommitted(softly{t}, brokers, topic), nil
}
