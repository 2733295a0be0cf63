package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// store is a state directory: the log's entries by slot.
type store struct {
	dir     string
	entries []trial.Entry
}

// readStore reads a state directory that may be in use: what goes meanwhile is
// left out. The jobs retain every checkpoint, so that none of these goes.
func readStore(dir string) (store, error) {
	s := store{dir: dir}
	for _, path := range trial.List(filepath.Join(dir, "log")) {
		e, err := trial.ReadEntry(path)
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

func (s store) checkpoint(id string) (trial.Entry, bool) {
	for _, e := range s.entries {
		if e.Kind == trial.KindCheckpoint && e.ID == id {
			return e, true
		}
	}
	return trial.Entry{}, false
}

// incarnation is the newest start entry's slot, 0: there is none.
func (s store) incarnation() (slot int64) {
	for _, e := range s.entries {
		if e.Kind == trial.KindStart {
			slot = e.Slot
		}
	}
	return slot
}

// entered counts the checkpoint entries of an incarnation and says which epoch
// the last of them is.
func (s store) entered(incarnation int64) (n int, epoch int64) {
	epoch = -1
	for _, e := range s.entries {
		if e.Kind == trial.KindCheckpoint {
			epoch = e.Manifest.Epoch
			if e.Manifest.Incarnation == incarnation {
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
		for _, path := range trial.List(filepath.Join(s.dir, kind)) {
			i, e, rest := trial.Named(filepath.Base(path))
			if i == incarnation && e > epoch && !strings.HasPrefix(rest, "merge-") {
				return true
			}
		}
	}
	return false
}
