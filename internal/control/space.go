package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/weirstream/weir/internal/control/log"
	"github.com/weirstream/weir/internal/sys"
)

// A full disk must not keep the job from deleting: what it may delete has to be
// entered in the log first, and so costs a write. A file in the store is given up
// for it then, and made again once there is room. It has no meaning but its size.
const (
	reserveFile = "reserve"
	reserveSize = 128 << 10
)

// How much a disk must take before a start is tried on it again: as much as the
// last checkpoint, or what was written of the one that failed, up to a limit, and
// the entries of a start. What the reserve leaves is enough where that is little.
const (
	probeSize    = 64 << 10
	probeLargest = 256 << 20
)

// probe reports whether a start is worth a try after an error of a disk. A sink's
// disk is the sink's: see Prober.
func (p *process) probe() error {
	if !p.trouble || p.files == nil || p.StateDir == "" {
		return nil
	}
	return sys.ProbeStore(p.files, min(probeSize+p.needs, probeLargest))
}

// A Prober is a Participant that can find out whether its disk takes writes,
// without changing anything that counts. It is asked after an error of a disk,
// before the log is touched.
type Prober interface {
	Probe(ctx context.Context) error
}

// probe asks the sinks for the same, so that a disk of theirs that stays full
// doesn't fill the log with starts.
func (j *job) probeSinks() error {
	if !j.trouble {
		return nil
	}
	for _, p := range j.committer.parties {
		if pr, ok := p.Participant.(Prober); ok {
			if err := pr.Probe(j.ctx); err != nil {
				return fmt.Errorf("see whether %s can be written: %w", p.Name, err)
			}
		}
	}
	return nil
}

// reserve makes the file if it isn't there. That it can't be made is no reason
// not to run.
func (j *job) reserve() {
	if j.StateDir == "" {
		return
	}
	f, err := j.files.Open(reserveFile)
	if err == nil {
		size, sizeErr := f.Size()
		err = errors.Join(sizeErr, f.Close())
		if err == nil && size == reserveSize {
			return
		}
		err = j.files.Remove(reserveFile) // a crash has cut it short
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && j.trouble {
		// It must not be what fills the disk again.
		err = sys.ProbeStore(j.files, reserveSize+probeSize+min(j.needs, probeLargest))
	}
	if err == nil {
		if err = sys.Fill(j.files, reserveFile, reserveSize); err != nil {
			err = errors.Join(err, j.files.Remove(reserveFile)) // half of it is in the way
		}
	}
	if err != nil {
		j.Log.Warn("no room is kept for deleting on a full disk", "dir", j.where, "error", err.Error())
	}
}

// makeRoom deletes all that may be deleted when the disk is full: what this
// incarnation wrote for checkpoints that it can't enter any more, and what is
// to be retired. Nothing of the incarnation is at work.
func (j *job) makeRoom() {
	if err := j.makeSome(); err != nil {
		j.Log.Warn("the disk is full, and not all that could be deleted was", "dir", j.where, "error", err.Error())
	}
}

func (j *job) makeSome() error {
	err := j.files.Remove(reserveFile)
	if err == nil {
		err = j.files.SyncDir(".")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if j.log == nil {
		return nil
	}
	if err := j.log.Reload(); err != nil {
		return err
	}
	if j.know(j.log.Entries()) != nil {
		return nil // not ours any more
	}
	if err := j.log.Sweep(); err != nil {
		return err
	}
	if j.me.Incarnation == 0 {
		return nil
	}
	files, err := j.committer.files()
	if err != nil {
		return err
	}
	for _, name := range log.Unnamed(j.log.Entries(), j.me.Incarnation, j.me.Nonce, files) {
		if err := j.committer.blobs.Delete(name); err != nil {
			return err
		}
	}
	if j.last.m == nil {
		return nil
	}
	return j.committer.retire(j.last.id, true, false)
}
