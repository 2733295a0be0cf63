package sim

import (
	"fmt"
	"math/rand/v2"
)

// Keep chooses what of the volatile state survives, the same each time.
type Keep struct {
	kind keepKind
	seed uint64
}

type keepKind int

const (
	killed keepKind = iota
	lost
	kept
	names
	zeros
	random
)

// Killed is the end of a process without a power loss: all stays as it was,
// and what was volatile still is. Two crashes in a row need it.
func Killed() Keep { return Keep{kind: killed} }

// Lost is a power loss that takes all that is volatile.
func Lost() Keep { return Keep{kind: lost} }

// Kept is a power loss that takes nothing, but for bytes whose sync failed.
func Kept() Keep { return Keep{kind: kept} }

// Names is a power loss that takes all unsynced bytes and no name: files are
// there, and shorter than they were.
func Names() Keep { return Keep{kind: names} }

// Zeros is a power loss that takes no name and no size, and leaves zeros for
// all unsynced bytes.
func Zeros() Keep { return Keep{kind: zeros} }

// Random is a power loss that takes a random part of the changes to names, in
// any order, and leaves of each file's unsynced bytes all, none, a first part
// of any length or of whole 512-byte blocks, with or without zeros behind it.
func Random(seed uint64) Keep { return Keep{kind: random, seed: seed} }

// Images returns every kind of Keep, with Random for each of the seeds.
func Images(seeds ...uint64) []Keep {
	all := []Keep{Killed(), Lost(), Kept(), Names(), Zeros()}
	for _, seed := range seeds {
		all = append(all, Random(seed))
	}
	return all
}

// String names the kind, with its seed.
func (k Keep) String() string {
	switch k.kind {
	case killed:
		return "killed"
	case lost:
		return "all lost"
	case kept:
		return "all kept"
	case names:
		return "names kept"
	case zeros:
		return "zeros"
	}
	return fmt.Sprintf("random(%d)", k.seed)
}

// Image returns a copy of the disk as it is found after a crash. After a power
// loss all of it is durable. Nobody holds a lock on the copy, and the original
// stays as it is, so that one crash can have many images.
func (d *Disk) Image(keep Keep) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &copier{keep: keep, files: map[*file]*file{}, folders: map[*folder]*folder{}}
	to := &Disk{seq: d.seq, locks: map[*file]*Machine{}}
	to.root = c.folder(d.root)
	for _, from := range d.changes {
		if keep.kind != killed && !keep.change(from.seq) {
			continue
		}
		ch := &change{seq: from.seq, home: c.folder(from.home)}
		for _, s := range from.sets {
			s = set{entry{c.folder(s.in), s.name}, c.node(s.to)}
			ch.sets = append(ch.sets, s)
			if keep.kind != killed {
				put(s.in.stable, s.name, s.to)
			}
		}
		to.changes = append(to.changes, ch)
	}
	if keep.kind == killed {
		return to
	}
	to.changes = nil
	for _, f := range c.folders {
		for name, n := range f.stable {
			f.now[name] = n
		}
	}
	return to
}

// copier copies what it is asked for once, so that two names of one file stay
// two names of one file.
type copier struct {
	keep    Keep
	files   map[*file]*file
	folders map[*folder]*folder
}

func (c *copier) folder(f *folder) *folder {
	if f == nil {
		return nil
	}
	if to := c.folders[f]; to != nil {
		return to
	}
	to := newFolder()
	c.folders[f] = to
	for name, n := range f.stable {
		to.stable[name] = c.node(n)
	}
	if c.keep.kind == killed {
		for name, n := range f.now {
			to.now[name] = c.node(n)
		}
	}
	return to
}

func (c *copier) node(n node) node { return node{c.file(n.file), c.folder(n.folder)} }

func (c *copier) file(f *file) *file {
	if f == nil {
		return nil
	}
	if to := c.files[f]; to != nil {
		return to
	}
	to := &file{seq: f.seq, data: f.data[:len(f.data):len(f.data)], synced: f.synced}
	c.files[f] = to
	if c.keep.kind == killed {
		to.lost = append(to.lost, f.lost...)
		return to
	}
	whole, size := c.keep.tail(f)
	if size > whole || len(f.lost) > 0 {
		to.data = make([]byte, size)
		copy(to.data, f.data[:whole])
		for _, s := range f.lost {
			clear(to.data[min(s.from, size):min(s.to, size)])
		}
	}
	to.data = to.data[:size:size]
	to.synced = size
	return to
}

// tail says how much of a file survives, and how long the file then is.
func (k Keep) tail(f *file) (whole, size int) {
	all := len(f.data)
	switch k.kind {
	case lost, names:
		return f.synced, f.synced
	case zeros:
		return f.synced, all
	case random:
		return k.torn(f)
	}
	return all, all
}

func (k Keep) torn(f *file) (whole, size int) {
	rng := k.rng(f.seq)
	all := len(f.data)
	choice := rng.IntN(6)
	cut := f.synced + rng.IntN(all-f.synced+1)
	switch choice {
	case 0:
		return all, all
	case 1:
		return f.synced, f.synced
	case 2:
		return cut, cut
	case 3:
		return cut, all
	}
	cut = max(f.synced, cut/512*512)
	if choice == 4 {
		return cut, cut
	}
	return cut, all
}

// change says whether a change of names survives.
func (k Keep) change(seq uint64) bool {
	if k.kind != random {
		return k.kind != lost
	}
	// Few, half or most of them: losing exactly one finds other faults than
	// losing half of them does.
	often := [...]float64{0.15, 0.5, 0.85}[k.seed%3]
	return k.rng(seq).Float64() < often
}

// rng gives each file and change choices of its own, which don't depend on the
// order in which a map is walked.
func (k Keep) rng(seq uint64) *rand.Rand { return rand.New(rand.NewPCG(k.seed, seq)) }
