package trial

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Entry is a file of a state directory's log: what of it matters here.
type Entry struct {
	Slot     int64
	ID       string
	Kind     uint32
	Manifest struct {
		Incarnation, Epoch int64
		Parent             string
		Finished           bool
		Segments           []struct{ Name string }
		Splits             []struct {
			Split   string
			Records int64
		}
		Slots []int64
		Blobs []string
	}
}

// The kinds of entries.
const (
	KindStart, KindCheckpoint, KindRetire = 1, 2, 3

	entryHead = 32
)

// ReadEntry reads a file of the log, as docs/formats.md has it.
func ReadEntry(path string) (e Entry, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if len(b) < entryHead+sha256.Size || string(b[:8]) != "WEIR-LOG" {
		return e, Failed("%s isn't a whole entry: %d bytes", path, len(b))
	}
	e.Kind, e.Slot = binary.LittleEndian.Uint32(b[12:]), int64(binary.LittleEndian.Uint64(b[16:]))
	sum := sha256.Sum256(b)
	e.ID = fmt.Sprintf("%d-%s", e.Slot, hex.EncodeToString(sum[:]))
	if e.Kind == KindStart {
		return e, nil
	}
	return e, json.Unmarshal(b[entryHead:len(b)-sha256.Size], &e.Manifest)
}

// Read is how many records of each split were read before the checkpoint.
func (e Entry) Read() map[string]int64 {
	read := map[string]int64{}
	for _, s := range e.Manifest.Splits {
		read[s.Split] = s.Records
	}
	return read
}

// Named takes the name of a segment or an output log apart:
// INCARNATION-EPOCH-REST.
func Named(name string) (incarnation, epoch int64, rest string) {
	parts := append(strings.SplitN(name, "-", 3), "", "")
	incarnation, _ = strconv.ParseInt(parts[0], 10, 64)
	epoch, _ = strconv.ParseInt(parts[1], 10, 64)
	return incarnation, epoch, parts[2]
}

// List returns the paths in a folder that may not be there yet, sorted.
func List(dir string) (paths []string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil // the next life will say what is wrong
	}
	for _, n := range names {
		paths = append(paths, filepath.Join(dir, n.Name()))
	}
	return paths
}

// CopyFile copies a file if it is there.
func CopyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
