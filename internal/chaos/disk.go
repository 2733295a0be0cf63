package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// disk is a state directory after a kill.
type disk struct {
	entries []trial.Entry   // by slot
	files   map[string]bool // segments and output logs, as seg/... and out/...
	temps   [][]byte        // the first bytes of each temporary file
}

func readDisk(state string) (d disk, err error) {
	d.files = map[string]bool{}
	for _, path := range trial.List(filepath.Join(state, "log")) {
		e, err := trial.ReadEntry(path)
		if err != nil {
			return d, err
		}
		d.entries = append(d.entries, e)
	}
	for _, kind := range []string{"seg", "out"} {
		for _, path := range trial.List(filepath.Join(state, kind)) {
			d.files[kind+"/"+filepath.Base(path)] = true
		}
	}
	for _, path := range trial.List(filepath.Join(state, "tmp")) {
		b, err := os.ReadFile(path)
		if err != nil {
			return d, err
		}
		d.temps = append(d.temps, b[:min(len(b), 8)])
	}
	return d, nil
}

// newest returns the newest entry of a kind, or one with slot 0.
func (d disk) newest(kind uint32) (newest trial.Entry) {
	for _, e := range d.entries {
		if e.Kind == kind {
			newest = e
		}
	}
	return newest
}

func (d disk) byID(id string) (trial.Entry, bool) {
	for _, e := range d.entries {
		if e.Kind == trial.KindCheckpoint && e.ID == id {
			return e, true
		}
	}
	return trial.Entry{}, false
}

func (d disk) halfRetired() bool {
	retire := d.newest(trial.KindRetire)
	for _, b := range retire.Manifest.Blobs {
		if d.files[b] {
			return true
		}
	}
	for _, slot := range retire.Manifest.Slots {
		for _, e := range d.entries {
			if e.Slot == slot {
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
		for _, s := range e.Manifest.Segments {
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
	incarnation, epoch, rest = trial.Named(name)
	return kind, incarnation, epoch, rest
}

// started counts the incarnations since a slot: one process can have several.
func (d disk) started(before int64) (n int) {
	for _, e := range d.entries {
		if e.Kind == trial.KindStart && e.Slot > before {
			n++
		}
	}
	return n
}
