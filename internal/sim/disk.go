package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// Disk is a tree of folders and files, each as running processes see it and as
// it is on the medium. What differs is volatile: bytes that were written but
// not synced, and changes to a folder's names that no syncdir of it followed.
// A name and the bytes behind it become durable independently.
type Disk struct {
	mu    sync.Mutex
	root  *folder
	limit int    // bytes that files may have; 0: any
	seq   uint64 // of the next file or change, for choices that a seed repeats
	locks map[*file]*Machine
	// changes are those that aren't durable, oldest first.
	changes []*change
}

// file is an inode: it may have several names, or none any more.
type file struct {
	seq    uint64
	data   []byte // only ever appended to, so that images can share it
	synced int    // data[:synced] is on the medium
	// lost are parts whose sync failed. They are never written, not even by a
	// later sync, although processes go on reading them from the cache.
	lost []span
}

type span struct{ from, to int }

type folder struct {
	now    map[string]node // as processes see it
	stable map[string]node // on the medium
}

// node is what a name stands for: a file or a folder, or nothing.
type node struct {
	file   *file
	folder *folder
}

// change is what happens to names, as a whole or not at all. It is durable
// after a syncdir of home: for a rename that is the folder of the new name.
type change struct {
	seq  uint64
	home *folder
	sets []set
}

type set struct {
	entry
	to node
}

type entry struct {
	in   *folder
	name string
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	return &Disk{root: newFolder(), locks: map[*file]*Machine{}}
}

func newFolder() *folder { return &folder{now: map[string]node{}, stable: map[string]node{}} }

// SetSize sets how many bytes the files that have a name may have in all: writing
// more is ENOSPC. 0, as a new disk has it: any.
func (d *Disk) SetSize(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = bytes
}

// Used returns how many bytes the files that have a name have in all.
func (d *Disk) Used() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used()
}

func (d *Disk) used() int {
	n, seen := 0, map[*file]bool{}
	var walk func(*folder)
	walk = func(in *folder) {
		for _, at := range in.now {
			if at.folder != nil {
				walk(at.folder)
			} else if !seen[at.file] {
				seen[at.file] = true
				n += len(at.file.data)
			}
		}
	}
	walk(d.root)
	return n
}

// takes reports whether there is room for an effect.
func (d *Disk) takes(a act) bool {
	return d.limit == 0 || a.size == 0 || d.used()+a.size <= d.limit
}

func (d *Disk) next() uint64 {
	d.seq++
	return d.seq
}

func (d *Disk) apply(home *folder, sets ...set) {
	for _, s := range sets {
		put(s.in.now, s.name, s.to)
	}
	d.changes = append(d.changes, &change{d.next(), home, sets})
}

func put(names map[string]node, name string, to node) {
	if to == (node{}) {
		delete(names, name)
		return
	}
	names[name] = to
}

// at finds what a path stands for.
func (d *Disk) at(name string) (node, error) {
	n := node{folder: d.root}
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n.folder == nil {
			return node{}, errNoFolder
		}
		var ok bool
		if n, ok = n.folder.now[part]; !ok {
			return node{}, fs.ErrNotExist
		}
	}
	return n, nil
}

func (d *Disk) folder(name string) (*folder, error) {
	n, err := d.at(name)
	if err == nil && n.folder == nil {
		err = errNoFolder
	}
	return n.folder, err
}

func (d *Disk) file(name string) (*file, error) {
	n, err := d.at(name)
	if err == nil && n.file == nil {
		err = errNoFile
	}
	return n.file, err
}

var (
	errNoFolder = fmt.Errorf("a file is where a folder should be: %w", fs.ErrInvalid)
	errNoFile   = fmt.Errorf("it is a folder: %w", fs.ErrInvalid)
	errInUse    = fmt.Errorf("the folder isn't empty: %w", fs.ErrInvalid)
)

// free finds the place of a new name.
func (d *Disk) free(name string) (entry, error) {
	in, err := d.folder(path.Dir(name))
	if err != nil {
		return entry{}, err
	}
	e := entry{in, path.Base(name)}
	if _, taken := in.now[e.name]; taken || name == "." {
		return e, fs.ErrExist
	}
	return e, nil
}

func (d *Disk) create(name string) (*file, error) {
	e, err := d.free(name)
	if err != nil {
		return nil, err
	}
	f := &file{seq: d.next()}
	d.apply(e.in, set{e, node{file: f}})
	return f, nil
}

func (d *Disk) link(from, to string) error {
	f, err := d.file(from)
	if err != nil {
		return err
	}
	e, err := d.free(to)
	if err != nil {
		return err
	}
	d.apply(e.in, set{e, node{file: f}})
	return nil
}

func (d *Disk) rename(from, to string) error {
	f, err := d.file(from)
	if err != nil {
		return err
	}
	e, err := d.free(to)
	if err != nil && (!errors.Is(err, fs.ErrExist) || e.in == nil || e.in.now[e.name].folder != nil) {
		return err
	}
	old, err := d.folder(path.Dir(from))
	if err != nil {
		return err
	}
	d.apply(e.in, set{entry{old, path.Base(from)}, node{}}, set{e, node{file: f}})
	return nil
}

func (d *Disk) remove(name string) error {
	n, err := d.at(name)
	switch {
	case err != nil:
		return err
	case n.folder == d.root, n.folder != nil && len(n.folder.now) > 0:
		return errInUse
	}
	in, err := d.folder(path.Dir(name))
	if err != nil {
		return err
	}
	d.apply(in, set{entry{in, path.Base(name)}, node{}})
	return nil
}

// mkdir makes a folder and those above it, or only the topmost missing one.
func (d *Disk) mkdir(name string, topmost bool) error {
	if name == "." {
		return nil
	}
	in, at := d.root, ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		n, ok := in.now[part]
		if ok && n.folder == nil {
			return fmt.Errorf("%s: %w", at, errNoFolder)
		}
		if !ok {
			n = node{folder: newFolder()}
			d.apply(in, set{entry{in, part}, n})
			if topmost {
				return nil
			}
		}
		in = n.folder
	}
	return nil
}

// syncDir makes the changes at home in a folder durable, or the older half of
// them, each with every older change of the same names: a change at home
// elsewhere that came in later would undo the newer one.
func (d *Disk) syncDir(name string, half bool) error {
	home, err := d.folder(name)
	if err != nil {
		return err
	}
	var ours []*change
	for _, c := range d.changes {
		if c.home == home {
			ours = append(ours, c)
		}
	}
	if half {
		ours = ours[:len(ours)/2]
	}
	chosen := map[*change]bool{}
	for _, c := range ours {
		chosen[c] = true
	}
	touched := map[entry]bool{}
	for _, c := range slices.Backward(d.changes) { // newest first: what a change needs lies behind it
		if !chosen[c] && !slices.ContainsFunc(c.sets, func(s set) bool { return touched[s.entry] }) {
			continue
		}
		chosen[c] = true
		for _, s := range c.sets {
			touched[s.entry] = true
		}
	}
	d.persist(chosen)
	return nil
}

// persist moves changes to the medium, oldest first.
func (d *Disk) persist(chosen map[*change]bool) {
	d.changes = slices.DeleteFunc(d.changes, func(c *change) bool {
		if chosen[c] {
			for _, s := range c.sets {
				put(s.in.stable, s.name, s.to)
			}
		}
		return chosen[c]
	})
}

// sync makes a file's bytes durable, or the first half of those that aren't.
func (f *file) sync(half bool) {
	if half {
		f.synced += (len(f.data) - f.synced) / 2
		return
	}
	f.synced = len(f.data)
}

// lose is a sync that failed: the cache is marked clean, the medium isn't.
func (f *file) lose() {
	from := f.synced
	if n := len(f.lost); n > 0 {
		from = max(from, f.lost[n-1].to)
	}
	if from < len(f.data) {
		f.lost = append(f.lost, span{from, len(f.data)})
	}
}
