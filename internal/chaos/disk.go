package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// entry is a file of the log: what of it matters here.
type entry struct {
	slot     int64
	id       string
	kind     uint32
	manifest struct {
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
	entries []entry         // by slot
	files   map[string]bool // segments and output logs, as seg/... and out/...
	temps   [][]byte        // the first bytes of each temporary file
}

func readDisk(state string) (d disk, err error) {
	d.files = map[string]bool{}
	for _, path := range list(filepath.Join(state, "log")) {
		e, err := readEntry(path)
		if err != nil {
			return d, err
		}
		d.entries = append(d.entries, e)
	}
	for _, kind := range []string{"seg", "out"} {
		for _, path := range list(filepath.Join(state, kind)) {
			d.files[kind+"/"+filepath.Base(path)] = true
		}
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

func (d disk) halfRetired() bool {
	retire := d.newest(kindRetire)
	for _, b := range retire.manifest.Blobs {
		if d.files[b] {
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

// inTemp reports whether a file was being written that begins with a magic.
func (d disk) inTemp(magic string) bool {
	return slices.ContainsFunc(d.temps, func(head []byte) bool { return string(head) == magic })
}

// after reports whether there is a file of a kind of an incarnation for an epoch
// that has no entry. Names are KIND/INCARNATION-EPOCH-...
func (d disk) after(kind string, incarnation, epoch int64) bool {
	for name := range d.files {
		k, i, e, _ := parse(name)
		if k == kind && i == incarnation && e > epoch {
			return true
		}
	}
	return false
}

// merged reports whether there is a merge of an incarnation that no manifest has
// taken over yet. Names are seg/INCARNATION-EPOCH-merge-...
func (d disk) merged(incarnation int64) bool {
	named := map[string]bool{}
	for _, e := range d.entries {
		for _, s := range e.manifest.Segments {
			named[s.Name] = true
		}
	}
	for name := range d.files {
		k, i, _, rest := parse(name)
		if k == "seg" && i == incarnation && strings.HasPrefix(rest, "merge-") && !named[name] {
			return true
		}
	}
	return false
}

func parse(name string) (kind string, incarnation, epoch int64, rest string) {
	kind, name, _ = strings.Cut(name, "/")
	parts := append(strings.SplitN(name, "-", 3), "", "")
	incarnation, _ = strconv.ParseInt(parts[0], 10, 64)
	epoch, _ = strconv.ParseInt(parts[1], 10, 64)
	return kind, incarnation, epoch, parts[2]
}

// started counts the incarnations since a slot: one process can have several.
func (d disk) started(before int64) (n int) {
	for _, e := range d.entries {
		if e.kind == kindStart && e.slot > before {
			n++
		}
	}
	return n
}
