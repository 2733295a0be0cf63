package rig

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pool keeps what fetched records are made of, for the next ones.
type pool struct{ bytes, recs sync.Pool }

var (
	_ kgo.PoolDecompressBytes = (*pool)(nil)
	_ kgo.PoolRecords         = (*pool)(nil)
)

// GetDecompressBytes returns bytes to decompress into.
func (p *pool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, 4*len(compressed))
}

// PutDecompressBytes takes them back.
func (p *pool) PutDecompressBytes(b []byte) { p.bytes.Put(&b) }

// GetRecords returns records to fill.
func (p *pool) GetRecords(n int) []kgo.Record {
	if r, ok := p.recs.Get().(*[]kgo.Record); ok {
		return *r
	}
	return make([]kgo.Record, n)
}

// PutRecords takes them back.
func (p *pool) PutRecords(r []kgo.Record) { p.recs.Put(&r) }
