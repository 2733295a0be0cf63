// Package sim is the machine beneath a job, simulated: folders whose unsynced
// contents a power loss may take, and a process that can be made to fail, or
// to die, at any one of the things it does to the world. A test runs a job on
// a Machine, crashes it at effect k, takes an Image of the Disk and starts the
// job on that again, for every k.
package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/weirstream/weir/internal/sys"
)

// ErrCrashed is what every call of a process gets from its crash on.
var ErrCrashed = errors.New("the simulated process has crashed")

// Op is the kind of an effect.
type Op string

// The effects: every call that changes something, or makes it durable. Reading
// and closing are none.
const (
	OpCreate  Op = "create"
	OpWrite   Op = "write"
	OpSync    Op = "sync"
	OpLink    Op = "link"
	OpRename  Op = "rename"
	OpRemove  Op = "remove"
	OpMkdir   Op = "mkdir"
	OpSyncDir Op = "syncdir"
	OpLock    Op = "lock"
	OpSQL     Op = "sql"
)

// What reads, for faults only: it is no effect, so it isn't traced and has no
// number.
const (
	OpList Op = "list"
	OpOpen Op = "open"
	OpRead Op = "read"
)

// Effect is one thing that a process did, or tried to do.
type Effect struct {
	K    int // from 1, counted per Machine; 0 for what only reads
	Op   Op
	Name string // path on the disk, of the new name for link and rename; a SQL call's text
	From string // the old name of a link or rename
}

// String returns "k: op name", or "k: op from -> name".
func (e Effect) String() string {
	if e.From != "" {
		return fmt.Sprintf("%d: %s %s -> %s", e.K, e.Op, e.From, e.Name)
	}
	return fmt.Sprintf("%d: %s %s", e.K, e.Op, e.Name)
}

// Mode says how far the effect got at which a process crashes. The process
// never learns.
type Mode int

// How far an effect gets.
const (
	// Before is not at all.
	Before Mode = iota
	// Half is the first half of a write's bytes, the older half of what a sync
	// or syncdir would have made durable, the topmost missing folder of a
	// mkdir. Anything else is done: it is volatile anyway until it is synced,
	// and of a SQL call the answer is lost.
	Half
	// After is all the way.
	After
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Before, Half, After} }

// String returns the word for messages.
func (m Mode) String() string {
	switch m {
	case Before:
		return "before"
	case Half:
		return "half-way"
	case After:
		return "after"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Fault makes effects fail. A write that fails has written half of its bytes,
// and a sync that fails loses what was unsynced, whatever is synced later: the
// system has dropped it. Any other effect isn't done.
type Fault struct {
	// Match chooses the effects, and is called under the machine's lock. It
	// may keep state, but may not call the machine.
	Match func(Effect) bool
	Err   error // what the calls return, wrapped in an *fs.PathError or *os.LinkError
	Once  bool  // only the first match fails
	Done  bool  // the effect is done all the same: an answer got lost
}

type crash struct {
	match func(Effect) bool
	mode  Mode
}

// Machine is one process on a Disk. Two of them on one disk are two processes
// at once. Safe for concurrent use; with several goroutines at work, which
// effect is the k-th is up to their scheduling.
type Machine struct {
	disk    *Disk
	crashed chan struct{}

	// Guarded by disk.mu.
	dead    bool
	trace   []Effect
	crashes []crash
	faults  []*Fault
}

// NewMachine starts a process on a disk.
func NewMachine(disk *Disk) *Machine {
	return &Machine{disk: disk, crashed: make(chan struct{})}
}

// Disk returns the machine's disk.
func (m *Machine) Disk() *Disk { return m.disk }

// Image returns the disk as a restarted process finds it. See Disk.Image.
func (m *Machine) Image(keep Keep) *Disk { return m.disk.Image(keep) }

// Env returns the machine as a job sees it, for sys.With. Its clock is the
// wall clock, which in a synctest bubble is virtual; the caller may set
// another. A SQL call that runs when the process crashes runs on, as a
// database would, but its answer is lost.
func (m *Machine) Env() *sys.Env {
	return &sys.Env{Files: m.openFiles, View: m.viewFiles, Clock: sys.WallClock{}, SQL: m.sql}
}

// CrashAt makes the process die at its k-th effect, counted from 1.
func (m *Machine) CrashAt(k int, mode Mode) {
	m.CrashIf(func(e Effect) bool { return e.K == k }, mode)
}

// CrashIf makes the process die at the first effect that matches. match is
// called under the machine's lock and may not call the machine.
func (m *Machine) CrashIf(match func(Effect) bool, mode Mode) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.crashes = append(m.crashes, crash{match, mode})
}

// Crash makes the process die now.
func (m *Machine) Crash() {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if !m.dead {
		m.die()
		close(m.crashed)
	}
}

// Crashed is closed when the process has died.
func (m *Machine) Crashed() <-chan struct{} { return m.crashed }

// Dead reports whether the process has died.
func (m *Machine) Dead() bool {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return m.dead
}

// FailAt makes the k-th effect fail with err.
func (m *Machine) FailAt(k int, err error) {
	m.Inject(Fault{Match: func(e Effect) bool { return e.K == k }, Err: err, Once: true})
}

// FailIf makes every effect that matches fail with err.
func (m *Machine) FailIf(match func(Effect) bool, err error) { m.Inject(Fault{Match: match, Err: err}) }

// Inject adds a fault. The first fault that matches an effect is its fault.
func (m *Machine) Inject(f Fault) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Heal removes all faults.
func (m *Machine) Heal() {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.faults = nil
}

// Trace returns the effects so far, also those that failed, with the one at
// which the process died as the last.
func (m *Machine) Trace() []Effect {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return slices.Clone(m.trace)
}

// Effects returns how many effects there were so far.
func (m *Machine) Effects() int {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return len(m.trace)
}

// act is one effect on the disk. Its functions are called under the disk's lock.
type act struct {
	op         Op
	name, from string
	do         func() error
	size       int    // bytes that a write adds
	half       func() // what Half does; nil: do
	fail       func() // what an injected fault leaves behind; nil: nothing
}

func (m *Machine) effect(a act) error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.dead {
		return a.failed(ErrCrashed)
	}
	e := m.record(Effect{Op: a.op, Name: a.name, From: a.from})
	if mode, ok := m.dies(e); ok {
		switch {
		case mode == Half && a.half != nil:
			a.half()
		case mode != Before:
			_ = a.do() // whether it worked is what the process never learns
		}
		m.die()
		close(m.crashed)
		return a.failed(ErrCrashed)
	}
	err := m.fault(e, a)
	if err == nil && !m.disk.takes(a) {
		a.fail()
		err = syscall.ENOSPC
	}
	if err == nil {
		err = a.do()
	}
	if err != nil {
		return a.failed(err)
	}
	return nil
}

func (a act) failed(err error) error {
	if a.from != "" {
		return &os.LinkError{Op: string(a.op), Old: a.from, New: a.name, Err: err}
	}
	return failed(string(a.op), a.name, err)
}

// fault applies the first fault that matches e, if any, and returns its error.
func (m *Machine) fault(e Effect, a act) error {
	f := m.faulty(e)
	switch {
	case f == nil:
		return nil
	case f.Done:
		if err := a.do(); err != nil {
			return err
		}
	case a.fail != nil:
		a.fail()
	}
	return f.Err
}

// faulty returns the fault that e runs into.
func (m *Machine) faulty(e Effect) *Fault {
	i := slices.IndexFunc(m.faults, func(f *Fault) bool { return f.Match(e) })
	if i < 0 {
		return nil
	}
	f := m.faults[i]
	if f.Once {
		m.faults = slices.Delete(m.faults, i, i+1)
	}
	return f
}

func (m *Machine) record(e Effect) Effect {
	e.K = len(m.trace) + 1
	m.trace = append(m.trace, e)
	return e
}

// dies says whether, and how, the process dies at e.
func (m *Machine) dies(e Effect) (Mode, bool) {
	for _, c := range m.crashes {
		if c.match(e) {
			return c.mode, true
		}
	}
	return 0, false
}

// die ends the process and its locks.
func (m *Machine) die() {
	m.dead = true
	for file, owner := range m.disk.locks {
		if owner == m {
			delete(m.disk.locks, file)
		}
	}
}

// read runs a call that is no effect.
func (m *Machine) read(op, name string, do func() error) error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	err := ErrCrashed
	if !m.dead {
		err = m.unreadable(op, name)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return failed(op, name, err)
	}
	return nil
}

// unreadable returns the error of the fault that a read runs into.
func (m *Machine) unreadable(op, name string) error {
	switch Op(op) {
	case OpList, OpOpen, OpRead:
		if f := m.faulty(Effect{Op: Op(op), Name: name}); f != nil {
			return f.Err
		}
	}
	return nil
}

// sql is one call to a database, which isn't ours to simulate: the call is
// made or isn't, and its answer arrives or doesn't. It is made outside of the
// lock, as it may take long and wait for other processes.
func (m *Machine) sql(call string, do func() error) error {
	m.disk.mu.Lock()
	if m.dead {
		m.disk.mu.Unlock()
		return failed("sql", call, ErrCrashed)
	}
	e := m.record(Effect{Op: OpSQL, Name: call})
	mode, dying := m.dies(e)
	var f *Fault
	if dying {
		// At once, so that other goroutines get no effect in behind this one.
		m.die()
	} else {
		f = m.faulty(e)
	}
	m.disk.mu.Unlock()

	var err error
	if dying && mode != Before || !dying && (f == nil || f.Done) {
		err = do()
	}
	switch {
	case dying:
		close(m.crashed)
		return failed("sql", call, ErrCrashed)
	case m.Dead():
		return failed("sql", call, ErrCrashed)
	case f != nil && err == nil:
		return failed("sql", call, f.Err)
	}
	return err // the database's own, unwrapped, as callers look at it
}

func failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
