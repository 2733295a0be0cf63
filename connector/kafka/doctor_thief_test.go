package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// markerThief stands before the listener that brokers reach each other by. When it
// steals, a coordinator is told that its markers were written, and they weren't: so
// they are lost as by a broker that is killed at the wrong moment, without luck.
type markerThief struct {
	t        *testing.T
	l        net.Listener
	upstream string
	steals   atomic.Bool
	stolen   atomic.Int64 // markers, of partitions
	done     sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func newMarkerThief(t *testing.T, upstream string) *markerThief {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &markerThief{t: t, l: l, upstream: upstream}
	m.done.Go(m.accept)
	t.Cleanup(m.close)
	return m
}

func (m *markerThief) addr() string { return m.l.Addr().String() }

func (m *markerThief) accept() {
	for {
		c, err := m.l.Accept()
		if err != nil {
			return // closed
		}
		m.done.Go(func() { m.serve(c) })
	}
}

// keep notes a connection that close must end.
func (m *markerThief) keep(c net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return !m.closed
}

func (m *markerThief) close() {
	m.l.Close()
	m.mu.Lock()
	m.closed = true
	for _, c := range m.conns {
		c.Close()
	}
	m.mu.Unlock()
	m.done.Wait()
}

func (m *markerThief) serve(down net.Conn) {
	defer down.Close()
	if !m.keep(down) {
		return
	}
	up, err := net.Dial("tcp", m.upstream)
	if err != nil {
		return // the broker is away
	}
	defer up.Close()
	if !m.keep(up) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(down, up) // ends with one of them
		down.Close()
	})
	defer back.Wait()
	defer up.Close()
	for {
		frame, err := readWhole(down)
		if err != nil {
			return
		}
		answer, err := m.steal(frame)
		if err != nil {
			m.t.Errorf("a request of a broker: %v", err)
			return
		}
		to := up
		if answer != nil {
			frame, to = answer, down
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// readWhole reads a frame with its length.
func readWhole(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// steal answers a request to write markers; nil: it is another one, or none is
// stolen.
func (m *markerThief) steal(frame []byte) ([]byte, error) {
	if len(frame) < 14 || int16(binary.BigEndian.Uint16(frame[4:])) != int16(kmsg.WriteTxnMarkers) || !m.steals.Load() {
		return nil, nil
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[6:])))
	body := frame[14:]
	if n := int(int16(binary.BigEndian.Uint16(frame[12:]))); n > 0 { // the client's id
		body = body[n:]
	}
	if req.IsFlexible() {
		if body[0] != 0 {
			return nil, errors.New("its header has tags")
		}
		body = body[1:]
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%T: %w", req, err)
	}
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.SetVersion(req.GetVersion())
	for _, marker := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = marker.ProducerID
		for _, topic := range marker.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition = p
				rt.Partitions = append(rt.Partitions, rp)
				m.stolen.Add(1)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	out := append(make([]byte, 4), frame[8:12]...) // the correlation id
	if req.IsFlexible() {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}
