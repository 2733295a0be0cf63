package file

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weirstream/weir/internal/sys"
)

// partBuffer is how much of a part is kept in memory before it is written.
const partBuffer = 256 << 10

// part is what one task writes in one epoch. It belongs to the task until it
// is sealed, and then to control.
type part struct {
	p      *participant
	format format
	raw    int64  // bytes of lines so far
	lines  []byte // those that aren't written yet

	// From the first write on:
	stage *stage
	name  string // in the stage; the file has it with openSuffix
	file  sys.File
	pack  packer        // nil: not compressed
	out   *bufio.Writer // what it writes to
	sum   hash.Hash
	size  int64 // bytes in the file
}

func newPart(p *participant, f format) *part { return &part{p: p, format: f} }

// flush writes the lines. After an error the part is of no use.
func (p *part) flush() error {
	if p.file == nil {
		if err := p.create(); err != nil {
			return err
		}
	}
	var to io.Writer = partFile{p}
	if p.pack != nil {
		to = p.pack
	}
	_, err := to.Write(p.lines)
	p.lines = p.lines[:0]
	return err
}

func (p *part) create() error {
	p.stage = p.p.stage.Load()
	if p.stage == nil {
		return fmt.Errorf("%s hasn't been fenced for this job, or is closed", p.p.name)
	}
	p.name = p.stage.next()
	file, err := p.stage.root.Create(p.stage.path(p.name) + openSuffix)
	if err != nil {
		return err
	}
	p.file, p.sum = file, sha256.New()
	if p.format == plain {
		return nil
	}
	p.out = bufio.NewWriterSize(partFile{p}, packedSize)
	if p.pack, err = p.p.packers.get(p.format); err != nil {
		return err
	}
	p.pack.Reset(p.out)
	return nil
}

// packer compresses.
type packer interface {
	io.WriteCloser
	Reset(to io.Writer)
}

// packers keeps those that nobody uses: they are large.
type packers struct{ gz, zst sync.Pool }

func (k *packers) get(f format) (packer, error) {
	if f == gz {
		if w, ok := k.gz.Get().(packer); ok {
			return w, nil
		}
		return gzip.NewWriter(nil), nil
	}
	if w, ok := k.zst.Get().(packer); ok {
		return w, nil
	}
	// In the caller's goroutine, and with a window that keeps memory small.
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
}

func (k *packers) put(f format, w packer) {
	if f == gz {
		k.gz.Put(w)
		return
	}
	k.zst.Put(w)
}

// partFile is the file of a part, which counts and sums up what is written.
type partFile struct{ *part }

func (p partFile) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.sum.Write(b[:n])
	p.size += int64(n)
	return n, err
}

// finish makes all of the part durable, and gives it the name in the stage that
// says so.
func (p *part) finish() error {
	err := p.flush()
	if err == nil && p.pack != nil {
		if err = p.pack.Close(); err == nil {
			err = p.out.Flush()
			p.p.packers.put(p.format, p.pack)
			p.pack = nil
		}
	}
	if err == nil {
		err = p.file.Sync()
	}
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
		p.file = nil
	}
	if err != nil {
		return err
	}
	at := p.stage.path(p.name)
	return p.stage.root.Rename(at+openSuffix, at)
}

// drop ends a part that was never finished. No checkpoint names it, so its file
// can go; where it stays, the next incarnation removes it.
func (p *part) drop() error {
	if p.file == nil {
		return nil
	}
	err := p.file.Close()
	p.file = nil
	_ = p.stage.root.Remove(p.stage.path(p.name) + openSuffix)
	return err
}
