package kafka

import (
	"fmt"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/codec"
)

// clicks makes batches of clicks of about 115 bytes.
func clicks(batches, each int) (raw []byte, next int64) {
	for range batches {
		var recs []madeRecord
		for range each {
			v := fmt.Sprintf(`{"id":"%032d","ad_id":"ad-%05d","user":"user-%07d","ts":"2026-01-01T00:00:00.%09dZ"}`, next*7919, next%1000, next%100000, next)
			recs = append(recs, madeRecord{offset: next, time: 1767225600000 + next, key: []byte(v[7:39]), value: []byte(v)})
			next++
		}
		raw = append(raw, makeBatch(0, -1, int16(kgo.CodecSnappy), recs, next-1, func(b []byte) []byte { return s2.EncodeSnappy(nil, b) })...)
	}
	return raw, next
}

type counted struct{}

func (*counted) Decode(b []byte, v *int) error             { *v = len(b); return nil }
func (*counted) Encode(dst []byte, v *int) ([]byte, error) { return dst, nil }

// BenchmarkRead is the path of a record through the reader, without a network and
// without a codec; Client is the same by the client's own consumer's function.
func BenchmarkRead(b *testing.B) {
	raw, next := clicks(20, 500)
	b.Run("Reader", func(b *testing.B) {
		var c codec.Codec[int] = &counted{}
		s := newSource[int](NewCluster([]string{"x:1"}), Named("t"), nil)
		s.conf.require |= Value
		s.decode = func(m *Message, rec *int) error { return c.Decode(m.Value, rec) }
		f := &feed{conf: s.conf, spare: spare{max: s.conf.maxBatch}}
		f.share.Store(1 << 30)
		t := &tap{f: f, topic: "t", ready: make(chan struct{}, 1)}
		r := &reader[int]{s: s, t: t, stop: noEnd, pos: position{end: noEnd}, begun: true, in: batches{topic: "t", spare: &f.spare}}
		recs := make([]int, 0, 256)
		b.ReportAllocs()
		n := 0
		for n < b.N {
			t.parcels = append(t.parcels, &parcel{raw: raw, next: next})
			r.pos.offset = 0
			for {
				got, _, err := r.Read(recs[:0], 256)
				if err != nil {
					b.Fatal(err)
				}
				if n += len(got); len(got) == 0 {
					break
				}
			}
		}
	})
	b.Run("Client", func(b *testing.B) {
		b.ReportAllocs()
		pool := &pooled{}
		d := kgo.DefaultDecompressor(pool)
		var v int
		c := &counted{}
		for n := 0; n < b.N; {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.RecordBatches = raw
			got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Pools: []kgo.Pool{pool}}, &rp, d, nil)
			for _, r := range got.Records {
				if err := c.Decode(r.Value, &v); err != nil {
					b.Fatal(err)
				}
				r.Recycle()
			}
			n += len(got.Records)
		}
	})
}

// pooled is what a user of the client would write, for one goroutine.
type pooled struct {
	bytes [][]byte
	recs  [][]kgo.Record
}

func (p *pooled) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	if n := len(p.bytes); n > 0 {
		b := p.bytes[n-1]
		p.bytes = p.bytes[:n-1]
		return b
	}
	return make([]byte, 1<<20)
}
func (p *pooled) PutDecompressBytes(b []byte) { p.bytes = append(p.bytes, b) }
func (p *pooled) GetRecords(n int) []kgo.Record {
	if n := len(p.recs); n > 0 {
		b := p.recs[n-1]
		p.recs = p.recs[:n-1]
		return b
	}
	return make([]kgo.Record, n)
}
func (p *pooled) PutRecords(b []kgo.Record) { p.recs = append(p.recs, b) }
