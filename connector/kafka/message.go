package kafka

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Message is one record of a partition, as Kafka knows it.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte // nil: none
	Value     []byte // nil: none, a tombstone of a compacted topic
	Headers   []Header
	Time      time.Time // in milliseconds; zero: the message has no timestamp
}

// Header is one header of a message. Names may come more than once.
type Header struct {
	Key   string
	Value []byte // nil: none
}

// Part is a part of a message that may be missing.
type Part uint8

// The parts of a message that [Require] can ask for.
const (
	Key Part = 1 << iota
	Value
	Timestamp
)

// String names the parts.
func (p Part) String() string {
	var names []string
	for i, name := range []string{"key", "value", "timestamp"} {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// missing returns the parts of m that were asked for and aren't there.
func (p Part) missing(m *Message) (gone Part) {
	if m.Key == nil {
		gone |= Key
	}
	if m.Value == nil {
		gone |= Value
	}
	if m.Time.IsZero() {
		gone |= Timestamp
	}
	return gone & p
}

// errMissing says which parts a message lacks.
func errMissing(gone Part) error {
	if gone == Value {
		return errors.New("the message has no value: it is a tombstone")
	}
	return fmt.Errorf("the message has no %s", gone)
}

// MessageError is a message that can't be taken. It names the message so that it
// can be found with any tool: "topic clicks, partition 3, offset 17: ...".
type MessageError struct {
	Topic     string
	Partition int32
	Offset    int64
	Err       error // what is wrong
	Hint      string
	Stack     []byte // where the decoder panicked, if it did
}

// Error returns all of it in one line.
func (e *MessageError) Error() string {
	hint := ""
	if e.Hint != "" {
		hint = "; " + e.Hint
	}
	return fmt.Sprintf("topic %s, partition %d, offset %d: %v%s", e.Topic, e.Partition, e.Offset, e.Err, hint)
}

// Unwrap returns what is wrong.
func (e *MessageError) Unwrap() error { return e.Err }
