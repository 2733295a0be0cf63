package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/internal/chaos/trial"
)

// folder is what a reader of the files sees, from one kill to the next: a file
// that was there once stays, and stays what it was.
type folder struct {
	dir  string
	each bool // every update is a line; otherwise only the last of an epoch
	seen map[string]seenFile
}

type seenFile struct {
	sum   [sha256.Size]byte
	lines []line
}

// line is one of a file.
type line struct {
	cell
	clicks int64
}

// published is a file that a reader sees.
type published struct {
	name, prefix, id string
	epoch            int64
	task             int
	lines            []line
}

var fileName = regexp.MustCompile(`^(minute-files|total-files)-(\d{12})-(\d{3,})-(\d+-[0-9a-f]{64})\.jsonl$`)

// look reads the folder. The state directory says which epoch the checkpoint is
// that the ledger names: the files up to that one are all there.
func (f *folder) look(d disk) (c contents, err error) {
	c.rows, c.shown = table{}, table{}
	if err := f.ledger(&c); err != nil {
		return c, err
	}
	epoch := int64(-1)
	if e, ok := d.byID(c.named); ok {
		epoch = e.Manifest.Epoch
	}
	files, err := f.published()
	if err != nil {
		return c, err
	}
	for _, p := range files {
		if p.epoch <= epoch {
			continue
		}
		if !slices.Contains(c.ahead, p.id) {
			c.ahead = append(c.ahead, p.id)
		}
	}
	return c, f.count(&c, files, epoch)
}

// published reads every file, in the order of their epochs.
func (f *folder) published() ([]published, error) {
	var files []published
	there := map[string]bool{}
	for _, path := range trial.List(f.dir) {
		name := filepath.Base(path)
		if name[0] == '.' || name[0] == '_' {
			continue
		}
		m := fileName.FindStringSubmatch(name)
		if m == nil {
			return nil, trial.Failed("a reader finds %s", path)
		}
		lines, err := f.read(path, name, m[1] == "total-files")
		if err != nil {
			return nil, err
		}
		there[name] = true
		p := published{name: name, prefix: m[1], id: m[4], lines: lines}
		p.epoch, _ = strconv.ParseInt(m[2], 10, 64)
		p.task, _ = strconv.Atoi(m[3])
		files = append(files, p)
	}
	for name := range f.seen {
		if !there[name] {
			return nil, trial.Failed("%s was there, and is gone", filepath.Join(f.dir, name))
		}
	}
	slices.SortFunc(files, func(a, b published) int {
		return cmp.Or(strings.Compare(a.prefix, b.prefix), cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.task, b.task))
	})
	for i, p := range files {
		if i > 0 && p.prefix == files[i-1].prefix && p.epoch == files[i-1].epoch && p.id != files[i-1].id {
			return nil, trial.Failed("epoch %d was published twice: %s and %s", p.epoch, files[i-1].name, p.name)
		}
	}
	return files, nil
}

// read returns the lines of a file, which must be whole.
func (f *folder) read(path, name string, total bool) ([]line, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if old, ok := f.seen[name]; ok {
		if old.sum != sum {
			return nil, trial.Failed("%s has changed since it was published", path)
		}
		return old.lines, nil
	}
	if len(b) == 0 || b[len(b)-1] != '\n' {
		return nil, trial.Failed("%s isn't whole: it has %d bytes", path, len(b))
	}
	var lines []line
	for text := range bytes.Lines(b) {
		var l struct {
			Ad     string `json:"ad_id"`
			Minute string `json:"minute"`
			Clicks int64  `json:"clicks"`
		}
		if err := json.Unmarshal(text, &l); err != nil || l.Ad == "" || (l.Minute == "") != total {
			return nil, trial.Failed("%s has the line %q: %v", path, text, err)
		}
		lines = append(lines, line{cell{l.Ad, l.Minute}, l.Clicks})
	}
	f.seen[name] = seenFile{sum, lines}
	return lines, nil
}

// count follows each key from file to file. Where every update is a line its
// counts are 1, 2, 3 and so on; otherwise they rise, once in an epoch.
func (f *folder) count(c *contents, files []published, named int64) error {
	at := map[cell]int64{} // the epoch of the last line
	for _, p := range files {
		for _, l := range p.lines {
			old := c.shown[l.cell]
			if l.clicks <= old || f.each && l.clicks != old+1 {
				return trial.Failed("%s says %d of %v, after %d: a line was lost, repeated, or came out of turn", p.name, l.clicks, l.cell, old)
			}
			if e, ok := at[l.cell]; ok && e == p.epoch && !f.each {
				return trial.Failed("epoch %d has two lines of %v, the second in %s", p.epoch, l.cell, p.name)
			}
			at[l.cell] = p.epoch
			c.shown[l.cell] = l.clicks
			if p.epoch <= named {
				c.rows[l.cell] = l.clicks
			}
		}
	}
	return nil
}

// ledger reads what the ledger says, and whether there are parts that are whole
// and not published.
func (f *folder) ledger(c *contents) error {
	runs, _ := filepath.Glob(filepath.Join(f.dir, ".weir", "run-*")) // the pattern is a good one
	if len(runs) > 1 {
		return trial.Failed("the folder has the ledgers of several runs: %q", runs)
	}
	var claim, state string // the last ones: their names sort as they follow each other
	for _, run := range runs {
		for _, path := range trial.List(filepath.Join(run, "ledger")) {
			if strings.HasSuffix(path, "-000000000000") {
				claim = path
			} else {
				state = path
			}
		}
	}
	if claim == "" {
		return nil
	}
	e, err := readLedger(claim)
	if err != nil {
		return err
	}
	c.incarnation = e.Incarnation
	for _, path := range trial.List(filepath.Join(runs[0], "stage", strconv.FormatInt(c.incarnation, 10))) {
		c.sealed = c.sealed || !strings.HasSuffix(path, ".open")
	}
	if state == "" {
		return nil
	}
	if e, err = readLedger(state); err != nil {
		return err
	}
	if len(e.Rows) != 2 || e.Rows[0].Checkpoint != e.Rows[1].Checkpoint {
		return trial.Failed("the two ledgers are one entry, but %s says %v", state, e.Rows)
	}
	c.named = e.Rows[0].Checkpoint
	return nil
}

type ledgerEntry struct {
	Incarnation int64
	Rows        []struct{ Sink, Checkpoint string }
}

// readLedger reads an entry of the folder's ledger, which is never half written.
func readLedger(path string) (e ledgerEntry, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	body := len(b) - sha256.Size
	if body < 16 || string(b[:8]) != "WEIR-LDG" || int(binary.LittleEndian.Uint32(b[12:])) != body-16 ||
		sha256.Sum256(b[:body]) != [sha256.Size]byte(b[body:]) {
		return e, trial.Failed("%s isn't a whole entry: %d bytes", path, len(b))
	}
	return e, errors.Join(json.Unmarshal(b[16:body], &e))
}
