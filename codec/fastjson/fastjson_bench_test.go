package fastjson_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/codec"
	"github.com/weirstream/weir/codec/fastjson"
)

// clicks are what the click job reads, and writes.
type (
	clickTime struct {
		ID   string    `json:"click_id"`
		Ad   string    `json:"ad_id"`
		User string    `json:"user_id"`
		At   time.Time `json:"ts"`
	}
	clickMillis struct {
		ID string `json:"click_id"`
		Ad string `json:"ad_id"`
		At int64  `json:"ts"`
	}
	adMinute struct {
		Ad     string `json:"ad_id"`
		Minute string `json:"minute"`
		Clicks int64  `json:"clicks"`
	}
)

// documents are clicks that differ, as they do in a topic: what a codec remembers
// from one record to the next must not look better than it is.
func documents(format string) (docs [][]byte) {
	for i := range 4096 {
		docs = append(docs, fmt.Appendf(nil, format, i*2654435761&0xfffffffffff, i%1000, i%7000, i%60, i%1000))
	}
	return docs
}

const (
	timeFormat   = `{"click_id":"c%011x","ad_id":"ad-%d","user_id":"u%04d","ts":"2026-03-01T11:59:%02d.%03dZ"}`
	millisFormat = `{"click_id":"c%011x","ad_id":"ad-%d","ts":17%05[3]d%02[4]d%03[5]d}`
)

func benchmarkDecode[T any](b *testing.B, c codec.Codec[T], docs [][]byte) {
	bytes := 0
	for _, d := range docs {
		bytes += len(d)
	}
	b.SetBytes(int64(bytes / len(docs)))
	b.ReportAllocs()
	var v T
	for i := 0; b.Loop(); i++ {
		if err := c.Decode(docs[i%len(docs)], &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	b.Run("default/time", func(b *testing.B) { benchmarkDecode(b, codec.JSON[clickTime](), documents(timeFormat)) })
	b.Run("fast/time", func(b *testing.B) { benchmarkDecode(b, fastjson.JSON[clickTime](), documents(timeFormat)) })
	b.Run("default/millis", func(b *testing.B) { benchmarkDecode(b, codec.JSON[clickMillis](), documents(millisFormat)) })
	b.Run("fast/millis", func(b *testing.B) { benchmarkDecode(b, fastjson.JSON[clickMillis](), documents(millisFormat)) })
}

func benchmarkEncode[T any](b *testing.B, c codec.Codec[T], v T) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		var err error
		if buf, err = c.Encode(buf[:0], &v); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkEncode(b *testing.B) {
	counts := adMinute{"ad-77", "2026-01-01T00:00:00Z", 17}
	b.Run("default/counts", func(b *testing.B) { benchmarkEncode(b, codec.JSON[adMinute](), counts) })
	b.Run("fast/counts", func(b *testing.B) { benchmarkEncode(b, fastjson.JSON[adMinute](), counts) })
	click := clickTime{"cc2e2ac0090ab2e", "ad-77", "u0946", time.Date(2026, 3, 1, 11, 59, 46, 2e8, time.UTC)}
	b.Run("default/click", func(b *testing.B) { benchmarkEncode(b, codec.JSON[clickTime](), click) })
	b.Run("fast/click", func(b *testing.B) { benchmarkEncode(b, fastjson.JSON[clickTime](), click) })
}
