package file

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/weirstream/weir"
)

// stagedPart is one part of an epoch that is prepared.
type stagedPart struct {
	sink, prefix, ending string
	task                 int
	name                 string // in the stage
	size                 int64
	sum                  [32]byte // SHA-256
}

// What is kept with a checkpoint, all numbers little endian:
//
//	byte     version, 1
//	uvarint  number of parts; for each:
//	  text     id of the sink
//	  text     prefix of the published name
//	  text     its ending
//	  uvarint  task
//	  text     name in the stage
//	  uvarint  size in bytes
//	  32 bytes SHA-256
//
// A text is a uvarint length and as many bytes.
const partsVersion = 1

func encodeStaged(parts []stagedPart) []byte {
	b := binary.AppendUvarint([]byte{partsVersion}, uint64(len(parts)))
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	for _, s := range parts {
		text(s.sink)
		text(s.prefix)
		text(s.ending)
		b = binary.AppendUvarint(b, uint64(s.task))
		text(s.name)
		b = binary.AppendUvarint(b, uint64(s.size))
		b = append(b, s.sum[:]...)
	}
	return b
}

func decodeStaged(b []byte) ([]stagedPart, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: the list of its parts wasn't kept with the checkpoint: restore the state directory from a backup", weir.ErrCorrupt)
	}
	if b[0] != partsVersion {
		return nil, fmt.Errorf("%w: parts kept with the checkpoint have format %d, and this version of weir reads %d", weir.ErrRefused, b[0], partsVersion)
	}
	b = b[1:]
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			bad, b = true, nil
			return nil
		}
		v := b[:n]
		b = b[n:]
		return v
	}
	text := func() string { return string(take(number())) }
	var parts []stagedPart
	for n := number(); n > 0 && !bad; n-- {
		s := stagedPart{sink: text(), prefix: text(), ending: text(), task: int(number()), name: text(), size: int64(number())}
		copy(s.sum[:], take(sha256.Size))
		parts = append(parts, s)
		bad = bad || path.Base(s.name) != s.name || checkPrefix(s.prefix) != nil
	}
	if bad || len(b) > 0 {
		return nil, fmt.Errorf("%w: the parts kept with the checkpoint don't have the length that they say", weir.ErrCorrupt)
	}
	return parts, nil
}

// published is the name that the part has for readers.
func (s stagedPart) published(c weir.Commit) string {
	return fmt.Sprintf("%s-%012d-%03d-%s%s", s.prefix, c.Epoch, s.task, c.ID, s.ending)
}

// Commit publishes the epoch's parts and then moves the ledger. What each step
// may meet, and why a zombie can't get in between, is told at Fence.
func (p *participant) Commit(ctx context.Context, c weir.Commit) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return err
	}
	if err := p.commit(ctx, c); err != nil {
		return p.fail(fmt.Errorf("file: commit epoch %d in %s: %w", c.Epoch, p.dir, p.explain(err)))
	}
	return nil
}

func (p *participant) commit(ctx context.Context, c weir.Commit) error {
	if err := p.owned(); err != nil {
		return err
	}
	rows, err := p.move(c)
	if err != nil || rows == nil {
		return err
	}
	var parts []stagedPart
	if len(c.Staged) > 0 || !c.Empty && !c.Parent.IsZero() {
		if parts, err = decodeStaged(c.Staged); err != nil {
			return err
		}
	}
	for _, s := range parts {
		if err := p.publish(s, c); err != nil {
			return fmt.Errorf("sink %q, task %d: %w", s.sink, s.task, err)
		}
	}
	if parts != nil {
		// Also if none had to be renamed: whoever did it may have been killed
		// before it could sync.
		if err := p.root.SyncDir("."); err != nil {
			return err
		}
	}
	if err := p.setRows(ctx, rows); err != nil {
		return err
	}
	for _, s := range parts {
		delete(p.own, s.name)
	}
	return nil
}

// move returns the ledgers' rows as they are to be, or nil if they name c.ID
// already.
func (p *participant) move(c weir.Commit) ([]row, error) {
	rows := slices.Clone(p.rows)
	done := 0
	for _, sink := range p.sinks {
		i := slices.IndexFunc(rows, func(r row) bool { return r.Sink == sink })
		switch {
		case i < 0:
			return nil, fmt.Errorf("%w: sink %q has no ledger there: restore the folder from a backup", weir.ErrRefused, sink)
		case rows[i].Checkpoint == c.ID.String():
			done++
		case rows[i].Checkpoint != c.Parent.String():
			return nil, fmt.Errorf("%w: the ledger of sink %q names checkpoint %q, where %q was to follow %q: "+
				"the folder or the state directory was replaced", weir.ErrRefused, sink, rows[i].Checkpoint, c.ID, c.Parent)
		default:
			rows[i].Checkpoint = c.ID.String()
		}
	}
	switch done {
	case 0:
		return rows, nil
	case len(p.sinks):
		return nil, nil
	}
	return nil, fmt.Errorf("%w: some of its ledgers name checkpoint %q and some don't: restore the folder from a backup", weir.ErrRefused, c.ID)
}

// setRows puts a new state into the ledger, and removes the one before it as
// soon as it is sure that no newer incarnation can have to read that.
func (p *participant) setRows(ctx context.Context, rows []row) error {
	at := stamp{p.by.Number, 1}
	if p.at.inc == p.by.Number {
		at.n = p.at.n + 1
	}
	err := p.ledger.put(ctx, at.n, entry{Job: p.job.Name, UUID: p.job.UUID, Incarnation: p.by.Number, Nonce: p.by.Nonce, Rows: rows})
	if err != nil {
		return err
	}
	if err := p.owned(); err != nil {
		return err
	}
	if p.at != (stamp{}) {
		p.ledger.forget(p.at)
	}
	p.at, p.rows = at, rows
	return nil
}

// publish gives a part its name for readers. The part is gone and the name is
// there: done, by this or an earlier incarnation.
func (p *participant) publish(s stagedPart, c weir.Commit) error {
	from, to := p.stage.Load().path(s.name), s.published(c)
	var err error
	if !p.own[s.name] {
		err = p.verify(from, s)
	}
	if err == nil {
		err = p.root.Rename(from, to)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.owned(); err != nil {
		return err
	}
	there, err := p.root.Open(to)
	if err == nil {
		return there.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: the part %s of checkpoint %s is gone: it lies neither in %s nor, published, in %s: "+
		"restore the folder from a backup; or, if a reader has taken the file away already, put an empty file of that name in its place and start again",
		weir.ErrRefused, to, c.ID, from, p.dir)
}

// verify checks a part that another incarnation wrote.
func (p *participant) verify(from string, s stagedPart) (err error) {
	f, err := p.root.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return fmt.Errorf("read the part back: %w", err)
	}
	if n != s.size || [32]byte(sum.Sum(nil)) != s.sum {
		return fmt.Errorf("%w: the part %s in %s isn't what was written: it has %d bytes, %d were written (or its checksum differs): restore the folder from a backup",
			weir.ErrCorrupt, from, p.dir, n, s.size)
	}
	return nil
}
