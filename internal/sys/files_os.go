package sys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// osFiles is a folder of the operating system. os.Root resolves every name, so
// that neither ".." nor a symbolic link leads out of it, and the folder stays
// the same one if somebody renames it. Safe for concurrent use.
type osFiles struct {
	root *os.Root
	dir  string // absolute, for errors
}

// OpenFiles opens the folder dir of the operating system. It makes the folder,
// and those above it, when missing (mode 0700), and on return the folder
// itself survives a power loss.
func OpenFiles(dir string) (Files, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", dir, err)
	}
	if err := makeFolder(abs); err != nil {
		return nil, fmt.Errorf("make folder %s: %w", abs, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", abs, err)
	}
	return &osFiles{root, abs}, nil
}

// ViewFiles opens the folder dir of the operating system, which must be there. It
// changes nothing.
func ViewFiles(dir string) (Files, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", abs, cause(err))
	}
	return &osFiles{root, abs}, nil
}

// makeFolder makes dir and what is missing above it, and syncs the folder
// above each. One that is there already may have been made by a process that
// was killed before it could sync. As none is made below an unsynced one, that
// can only be the lowest there is, and syncing the one above it is enough.
func makeFolder(dir string) error {
	above := filepath.Dir(dir)
	switch _, err := os.Stat(dir); {
	case err == nil:
		// Whoever made a folder in one that we can't read wasn't us.
		if err := syncFolder(above); !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist) || above == dir:
		return err
	}
	if err := makeFolder(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(above)
}

func syncFolder(dir string) error {
	if !foldersSync {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// foldersSync is false where the system can't sync a folder. Windows keeps
// names in a journal of its own; the others don't promise to outlive anything.
const foldersSync = runtime.GOOS != "windows" && runtime.GOOS != "plan9" && runtime.GOOS != "js" && runtime.GOOS != "wasip1"

func (f *osFiles) Create(name string) (File, error) {
	return f.open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (f *osFiles) Open(name string) (File, error) { return f.open("open", name, os.O_RDONLY) }

func (f *osFiles) open(op, name string, flag int) (File, error) {
	file, err := f.openRaw(op, name, flag)
	if err != nil {
		return nil, err
	}
	return osFile{file}, nil
}

func (f *osFiles) openRaw(op, name string, flag int) (file *os.File, err error) {
	err = f.do(op, name, func() error {
		file, err = f.root.OpenFile(name, flag, 0o600)
		return err
	})
	return file, err
}

func (f *osFiles) Link(from, to string) error {
	return f.do2("link", from, to, func() error { return f.root.Link(from, to) })
}

func (f *osFiles) Rename(from, to string) error {
	return f.do2("rename", from, to, func() error { return f.root.Rename(from, to) })
}

func (f *osFiles) Remove(name string) error {
	return f.do("remove", name, func() error { return f.root.Remove(name) })
}

func (f *osFiles) Mkdir(name string) error {
	return f.do("mkdir", name, func() error { return f.root.MkdirAll(name, 0o700) })
}

func (f *osFiles) List(dir string) ([]string, error) {
	d, err := f.openRaw("list", dir, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // opened for reading: nothing to lose
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, f.failed("list", dir, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
		if e.IsDir() {
			names[i] += "/"
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *osFiles) SyncDir(dir string) error {
	d, err := f.openRaw("sync folder", dir, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // opened for reading: nothing to lose
	if !foldersSync {
		return nil
	}
	return f.do("sync folder", dir, d.Sync)
}

// Lock leaves the file where it is for good: removing it would let two
// processes lock two files of one name. Its content is for people, and for the
// error that the next one gets.
func (f *osFiles) Lock(name string) (io.Closer, error) {
	file, err := f.openRaw("lock", name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	err = takeLock(file)
	if errors.Is(err, ErrLocked) {
		holder := make([]byte, 100)
		n, _ := file.ReadAt(holder, 0) // io.EOF as a rule; without a holder the error is still right
		err = lockedBy(string(holder[:n]))
	} else if err == nil {
		err = errors.Join(file.Truncate(0), writeHolder(file))
	}
	if err != nil {
		return nil, errors.Join(f.failed("lock", name, err), file.Close())
	}
	return osLock{file}, nil
}

func writeHolder(file *os.File) error {
	_, err := file.WriteAt([]byte(holder()), 0)
	return err
}

// holder is what a lock file says about this process.
func holder() string {
	return fmt.Sprintf("process %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
}

func lockedBy(holder string) error {
	if holder = strings.TrimSpace(holder); holder == "" {
		return ErrLocked
	}
	return fmt.Errorf("%w: %s", ErrLocked, holder)
}

func (f *osFiles) Close() error { return f.root.Close() }

// do makes one call. os.Root alone would let a name like a/../../x make a
// first, and only then refuse.
func (f *osFiles) do(op, name string, call func() error) error {
	err := fs.ErrInvalid
	if fs.ValidPath(name) {
		err = call()
	}
	if err != nil {
		return f.failed(op, name, err)
	}
	return nil
}

func (f *osFiles) do2(op, from, to string, call func() error) error {
	err := fs.ErrInvalid
	if fs.ValidPath(from) && fs.ValidPath(to) {
		err = call()
	}
	if err != nil {
		return &os.LinkError{Op: op, Old: f.path(from), New: f.path(to), Err: cause(err)}
	}
	return nil
}

// failed gives an error the operation in this package's words and the whole
// path, instead of the system call and the path below the folder.
func (f *osFiles) failed(op, name string, err error) error {
	if (op == "create" || op == "mkdir") && errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Stat(f.dir); errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("the folder %s is gone, removed while it was in use: %w", f.dir, cause(err))
			return &fs.PathError{Op: op, Path: f.path(name), Err: err}
		}
	}
	return &fs.PathError{Op: op, Path: f.path(name), Err: cause(err)}
}

func (f *osFiles) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func cause(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

type osLock struct{ file *os.File }

func (l osLock) Close() error { return errors.Join(releaseLock(l.file), l.file.Close()) }
