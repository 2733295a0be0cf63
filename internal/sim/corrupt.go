package sim

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// What follows is done to a disk from outside, by a fault or by a hand, and is
// durable at once. Names are paths on the disk, as in a trace.

// Names returns the paths of all files, sorted.
func (d *Disk) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []string{}
	var walk func(dir string, f *folder)
	walk = func(dir string, f *folder) {
		for name, n := range f.now {
			at := path.Join(dir, name)
			if n.folder != nil {
				walk(at, n.folder)
				continue
			}
			all = append(all, at)
		}
	}
	walk("", d.root)
	slices.Sort(all)
	return all
}

// ReadAll returns a copy of a file's content.
func (d *Disk) ReadAll(name string) ([]byte, error) {
	var b []byte
	err := d.outside("read", name, func(f *file) error {
		b = bytes.Clone(f.data)
		return nil
	})
	return b, err
}

// Flip flips a bit of a file, counted from 0: bit 9 is the second of the
// second byte. A negative one counts from the end.
func (d *Disk) Flip(name string, bit int) error {
	return d.outside("flip a bit of", name, func(f *file) error {
		if bit < 0 {
			bit += 8 * len(f.data)
		}
		if bit < 0 || bit >= 8*len(f.data) {
			return fmt.Errorf("no such bit in %d bytes: %w", len(f.data), fs.ErrInvalid)
		}
		f.data = bytes.Clone(f.data)
		f.data[bit/8] ^= 1 << (bit % 8)
		return nil
	})
}

// Truncate cuts a file to its first n bytes. A negative n counts from the end.
func (d *Disk) Truncate(name string, n int) error {
	return d.outside("truncate", name, func(f *file) error {
		if n < 0 {
			n += len(f.data)
		}
		if n < 0 || n > len(f.data) {
			return fmt.Errorf("it has only %d bytes: %w", len(f.data), fs.ErrInvalid)
		}
		f.data, f.synced, f.lost = f.data[:n:n], n, nil
		return nil
	})
}

// Remove removes one name of a file.
func (d *Disk) Remove(name string) error {
	return d.outside("remove", name, func(*file) error {
		in, err := d.folder(path.Dir(name))
		if err != nil {
			return err
		}
		delete(in.now, path.Base(name))
		delete(in.stable, path.Base(name))
		d.changes = slices.DeleteFunc(d.changes, func(c *change) bool {
			c.sets = slices.DeleteFunc(c.sets, func(s set) bool { return s.entry == entry{in, path.Base(name)} })
			return len(c.sets) == 0
		})
		return nil
	})
}

func (d *Disk) outside(op, name string, do func(*file) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.file(name)
	if err == nil {
		err = do(f)
	}
	if err != nil {
		return failed(op, name, err)
	}
	return nil
}
