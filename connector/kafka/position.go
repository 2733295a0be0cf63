package kafka

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// topicID tells a topic from another one that has its name later or elsewhere.
type topicID [16]byte

// String returns the form that Kafka's tools print.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

const (
	// noEnd is the end of a split that is read for as long as it grows.
	noEnd = -1
	// noEpoch is the epoch where nothing has been read yet.
	noEpoch = -1
)

// position is where reading stands in a partition, with all that tells whether
// the partition is still the same.
type position struct {
	cluster string // its id
	topic   topicID
	offset  int64 // of the record to be read next
	end     int64 // of a bounded split, exclusive; or noEnd
	// epoch is of the leader that wrote what was read last; or noEpoch. Whether the
	// log still holds that can be asked.
	epoch int32
}

const positionMagic = "kafka1"

// append returns kafka1:CLUSTER:TOPIC:OFFSET, with @EPOCH behind it and then :END
// where there is one.
func (p position) append(dst []byte) []byte {
	dst = append(dst, positionMagic...)
	dst = append(append(dst, ':'), p.cluster...)
	dst = append(dst, ':')
	dst = base64.RawURLEncoding.AppendEncode(dst, p.topic[:])
	dst = strconv.AppendInt(append(dst, ':'), p.offset, 10)
	if p.epoch != noEpoch {
		dst = strconv.AppendInt(append(dst, '@'), int64(p.epoch), 10)
	}
	if p.end != noEnd {
		dst = strconv.AppendInt(append(dst, ':'), p.end, 10)
	}
	return dst
}

// isPosition reports whether a source of this package wrote b.
func isPosition(b []byte) bool { return strings.HasPrefix(string(b), positionMagic+":") }

func parsePosition(b []byte) (position, error) {
	bad := func(what string) (position, error) {
		return position{}, fmt.Errorf("position %q isn't one of a Kafka partition: %s", b, what)
	}
	f := strings.Split(string(b), ":")
	if f[0] != positionMagic || len(f) != 4 && len(f) != 5 {
		return bad("it must be " + positionMagic + ":CLUSTER:TOPIC:OFFSET, with @EPOCH behind it and :END where there are such")
	}
	p := position{cluster: f[1], end: noEnd, epoch: noEpoch}
	id, err := base64.RawURLEncoding.Strict().DecodeString(f[2])
	if err != nil || len(id) != len(p.topic) {
		return bad("its topic id is no 16 bytes in base64")
	}
	copy(p.topic[:], id)
	offset, epoch, read := strings.Cut(f[3], "@")
	if p.offset, err = offsetOf(offset); err != nil {
		return bad(err.Error())
	}
	if read {
		n, err := offsetOf(epoch)
		if err != nil || n > math.MaxInt32 {
			return bad(fmt.Sprintf("epoch %q is no number from 0 on", epoch))
		}
		p.epoch = int32(n)
	}
	if len(f) == 5 {
		if p.end, err = offsetOf(f[4]); err != nil {
			return bad(err.Error())
		}
	}
	return p, nil
}

// offsetOf takes what strconv writes, and nothing else.
func offsetOf(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("offset %q is no number from 0 on", s)
	}
	return n, nil
}
