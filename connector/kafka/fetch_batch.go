package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A record batch, format 2, all numbers big-endian:
//
//	 0  8  offset of the first record (formats 0 and 1: of the last one)
//	 8  4  bytes behind this field
//	12  4  epoch of the leader that wrote it
//	16  1  format
//	17  4  CRC-32C of all that follows
//	21  2  attributes: codec (3 bits), time of append, transactional, control
//	23  4  last offset, less the first
//	27  8  first timestamp, ms
//	35  8  newest timestamp, ms
//	43  8  producer id
//	51  2  producer epoch
//	53  4  sequence number of the first record
//	57  4  number of records
//	61     records, compressed by the codec
const (
	lengthAt, epochAt, formatAt, crcAt, attrsAt = 8, 12, 16, 17, 21
	lastAt, firstTimeAt, newestAt, producerAt   = 23, 27, 35, 43
	countAt, recordsAt                          = 57, 61

	codecBits     = 0x07
	appendTime    = 0x08
	transactional = 0x10
	control       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one batch of records of a partition, or one message of an old format.
type batch struct {
	raw         []byte
	first, last int64 // offsets; of an old format both are the last one
	epoch       int32 // of the leader; -1 in old formats
	format      int8
	attrs       int16
	newest      int64 // timestamp, ms; -1: none
	producer    int64
}

// cutBatch takes the batch off that in begins with. ok is false where it breaks
// off: a broker cuts what it sends to the size that was asked for.
func cutBatch(in []byte) (b batch, rest []byte, ok bool) {
	if len(in) <= formatAt {
		return batch{}, in, false
	}
	size := int64(int32(binary.BigEndian.Uint32(in[lengthAt:]))) + epochAt
	if size <= formatAt || size > int64(len(in)) {
		return batch{}, in, false
	}
	b = batch{raw: in[:size], format: int8(in[formatAt]), epoch: -1, newest: -1, producer: -1}
	b.first = int64(binary.BigEndian.Uint64(in))
	b.last = b.first
	if b.format == 2 {
		if size < recordsAt {
			return batch{}, in, false
		}
		b.epoch = int32(binary.BigEndian.Uint32(in[epochAt:]))
		b.attrs = int16(binary.BigEndian.Uint16(in[attrsAt:]))
		b.last += int64(int32(binary.BigEndian.Uint32(in[lastAt:])))
		b.newest = int64(binary.BigEndian.Uint64(in[newestAt:]))
		b.producer = int64(binary.BigEndian.Uint64(in[producerAt:]))
	}
	return b, in[size:], true
}

// check compares the batch with its checksum.
func (b *batch) check() error {
	if b.last < b.first {
		return fmt.Errorf("its last offset is %d", b.last)
	}
	want := binary.BigEndian.Uint32(b.raw[crcAt:])
	if got := crc32.Checksum(b.raw[attrsAt:], castagnoli); got != want {
		return fmt.Errorf("its checksum is %08x, and should be %08x", got, want)
	}
	return nil
}

// codec is how the records are compressed.
func (b *batch) codec() kgo.CompressionCodecType {
	return kgo.CompressionCodecType(b.attrs & codecBits)
}

// records are those of the batch, unpacked.
func (b *batch) records(unpacked []byte) records {
	return records{
		in: unpacked, left: int32(binary.BigEndian.Uint32(b.raw[countAt:])), first: b.first, last: b.last,
		firstTime: int64(binary.BigEndian.Uint64(b.raw[firstTimeAt:])), newest: b.newest, appended: b.attrs&appendTime != 0,
	}
}

// aborts reports whether a control batch is the marker of a transaction that was
// aborted: its one record's key is a version and a type, two bytes each.
func (b *batch) aborts() bool {
	rs := b.records(b.raw[recordsAt:])
	var m Message
	ok, err := rs.next(&m, nil)
	return ok && err == nil && len(m.Key) >= 4 && m.Key[2] == 0 && m.Key[3] == 0
}

// records reads the records of one batch, one after the other.
type records struct {
	in          []byte
	left        int32
	first, last int64
	firstTime   int64
	newest      int64
	appended    bool  // all have the time at which they were appended: newest
	time        int64 // of the last record, ms
}

var errRecord = errors.New("a record breaks off, or holds what can't be there")

// next reads one record: its offset, key and value and, if names isn't nil, its
// headers. All share memory with the batch. ok is false behind the last one.
func (rs *records) next(m *Message, names *interner) (ok bool, err error) {
	if rs.left <= 0 {
		if rs.left < 0 || len(rs.in) > 0 {
			return false, fmt.Errorf("%d bytes follow its last record, of %d: %w", len(rs.in), rs.left, errRecord)
		}
		return false, nil
	}
	size, n := binary.Varint(rs.in)
	if n <= 0 || size < 1 || size > int64(len(rs.in)-n) {
		return false, errRecord
	}
	f := field{rs.in[n+1 : n+int(size)], false} // the attributes of a record have no meaning
	rs.in = rs.in[n+int(size):]
	rs.left--
	rs.time = rs.firstTime + f.varint()
	m.Offset = rs.first + f.varint()
	m.Key, m.Value = f.bytes(), f.bytes()
	if rs.appended {
		rs.time = rs.newest
	}
	if names != nil {
		m.Headers = f.headers(m.Headers[:0], names)
	}
	if f.broken || m.Offset < rs.first || m.Offset > rs.last {
		return false, errRecord
	}
	return true, nil
}

// field reads the fields of a record.
type field struct {
	in     []byte
	broken bool
}

func (f *field) varint() int64 {
	// What fits into a byte is what most fields are.
	if len(f.in) > 0 && f.in[0] < 0x80 {
		u := f.in[0]
		f.in = f.in[1:]
		return int64(u>>1) ^ -int64(u&1)
	}
	v, n := binary.Varint(f.in)
	if n <= 0 {
		f.broken, f.in = true, nil
		return 0
	}
	f.in = f.in[n:]
	return v
}

// bytes reads a length and so many bytes; nil if the length is negative.
func (f *field) bytes() []byte {
	n := f.varint()
	switch {
	case n < 0 || f.broken:
		return nil
	case n > int64(len(f.in)):
		f.broken, f.in = true, nil
		return nil
	}
	b := f.in[:n:n]
	f.in = f.in[n:]
	return b
}

func (f *field) headers(dst []Header, names *interner) []Header {
	n := f.varint()
	if n > int64(len(f.in)) { // each takes two bytes at least
		f.broken = true
	}
	for ; n > 0 && !f.broken; n-- {
		dst = append(dst, Header{Key: names.of(f.bytes()), Value: f.bytes()})
	}
	return dst
}

// interner makes strings of the names of headers, of which there are few.
type interner struct{ names map[string]string }

const mostNames = 256

func (in *interner) of(b []byte) string {
	if s, ok := in.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if in.names == nil {
		in.names = map[string]string{}
	}
	if len(in.names) < mostNames {
		in.names[s] = s
	}
	return s
}

// aborter tells the records of aborted transactions, as a broker lists them with
// what it sends: each transaction is a producer's, from an offset to its marker.
type aborter struct {
	to   []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset, not begun yet
	open []int64                                              // producers in one
}

func newAborter(all []kmsg.FetchResponseTopicPartitionAbortedTransaction) aborter {
	slices.SortFunc(all, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(1, max(-1, a.FirstOffset-b.FirstOffset)))
	})
	return aborter{to: all}
}

// drops reports whether the records of b, which follows the last one asked about,
// aren't to be seen.
func (a *aborter) drops(b *batch) bool {
	for len(a.to) > 0 && a.to[0].FirstOffset <= b.last {
		if !slices.Contains(a.open, a.to[0].ProducerID) {
			a.open = append(a.open, a.to[0].ProducerID)
		}
		a.to = a.to[1:]
	}
	if len(a.open) == 0 {
		return b.attrs&control != 0
	}
	i := slices.Index(a.open, b.producer)
	if b.attrs&control != 0 {
		if i >= 0 && b.aborts() {
			a.open = slices.Delete(a.open, i, i+1)
		}
		return true
	}
	return i >= 0 && b.attrs&transactional != 0
}

// timeOf is a timestamp in milliseconds as a time; zero for none.
func timeOf(ms int64) time.Time {
	if ms == -1 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
