package log

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/weirstream/weir/internal/sys"
)

// Stored is a segment where it lies, to be read piece by piece. What it gives is
// unverified: see VerifySegment.
type Stored struct {
	Blobs   sys.Blobs
	Segment Segment
}

// ReadAt implements io.ReaderAt.
func (s Stored) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Segment.Size-int64(len(p)) {
		return 0, fmt.Errorf("%w: %s has %d bytes, asked for %d from offset %d", io.ErrUnexpectedEOF, s.Segment.Name, s.Segment.Size, len(p), off)
	}
	b, err := s.Blobs.GetRange(s.Segment.Name, off, int64(len(p)))
	return copy(p, b), err
}

const verifyBytes = 1 << 20

// VerifySegment compares size and checksum of a segment file with those of the
// manifest, reading it in small pieces. A missing or differing file is a
// *CorruptError. where is what errors call the store.
func VerifySegment(b sys.Blobs, where string, s Segment) error {
	corrupt := func(found string) *CorruptError {
		return &CorruptError{File: fileName(where, s.Name), Expected: fmt.Sprintf("%d bytes with SHA-256 %s", s.Size, s.SHA256), Found: found, Hint: hintRestore}
	}
	sum := sha256.New()
	for off := int64(0); off < s.Size; off += verifyBytes {
		got, err := b.GetRange(s.Name, off, min(verifyBytes, s.Size-off))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			gone := corrupt("no such file")
			gone.Gone = true
			return gone
		case errors.Is(err, io.ErrUnexpectedEOF):
			return corrupt("fewer bytes")
		case err != nil:
			return fmt.Errorf("read %s: %w", fileName(where, s.Name), err)
		}
		sum.Write(got)
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != s.SHA256 {
		return corrupt("SHA-256 " + found)
	}
	return nil
}
