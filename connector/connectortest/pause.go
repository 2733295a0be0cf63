package connectortest

import (
	"github.com/weirstream/weir/internal/sys"
)

// pausing returns an environment whose files call before each call.
func pausing(env *sys.Env, before func(call string)) *sys.Env {
	paused := *env
	paused.Files = func(dir string) (sys.Files, error) {
		before("open folder " + dir)
		f, err := env.Files(dir)
		if err != nil {
			return nil, err
		}
		return pausingFiles{f, before}, nil
	}
	return &paused
}

// pausingFiles leaves Lock and Close, which change nothing, to what it wraps.
type pausingFiles struct {
	sys.Files
	before func(call string)
}

func (f pausingFiles) Create(name string) (sys.File, error) {
	f.before("create " + name)
	return f.file(f.Files.Create(name))
}

func (f pausingFiles) Open(name string) (sys.File, error) {
	f.before("open " + name)
	return f.file(f.Files.Open(name))
}

func (f pausingFiles) file(file sys.File, err error) (sys.File, error) {
	if err != nil {
		return nil, err
	}
	return pausingFile{file, f.before}, nil
}

func (f pausingFiles) Link(from, to string) error {
	f.before("link " + to)
	return f.Files.Link(from, to)
}

func (f pausingFiles) Rename(from, to string) error {
	f.before("rename " + to)
	return f.Files.Rename(from, to)
}

func (f pausingFiles) Remove(name string) error {
	f.before("remove " + name)
	return f.Files.Remove(name)
}

func (f pausingFiles) Mkdir(name string) error {
	f.before("mkdir " + name)
	return f.Files.Mkdir(name)
}

func (f pausingFiles) List(dir string) ([]string, error) {
	f.before("list " + dir)
	return f.Files.List(dir)
}

func (f pausingFiles) SyncDir(dir string) error {
	f.before("sync folder " + dir)
	return f.Files.SyncDir(dir)
}

// pausingFile is an open file.
type pausingFile struct {
	sys.File
	before func(call string)
}

func (f pausingFile) Write(b []byte) (int, error) {
	f.before("write")
	return f.File.Write(b)
}

func (f pausingFile) ReadAt(b []byte, off int64) (int, error) {
	f.before("read")
	return f.File.ReadAt(b, off)
}

func (f pausingFile) Sync() error {
	f.before("sync")
	return f.File.Sync()
}
