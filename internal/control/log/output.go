package log

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/weirstream/weir/internal/sys"
)

// An output log, out/INCARNATION-EPOCH-PARTICIPANT-NONCE: what a participant
// needs in order to be rolled forward to a checkpoint. Integers are little
// endian.
//
//	offset  size  field
//	0       8     magic "WEIR-OUT"
//	8       4     version, 1
//	12      4     zero
//	16      -     the participant's own bytes, to the end of the file
//
// Size and checksum are in the manifest of the checkpoint, as for a segment.
const (
	outputMagic   = "WEIR-OUT"
	outputVersion = 1
	outputHead    = 16
)

// OutputPrefix begins the name of every output log, for Blobs.List.
const OutputPrefix = "out/"

// InlineOutput is the most bytes for a participant that stand in the manifest
// itself. More has a file of its own.
const InlineOutput = 4 << 10

// OutputName returns the name of the output log of an incarnation's n-th
// participant for an epoch. The nonce is the incarnation's.
func OutputName(incarnation, epoch int64, n int, nonce string) string {
	return fmt.Sprintf("%s%d-%d-%d-%s", OutputPrefix, incarnation, epoch, n, nonce)
}

// WriteOutput writes an output log, which is durable on return. No name is ever
// used twice; the caller sees to that. After an error the file may exist; no
// manifest names it, and so it is an orphan.
func WriteOutput(b sys.Blobs, name string, output []byte) (Segment, error) {
	if _, ok := blobIncarnation(name); !ok {
		return Segment{}, fmt.Errorf("write output log: %q is no name of one", name)
	}
	sum := sha256.New()
	sum.Write(outputHeader())
	sum.Write(output)
	s := Segment{Name: name, Size: outputHead + int64(len(output)), SHA256: hex.EncodeToString(sum.Sum(nil))}
	err := b.PutIfAbsent(name, func(w io.Writer) error {
		_, err := w.Write(outputHeader())
		if err == nil {
			_, err = w.Write(output)
		}
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		// Ours lies there if the answer to the first of two tries was lost.
		if _, other := ReadOutput(b, "", s); other != nil {
			err = fmt.Errorf("%w, and isn't what was to be written: %v", err, other) //nolint:errorlint // it is the name that is taken; the rest is a detail
		} else {
			_, err = b.List(name) // syncs the folder, as the lost try may not have
		}
	}
	if err != nil {
		return Segment{}, fmt.Errorf("write output log %s: %w", name, err)
	}
	return s, nil
}

// ReadOutput returns what WriteOutput was given, once size and checksum of the
// file have proved to be those of the manifest. where is what errors call the
// store. A missing or differing file is a *CorruptError.
func ReadOutput(b sys.Blobs, where string, s Segment) ([]byte, error) {
	got, err := readFile(b, where, s, outputHeader(), "an output log")
	if err != nil {
		return nil, err
	}
	return got[outputHead:], nil
}

func outputHeader() []byte {
	h := make([]byte, outputHead)
	copy(h, outputMagic)
	binary.LittleEndian.PutUint32(h[8:], outputVersion)
	return h
}
