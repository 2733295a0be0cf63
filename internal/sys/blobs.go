package sys

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
)

// tempDir is where an object is written before it gets its name.
const tempDir = "tmp"

// blobs keeps objects as files of their names. Objects appear by a hard link
// to a finished, synced file, which fails if the name is taken and can't
// replace anything. Safe for concurrent use, also by several processes.
type blobs struct {
	files Files
	// nonce makes temporary names our own: another process may have cleaned
	// ours away, and if it could then use the same name for a file that it is
	// still writing, we would link that half-written file.
	nonce string

	mu   sync.Mutex
	next int64           // temporary name
	made map[string]bool // folders that are there for good
}

// NewBlobs returns a store of objects in a folder, which stays the caller's to
// close. Objects can't be named tmp/..., which is where they are written.
func NewBlobs(f Files) Blobs {
	return &blobs{files: f, nonce: rand.Text()[:13], made: map[string]bool{".": true}}
}

// CleanTemp removes what unfinished puts, of processes that are gone, left
// behind in the store. The holder of the store's lock calls it before its
// first put. A put of a process that still works fails then, and leaves
// nothing half-written.
func CleanTemp(f Files) error {
	names, err := f.List(tempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean temporary files: %w", err)
	}
	for _, name := range names {
		if err := f.Remove(path.Join(tempDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean temporary files: %w", err)
		}
	}
	return nil
}

// ProbeDisk finds out whether a folder's disk takes a file of size bytes: it
// writes one, makes it durable, gives it a second name and removes both. name is
// the file's, in a folder that exists; what an interrupted probe left there is
// removed first. ProbeStore is the same in a store.
func ProbeDisk(f Files, name string, size int64) (err error) {
	again := name + "-2"
	defer func() {
		for _, n := range []string{name, again} {
			if gone := f.Remove(n); err == nil && gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = gone // one error is enough: the others are of the same disk
			}
		}
		if err == nil {
			err = f.SyncDir(path.Dir(name))
		}
	}()
	for _, n := range []string{name, again} {
		if err := f.Remove(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := Fill(f, name, size); err != nil {
		return err
	}
	return f.Link(name, again)
}

// ProbeStore finds out whether a store takes objects of size bytes.
func ProbeStore(f Files, size int64) error {
	err := f.Mkdir(tempDir)
	if err == nil {
		err = ProbeDisk(f, path.Join(tempDir, "probe"), size)
	}
	if err != nil {
		return fmt.Errorf("try to write %d bytes: %w", size, err)
	}
	return nil
}

// Fill makes a file of size bytes that no file system can keep in fewer, and
// makes them and its name durable.
func Fill(f Files, name string, size int64) error {
	file, err := f.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, rand.Reader, size)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return f.SyncDir(path.Dir(name))
}

// PutIfAbsent links the object only after all of it is durable. Nothing undoes
// the link: somebody may have read the object by then.
func (b *blobs) PutIfAbsent(name string, write func(io.Writer) error) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("put %q: %w", name, err)
	}
	if err := b.put(name, write); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

func (b *blobs) put(name string, write func(io.Writer) error) error {
	if err := b.makeFolder(tempDir); err != nil {
		return err
	}
	if err := b.makeFolder(path.Dir(name)); err != nil {
		return err
	}
	temp, err := b.writeTemp(write)
	if temp != "" {
		// A temporary file that can't be removed harms nobody: CleanTemp will
		// find it, and the object stands or falls by its own name.
		defer func() { _ = b.files.Remove(temp) }()
	}
	if err != nil {
		return err
	}
	linked := b.files.Link(temp, name)
	if linked != nil && !errors.Is(linked, fs.ErrExist) {
		return linked
	}
	// Also when the name is taken: whoever took it may have been killed before
	// the sync, and the caller is going to rely on what it finds there.
	if err := b.files.SyncDir(path.Dir(name)); err != nil {
		return err
	}
	return linked
}

// writeTemp returns the name of a durable temporary file, and even after an
// error the name of one to be removed, if there is any. A sync that failed
// isn't tried again: the system may have dropped what it couldn't write, and
// would then report success.
func (b *blobs) writeTemp(write func(io.Writer) error) (string, error) {
	b.mu.Lock()
	b.next++
	temp := fmt.Sprintf("%s/%s-%d", tempDir, b.nonce, b.next)
	b.mu.Unlock()
	file, err := b.files.Create(temp)
	if err != nil {
		return "", err
	}
	buf := bufio.NewWriterSize(file, 64<<10)
	err = write(buf)
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	return temp, errors.Join(err, file.Close())
}

// makeFolder makes a folder and those above it durably, from the top down. One
// that is there already is synced too, once: whoever made it may have been
// killed before it could.
func (b *blobs) makeFolder(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.makeFolderLocked(name)
}

func (b *blobs) makeFolderLocked(name string) error {
	if b.made[name] {
		return nil
	}
	above := path.Dir(name)
	if err := b.makeFolderLocked(above); err != nil {
		return err
	}
	if err := b.files.Mkdir(name); err != nil {
		return err
	}
	if err := b.files.SyncDir(above); err != nil {
		return err
	}
	b.made[name] = true
	return nil
}

func (b *blobs) Get(name string) ([]byte, error) {
	return b.read(name, func(size int64) (off, n int64, err error) { return 0, size, nil })
}

func (b *blobs) GetRange(name string, off, n int64) ([]byte, error) {
	return b.read(name, func(size int64) (int64, int64, error) {
		if off < 0 || n < 0 || off > size || n > size-off {
			return 0, 0, fmt.Errorf("%w: it has %d bytes, asked for %d from offset %d", io.ErrUnexpectedEOF, size, n, off)
		}
		return off, n, nil
	})
}

func (b *blobs) read(name string, part func(size int64) (off, n int64, err error)) (_ []byte, err error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("get %q: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("get %s: %w", name, err)
		}
	}()
	file, err := b.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	off, n, err := part(size)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(file, off, n), buf); err != nil {
		return nil, err
	}
	return buf, nil
}

// List returns whole names. A folder that isn't there has no objects; nothing
// is found below folders of the folder that prefix ends in.
func (b *blobs) List(prefix string) ([]string, error) {
	dir, base := path.Split(prefix)
	dir = path.Clean(dir)
	names, err := b.list(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	found := []string{}
	for _, name := range names {
		if strings.HasPrefix(name, base) && !strings.HasSuffix(name, "/") {
			found = append(found, path.Join(dir, name))
		}
	}
	return found, nil
}

// list syncs first: a name may have been made by a process that was killed
// before its sync, and could still vanish after somebody has acted on it.
func (b *blobs) list(dir string) ([]string, error) {
	err := b.files.SyncDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b.files.List(dir)
}

// Delete is durable on return, so that deletions can't come out of order.
func (b *blobs) Delete(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	err := b.files.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = b.files.SyncDir(path.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." || name == tempDir || strings.HasPrefix(name, tempDir+"/") {
		return fmt.Errorf("%w: an object's name is a relative path outside of %s", fs.ErrInvalid, tempDir)
	}
	return nil
}
