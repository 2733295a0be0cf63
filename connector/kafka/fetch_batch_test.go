package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// madeRecord is a record of a batch that a test makes.
type madeRecord struct {
	offset, time int64
	key, value   []byte
	headers      []Header
}

// makeBatch writes a batch as a broker would have it.
func makeBatch(epoch int32, producer int64, attrs int16, recs []madeRecord, last int64, pack func([]byte) []byte) []byte {
	var body []byte
	bytes := func(dst, b []byte) []byte {
		if b == nil {
			return binary.AppendVarint(dst, -1)
		}
		return append(binary.AppendVarint(dst, int64(len(b))), b...)
	}
	first, firstTime, newest := last, int64(-1), int64(-1)
	if len(recs) > 0 {
		first, firstTime = recs[0].offset, recs[0].time
	}
	for _, r := range recs {
		one := []byte{0}
		one = binary.AppendVarint(one, r.time-firstTime)
		one = binary.AppendVarint(one, r.offset-first)
		one = bytes(bytes(one, r.key), r.value)
		one = binary.AppendVarint(one, int64(len(r.headers)))
		for _, h := range r.headers {
			one = bytes(bytes(one, []byte(h.Key)), h.Value)
		}
		body = append(binary.AppendVarint(body, int64(len(one))), one...)
		newest = max(newest, r.time)
	}
	if pack != nil {
		body = pack(body)
	}
	b := make([]byte, recordsAt, recordsAt+len(body))
	be := binary.BigEndian
	be.PutUint64(b, uint64(first))
	be.PutUint32(b[lengthAt:], uint32(recordsAt-epochAt+len(body)))
	be.PutUint32(b[epochAt:], uint32(epoch))
	b[formatAt] = 2
	be.PutUint16(b[attrsAt:], uint16(attrs))
	be.PutUint32(b[lastAt:], uint32(last-first))
	be.PutUint64(b[firstTimeAt:], uint64(firstTime))
	be.PutUint64(b[newestAt:], uint64(newest))
	be.PutUint64(b[producerAt:], uint64(producer))
	be.PutUint32(b[producerAt+10:], ^uint32(0))
	be.PutUint32(b[countAt:], uint32(len(recs)))
	b = append(b, body...)
	be.PutUint32(b[crcAt:], crc32.Checksum(b[attrsAt:], castagnoli))
	return b
}

// packers compress as producers do, by codec.
func packers(t testing.TB) map[kgo.CompressionCodecType]func([]byte) []byte {
	out := map[kgo.CompressionCodecType]func([]byte) []byte{
		kgo.CodecNone:   nil,
		kgo.CodecSnappy: func(b []byte) []byte { return s2.EncodeSnappy(nil, b) },
	}
	for codec, c := range map[kgo.CompressionCodecType]kgo.CompressionCodec{
		kgo.CodecGzip: kgo.GzipCompression(), kgo.CodecLz4: kgo.Lz4Compression(), kgo.CodecZstd: kgo.ZstdCompression(),
	} {
		comp, err := kgo.DefaultCompressor(c)
		if err != nil {
			t.Fatal(err)
		}
		out[codec] = func(b []byte) []byte {
			var dst bytes.Buffer
			packed, got := comp.Compress(&dst, b)
			if got != codec {
				t.Fatalf("compressed by codec %d, want %d", got, codec)
			}
			return bytes.Clone(packed)
		}
	}
	return out
}

// genLog draws what a broker sends for an offset: from the batch that holds it on,
// batches of several producers, in transactions or not, compressed and compacted, cut
// off at the end; and those transactions of it that were aborted.
func genLog(t *rapid.T, pack map[kgo.CompressionCodecType]func([]byte) []byte) (raw []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction, from int64) {
	from = rapid.Int64Range(0, 40).Draw(t, "from")
	send := func(b []byte) {
		if cut, _, _ := cutBatch(b); cut.last >= from {
			raw = append(raw, b...)
		}
	}
	next := int64(rapid.IntRange(0, 5).Draw(t, "start"))
	open := map[int64]int64{} // first offset of a producer's transaction
	epoch := int32(0)
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		next += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 300_000}).Draw(t, "hole"))
		epoch += int32(rapid.IntRange(0, 1).Draw(t, "epoch"))
		producer := int64(rapid.IntRange(0, 2).Draw(t, "producer"))
		if first, ok := open[producer]; ok && rapid.Bool().Draw(t, "marker") {
			abort := rapid.Bool().Draw(t, "abort")
			key := []byte{0, 0, 0, 1}
			if abort {
				key[3] = 0
				if next >= from {
					aborted = append(aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: producer, FirstOffset: first})
				}
			}
			delete(open, producer)
			send(makeBatch(epoch, producer, transactional|control, []madeRecord{{offset: next, key: key, value: []byte{0, 0, 0, 0, 0, 0}}}, next, nil))
			next++
			continue
		}
		var recs []madeRecord
		first := next
		for range rapid.IntRange(0, 6).Draw(t, "records") {
			r := madeRecord{offset: next, time: rapid.Int64Range(-1, 1<<41).Draw(t, "time"), key: genBytes(t, "key"), value: genBytes(t, "value")}
			for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "headers") {
				r.headers = append(r.headers, Header{rapid.SampledFrom([]string{"", "a", "trace"}).Draw(t, "name"), genBytes(t, "header")})
			}
			recs = append(recs, r)
			next += int64(rapid.SampledFrom([]int{1, 1, 1, 2, 9}).Draw(t, "gap"))
		}
		attrs := int16(rapid.SampledFrom([]kgo.CompressionCodecType{kgo.CodecNone, kgo.CodecGzip, kgo.CodecSnappy, kgo.CodecLz4, kgo.CodecZstd}).Draw(t, "codec"))
		p := pack[kgo.CompressionCodecType(attrs)]
		id := int64(-1)
		if rapid.Bool().Draw(t, "transactional") {
			attrs |= transactional
			id = producer
			if _, ok := open[id]; !ok {
				open[id] = first
			}
		}
		if rapid.Bool().Draw(t, "append time") {
			attrs |= appendTime
		}
		last := max(first, next-1)
		send(makeBatch(epoch, id, attrs, recs, last, p))
		next = last + 1
	}
	// What is open at the end of what was sent may turn out as aborted.
	for id := range int64(3) {
		if first, ok := open[id]; ok && rapid.Bool().Draw(t, "aborted later") {
			aborted = append(aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: id, FirstOffset: first})
		}
	}
	cut := rapid.SampledFrom([]int{0, 0, 1, 40}).Draw(t, "cut")
	return raw[:max(0, len(raw)-cut)], rapid.Permutation(aborted).Draw(t, "aborted"), from
}

func genBytes(t *rapid.T, label string) []byte {
	switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte(strings.Repeat("ab", rapid.IntRange(0, 400).Draw(t, label+" length")))
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, label)
}

// readParcel reads all messages of what was fetched, from an offset on.
func readParcel(raw []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction, committed bool, from int64) ([]Message, error) {
	spare := &spare{max: 1 << 20}
	defer spare.close()
	b := batches{topic: "t", partition: 3, spare: spare}
	b.begin(&parcel{raw: raw, aborted: slices.Clone(aborted)}, committed)
	var out []Message
	for {
		m := Message{Topic: "t", Partition: 3}
		ok, err := b.next(&m, &interner{})
		if err != nil || !ok {
			return out, err
		}
		if m.Offset < from {
			continue
		}
		m.Time = timeOf(b.rs.time)
		m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
		m.Headers = slices.Clone(m.Headers)
		for i := range m.Headers {
			m.Headers[i].Value = bytes.Clone(m.Headers[i].Value)
		}
		out = append(out, m)
	}
}

// The client's own consumer must see the same messages in the same bytes, and
// want to go on at the same offset.
func TestBatchesAreTheClients(t *testing.T) {
	pack := packers(t)
	rapid.Check(t, func(t *rapid.T) {
		raw, aborted, from := genLog(t, pack)
		committed := rapid.Bool().Draw(t, "committed")
		level := kgo.ReadUncommitted()
		if committed {
			level = kgo.ReadCommitted()
		}
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.RecordBatches, rp.AbortedTransactions = 3, raw, slices.Clone(aborted)
		theirs, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from, IsolationLevel: level, Topic: "t", Partition: 3}, &rp, kgo.DefaultDecompressor(), nil)
		if theirs.Err != nil {
			t.Fatal(theirs.Err)
		}
		var want []Message
		for _, r := range theirs.Records {
			m := Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: timeOf(r.Timestamp.UnixMilli())}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, Header{h.Key, h.Value})
			}
			want = append(want, m)
		}
		got, err := readParcel(raw, aborted, committed, from)
		if err != nil {
			t.Fatal(err)
		}
		for i := range min(len(got), len(want)) {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("message %d is %+v, want %+v", i, got[i], want[i])
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d messages, want %d", len(got), len(want))
		}
		behind := from
		for rest := raw; ; {
			b, after, ok := cutBatch(rest)
			if !ok {
				break
			}
			behind, rest = max(behind, b.last+1), after
		}
		if behind != next {
			t.Fatalf("what comes next is offset %d, want %d", behind, next)
		}
	})
}

func TestDamagedBatches(t *testing.T) {
	value := []byte(strings.Repeat("value ", 20))
	made := func(change func(b []byte), sum bool) []byte {
		b := makeBatch(0, -1, 0, []madeRecord{{offset: 5, value: value}, {offset: 6, value: value}}, 7, nil)
		change(b)
		if sum {
			binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attrsAt:], castagnoli))
		}
		return b
	}
	for _, tt := range []struct {
		name string
		raw  []byte
		says string
	}{
		{"a bit", made(func(b []byte) { b[len(b)-9] ^= 1 }, false), "checksum"},
		{"the checksum", made(func(b []byte) { b[crcAt] ^= 1 }, false), "checksum"},
		{"more records than there are", made(func(b []byte) { b[countAt+3] = 3 }, true), "breaks off"},
		{"a negative number of records", made(func(b []byte) { b[countAt] = 0xff }, true), "last record"},
		{"fewer records than there are", made(func(b []byte) { b[countAt+3] = 1 }, true), "bytes follow"},
		{"a record that is too long", made(func(b []byte) { b[recordsAt] = 0x7e }, true), "breaks off"},
		{"a value that is too long", made(func(b []byte) { b[recordsAt+6], b[recordsAt+7] = 0xfe, 0x7f }, true), "breaks off"},
		{"an offset behind the last", made(func(b []byte) { b[lastAt+3] = 0 }, true), "can't be there"},
		{"a last offset before the first", made(func(b []byte) { b[lastAt] = 0xff }, true), "last offset"},
		{"a codec that isn't one", made(func(b []byte) { b[attrsAt+1] = 7 }, true), "codec 7"},
		{"what is no gzip", made(func(b []byte) { b[attrsAt+1] = 1 }, true), "can't be decompressed"},
		{"what is no snappy", made(func(b []byte) { b[attrsAt+1] = 2 }, true), "can't be decompressed"},
		{"what is no lz4", made(func(b []byte) { b[attrsAt+1] = 3 }, true), "can't be decompressed"},
		{"what is no zstd", made(func(b []byte) { b[attrsAt+1] = 4 }, true), "can't be decompressed"},
		{"a format of the future", made(func(b []byte) { b[formatAt] = 3 }, true), "format 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readParcel(tt.raw, nil, true, 0)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "topic t, partition 3, offsets 5 to") {
				t.Fatalf("error %v; want one about offset 5 and those behind it that says %q", err, tt.says)
			}
			if !saysTemporary(err) {
				t.Errorf("%v: it may be whole when it is fetched again, and doesn't say so", err)
			}
		})
	}
}

// Messages of formats before 2, which a broker from before 0.11 wrote.
func TestOldFormats(t *testing.T) {
	inner := func(magic int8, offset int64, attrs int8, key, value []byte) []byte {
		m := kmsg.MessageV1{Offset: offset, Magic: magic, Attributes: attrs, Timestamp: 1_500_000_000_000, Key: key, Value: value}
		b := m.AppendTo(nil)
		if magic == 0 {
			b = (&kmsg.MessageV0{Offset: offset, Attributes: attrs, Key: key, Value: value}).AppendTo(nil)
		}
		binary.BigEndian.PutUint32(b[lengthAt:], uint32(len(b)-epochAt))
		binary.BigEndian.PutUint32(b[epochAt:], crc32.ChecksumIEEE(b[formatAt:]))
		return b
	}
	pack := packers(t)
	set := append(inner(1, 0, 0, []byte("a"), []byte("A")), inner(1, 1, 0, nil, nil)...)
	raw := slices.Concat(inner(0, 3, 0, []byte("k"), []byte("old")), inner(1, 4, 0, nil, []byte("newer")),
		inner(1, 6, int8(kgo.CodecGzip), nil, pack[kgo.CodecGzip](set)), makeBatch(2, -1, 0, []madeRecord{{offset: 7, time: 1, value: []byte("new")}}, 7, nil))
	got, err := readParcel(raw, nil, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, m := range got {
		have = append(have, fmt.Sprintf("%d %q %q %d", m.Offset, m.Key, m.Value, m.Time.UnixMilli()))
	}
	zero := timeOf(-1).UnixMilli()
	want := []string{fmt.Sprintf(`3 "k" "old" %d`, zero), `4 "" "newer" 1500000000000`, `5 "a" "A" 1500000000000`, `6 "" "" 1500000000000`, `7 "" "new" 1`}
	if !slices.Equal(have, want) {
		t.Errorf("got\n%q, want\n%q", have, want)
	}
}

// Whatever bytes a broker sends: no panic, and nothing without an end.
func FuzzBatches(f *testing.F) {
	for codec, pack := range packers(f) {
		f.Add(makeBatch(0, 1, int16(codec)|transactional, []madeRecord{{offset: 1, key: []byte("k"), headers: []Header{{"h", nil}}}, {offset: 2, value: []byte("vvvvvvvvvvvvv")}}, 4, pack), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, sum bool) {
		if sum && len(raw) > recordsAt { // with a checksum that is right, what is behind it is read
			binary.BigEndian.PutUint32(raw[lengthAt:], uint32(len(raw)-epochAt))
			binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[attrsAt:], castagnoli))
		}
		got, err := readParcel(raw, []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1}}, sum, 0)
		for _, m := range got {
			if m.Offset < 0 && raw[0] < 0x80 && raw[formatAt] == 2 {
				t.Errorf("offset %d", m.Offset)
			}
		}
		if errors.Is(err, errTooLarge) {
			t.Errorf("%v is not about a batch", err)
		}
	})
}
