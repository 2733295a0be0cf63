package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// entry is a file of the log in a state directory: what of it matters here.
type entry struct {
	slot     int64
	id       string
	kind     uint32
	manifest struct {
		Incarnation, Epoch int64
		Parent             string
		Splits             []struct {
			Split   string
			Records int64
		}
	}
}

const (
	kindStart, kindCheckpoint = 1, 2

	entryHead = 32
)

// read is how many records of each split were read before the checkpoint.
func (e entry) read() map[string]int64 {
	read := map[string]int64{}
	for _, s := range e.manifest.Splits {
		read[s.Split] = s.Records
	}
	return read
}

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

// store is a state directory: the log's entries by slot.
type store struct {
	dir     string
	entries []entry
}

// readStore reads a state directory that may be in use: what goes meanwhile is
// left out. The jobs retain every checkpoint, so that none of these goes.
func readStore(dir string) (store, error) {
	s := store{dir: dir}
	for _, path := range list(filepath.Join(dir, "log")) {
		e, err := readEntry(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		s.entries = append(s.entries, e)
	}
	return s, nil
}

func (s store) checkpoint(id string) (entry, bool) {
	for _, e := range s.entries {
		if e.kind == kindCheckpoint && e.id == id {
			return e, true
		}
	}
	return entry{}, false
}

// incarnation is the newest start entry's slot, 0: there is none.
func (s store) incarnation() (slot int64) {
	for _, e := range s.entries {
		if e.kind == kindStart {
			slot = e.slot
		}
	}
	return slot
}

// entered counts the checkpoint entries of an incarnation and says which epoch
// the last of them is.
func (s store) entered(incarnation int64) (n int, epoch int64) {
	epoch = -1
	for _, e := range s.entries {
		if e.kind == kindCheckpoint {
			epoch = e.manifest.Epoch
			if e.manifest.Incarnation == incarnation {
				n++
			}
		}
	}
	return n, epoch
}

// sealed reports whether there are segments or output logs of an incarnation
// for an epoch without an entry: its barrier is out. Their names begin with
// INCARNATION-EPOCH-.
func (s store) sealed(incarnation, epoch int64) bool {
	for _, kind := range []string{"seg", "out"} {
		for _, path := range list(filepath.Join(s.dir, kind)) {
			parts := append(strings.SplitN(filepath.Base(path), "-", 3), "", "")
			i, _ := strconv.ParseInt(parts[0], 10, 64)
			e, _ := strconv.ParseInt(parts[1], 10, 64)
			if i == incarnation && e > epoch && !strings.HasPrefix(parts[2], "merge-") {
				return true
			}
		}
	}
	return false
}

// list returns the paths in a folder that may not be there yet, sorted.
func list(dir string) (paths []string) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil // the next life will say what is wrong
	}
	for _, n := range names {
		paths = append(paths, filepath.Join(dir, n.Name()))
	}
	return paths
}
