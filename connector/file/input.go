package file

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir"
)

// format is how a file's bytes are packed.
type format string

const (
	plain format = "plain"
	gz    format = "gzip"
	zst   format = "zstd"
)

func formatByName(path string) format {
	switch {
	case strings.HasSuffix(path, ".gz"):
		return gz
	case strings.HasSuffix(path, ".zst"):
		return zst
	}
	return plain
}

func formatByMagic(head []byte) format {
	switch {
	case len(head) >= 3 && string(head[:3]) == "\x1f\x8b\x08":
		return gz
	case len(head) >= 4 && (string(head[:4]) == "\x28\xb5\x2f\xfd" || head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18"):
		return zst
	}
	return plain
}

// input is the uncompressed data of one file.
type input struct {
	path   string
	format format
	f      *os.File
	size   int64 // of the file when it was opened
	raw    int64 // where in the file reading stands
	failed bool  // the file itself couldn't be read
	frames zstdFrames
	data   io.Reader
	free   func()
	closed bool
	watch  *watch // nil: the file ends where its end is reached
}

func openInput(path string) (*input, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("input file: %w", err)
	}
	in := &input{path: path, format: formatByName(path), f: f, free: func() {}}
	if err := in.start(); err != nil {
		_ = in.close() // only read from, so there is nothing to lose
		return nil, err
	}
	return in, nil
}

// start checks that the file is what its name says, and gets at its data.
func (in *input) start() error {
	info, err := in.f.Stat()
	if err != nil {
		return fmt.Errorf("input file: %w", err)
	}
	// Again, of what was opened: the name may have come to mean another file.
	if err := checkMode(in.path, info.Mode()); err != nil {
		return err
	}
	in.size = info.Size()
	var head [4]byte
	n, err := in.f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("input file: %w", err)
	}
	switch found := formatByMagic(head[:n]); {
	case found == in.format:
	case in.format == plain:
		return fmt.Errorf("%w: input file %q holds %s data, but its name doesn't end in %s; rename or decompress it", weir.ErrInput, in.path, found, suffix(found))
	case n == 0:
		return fmt.Errorf("%w: input file %q has a name for %s data, but is empty; correct the name, or get the file again",
			weir.ErrInput, in.path, in.format)
	default:
		return fmt.Errorf("%w: input file %q has a name for %s data, but begins with %x (%d bytes in all); correct the name, or get the file again",
			weir.ErrInput, in.path, in.format, head[:n], in.size)
	}
	if err := in.unpack(); err != nil {
		if in.failed {
			return fmt.Errorf("input file: %w", err)
		}
		return fmt.Errorf("%w: input file %q: its %s header is damaged: %w; get the file again", weir.ErrInput, in.path, in.format, noEOF(err))
	}
	return nil
}

// packedSize is how many bytes of a compressed file are read at a time.
const packedSize = 64 << 10

func (in *input) unpack() (err error) {
	raw := (*rawFile)(in)
	switch in.format {
	case plain:
		in.data = raw
	case gz:
		// klauspost's reader takes all streams of the file, and checks the
		// length and checksum of each.
		in.data, err = gzip.NewReader(bufio.NewReaderSize(raw, packedSize))
	case zst:
		// One at a time: no goroutine of its own, which somebody would have to
		// wait for.
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bufio.NewReaderSize(raw, packedSize), zstd.WithDecoderConcurrency(1)); err == nil {
			in.data, in.free = d, d.Close
		}
	}
	return err
}

func suffix(f format) string {
	if f == gz {
		return ".gz"
	}
	return ".zst"
}

// Read reads uncompressed data. io.EOF means that the file was whole.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.data.Read(p)
	if errors.Is(err, io.EOF) {
		switch {
		case in.watch != nil:
			err = in.watch.atEnd(in.raw)
		case in.format == plain && in.raw < in.size:
			err = fmt.Errorf("the file ends after %d bytes, but had %d when it was opened: it was truncated or replaced while it was read", in.raw, in.size)
		case in.format == zst && !in.frames.whole():
			// The decoder takes some of these for the end.
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// seek goes to an offset of a plain file and returns the byte before it.
func (in *input) seek(off int64) (last byte, err error) {
	if off > in.size {
		return 0, outOfRange(in.path, off, in.size)
	}
	var b [1]byte
	if _, err := in.f.ReadAt(b[:], off-1); err != nil {
		return 0, fmt.Errorf("input file: %w", noEOF(err))
	}
	if _, err := in.f.Seek(off, io.SeekStart); err != nil {
		return 0, fmt.Errorf("input file: %w", err)
	}
	in.raw = off
	return b[0], nil
}

// close may be repeated.
func (in *input) close() error {
	if in.closed {
		return nil
	}
	in.closed = true
	in.free()
	return in.f.Close()
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rawFile reads an input's file as it is, and keeps account of it.
type rawFile input

func (r *rawFile) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.raw += int64(n)
	if r.format == zst {
		r.frames.walk(p[:n])
	}
	r.failed = r.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
