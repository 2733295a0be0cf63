package kafkalab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFrame is the largest request or answer that is let through, well above
// what brokers take (socket.request.max.bytes, 100 MiB).
const maxFrame = 256 << 20

// readFrame reads a size and what follows it, into buf if it has room, and
// returns the whole: size included.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	buf = append(buf[:0], 0, 0, 0, 0)
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, err
	}
	n := int(int32(binary.BigEndian.Uint32(buf)))
	if n < 4 || n > maxFrame {
		return buf, fmt.Errorf("a frame of %d bytes: this is not Kafka's protocol in plain text", n)
	}
	if cap(buf) < 4+n {
		buf = append(make([]byte, 0, 4+n), buf...)
	}
	buf = buf[:4+n]
	_, err := io.ReadFull(r, buf[4:])
	return buf, err
}

// A Request is the header of what a client sent, and its body.
type Request struct {
	Key         kmsg.Key // which API
	Version     int16
	Correlation int32  // numbers the requests of a connection
	ClientID    string // "" for null
	Body        []byte // valid during the call that is given the request
}

var errShort = errors.New("the frame ends within its header")

// parseRequest reads a whole frame.
func parseRequest(frame []byte) (Request, error) {
	b := frame[4:]
	if len(b) < 10 {
		return Request{}, errShort
	}
	r := Request{
		Key:         kmsg.Key(binary.BigEndian.Uint16(b)),
		Version:     int16(binary.BigEndian.Uint16(b[2:])),
		Correlation: int32(binary.BigEndian.Uint32(b[4:])),
	}
	n := int(int16(binary.BigEndian.Uint16(b[8:])))
	b = b[10:]
	if n > len(b) {
		return Request{}, errShort
	}
	if n > 0 {
		r.ClientID = string(b[:n])
		b = b[n:]
	}
	if kind := r.kind(); kind != nil && kind.IsFlexible() {
		var err error
		if b, err = skipTags(b); err != nil {
			return Request{}, err
		}
	}
	r.Body = b
	return r, nil
}

// kind returns an empty request of r's key and version, nil for an unknown key.
func (r Request) kind() kmsg.Request {
	req := kmsg.RequestForKey(r.Key.Int16())
	if req != nil {
		req.SetVersion(r.Version)
	}
	return req
}

// Decode returns the request as its type, *kmsg.EndTxnRequest for example.
func (r Request) Decode() (kmsg.Request, error) {
	req := r.kind()
	if req == nil {
		return nil, fmt.Errorf("no API has the key %d", r.Key)
	}
	if err := req.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("%s version %d: %w", r.Key.Name(), r.Version, err)
	}
	return req, nil
}

// answer reads what a broker answered to r.
func (r Request) answer(frame []byte) (kmsg.Response, error) {
	req := r.kind()
	if req == nil {
		return nil, fmt.Errorf("no API has the key %d", r.Key)
	}
	resp, b := req.ResponseKind(), frame[8:]
	// The answer to ApiVersions must be readable before anything is agreed on.
	if resp.IsFlexible() && r.Key != kmsg.ApiVersions {
		var err error
		if b, err = skipTags(b); err != nil {
			return nil, err
		}
	}
	if err := resp.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("answer to %s version %d: %w", r.Key.Name(), r.Version, err)
	}
	return resp, nil
}

// skipTags passes over a header's tagged fields.
func skipTags(b []byte) ([]byte, error) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	if len(b) == 0 {
		return nil, errShort
	}
	for fields := number(); fields > 0; fields-- {
		number() // which
		size := number()
		if b == nil || size > uint64(len(b)) {
			return nil, errShort
		}
		b = b[size:]
	}
	return b, nil
}

// applied reports whether an answer says that the request took effect in
// full: an error code means that the broker did nothing, or not everything.
// Of an API that it doesn't know it says yes.
func applied(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return false
				}
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return false
				}
			}
		}
	case *kmsg.EndTxnResponse:
		return r.ErrorCode == 0
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode == 0
	}
	return true
}
