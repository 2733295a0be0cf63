package sys

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// memFiles is a folder in memory. It behaves as a folder of the operating
// system does, except that folders can't be renamed. Safe for concurrent use.
type memFiles struct {
	mu      sync.Mutex
	closed  bool
	folders map[string]bool
	files   map[string]*memData
	locks   map[string]bool
}

// memData is a file's content, which several names and handles may share.
type memData struct{ bytes []byte }

// NewMemFiles returns an empty folder in memory, which ends with the process.
func NewMemFiles() Files {
	return &memFiles{folders: map[string]bool{".": true}, files: map[string]*memData{}, locks: map[string]bool{}}
}

func (f *memFiles) Create(name string) (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.free(name); err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: err}
	}
	data := &memData{}
	f.files[name] = data
	return &memFile{in: f, name: name, data: data, writes: true}, nil
}

func (f *memFiles) Open(name string) (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.file(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &memFile{in: f, name: name, data: data}, nil
}

func (f *memFiles) Link(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.file(from)
	if err == nil {
		err = f.free(to)
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}
	f.files[to] = data
	return nil
}

func (f *memFiles) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.file(from)
	if err == nil {
		if err = f.free(to); f.files[to] != nil {
			err = nil // replaced
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	delete(f.files, from)
	f.files[to] = data
	return nil
}

func (f *memFiles) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := func(err error) error { return &fs.PathError{Op: "remove", Path: name, Err: err} }
	if err := f.usable(name); err != nil {
		return failed(err)
	}
	if !f.folders[name] {
		if _, err := f.file(name); err != nil {
			return failed(err)
		}
		delete(f.files, name)
		return nil
	}
	if name == "." || len(f.in(name)) > 0 {
		return failed(fmt.Errorf("folder is in use: %w", fs.ErrInvalid))
	}
	delete(f.folders, name)
	return nil
}

func (f *memFiles) Mkdir(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable(name); err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	for at := name; at != "."; at = path.Dir(at) {
		if f.files[at] != nil {
			return &fs.PathError{Op: "mkdir", Path: name, Err: errNoFolder(at)}
		}
	}
	for at := name; at != "."; at = path.Dir(at) {
		f.folders[at] = true
	}
	return nil
}

func (f *memFiles) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.folder(dir); err != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
	}
	return f.in(dir), nil
}

func (f *memFiles) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.folder(dir); err != nil {
		return &fs.PathError{Op: "sync folder", Path: dir, Err: err}
	}
	return nil
}

func (f *memFiles) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := f.file(name)
	switch {
	case f.locks[name]:
		err = lockedBy(string(data.bytes))
	case data == nil:
		err = f.free(name)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	f.locks[name] = true
	f.files[name] = &memData{[]byte(holder())}
	return &memLock{in: f, name: name}, nil
}

func (f *memFiles) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// usable says what keeps any operation from name.
func (f *memFiles) usable(name string) error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case !fs.ValidPath(name):
		return fs.ErrInvalid
	}
	return nil
}

func (f *memFiles) folder(name string) error {
	err := f.usable(name)
	switch {
	case err != nil:
		return err
	case f.files[name] != nil:
		return errNoFolder(name)
	case !f.folders[name]:
		return fs.ErrNotExist
	}
	return nil
}

func (f *memFiles) file(name string) (*memData, error) {
	err := f.usable(name)
	switch {
	case err != nil:
		return nil, err
	case f.folders[name]:
		return nil, fmt.Errorf("%s is a folder: %w", name, fs.ErrInvalid)
	case f.files[name] == nil:
		return nil, fs.ErrNotExist
	}
	return f.files[name], nil
}

// free says why name can't be given to a new file.
func (f *memFiles) free(name string) error {
	if err := f.usable(name); err != nil {
		return err
	}
	if f.files[name] != nil || f.folders[name] {
		return fs.ErrExist
	}
	return f.folder(path.Dir(name))
}

func (f *memFiles) in(dir string) []string {
	names := []string{}
	for name := range f.files {
		if path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	for name := range f.folders {
		if name != "." && path.Dir(name) == dir {
			names = append(names, path.Base(name)+"/")
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

func errNoFolder(name string) error { return fmt.Errorf("%s is a file: %w", name, fs.ErrInvalid) }

// memFile is an open memFiles file; the folder's mutex guards it.
type memFile struct {
	in     *memFiles
	name   string
	data   *memData
	at     int64 // where Read and Write go on
	writes bool
	closed bool
}

func (f *memFile) Read(b []byte) (int, error) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	n, err := f.readAt(b, f.at)
	f.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	return f.readAt(b, off)
}

func (f *memFile) readAt(b []byte, off int64) (int, error) {
	if f.closed {
		return 0, f.failed("read", fs.ErrClosed)
	}
	if off < 0 {
		return 0, f.failed("read", fmt.Errorf("negative offset: %w", fs.ErrInvalid))
	}
	if len(b) == 0 {
		return 0, nil
	}
	n := copy(b, f.data.bytes[min(off, int64(len(f.data.bytes))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(b []byte) (int, error) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	switch {
	case f.closed:
		return 0, f.failed("write", fs.ErrClosed)
	case !f.writes:
		return 0, f.failed("write", fmt.Errorf("opened for reading: %w", fs.ErrPermission))
	}
	// The one handle that writes made the file, so it stands at its end.
	f.data.bytes = append(f.data.bytes, b...)
	f.at += int64(len(b))
	return len(b), nil
}

func (f *memFile) Sync() error {
	_, err := f.Size()
	return err
}

func (f *memFile) Size() (int64, error) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if f.closed {
		return 0, f.failed("stat", fs.ErrClosed)
	}
	return int64(len(f.data.bytes)), nil
}

func (f *memFile) Close() error {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if f.closed {
		return f.failed("close", fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *memFile) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

type memLock struct {
	in   *memFiles
	name string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.in.mu.Lock()
		defer l.in.mu.Unlock()
		delete(l.in.locks, l.name)
	})
	return nil
}
