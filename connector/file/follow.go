package file

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/internal/sys"
)

// Follow makes Lines go on reading as files grow: the source has no end, and a
// job with it runs until it is stopped. A stop is a pause, and so is a crash:
// the next run goes on where the last checkpoint stands.
//
// A record is a line with its end: what is written of a last line waits for the
// rest, however long that takes, and is never delivered before. Files must only
// be appended to.
//
// With a pattern, files may come while the job runs, and there need be none at
// its start. Each is a split of its own, read from its beginning, and must stay
// as long as the job lives, under its name. To rotate, write each file under a
// name that stays, such as clicks-2026-03-01.jsonl, and follow clicks-*.jsonl.
// What can't be followed stops the job with an error that wraps
// [weir.ErrRefused], at a later start too: a file that was truncated (as
// copytruncate does), that was deleted, or whose name has come to mean another
// file, as when a log is rotated by renaming it.
//
// Compressed files don't grow: one that the pattern matches is read to its end,
// and must come whole, by a rename. Alone it can't be followed.
//
// A file to which nothing was written for a while (see [IdleAfter]) doesn't hold
// windows up, even if its last line is unfinished. What is written to it later,
// and belongs into windows that have been closed meanwhile, is late.
//
// The position has, behind the byte offset, a sum of some of the data before it
// (OFFSET sha256:SUM): so a later run tells the file from another one.
func Follow(opts ...FollowOption) Option {
	f := &followConfig{poll: defaultPoll, idle: defaultIdle}
	for _, o := range opts {
		o.follow(f)
	}
	return option(func(c *config) { c.follow = f })
}

const (
	defaultPoll = 10 * time.Millisecond
	defaultIdle = time.Second
	// minPoll is the first wait behind the end of a file. Each further one takes
	// twice as long, until it is the poll interval.
	minPoll = time.Millisecond
	// manyFiles may be polled at the poll interval. With more of them it grows
	// in proportion, so that quiet files don't cost a core.
	manyFiles = 50
	// newFiles is how often a pattern is looked at again.
	newFiles = 250 * time.Millisecond
)

// FollowOption is an option of Follow.
type FollowOption interface{ follow(*followConfig) }

type followConfig struct{ poll, idle time.Duration }

type followOption func(*followConfig)

func (f followOption) follow(c *followConfig) { f(c) }

// Poll sets how long a line that is written to a quiet file may go unnoticed.
// The default is 10 ms; a file that was just written to is looked at after 1 ms
// already, and with more than 50 files the interval grows in proportion.
func Poll(d time.Duration) FollowOption { return followOption(func(c *followConfig) { c.poll = d }) }

// IdleAfter sets for how long nothing must be written to a file until it is
// idle: until others need not wait for its watermark. The default is 1 s.
func IdleAfter(d time.Duration) FollowOption {
	return followOption(func(c *followConfig) { c.idle = d })
}

func (c *followConfig) check(path string) error {
	switch {
	case c.poll < minPoll || c.poll > time.Minute:
		return fmt.Errorf("file.Poll(%v): give a time from %v to %v", c.poll, minPoll, time.Minute)
	case c.idle < 0:
		return fmt.Errorf("file.IdleAfter(%v): it can't be negative; 0 means at once", c.idle)
	case formatByName(path) != plain && !strings.ContainsAny(path, wildcards):
		return fmt.Errorf("file.Follow: %q is compressed, and such a file doesn't grow by lines; leave file.Follow out, or follow the file that isn't compressed yet", path)
	}
	return nil
}

// Poll says how often files may have come: never where the path is one file's.
func (l *lines[T]) Poll() time.Duration {
	if l.conf.follow == nil || !strings.ContainsAny(l.path, wildcards) {
		return 0
	}
	return max(newFiles, l.conf.follow.poll)
}

// follow makes an open file one that is followed. The same file under another
// name would be read twice: its records can't be told from new ones.
func (l *lines[T]) follow(ctx context.Context, in *input) error {
	info, err := in.f.Stat()
	if err != nil {
		return fmt.Errorf("input file: %w", err)
	}
	l.open.Lock()
	defer l.open.Unlock()
	for path, other := range l.open.infos {
		if path != in.path && os.SameFile(info, other) {
			return fmt.Errorf("%w: input files %q and %q are one file: %s",
				weir.ErrRefused, path, in.path, "it was renamed or linked while it was followed, and would be read twice; "+rotateRight)
		}
	}
	l.open.infos[in.path] = info
	in.watch = newWatch(watchConfig{path: in.path, f: in.f, info: info, clock: sys.From(ctx).Clock, idle: l.conf.follow.idle, every: l.interval}, in.raw)
	return nil
}

// rotateRight is what to do where files were rotated by renaming.
const rotateRight = "bring the old file back under its name, let no pattern match a link, and rotate by writing each file " +
	"under a name that stays, such as clicks-2026-03-01.jsonl"

// unfollow ends what follow began.
func (l *lines[T]) unfollow(in *input) {
	in.watch.close()
	l.open.Lock()
	defer l.open.Unlock()
	delete(l.open.infos, in.path)
}

// interval is the longest wait between two looks at a file.
func (l *lines[T]) interval() time.Duration {
	l.open.Lock()
	defer l.open.Unlock()
	return l.conf.follow.poll * time.Duration(max(1, (len(l.open.infos)+manyFiles-1)/manyFiles))
}

// errGone and its like say what became of a file that is followed.
func errGone(path string) error {
	return fmt.Errorf("%w: input file %q is gone, although it is followed: what was read of it couldn't be told from what wasn't; "+
		"bring it back (a followed file stays as long as the job lives), or start the job over with --start-over (StartOver)", weir.ErrRefused, path)
}

func errReplaced(path string) error {
	return fmt.Errorf("%w: input file %q is another file now: it was replaced, or rotated by renaming, while it was followed; %s",
		weir.ErrRefused, path, rotateRight)
}

func errTruncated(path string, size, had int64) error {
	return fmt.Errorf("%w: input file %q has %d bytes and had %d: it was truncated while it was followed (copytruncate does that); "+
		"put it back as it was and rotate by writing each file under a name that stays, or start the job over with --start-over (StartOver)",
		weir.ErrRefused, path, size, had)
}

func errRewritten(path string, off int64) error {
	return fmt.Errorf("%w: input file %q has changed before byte %d, while it was followed: it was truncated and written anew; %s",
		weir.ErrRefused, path, off, putBack)
}
