package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/weirstream/weir/internal/chaos/trial"
)

// sink is where counts go besides a topic: a database or a folder of files.
type sink interface {
	// check holds what a reader sees to what it must be: each count lies between
	// low and high, which are equal once the job is at its end.
	check(v *verdict, low, high table) error
}

func (j *job) newSinks() (all []sink) {
	if j.recipe.db {
		all = append(all, database{j.path("counts.db"), j.path("copy.db")})
	}
	if j.recipe.files {
		all = append(all, folder{j.path("files")})
	}
	return all
}

// database is an SQLite database with the table ad_minute.
type database struct{ path, scratch string }

func (d database) check(v *verdict, low, high table) error {
	got, _, err := d.read()
	if err == nil {
		between(v, filepath.Base(d.path), got, low, high)
	}
	return err
}

// read reads a copy, so that the next life finds the original as it was left, and
// returns the checkpoint that its ledgers name as well.
func (d database) read() (rows table, named string, err error) {
	rows = table{}
	for _, suffix := range []string{"", "-wal"} {
		if err := trial.CopyFile(d.path+suffix, d.scratch+suffix); err != nil {
			return nil, "", err
		}
	}
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if e := os.Remove(d.scratch + suffix); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if _, err := os.Stat(d.scratch); err != nil {
		return rows, "", nil // the job hasn't made it yet
	}
	db, err := sql.Open("sqlite", "file:"+d.scratch)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables, name := map[string]bool{}, ""
	if err := trial.Each(db, "SELECT name FROM sqlite_schema", func() { tables[name] = true }, &name); err != nil {
		return nil, "", err
	}
	var k cell
	var n int64
	if tables["ad_minute"] {
		err = trial.Each(db, "SELECT ad_id, minute, clicks FROM ad_minute", func() { rows[k] = n }, &k.ad, &k.minute, &n)
	}
	if err == nil && tables["weir_ledger"] {
		err = trial.Each(db, "SELECT checkpoint FROM weir_ledger", func() {}, &named)
	}
	return rows, named, err
}

// folder is files of JSON lines with each count that has changed in an epoch.
type folder struct{ dir string }

func (f folder) check(v *verdict, low, high table) error {
	got := table{}
	for _, path := range trial.List(f.dir) { // in the order of the epochs
		if filepath.Base(path)[0] == '.' || strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			var l struct {
				Ad     string `json:"ad_id"`
				Minute string `json:"minute"`
				Clicks int64  `json:"clicks"`
			}
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				return trial.Failed("%s has the line %q: %v", path, s.Text(), err)
			}
			k := cell{l.Ad, l.Minute}
			if l.Clicks <= got[k] {
				v.note(&v.dup, "%s: %s = %d, behind %d", filepath.Base(path), k.key(), l.Clicks, got[k])
				continue
			}
			got[k] = l.Clicks
		}
	}
	between(v, "files", got, low, high)
	return nil
}

// between holds counts to the lowest and the highest that they may be.
func between(v *verdict, where string, got, low, high table) {
	v.records += len(got)
	for k, n := range low {
		if got[k] < n {
			v.note(&v.lost, "%s: %s = %d: should be at least %d", where, k.key(), got[k], n)
		}
	}
	for k, n := range got {
		if n > high[k] {
			v.note(&v.changed, "%s: %s = %d: should be at most %d", where, k.key(), n, high[k])
		}
	}
}
