package kafka

import (
	"slices"
	"strconv"

	"github.com/weirstream/weir"
)

// The headers of a dead letter.
const (
	headerSource = "weir-source"
	headerSplit  = "weir-split"
	headerMark   = "weir-mark"
	headerStep   = "weir-step"
	headerKind   = "weir-kind"
	headerReason = "weir-reason"
	headerWhere  = "weir-where"
	headerCut    = "weir-cut"
)

// DeadLetters is a sink for dead letters, by Job.DeadLetters: the letter's Raw is the
// message's value, and empty where it isn't known. Of a record from a topic that is
// its value without its key and headers, at most weir.MaxRejected bytes of it; that
// nothing is missing can't be told from the letter if it has just as many. The key is
// SOURCE/SPLIT#MARK, so that the letters of one record are in one partition; the
// topic mustn't be compacted, because letters about no known record share one key.
// The timestamp is the record's event time, or the present. The
// headers tell the rest, each as text: weir-source, weir-split, weir-mark (such as
// the offset), weir-step (that rejected it), weir-kind, weir-reason, weir-where.
//
// It shares the transactions of the job's other sinks on the cluster: a letter is
// visible if and only if the epoch in which its record was read is committed. A
// value with which the message is longer than the topic's max.message.bytes is cut at
// its end so that it fits; the header weir-cut then has the length in bytes, in
// decimal digits, that it had before: that of Raw, not of the record, which
// may be longer. A letter that is too long with an empty value is rejected, which
// stops the job.
func DeadLetters(c *Cluster, topic string, opts ...SinkOption) weir.Sink[weir.DeadLetter] {
	opts = append(slices.Clone(opts), sinkOption(func(c *sinkConfig) { c.cut = cutLetter }))
	return Sink(c, topic, encodeLetter, opts...)
}

// cutRoom is what the header takes that tells of a cut.
const cutRoom = 40

// cutLetter cuts what was read off at its end.
func cutLetter(m *Message, over int) {
	whole := len(m.Value)
	m.Value = m.Value[:max(0, whole-over-cutRoom)]
	m.Headers = append(m.Headers, Header{headerCut, strconv.AppendInt(nil, int64(whole), 10)})
}

func encodeLetter(d *weir.DeadLetter, m *Message) error {
	m.Key = append(append(m.Key, d.Source...), '/')
	m.Key = append(m.Key, d.Split...)
	m.Key = append(m.Key, '#')
	m.Key = strconv.AppendInt(m.Key, d.Mark, 10)
	m.Value = append(m.Value, d.Raw...)
	for _, h := range [...]struct{ name, value string }{
		{headerSource, d.Source}, {headerSplit, d.Split}, {headerMark, strconv.FormatInt(d.Mark, 10)}, {headerStep, d.Step},
		{headerKind, d.Kind}, {headerReason, d.Reason}, {headerWhere, d.Where},
	} {
		if h.value != "" {
			m.Headers = append(m.Headers, Header{h.name, []byte(h.value)})
		}
	}
	return nil
}
