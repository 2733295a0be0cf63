package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirstream/weir/internal/data"
)

var errDisk = errors.New("the disk is gone")

// mem is a store in memory whose calls can be made to fail.
type mem struct {
	mu    sync.Mutex
	files map[string][]byte
	gets  map[string]int
	// fail is asked before (and, for a put, again after) each call takes
	// effect; "put", "put done", "get", "list", "delete".
	fail func(call, name string) error
}

func newMem() *mem { return &mem{files: map[string][]byte{}, gets: map[string]int{}} }

func (m *mem) failing(call, name string) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(call, name)
}

func (m *mem) PutIfAbsent(name string, write func(io.Writer) error) error {
	if err := m.failing("put", name); err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[name]; ok {
		return fmt.Errorf("put %s: %w", name, fs.ErrExist)
	}
	m.files[name] = bytes.Clone(buf.Bytes())
	return m.failing("put done", name)
}

func (m *mem) Get(name string) ([]byte, error) {
	if err := m.failing("get", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets[name]++
	b, ok := m.files[name]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", name, fs.ErrNotExist)
	}
	return bytes.Clone(b), nil
}

func (m *mem) GetRange(name string, off, n int64) ([]byte, error) {
	b, err := m.Get(name)
	if err != nil {
		return nil, err
	}
	return b[off : off+n], nil
}

func (m *mem) List(prefix string) ([]string, error) {
	if err := m.failing("list", prefix); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.files {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *mem) Delete(name string) error {
	if err := m.failing("delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

// names returns what the store holds, sorted.
func (m *mem) names() []string { return slices.Sorted(maps.Keys(m.files)) }

// part is a Part with fixed bytes.
type part struct {
	step     string
	bytes    []byte
	entries  int
	err      error
	encoded  int
	released int
}

func (p *part) Info() data.PartInfo { return data.PartInfo{Step: p.step, Entries: p.entries} }

func (p *part) Encode(w io.Writer) error {
	p.encoded++
	// In small writes, to see that offsets don't depend on buffering.
	for chunk := range slices.Chunk(p.bytes, 1000) {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return p.err
}

func (p *part) Release() { p.released++ }

// must ends the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustAppend appends e and returns its id.
func mustAppend(t testing.TB, l *Log, e Entry) ID {
	t.Helper()
	id, err := l.Append(e)
	must(t, err)
	return id
}

// mustOpen opens the log of b.
func mustOpen(t testing.TB, b *mem) *Log {
	t.Helper()
	l, err := Open(b, "/state")
	must(t, err)
	return l
}

// wantCorrupt requires a *CorruptError for a file and returns it.
func wantCorrupt(t testing.TB, err error, file string) *CorruptError {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got error %v, want a *CorruptError", err)
	}
	if c.File != file {
		t.Fatalf("the error is about %s, want %s: %v", c.File, file, err)
	}
	if c.Expected == "" || c.Found == "" || c.Hint == "" {
		t.Fatalf("the error doesn't say what was expected, found and to be done: %#v", c)
	}
	return c
}
