package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// framed packs into blocks as a Java producer does.
func framed(b []byte, block int) []byte {
	out := append([]byte(xerial), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(b) > 0 {
		n := min(block, len(b))
		packed := s2.EncodeSnappy(nil, b[:n])
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(packed))), packed...)
		b = b[n:]
	}
	return out
}

// streamed packs without saying before how large it is.
func streamed(t testing.TB, b []byte, opts ...zstd.EOption) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err == nil {
		_, err = w.Write(b)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// wrappings are the ways in which a batch may be compressed.
func wrappings(t testing.TB, b []byte) map[string]struct {
	codec kgo.CompressionCodecType
	raw   []byte
} {
	type wrapping = struct {
		codec kgo.CompressionCodecType
		raw   []byte
	}
	pack := packers(t)
	out := map[string]wrapping{
		"xerial":               {kgo.CodecSnappy, framed(b, 32<<10)},
		"xerial in one block":  {kgo.CodecSnappy, framed(b, len(b)+1)},
		"zstd without a size":  {kgo.CodecZstd, streamed(t, b)},
		"zstd, a large window": {kgo.CodecZstd, streamed(t, b, zstd.WithWindowSize(8<<20))},
		"zstd in two frames":   {kgo.CodecZstd, append(streamed(t, b[:len(b)/2]), streamed(t, b[len(b)/2:])...)},
	}
	for _, c := range []kgo.CompressionCodecType{kgo.CodecGzip, kgo.CodecSnappy, kgo.CodecLz4, kgo.CodecZstd} {
		out[fmt.Sprintf("codec %d", c)] = wrapping{c, pack[c](b)}
		if c == kgo.CodecGzip {
			out["gzip in two streams"] = wrapping{c, append(pack[c](b[:len(b)/2]), pack[c](b[len(b)/2:])...)}
		}
	}
	return out
}

func TestDecompress(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("0123456789", 100_000)} {
		for name, w := range wrappings(t, []byte(text)) {
			d := &decompressor{max: len(text)}
			t.Cleanup(d.close)
			for round, dst := range [][]byte{nil, make([]byte, 0, 10), make([]byte, 0, 2_000_000)} {
				got, err := d.into(dst, w.raw, w.codec)
				if err != nil || string(got) != text {
					t.Errorf("%s, %d bytes, round %d: %d bytes, %v", name, len(text), round, len(got), err)
				}
			}
		}
	}
}

// A few kilobytes that become a gigabyte: the limit counts before there is so much,
// and what is in the way of it is given back.
func TestDecompressNoMoreThanTheLimit(t *testing.T) {
	const limit = 1 << 20
	bomb := make([]byte, 64<<20)
	for name, w := range wrappings(t, bomb) {
		t.Run(name, func(t *testing.T) {
			d := &decompressor{max: limit}
			t.Cleanup(d.close)
			if got, err := d.into(nil, w.raw, w.codec); !errors.Is(err, errTooLarge) || len(got) > 0 {
				t.Fatalf("%d bytes and error %v; want %v", len(got), err, errTooLarge)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := d.into(nil, w.raw, w.codec); !errors.Is(err, errTooLarge) {
				t.Fatalf("error %v; want %v", err, errTooLarge)
			}
			runtime.ReadMemStats(&after)
			// A zstd decoder may have to look back as far as its window, whatever the limit.
			if took := after.TotalAlloc - before.TotalAlloc; took > 8*window {
				t.Errorf("%d bytes were allocated for %d compressed ones and a limit of %d", took, len(w.raw), limit)
			}
		})
	}
	for name, w := range wrappings(t, make([]byte, limit+1)) {
		d := &decompressor{max: limit}
		t.Cleanup(d.close)
		if _, err := d.into(nil, w.raw, w.codec); !errors.Is(err, errTooLarge) {
			t.Errorf("%s of one byte more than the limit: %v", name, err)
		}
	}
	for name, w := range wrappings(t, make([]byte, limit)) {
		d := &decompressor{max: limit}
		t.Cleanup(d.close)
		if got, err := d.into(nil, w.raw, w.codec); err != nil || len(got) != limit {
			t.Errorf("%s of just the limit: %d bytes, %v", name, len(got), err)
		}
	}
}

// A frame that lies about its size isn't believed before there is so much.
func TestDecompressLies(t *testing.T) {
	block := binary.AppendUvarint(nil, 1<<40)
	for name, raw := range map[string][]byte{
		"snappy":           append(block, 0),
		"xerial":           append(append([]byte(xerial), 0, 0, 0, 1, 0, 0, 0, 1), 0xff, 0xff, 0xff, 0xff, 1),
		"xerial, cut":      append(append([]byte(xerial), 0, 0, 0, 1, 0, 0, 0, 1), 0, 0),
		"xerial, of lies":  append(append([]byte(xerial), 0, 0, 0, 1, 0, 0, 0, 1), append([]byte{0, 0, 0, byte(len(block))}, block...)...),
		"an empty message": {},
	} {
		d := &decompressor{max: 1 << 20}
		t.Cleanup(d.close)
		if got, err := d.into(nil, raw, kgo.CodecSnappy); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
}

// What the client unpacks is unpacked to the same, and nothing makes it panic.
func FuzzDecompress(f *testing.F) {
	for _, w := range wrappings(f, []byte("some text, some text, some more text")) {
		f.Add(int8(w.codec), w.raw)
	}
	client := kgo.DefaultDecompressor()
	f.Fuzz(func(t *testing.T, codec int8, raw []byte) {
		d := &decompressor{max: 1 << 16}
		t.Cleanup(d.close)
		c := kgo.CompressionCodecType(codec & 7)
		got, err := d.into(nil, raw, c)
		if len(got) > d.max {
			t.Fatalf("%d bytes", len(got))
		}
		if c == kgo.CodecNone || errors.Is(err, errTooLarge) || len(raw) > 1<<12 || len(raw) == xerialHeader {
			return // the client doesn't take no blocks for none
		}
		want, theirs := client.Decompress(raw, c)
		if (err == nil) != (theirs == nil) || err == nil && !bytes.Equal(got, want) {
			t.Errorf("codec %d: %d bytes and error %v; the client has %d and %v", c, len(got), err, len(want), theirs)
		}
	})
}
