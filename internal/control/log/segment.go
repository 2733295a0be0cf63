package log

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/weirstream/weir/internal/data"
	"github.com/weirstream/weir/internal/sys"
)

// A segment file, seg/INCARNATION-EPOCH-STAGE-INDEX-NONCE. Integers are little
// endian.
//
//	offset  size  field
//	0       8     magic "WEIR-SEG"
//	8       4     version, 1
//	12      4     zero
//	16      -     sections, one behind the other, to the end of the file
//
// The file says neither where a section begins nor what its checksum is: a
// manifest does, and without one a segment means nothing.
const (
	segmentMagic   = "WEIR-SEG"
	segmentVersion = 1
	segmentHead    = 16
	segmentBuffer  = 256 << 10
)

// SegmentPrefix begins the name of every segment, for Blobs.List.
const SegmentPrefix = "seg/"

// SegmentName returns the name of the segment that a task (STAGE/INDEX) of an
// incarnation writes for an epoch. The nonce is the incarnation's.
func SegmentName(incarnation, epoch int64, task, nonce string) string {
	return fmt.Sprintf("%s%d-%d-%s-%s", SegmentPrefix, incarnation, epoch, strings.ReplaceAll(task, "/", "-"), nonce)
}

// blobIncarnation returns the incarnation that the name of a segment or of an
// output log holds; ok is false where the name isn't one that SegmentName or
// OutputName makes.
func blobIncarnation(name string) (n int64, ok bool) {
	rest, ok := strings.CutPrefix(name, SegmentPrefix)
	if !ok {
		rest, ok = strings.CutPrefix(name, OutputPrefix)
	}
	if !ok {
		return 0, false
	}
	for _, c := range []byte(rest) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_' || c == '.') {
			return 0, false
		}
	}
	digits, _, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, false
	}
	u, err := strconv.ParseUint(digits, 10, 63)
	return int64(u), err == nil && u >= 1
}

// check looks at a file that is named in the folder prefix.
func (s Segment) check(prefix string) error {
	if _, ok := blobIncarnation(s.Name); !ok || !strings.HasPrefix(s.Name, prefix) {
		return fmt.Errorf("%q is no name of a file in %s", s.Name, prefix)
	}
	if sum, err := hex.DecodeString(s.SHA256); err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("segment %s has no SHA-256 but %q", s.Name, s.SHA256)
	}
	if s.Size < segmentHead {
		return fmt.Errorf("segment %s has %d bytes, fewer than its header", s.Name, s.Size)
	}
	return nil
}

// WriteSegment writes the parts that have entries into one new segment, which
// is durable on return. The refs are aligned with parts; that of a part
// without entries is zero. If no part has any, nothing is written and the
// Segment is zero. Every part is released, also after an error. No name is
// ever used twice; the caller sees to that. After an error the file may exist;
// no manifest names it, and so it is an orphan.
func WriteSegment(b sys.Blobs, name string, parts []data.Part) (Segment, []PartRef, error) {
	w := &segmentWriter{name: name, parts: parts, refs: make([]PartRef, len(parts))}
	defer func() { w.release(len(parts)) }()
	if _, ok := blobIncarnation(name); !ok {
		return Segment{}, nil, fmt.Errorf("write segment: %q is no name of a segment", name)
	}
	entries := 0
	for _, p := range parts {
		entries += p.Info().Entries
	}
	if entries == 0 {
		return Segment{}, w.refs, nil
	}
	err := b.PutIfAbsent(name, w.write)
	if err == nil && !w.complete {
		err = errors.New("the store didn't ask for the bytes")
	}
	if errors.Is(err, fs.ErrExist) && w.complete {
		err = w.settle(b, err)
	}
	if err != nil {
		return Segment{}, nil, fmt.Errorf("write segment %s: %w", name, err)
	}
	return w.segment, w.refs, nil
}

// segmentWriter is one WriteSegment on its way.
type segmentWriter struct {
	name     string
	parts    []data.Part
	refs     []PartRef
	released int
	begun    bool
	complete bool
	segment  Segment // once complete
}

// settle finds out whose file it is that the store, with taken, says exists:
// ours, if the answer to the first of two tries was lost.
func (w *segmentWriter) settle(b sys.Blobs, taken error) error {
	if _, err := ReadSegment(b, "", w.segment); err != nil {
		return fmt.Errorf("%w, and isn't what was to be written: %v", taken, err) //nolint:errorlint // it is the name that is taken; the rest is a detail
	}
	_, err := b.List(w.name) // syncs the folder, as the lost try may not have
	return err
}

// release releases the first n parts, each once.
func (w *segmentWriter) release(n int) {
	for ; w.released < n; w.released++ {
		w.parts[w.released].Release()
	}
}

func (w *segmentWriter) write(out io.Writer) error {
	if w.begun {
		return errors.New("a part can be encoded only once")
	}
	w.begun = true
	sum := &summer{out: out, hash: sha256.New()}
	buf := bufio.NewWriterSize(sum, segmentBuffer)
	if _, err := buf.Write(segmentHeader()); err != nil {
		return err
	}
	for i, p := range w.parts {
		info := p.Info()
		if info.Entries > 0 {
			off := sum.n + int64(buf.Buffered())
			if err := p.Encode(buf); err != nil {
				return fmt.Errorf("encode step %q: %w", info.Step, err)
			}
			n := sum.n + int64(buf.Buffered()) - off
			if n == 0 {
				return fmt.Errorf("encode step %q: %d entries made no bytes", info.Step, info.Entries)
			}
			// A merge knows how much it holds when it is done.
			w.refs[i] = PartRef{Segment: w.name, Off: off, Len: n, Entries: int64(p.Info().Entries)}
		}
		w.release(i + 1) // its memory serves the next epoch while this one is synced
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	w.segment = Segment{Name: w.name, Size: sum.n, SHA256: hex.EncodeToString(sum.hash.Sum(nil))}
	w.complete = true
	return nil
}

// summer hashes and counts what passes.
type summer struct {
	out  io.Writer
	hash hash.Hash
	n    int64
}

func (s *summer) Write(b []byte) (int, error) {
	n, err := s.out.Write(b)
	s.hash.Write(b[:n])
	s.n += int64(n)
	return n, err
}

func segmentHeader() []byte {
	h := make([]byte, segmentHead)
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[8:], segmentVersion)
	return h
}

// ReadSegment returns the bytes of a segment file, header included, once its
// size and checksum have proved to be those of the manifest. where is what
// errors call the store. A missing or differing file is a *CorruptError.
func ReadSegment(b sys.Blobs, where string, s Segment) ([]byte, error) {
	return readFile(b, where, s, segmentHeader(), "a segment")
}

// readFile is ReadSegment for any file with a header.
func readFile(b sys.Blobs, where string, s Segment, header []byte, what string) ([]byte, error) {
	file := fileName(where, s.Name)
	got, err := b.Get(s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &CorruptError{File: file, Expected: fmt.Sprintf("%d bytes with SHA-256 %s", s.Size, s.SHA256),
			Found: "no such file", Hint: hintRestore}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	sum := sha256.Sum256(got)
	if found := hex.EncodeToString(sum[:]); int64(len(got)) != s.Size || found != s.SHA256 {
		return nil, &CorruptError{File: file, Expected: fmt.Sprintf("%d bytes with SHA-256 %s", s.Size, s.SHA256),
			Found: fmt.Sprintf("%d bytes with SHA-256 %s", len(got), found), Hint: hintRestore}
	}
	// The checksum holds, so what follows can only be another version's file.
	if !bytes.HasPrefix(got, header) {
		return nil, &CorruptError{File: file, Expected: fmt.Sprintf("%s of version %d, which begins with %q", what,
			binary.LittleEndian.Uint32(header[8:]), header[:8]), Found: fmt.Sprintf("%q", got[:min(len(got), len(header))]), Hint: hintNewer}
	}
	return got, nil
}

// fileName is what errors call a blob of the store at where.
func fileName(where, name string) string {
	if where == "" {
		return name
	}
	return strings.TrimSuffix(where, "/") + "/" + name
}
