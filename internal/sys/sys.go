// Package sys is the edge to the machine: the files, blobs, SQL calls and
// clock that a job acts through. Production code gets the operating system;
// tests put an Env of their own into the context and so can number every
// effect, make one fail, or crash between any two.
package sys

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrLocked reports that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// ErrKilled is the cause with which a context is cancelled whose run isn't to
// stop politely: nothing more is done, as if the process had been killed.
var ErrKilled = errors.New("the process was killed")

// Files is one folder and what is below it. Names are relative, with slashes,
// as fs.ValidPath has them. Nothing outside the folder can be reached. Errors
// name operation and file, and wrap fs.ErrNotExist, fs.ErrExist, fs.ErrClosed
// and the system's errors. What a file holds survives a power loss only after
// its Sync, and its name only after SyncDir of the folder that holds the name:
// each needs its own.
type Files interface {
	Create(name string) (File, error) // fails if it exists; mode 0600
	Open(name string) (File, error)   // for reading
	Link(from, to string) error       // fs.ErrExist if to exists
	Rename(from, to string) error     // replaces to
	Remove(name string) error
	Mkdir(name string) error // with its parents; no error if it exists; mode 0700
	// List returns what the folder itself holds, sorted, by names within it;
	// a folder's ends with a slash.
	List(dir string) ([]string, error)
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with the process, or ErrLocked.
	Lock(name string) (io.Closer, error)
	Close() error
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Sync() error
	Size() (int64, error)
}

// Clock tells the time. Results never depend on it; intervals and logs do.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// Blobs is a store of whole, immutable objects: a folder, or later a bucket.
type Blobs interface {
	// PutIfAbsent writes an object that others see whole or not at all, and
	// that is durable on return. fs.ErrExist if the name is taken. After any
	// other error the object may or may not exist.
	PutIfAbsent(name string, write func(io.Writer) error) error
	Get(name string) ([]byte, error)
	GetRange(name string, off, n int64) ([]byte, error)
	// List returns the whole names, sorted, of the objects that start with
	// prefix, such as "log/", in the one folder that prefix names. It syncs
	// that folder first: a name it returns can't vanish.
	List(prefix string) ([]string, error)
	Delete(name string) error // durable; no error if it is gone
}

// Env is the machine that a job runs on.
type Env struct {
	// Files opens the folder dir and makes it when missing.
	Files func(dir string) (Files, error)
	// View opens the folder dir, which must exist (fs.ErrNotExist), and makes
	// nothing. nil: Files does.
	View  func(dir string) (Files, error)
	Clock Clock
	// SQL performs one call to a database. A database's own file I/O is its
	// own: what can be interposed is the sequence of calls to it.
	SQL func(call string, do func() error) error
	// Waiting is told what a call has been waiting for, once it has waited for
	// a second: another process's lock. nil: the default logger is told.
	Waiting func(what string)
	// Warn is told what somebody should know who runs the job. nil: the default
	// logger is told.
	Warn func(what string)
}

type envKey struct{}

// With returns a context in which From finds env.
func With(ctx context.Context, env *Env) context.Context {
	return context.WithValue(ctx, envKey{}, env)
}

// From returns the context's Env, or the operating system's.
func From(ctx context.Context) *Env {
	if env, ok := ctx.Value(envKey{}).(*Env); ok {
		return env
	}
	return &Env{Files: OpenFiles, View: ViewFiles, Clock: WallClock{}, SQL: func(_ string, do func() error) error { return do() }}
}
