package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// How older incarnations are shut out. A file system has no transaction that
// compares and renames, so both are made to fail by what lies in the folder.
// Below, Z is an older incarnation, paused between any two of its steps, and N
// the one that fences. Z's Commit is
//
//	c1 look for a claim higher than its own; there is one: fenced
//	c2 rename each part from Z's stage to its name for readers; sync
//	c3 put the state that names the checkpoint
//	c4 look for a higher claim again; there is one: fenced
//	c5 remove the state before it
//
// and N's Fence is
//
//	f1 put N's claim
//	f2 make N's stage
//	f3 list the ledger: a claim higher than N's: fenced; the newest state is
//	   what the ledger says
//	f4 put the same as N's own state; look for a higher claim, as in c4
//	f5 rename every part in the stages of lower incarnations into N's stage,
//	   lowest incarnation first; remove the states of lower incarnations
//
// A look lists names that are never removed (claims), so it finds each that was
// there when it began. A state is removed only by who has put a newer one and
// has then looked.
//
// The ledger. If c4 found nothing it began before f1 was done, so c3 came before
// f3, and f3 finds that state or a newer one: nothing that was committed is
// forgotten. (f3 can't miss it in passing: it would have to be removed, by a c5
// behind a c4 that began after f1.) If c3 comes after f3, the state that it puts
// is of a lower incarnation than f4's and never counts; and c4 finds N's claim.
//
// The files. A part that Z renames in c2 was in Z's stage at its c1. If c1 began
// after f1, Z is fenced and renames nothing. If it began before, the part was in
// the stage before f5 lists it: then either Z's rename comes first, and the file
// belongs to a checkpoint that was decided before N's Fence, which N will be told
// to commit and then finds published; or N's comes first, and Z's finds no such
// part, however late it comes. Parts are moved one by one, not by renaming Z's
// stage: a rename by a process that already holds the open stage would follow it.
//
// A part that Z makes after f5 stays in Z's stage, unpublished, until clean: it
// is in no checkpoint that counts, since N's start is in the log before f1.
//
// N itself may be paused in f5, and a still newer M fence. N moves parts only
// upwards, from stages lower than N's into N's. M goes through the stages from
// the lowest up, and N's is among them: f2 comes before f3, and if f3 didn't find
// M's claim then N's stage was there before M listed the stages. So whatever N
// has still taken from under M's hands, M finds in N's stage.
//
// A power loss ends every process on the machine. It may undo what no sync has
// followed: moves of f5 (the parts are in the lower stages again, and the next
// Fence moves them), renames of c2 before their sync (the state of c3 wasn't
// put, so the checkpoint is committed again), removals (repeated, or outranked).

// Fence claims the ledgers of all sinks.
func (p *participant) Fence(ctx context.Context, f weir.Fence) (map[string]weir.Ledger, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	p.job, p.by = f.Job, f.By
	p.ledger, p.at, p.rows = nil, stamp{}, nil
	p.stage.Store(nil)
	if err := p.fence(ctx, f, p.sinks); err != nil {
		return nil, p.fail(fmt.Errorf("file: fence earlier incarnations in %s: %w", p.dir, p.explain(err)))
	}
	ledgers := map[string]weir.Ledger{}
	for _, r := range p.rows {
		if !slices.Contains(p.sinks, r.Sink) && !slices.Contains(f.Former, r.Sink) {
			continue
		}
		id, err := weir.ParseCheckpointID(r.Checkpoint)
		if err != nil {
			return nil, p.fail(fmt.Errorf("file: the ledger of sink %q in %s: %w: %w", r.Sink, p.dir, weir.ErrCorrupt, err))
		}
		ledgers[r.Sink] = weir.Ledger{Found: true, ID: id}
	}
	return ledgers, nil
}

// fence claims the run's ledger. Where f.Create allows it, the ledger is made,
// with rows for the sinks given.
func (p *participant) fence(ctx context.Context, f weir.Fence, sinks []string) error {
	if err := p.openHidden(ctx, f.Create); err != nil || p.hidden == nil {
		return err
	}
	l := p.ledgerOf(runDir(f.Job.UUID))
	all, err := l.list(true)
	if err != nil {
		return err
	}
	state, claim := newest(all)
	switch {
	case len(all) == 0 && !f.Create:
		return nil
	case claim.inc > f.By.Number:
		return p.fenced(claim)
	case f.Create && state == (stamp{}):
		if err := p.otherRuns(ctx, f.StartOver); err != nil {
			return err
		}
	}
	if err := p.claim(ctx, l); err != nil {
		return err
	}
	if f.Create && p.at == (stamp{}) {
		// Again, now that others can see the claim: two jobs may start at once.
		if err := p.otherRuns(ctx, false); err != nil {
			return errors.Join(err, l.blobs.Delete(l.dir+"/"+stamp{inc: p.by.Number}.String()))
		}
	}
	if f.Create {
		for _, sink := range sinks {
			p.addRow(row{Sink: sink})
		}
	}
	if p.at.inc != p.by.Number && p.rows != nil { // as it is when Fence is repeated
		if err := p.setRows(ctx, p.rows); err != nil {
			return err
		}
	}
	return p.takeOver()
}

func (p *participant) ledgerOf(run string) *ledger {
	return &ledger{blobs: sys.NewBlobs(p.hidden), files: p.hidden, dir: path.Join(run, ledgerDir), where: p.dir}
}

// claim is f1 to f3.
func (p *participant) claim(ctx context.Context, l *ledger) error {
	p.ledger = l
	mine := entry{Job: p.job.Name, UUID: p.job.UUID, Incarnation: p.by.Number, Nonce: p.by.Nonce}
	err := l.put(ctx, 0, mine)
	if errors.Is(err, fs.ErrExist) {
		err = p.sameStart(l)
	}
	if err != nil {
		return err
	}
	stages := path.Join(hiddenDir, runDir(p.job.UUID), stageDir)
	parts := &stage{root: p.root, dir: path.Join(stages, strconv.FormatInt(p.by.Number, 10)), inc: p.by.Number}
	if err := p.root.Mkdir(parts.dir); err != nil {
		return err
	}
	for _, dir := range []string{path.Dir(stages), stages} {
		if err := p.root.SyncDir(dir); err != nil {
			return err
		}
	}
	all, err := l.list(true)
	if err != nil {
		return err
	}
	state, claim := newest(all)
	if claim.inc > p.by.Number {
		return p.fenced(claim)
	}
	if state != (stamp{}) {
		e, err := l.read(state)
		if err != nil {
			return err
		}
		p.at, p.rows = state, e.Rows
	}
	p.stage.Store(parts)
	return nil
}

// sameStart compares an entry that has our number with us.
func (p *participant) sameStart(l *ledger) error {
	e, err := l.read(stamp{inc: p.by.Number})
	if err != nil || e.Nonce == p.by.Nonce {
		return err
	}
	return fmt.Errorf("%w: this state directory is a copy or comes from a backup: the ledger in %s names incarnation %d (%s), "+
		"which this directory's log doesn't have: start with the directory that has it, or start over with --start-over (StartOver) in an empty one",
		weir.ErrRefused, p.dir, e.Incarnation, e.Nonce)
}

func (p *participant) addRow(r row) {
	if !slices.ContainsFunc(p.rows, func(o row) bool { return o.Sink == r.Sink }) {
		p.rows = append(slices.Clone(p.rows), r)
	}
}

// otherRuns keeps a run that starts from nothing away from the results of
// another one, unless these are given up.
func (p *participant) otherRuns(ctx context.Context, startOver bool) error {
	names, err := p.hidden.List(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		run, isDir := strings.CutSuffix(name, "/")
		if !isDir || !strings.HasPrefix(run, runPrefix) || run == runDir(p.job.UUID) {
			continue
		}
		l := p.ledgerOf(run)
		all, err := l.list(true)
		if err != nil {
			return err
		}
		_, claim := newest(all)
		if claim == (stamp{}) || claim.inc == giveUp {
			continue
		}
		e, err := l.read(claim)
		if err != nil {
			return err
		}
		switch {
		case e.Job != p.job.Name:
			return fmt.Errorf("%w: the folder belongs to the job %q (run %s): name another folder for sink %q; "+
				"or, if that job is gone for good, delete %s and its files", weir.ErrRefused, e.Job, e.UUID, p.sinks[0], path.Join(p.dir, hiddenDir, run))
		case !startOver:
			return fmt.Errorf("%w: the folder already belongs to another run of the job %q (run %s), and this run starts "+
				"from nothing: start with that run's state directory, or name another folder, or give those results up with "+
				"--start-over (StartOver): the files that are there stay as they are", weir.ErrRefused, e.Job, e.UUID)
		}
		if err := p.giveUp(ctx, l, e); err != nil {
			return err
		}
	}
	return nil
}

// giveUp shuts out another run for good. Nobody can need its parts after that.
func (p *participant) giveUp(ctx context.Context, l *ledger, e entry) error {
	e.Incarnation, e.Nonce, e.Rows = giveUp, p.by.Nonce, nil
	if err := l.put(ctx, 0, e); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.eachStage(runDir(e.UUID), giveUp, func(dir string, parts []string) error {
		for _, name := range parts {
			if err := p.root.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

// takeOver is f5.
func (p *participant) takeOver() error {
	mine := p.stage.Load()
	err := p.eachStage(runDir(p.job.UUID), p.by.Number, func(dir string, parts []string) error {
		moved := false
		for _, name := range parts {
			var err error
			if strings.HasSuffix(name, openSuffix) {
				err = p.root.Remove(path.Join(dir, name))
			} else {
				err = p.root.Rename(path.Join(dir, name), mine.path(name))
				moved = moved || err == nil
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if !moved {
			return nil
		}
		// Before the lower stage is removed: a power loss could otherwise undo
		// the moves and not the removal.
		return p.root.SyncDir(mine.dir)
	})
	if err != nil {
		return err
	}
	all, err := p.ledger.list(false)
	for _, s := range all {
		if s.inc < p.by.Number && p.at.inc == p.by.Number {
			p.ledger.forget(s)
		}
	}
	return err
}

// eachStage calls do for the stages of a run's incarnations lower than limit,
// the lowest first, and removes those that are empty then. One that stays
// harms nobody.
func (p *participant) eachStage(run string, limit int64, do func(dir string, parts []string) error) error {
	stages := path.Join(hiddenDir, run, stageDir)
	names, err := p.root.List(stages)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var incs []int64
	for _, name := range names {
		if inc, err := strconv.ParseInt(strings.TrimSuffix(name, "/"), 10, 64); err == nil && inc < limit {
			incs = append(incs, inc)
		}
	}
	slices.Sort(incs)
	for _, inc := range incs {
		dir := path.Join(stages, strconv.FormatInt(inc, 10))
		parts, err := p.root.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = do(dir, parts)
		}
		if err != nil {
			return err
		}
		_ = p.root.Remove(dir)
	}
	return nil
}

// clean removes what earlier incarnations have left: parts of epochs that were
// abandoned, and temporary files. What can't be removed harms nobody and is
// tried again by the next incarnation.
func (p *participant) clean() error {
	if err := p.owned(); err != nil {
		return err
	}
	remove := func(dir string, parts []string) error {
		for _, name := range parts {
			if !p.own[name] {
				_ = p.root.Remove(path.Join(dir, name))
			}
		}
		return nil
	}
	if err := p.eachStage(runDir(p.job.UUID), p.by.Number, remove); err != nil {
		return err
	}
	mine := p.stage.Load()
	parts, err := p.root.List(mine.dir)
	if err != nil {
		return err
	}
	ours := strconv.FormatInt(p.by.Number, 10) + "-"
	parts = slices.DeleteFunc(parts, func(name string) bool { return strings.HasPrefix(name, ours) })
	_ = remove(mine.dir, parts)
	return sys.CleanTemp(p.hidden)
}
