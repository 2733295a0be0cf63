package file

import (
	"fmt"
	"strings"
	"testing"
)

// Frames put together by hand from the byte tables of RFC 8878, so that each
// form of header is there; their blocks need not decode to anything.
func TestZstdFrames(t *testing.T) {
	const magic = "\x28\xb5\x2f\xfd"
	block := func(last bool, kind, size int) string {
		h := size<<3 | kind<<1
		if last {
			h |= 1
		}
		n := size
		if kind == 1 {
			n = 1
		}
		return string([]byte{byte(h), byte(h >> 8), byte(h >> 16)}) + strings.Repeat("b", n)
	}
	frames := []string{
		"\x50\x2a\x4d\x18\x00\x00\x00\x00",
		"\x5f\x2a\x4d\x18\x05\x00\x00\x00" + "12345",
		magic + "\x00" + "w" + block(true, 0, 0),
		magic + "\x04" + "w" + block(true, 0, 3) + "sum.",
		magic + "\x20" + "1" + block(true, 1, 100_000),
		magic + "\x24" + "1" + block(false, 2, 300) + block(false, 1, 7) + block(true, 0, 1) + "sum.",
		magic + "\x41" + "w" + "d" + "12" + block(true, 0, 1),
		magic + "\x82" + "w" + "dd" + "1234" + block(true, 2, 2),
		magic + "\xc3" + "w" + "dddd" + "12345678" + block(true, 0, 1),
		magic + "\xe3" + "dddd" + "12345678" + block(true, 0, 1),
	}
	for _, size := range []int{1, 2, 3, 7, 1 << 20} {
		var z zstdFrames
		for i, f := range frames {
			for at := 0; at < len(f); at += size {
				if at > 0 && z.whole() {
					t.Fatalf("frame %d taken for whole after %d of %d bytes", i, at, len(f))
				}
				z.walk([]byte(f[at:min(at+size, len(f))]))
			}
			if !z.whole() {
				t.Fatalf("frame %d, in pieces of %d: its end was not seen: %+v", i, size, z)
			}
		}
	}
}

// A split that is short needs a short buffer, and a long line no longer one
// than it may be.
func TestBufferSizes(t *testing.T) {
	for _, tt := range []struct {
		size int64
		f    format
		want int
	}{{0, plain, 4 << 10}, {100 << 10, plain, 100<<10 + 1}, {1 << 30, plain, bufferSize}, {100, gz, bufferSize}} {
		t.Run(fmt.Sprint(tt.size, tt.f), func(t *testing.T) {
			if got := len(newScanner(&input{format: tt.f, size: tt.size}, DefaultMaxLine, false).buf); got != tt.want {
				t.Errorf("buffer of %d bytes, want %d", got, tt.want)
			}
		})
	}
	in := &input{format: plain, size: 1 << 40, raw: 1 << 40, data: endlessLine{}}
	s := newScanner(in, 1_000_000, false)
	if _, _, err := s.next(); err == nil || len(s.buf) != 1_000_002 {
		t.Errorf("a line without end: error %v, buffer of %d bytes", err, len(s.buf))
	}
}

type endlessLine struct{}

func (endlessLine) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
