package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errTooLarge says that something decompresses to more than it may.
var errTooLarge = errors.New("it decompresses to more than is allowed")

// decompressor unpacks batches, none to more than max bytes: whoever writes to a
// topic must not be able to take all of a job's memory. What the limit is
// compared with is known before so much is allocated. It is used by one goroutine at
// a time.
type decompressor struct {
	max int
	src bytes.Reader
	lim io.LimitedReader
	gz  *gzip.Reader
	lz  *lz4.Reader
	zst *zstd.Decoder
}

func (d *decompressor) close() {
	if d.zst != nil {
		d.zst.Close()
	}
}

// into appends what src decompresses to to dst, which is empty and may be
// replaced. After an error it returns dst.
func (d *decompressor) into(dst, src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	var out []byte
	var err error
	switch codec {
	case kgo.CodecGzip:
		out, err = d.gzip(dst, src)
	case kgo.CodecSnappy:
		out, err = d.snappy(dst, src)
	case kgo.CodecLz4:
		out, err = d.lz4(dst, src)
	case kgo.CodecZstd:
		out, err = d.zstd(dst, src)
	default:
		err = fmt.Errorf("compression codec %d isn't known", codec)
	}
	if err != nil {
		return dst, err
	}
	return out, nil
}

// Decompress makes it a kgo.Decompressor, for message sets of old formats.
func (d *decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecNone {
		return src, nil
	}
	return d.into(nil, src, codec)
}

func (d *decompressor) gzip(dst, src []byte) ([]byte, error) {
	d.src.Reset(src)
	var err error
	if d.gz == nil {
		d.gz, err = gzip.NewReader(&d.src)
	} else {
		err = d.gz.Reset(&d.src)
	}
	if err != nil {
		return nil, err
	}
	return d.stream(dst, d.gz)
}

func (d *decompressor) lz4(dst, src []byte) ([]byte, error) {
	d.src.Reset(src)
	if d.lz == nil {
		d.lz = lz4.NewReader(&d.src)
	} else {
		d.lz.Reset(&d.src)
	}
	return d.stream(dst, d.lz)
}

// stream reads all of r, unless it is too much.
func (d *decompressor) stream(dst []byte, r io.Reader) ([]byte, error) {
	d.lim = io.LimitedReader{R: r, N: int64(d.max) + 1}
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, max(512, min(len(dst), d.max+1-len(dst))))
		}
		n, err := d.lim.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > d.max:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return nil, err
		}
	}
}

// window is what a zstd frame may ask the decoder to look back, however small the
// limit is: encoders ask for some megabytes without needing them.
const window = 8 << 20

// zstd leaves the limit to the decoder, which compares it with the size that a
// frame declares and with what it has unpacked, whatever the frame declares.
func (d *decompressor) zstd(dst, src []byte) ([]byte, error) {
	if d.zst == nil {
		var err error
		d.zst, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(uint64(max(d.max, window))))
		if err != nil {
			return nil, err
		}
	}
	out, err := d.zst.DecodeAll(src, dst)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || err == nil && len(out) > d.max {
		return nil, errTooLarge
	}
	return out, err
}

// xerial is how a stream of snappy blocks begins that a Java producer has
// written. A version and the oldest compatible one follow, 4 bytes each; then
// blocks, each behind its length.
const xerial = "\x82SNAPPY\x00"

const xerialHeader = len(xerial) + 8

var errXerial = errors.New("its blocks of snappy data break off")

func (d *decompressor) snappy(dst, src []byte) ([]byte, error) {
	if len(src) < xerialHeader || string(src[:len(xerial)]) != xerial {
		return d.block(dst, src)
	}
	for src = src[xerialHeader:]; len(src) > 0; {
		if len(src) < 4 {
			return nil, errXerial
		}
		size := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(size) > uint64(len(src)) {
			return nil, errXerial
		}
		var err error
		if dst, err = d.block(dst, src[:size]); err != nil {
			return nil, err
		}
		src = src[size:]
	}
	return dst, nil
}

// block appends one block of snappy data, which declares its size.
func (d *decompressor) block(dst, src []byte) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > d.max-len(dst) {
		return nil, errTooLarge
	}
	dst = slices.Grow(dst, n)
	out, err := s2.Decode(dst[len(dst):len(dst)+n:len(dst)+n], src)
	if err != nil {
		return nil, err
	}
	return dst[:len(dst)+len(out)], nil
}
