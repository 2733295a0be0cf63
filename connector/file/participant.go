package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// The folder of a participant. What doesn't begin with a dot is for readers.
//
//	PREFIX-EPOCH-TASK-CHECKPOINT.jsonl       published parts
//	.weir/run-UUID/ledger/INCARNATION-N      the ledger of a run
//	.weir/run-UUID/stage/INCARNATION/PART    parts that aren't published yet
//	.weir/tmp/                               entries on their way
const (
	hiddenDir = ".weir"
	runPrefix = "run-"
	stageDir  = "stage"
	ledgerDir = "ledger"
	// openSuffix ends the name of a part that isn't whole. No checkpoint names
	// one.
	openSuffix = ".open"
)

// stage is where one incarnation keeps its parts.
type stage struct {
	root sys.Files
	dir  string // from the root
	inc  int64
	n    atomic.Int64 // parts so far
}

func (s *stage) path(name string) string { return path.Join(s.dir, name) }

// next names a new part. No other incarnation uses the name.
func (s *stage) next() string { return partName(s.inc, s.n.Add(1)) }

func partName(inc, n int64) string { return fmt.Sprintf("%d-%06d", inc, n) }

// participant is the sinks of one folder in one run. After an error it answers
// with that error: recovery is a new participant of a newer incarnation.
type participant struct {
	dir, name string
	sinks     []string  // ids, sorted
	root      sys.Files // the folder
	packers   packers
	stage     atomic.Pointer[stage] // nil before Fence and after Close

	mu      sync.Mutex // held during every call of control
	err     error      // the first one
	hidden  sys.Files  // nil while it isn't there
	targets []*target
	job     weir.JobID
	by      weir.Incarnation
	ledger  *ledger // claimed by us once there is a stage; nil where there is none
	at      stamp   // the state that counts, which is ours; zero: none
	rows    []row   // what it says
	own     map[string]bool
	cleaned bool
}

func connect(ctx context.Context, dir, name string, sinks []string) (*participant, error) {
	root, err := sys.From(ctx).Files(dir)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return &participant{dir: dir, name: name, sinks: slices.Sorted(slices.Values(sinks)), root: root, own: map[string]bool{}}, nil
}

// attach adds a sink.
func (p *participant) attach(t *target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if !slices.Contains(p.sinks, t.sink) {
		return fmt.Errorf("%s was connected for %v only", p.name, p.sinks)
	}
	for _, o := range p.targets {
		switch {
		case o.sink == t.sink:
			return errors.New("opened twice")
		case o.prefix == t.prefix:
			return fmt.Errorf("%w: it and sink %q both write files called %s-... into %s: give one of them another prefix, by Prefix",
				weir.ErrDeclaration, o.sink, t.prefix, p.dir)
		}
	}
	p.targets = append(p.targets, t)
	slices.SortFunc(p.targets, func(a, b *target) int { return strings.Compare(a.sink, b.sink) })
	return nil
}

// Prepare makes the epoch's parts whole and durable, and returns their list.
// By now whatever was staged by earlier incarnations is published, or belongs
// to epochs that were abandoned.
func (p *participant) Prepare(ctx context.Context, epoch int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usable(); err != nil {
		return nil, err
	}
	parts, err := p.prepare(epoch)
	if err != nil {
		return nil, p.fail(fmt.Errorf("file: prepare epoch %d in %s: %w", epoch, p.dir, p.explain(err)))
	}
	return encodeStaged(parts), nil
}

func (p *participant) prepare(epoch int64) ([]stagedPart, error) {
	if !p.cleaned {
		if err := p.clean(); err != nil {
			return nil, err
		}
		p.cleaned = true
	}
	var parts []stagedPart
	for _, t := range p.targets {
		for _, w := range t.all() {
			part, err := w.take(epoch)
			if err == nil && part != nil {
				err = part.finish()
			}
			if err != nil {
				return nil, fmt.Errorf("sink %q, task %d: %w", t.sink, w.task, err)
			}
			if part == nil {
				continue
			}
			parts = append(parts, stagedPart{sink: t.sink, prefix: t.prefix, ending: ending(part.format), task: w.task,
				name: part.name, size: part.size, sum: [32]byte(part.sum.Sum(nil))})
			p.own[part.name] = true
		}
	}
	if parts == nil {
		return nil, nil
	}
	return parts, p.root.SyncDir(p.stage.Load().dir)
}

// ending is how the names of published parts end.
func ending(f format) string {
	if f == plain {
		return ".jsonl"
	}
	return ".jsonl" + suffix(f)
}

// usable says why nothing can be committed.
func (p *participant) usable() error {
	switch {
	case p.err != nil:
		return p.err
	case p.stage.Load() == nil:
		return fmt.Errorf("file: %s hasn't been fenced for this job, or has no ledger of it", p.dir)
	}
	return nil
}

// owned fails if a newer incarnation has claimed the ledger. Its claim was there
// before the call began, or may not be seen.
func (p *participant) owned() error {
	all, err := p.ledger.list(false)
	if err != nil {
		return err
	}
	if _, claim := newest(all); claim.inc > p.by.Number {
		return p.fenced(claim)
	}
	return nil
}

func (p *participant) fenced(claim stamp) error {
	if claim.inc == giveUp {
		return fmt.Errorf("%w: incarnation %d (%s) can't write to %s: the results of this run (%s) were given up",
			weir.ErrFenced, p.by.Number, p.by.Nonce, p.dir, p.job.UUID)
	}
	return fmt.Errorf("%w: incarnation %d (%s) can't write to %s: its ledger names incarnation %d; or, if no newer process runs, "+
		"this state directory is a copy or comes from a backup", weir.ErrFenced, p.by.Number, p.by.Nonce, p.dir, claim.inc)
}

// explain says that something is gone because a newer incarnation took it away.
func (p *participant) explain(err error) error {
	if p.ledger == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if fenced := p.owned(); errors.Is(fenced, weir.ErrFenced) {
		return fenced
	}
	return err
}

// Flush has nothing to wait for: all waits for a Commit.
func (p *participant) Flush(context.Context) error { return nil }

// Close gives up what wasn't prepared.
func (p *participant) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = errSinkClosed
	}
	p.stage.Store(nil)
	var errs []error
	for _, t := range p.targets {
		for _, w := range t.all() {
			errs = append(errs, w.close())
		}
	}
	p.targets = nil
	if p.hidden != nil {
		errs = append(errs, p.hidden.Close())
		p.hidden = nil
	}
	if p.root != nil {
		errs = append(errs, p.root.Close())
		p.root = nil
	}
	return errors.Join(errs...)
}

// fail makes err the participant's last word.
func (p *participant) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

// openHidden opens the hidden folder, which is made only if asked for.
func (p *participant) openHidden(ctx context.Context, create bool) error {
	if p.hidden != nil {
		return nil
	}
	names, err := p.root.List(".")
	if err != nil {
		return err
	}
	if !create && !slices.Contains(names, hiddenDir+"/") {
		return nil
	}
	p.hidden, err = sys.From(ctx).Files(filepath.Join(p.dir, hiddenDir))
	return err
}
