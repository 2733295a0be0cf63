package sim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/sys"
)

// files is a folder of a machine's disk.
type files struct {
	m      *Machine
	dir    string // path on the disk
	closed bool   // guarded by the disk's mutex
}

// openFiles makes a folder as sys.OpenFiles does, by the same effects: the
// lowest folder that is there is synced from above, and then each made is.
func (m *Machine) openFiles(dir string) (sys.Files, error) {
	name := strings.Trim(path.Clean(filepath.ToSlash(dir)), "/")
	if name == "" {
		name = "."
	}
	if !fs.ValidPath(name) {
		return nil, failed("open folder", dir, fs.ErrInvalid)
	}
	if err := m.makeFolder(&files{m: m, dir: "."}, name); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", name, err)
	}
	return &files{m: m, dir: name}, nil
}

// viewFiles opens a folder that is there, which is no effect.
func (m *Machine) viewFiles(dir string) (sys.Files, error) {
	name := strings.Trim(path.Clean(filepath.ToSlash(dir)), "/")
	if name == "" {
		name = "."
	}
	err := m.read("open folder", name, func() error {
		_, err := m.disk.folder(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &files{m: m, dir: name}, nil
}

func (m *Machine) makeFolder(root *files, name string) error {
	err := m.read("open folder", name, func() error {
		_, err := m.disk.folder(name)
		return err
	})
	if name == "." {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = m.makeFolder(root, path.Dir(name)); err == nil {
			err = root.Mkdir(name)
		}
	}
	if err != nil {
		return err
	}
	return root.SyncDir(path.Dir(name))
}

// path returns where on the disk name is, for traces too, and what is wrong
// with using it.
func (f *files) path(name string) (string, error) {
	if !fs.ValidPath(name) {
		return name, fs.ErrInvalid
	}
	return path.Join(f.dir, name), nil
}

// effect runs an effect on one path. A name that can't be one is none.
func (f *files) effect(op Op, name string, do func(at string) error, half func(at string)) error {
	at, err := f.path(name)
	if err != nil {
		return failed(string(op), name, err)
	}
	a := act{op: op, name: at, do: func() error { return f.open(func() error { return do(at) }) }}
	if half != nil {
		a.half = func() { half(at) }
	}
	return f.m.effect(a)
}

func (f *files) open(do func() error) error {
	if f.closed {
		return fs.ErrClosed
	}
	return do()
}

// effect2 runs an effect on two paths.
func (f *files) effect2(op Op, from, to string, do func(from, to string) error) error {
	old, err := f.path(from)
	name, err2 := f.path(to)
	if err = errors.Join(err, err2); err != nil {
		return failed(string(op), to, err)
	}
	return f.m.effect(act{op: op, name: name, from: old,
		do: func() error { return f.open(func() error { return do(old, name) }) }})
}

func (f *files) read(op, name string, do func(at string) error) error {
	at, err := f.path(name)
	if err != nil {
		return failed(op, name, err)
	}
	return f.m.read(op, at, func() error { return f.open(func() error { return do(at) }) })
}

func (f *files) Create(name string) (sys.File, error) {
	h := &handle{m: f.m, writes: true}
	err := f.effect(OpCreate, name, func(at string) (err error) {
		h.name = at
		h.file, err = f.m.disk.create(at)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (f *files) Open(name string) (sys.File, error) {
	h := &handle{m: f.m}
	err := f.read("open", name, func(at string) (err error) {
		h.name = at
		h.file, err = f.m.disk.file(at)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (f *files) Link(from, to string) error { return f.effect2(OpLink, from, to, f.m.disk.link) }

func (f *files) Rename(from, to string) error { return f.effect2(OpRename, from, to, f.m.disk.rename) }

func (f *files) Remove(name string) error { return f.effect(OpRemove, name, f.m.disk.remove, nil) }

func (f *files) Mkdir(name string) error {
	return f.effect(OpMkdir, name,
		func(at string) error { return f.m.disk.mkdir(at, false) },
		func(at string) { _ = f.m.disk.mkdir(at, true) })
}

func (f *files) SyncDir(dir string) error {
	return f.effect(OpSyncDir, dir,
		func(at string) error { return f.m.disk.syncDir(at, false) },
		func(at string) { _ = f.m.disk.syncDir(at, true) })
}

func (f *files) List(dir string) ([]string, error) {
	names := []string{}
	err := f.read("list", dir, func(at string) error {
		in, err := f.m.disk.folder(at)
		if err != nil {
			return err
		}
		for name, n := range in.now {
			if n.folder != nil {
				name += "/"
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Lock makes the lock's file if need be; it stays empty.
func (f *files) Lock(name string) (io.Closer, error) {
	l := &lock{m: f.m}
	err := f.effect(OpLock, name, func(at string) (err error) {
		l.name = at
		d := f.m.disk
		l.file, err = d.file(at)
		if errors.Is(err, fs.ErrNotExist) {
			l.file, err = d.create(at)
		}
		if err == nil && d.locks[l.file] != nil {
			return sys.ErrLocked
		}
		if err == nil {
			d.locks[l.file] = f.m
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (f *files) Close() error {
	return f.m.read("close", f.dir, func() error {
		f.closed = true
		return nil
	})
}

// lock is held by the machine until it is closed or the machine has died.
type lock struct {
	m    *Machine
	name string
	file *file
}

func (l *lock) Close() error {
	return l.m.read("unlock", l.name, func() error {
		if l.file == nil {
			return fs.ErrClosed
		}
		delete(l.m.disk.locks, l.file)
		l.file = nil
		return nil
	})
}

// handle is an open file. The disk's mutex guards it.
type handle struct {
	m      *Machine
	name   string
	file   *file
	at     int // where Read and Write go on
	writes bool
	closed bool
}

func (h *handle) open(do func()) error {
	if h.closed {
		return fs.ErrClosed
	}
	do()
	return nil
}

func (h *handle) Read(b []byte) (n int, err error) {
	err = h.m.read("read", h.name, func() error {
		return h.open(func() {
			n = copy(b, h.file.data[h.at:])
			h.at += n
		})
	})
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, err
}

func (h *handle) ReadAt(b []byte, off int64) (n int, err error) {
	err = h.m.read("read", h.name, func() error {
		if off < 0 {
			return fmt.Errorf("negative offset: %w", fs.ErrInvalid)
		}
		return h.open(func() { n = copy(b, h.file.data[min(off, int64(len(h.file.data))):]) })
	})
	if err == nil && n < len(b) {
		return n, io.EOF
	}
	return n, err
}

func (h *handle) Write(b []byte) (n int, err error) {
	if !h.writes {
		return 0, failed("write", h.name, fmt.Errorf("opened for reading: %w", fs.ErrPermission))
	}
	add := func(k int) func() {
		return func() {
			h.file.data = append(h.file.data, b[:k]...)
			h.at += k
			n = k
		}
	}
	err = h.m.effect(act{op: OpWrite, name: h.name, size: len(b),
		do: func() error { return h.open(add(len(b))) }, half: add(len(b) / 2), fail: add(len(b) / 2)})
	return n, err
}

func (h *handle) Sync() error {
	return h.m.effect(act{op: OpSync, name: h.name,
		do:   func() error { return h.open(func() { h.file.sync(false) }) },
		half: func() { h.file.sync(true) },
		fail: func() { h.file.lose() }})
}

func (h *handle) Size() (size int64, err error) {
	err = h.m.read("stat", h.name, func() error { return h.open(func() { size = int64(len(h.file.data)) }) })
	return size, err
}

func (h *handle) Close() error {
	return h.m.read("close", h.name, func() error { return h.open(func() { h.closed = true }) })
}
