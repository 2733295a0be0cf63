package weirtest

import (
	"io"

	"github.com/weirstream/weir/internal/sim"
	"github.com/weirstream/weir/internal/sys"
)

// stateDir is where a job has its state unless the test names another folder: on
// the simulated disk, and nowhere else.
const stateDir = "state in memory"

// env is the machine as a job sees it. Its state is on the simulated disk; any
// other folder is a real one, in which a crashed job can do nothing more.
func env(m *sim.Machine) *sys.Env {
	e := m.Env()
	simulated := e.Files
	e.Files = func(dir string) (sys.Files, error) {
		if dir == stateDir {
			return simulated(dir)
		}
		f, err := sys.OpenFiles(dir)
		if err != nil {
			return nil, err
		}
		return &mortal{f, m}, nil
	}
	return e
}

// mortal is a real folder that a machine changes while it lives.
type mortal struct {
	sys.Files
	m *sim.Machine
}

func (f *mortal) alive(do func() error) error {
	if f.m.Dead() {
		return sim.ErrCrashed
	}
	return do()
}

func (f *mortal) Create(name string) (file sys.File, err error) {
	err = f.alive(func() error {
		file, err = f.Files.Create(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &mortalFile{file, f}, nil
}

func (f *mortal) Lock(name string) (lock io.Closer, err error) {
	err = f.alive(func() error {
		lock, err = f.Files.Lock(name)
		return err
	})
	return lock, err
}

func (f *mortal) Link(from, to string) error {
	return f.alive(func() error { return f.Files.Link(from, to) })
}

func (f *mortal) Rename(from, to string) error {
	return f.alive(func() error { return f.Files.Rename(from, to) })
}

func (f *mortal) Remove(name string) error {
	return f.alive(func() error { return f.Files.Remove(name) })
}

func (f *mortal) Mkdir(name string) error {
	return f.alive(func() error { return f.Files.Mkdir(name) })
}

func (f *mortal) SyncDir(dir string) error {
	return f.alive(func() error { return f.Files.SyncDir(dir) })
}

// mortalFile is a file that is being written.
type mortalFile struct {
	sys.File
	in *mortal
}

func (f *mortalFile) Write(b []byte) (n int, err error) {
	err = f.in.alive(func() error {
		n, err = f.File.Write(b)
		return err
	})
	return n, err
}

func (f *mortalFile) Sync() error { return f.in.alive(f.File.Sync) }
