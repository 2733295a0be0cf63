package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// phase is what a process was at when it was killed, as far as that can be seen
// afterwards: on the disk, and by whether it had said that it starts to read,
// which it does before the first record. What leaves no trace isn't guessed: a
// barrier that is out but of which nothing has been written yet is "reading",
// and a commit whose rows are all in the database's log before the database has
// confirmed them is a commit that happened.
type phase struct{ name, says string }

var (
	starting   = phase{"starting", "no start entry in the log yet"}
	genesis    = phase{"genesis", "a start entry, and no ledger that names a checkpoint"}
	fencing    = phase{"fencing", "a start entry, and the ledgers are the earlier start's"}
	restoring  = phase{"restoring", "the ledgers are claimed, the first record wasn't read"}
	reading    = phase{"reading", "none of the others: no trace of a barrier"}
	rows       = phase{"rows", "a transaction was half written, without an entry: eager rows"}
	segments   = phase{"segments", "a barrier was out: segments, or parts of them, without an entry"}
	entering   = phase{"entering", "an entry was being written, and isn't in the log"}
	undecided  = phase{"undecided", "the entry of a checkpoint that no ledger names"}
	committing = phase{"committing", "the same, and its transaction was half written"}
	retiring   = phase{"retiring", "a retire entry, and some of what it lists is still there"}
	ending     = phase{"ending", "the last checkpoint was committed, the process was still there"}

	phases = []phase{starting, genesis, fencing, restoring, reading, rows, segments, entering, undecided, committing, retiring, ending}
)

// entry is a file of the log: what of it matters here.
type entry struct {
	slot     int64
	id       string
	kind     uint32
	manifest struct {
		Incarnation, Epoch int64
		Finished           bool
		Splits             []struct {
			Split   string
			Records int64
		}
		Slots []int64
		Blobs []string
	}
}

const (
	kindStart, kindCheckpoint, kindRetire = 1, 2, 3

	entryHead = 32
)

// readEntry reads a file of the log.
func readEntry(path string) (e entry, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if len(b) < entryHead+sha256.Size || string(b[:8]) != "WEIR-LOG" {
		return e, failed("%s isn't a whole entry: %d bytes", path, len(b))
	}
	e.kind, e.slot = binary.LittleEndian.Uint32(b[12:]), int64(binary.LittleEndian.Uint64(b[16:]))
	sum := sha256.Sum256(b)
	e.id = fmt.Sprintf("%d-%s", e.slot, hex.EncodeToString(sum[:]))
	if e.kind == kindStart {
		return e, nil
	}
	return e, json.Unmarshal(b[entryHead:len(b)-sha256.Size], &e.manifest)
}

// disk is a state directory after a kill.
type disk struct {
	entries  []entry // by slot
	segments map[string]bool
	temps    [][]byte // the first bytes of each temporary file
}

func readDisk(state string) (d disk, err error) {
	d.segments = map[string]bool{}
	for _, path := range list(filepath.Join(state, "log")) {
		e, err := readEntry(path)
		if err != nil {
			return d, err
		}
		d.entries = append(d.entries, e)
	}
	for _, path := range list(filepath.Join(state, "seg")) {
		d.segments["seg/"+filepath.Base(path)] = true
	}
	for _, path := range list(filepath.Join(state, "tmp")) {
		b, err := os.ReadFile(path)
		if err != nil {
			return d, err
		}
		d.temps = append(d.temps, b[:min(len(b), 8)])
	}
	return d, nil
}

// list returns the paths in a folder that may not be there yet, sorted.
func list(dir string) []string {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil // the next life will say what is wrong
	}
	var paths []string
	for _, n := range names {
		paths = append(paths, filepath.Join(dir, n.Name()))
	}
	return paths
}

// newest returns the newest entry of a kind, or one with slot 0.
func (d disk) newest(kind uint32) (newest entry) {
	for _, e := range d.entries {
		if e.kind == kind {
			newest = e
		}
	}
	return newest
}

func (d disk) byID(id string) (entry, bool) {
	for _, e := range d.entries {
		if e.kind == kindCheckpoint && e.id == id {
			return e, true
		}
	}
	return entry{}, false
}

// phase says what the process was at. before is the log's last slot when it was
// started, read whether it had said that it reads, torn whether the database's
// log holds a half-written transaction.
func (d disk) phase(db database, before int64, read, torn bool) phase {
	me := d.newest(kindStart).slot
	last := d.newest(kindCheckpoint)
	switch {
	case me <= before:
		return starting
	case db.named == "":
		return genesis
	case db.incarnation != me:
		return fencing
	case !read:
		return restoring
	case last.manifest.Incarnation == me && last.id != db.named && torn:
		return committing
	case last.manifest.Incarnation == me && last.id != db.named:
		return undecided
	case d.halfRetired():
		return retiring
	case d.entryInTemp():
		return entering
	case len(d.temps) > 0 || d.segmentsAfter(me, last.manifest.Epoch):
		return segments
	case last.manifest.Finished:
		return ending
	case torn:
		return rows
	}
	return reading
}

func (d disk) halfRetired() bool {
	retire := d.newest(kindRetire)
	for _, b := range retire.manifest.Blobs {
		if d.segments[b] {
			return true
		}
	}
	for _, slot := range retire.manifest.Slots {
		for _, e := range d.entries {
			if e.slot == slot {
				return true
			}
		}
	}
	return false
}

func (d disk) entryInTemp() bool {
	for _, head := range d.temps {
		if string(head) == "WEIR-LOG" {
			return true
		}
	}
	return false
}

// segmentsAfter reports whether there is a segment of an incarnation for an
// epoch that has no entry. Names are seg/INCARNATION-EPOCH-...
func (d disk) segmentsAfter(incarnation, epoch int64) bool {
	for name := range d.segments {
		parts := strings.SplitN(strings.TrimPrefix(name, "seg/"), "-", 3)
		if len(parts) < 3 {
			continue
		}
		i, _ := strconv.ParseInt(parts[0], 10, 64)
		e, _ := strconv.ParseInt(parts[1], 10, 64)
		if i == incarnation && e > epoch {
			return true
		}
	}
	return false
}

// tornWAL reports whether SQLite's write-ahead log ends in a transaction that
// isn't whole: frames behind the last commit frame that belong to this round of
// the log, by their salts and the running checksum, or a part of a frame.
//
// The log: a header of 32 bytes (magic, version, page size, sequence, two
// salts, two checksums), then frames of a 24-byte header (page, size of the
// database after a commit or 0, the salts, the checksum so far) and a page. All
// big endian; the lowest bit of the magic says how the checksum reads words.
func tornWAL(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 32 {
		return false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if b[3]&1 == 1 {
		order = binary.BigEndian
	}
	page := int(binary.BigEndian.Uint32(b[8:]))
	salts := b[16:24]
	sum := checksum(order, [2]uint32{}, b[:24])
	torn := false
	for f := b[32:]; len(f) >= 24 && bytes.Equal(f[8:16], salts); f = f[24+page:] {
		if len(f) < 24+page {
			return true
		}
		sum = checksum(order, checksum(order, sum, f[:8]), f[24:24+page])
		if sum != [2]uint32{binary.BigEndian.Uint32(f[16:]), binary.BigEndian.Uint32(f[20:])} {
			break // left from a transaction that was torn before
		}
		torn = binary.BigEndian.Uint32(f[4:]) == 0
	}
	return torn
}

func checksum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}
