package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir"
)

// groupOf is the group that the offsets of a source are committed to; "" if there
// is no job.
func (c *sourceConfig) groupOf(ctx context.Context, of *Cluster) string {
	if job := weir.JobName(ctx); c.group == "" && job != "" {
		return of.prefix + job
	}
	return c.group
}

// Committed takes note of where the job's checkpoint stands, and has the offsets
// committed to the group. That is done soon, and not at once: nothing waits for it,
// and a cluster that is away must not hold up the job.
func (s *source[T]) Committed(ctx context.Context, positions []weir.Position) error {
	at := make(map[string]position, len(positions))
	for _, p := range positions {
		pos, err := parsePosition(p.At)
		if err != nil {
			return fmt.Errorf("split %s: %w", p.Split, err)
		}
		at[p.Split] = pos
	}
	f, release, err := s.acquire(ctx, false)
	if f == nil || err != nil {
		return err
	}
	defer release()
	f.saved(at)
	if s.c.shared.carries(weir.JobName(ctx)) {
		return nil // a sink's transactions commit them
	}
	return f.group.commit(at)
}

const (
	// groupEvery is how often offsets are committed to the group, at most. It is
	// for people who look at a job's lag.
	groupEvery = time.Second
	// groupRenew is how often offsets that haven't changed are committed again: a
	// broker forgets those that are days old.
	groupRenew = time.Hour
	// groupLast is how long the end of a run waits for the last ones.
	groupLast = 3 * time.Second
)

// groupCommits commits offsets to the group, in a goroutine of the feed.
type groupCommits struct {
	f     *feed
	group string
	wake  chan struct{}
	idle  chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	at      map[string]position // to be committed; nil: nothing new
	err     error               // of the last try, not told yet
	ending  chan struct{}
	ended   bool
	renewed time.Time
	sent    map[string]int64 // by split, what the group has
}

func newGroupCommits(f *feed, group string) *groupCommits {
	return &groupCommits{f: f, group: group, wake: make(chan struct{}, 1), idle: make(chan struct{}), ending: make(chan struct{}), sent: map[string]int64{}}
}

// commit hands offsets over. The error is that of an earlier try.
func (g *groupCommits) commit(at map[string]position) error {
	if g.group == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = at
	select {
	case g.wake <- struct{}{}:
	default:
	}
	err := g.err
	g.err = nil
	return err
}

func (g *groupCommits) run() {
	defer close(g.idle)
	for {
		select {
		case <-g.wake:
		case <-g.ending:
			g.send()
			return
		case <-g.f.ctx.Done():
			return
		}
		g.send()
		// No sooner than in a while, unless it is over.
		select {
		case <-g.f.env().Clock.After(groupEvery):
		case <-g.ending:
		case <-g.f.ctx.Done():
			return
		}
	}
}

// flush commits what is left, and ends the goroutine, which may take a moment.
func (g *groupCommits) flush() {
	g.mu.Lock()
	if !g.ended {
		g.ended = true
		close(g.ending)
	}
	g.mu.Unlock()
	select {
	case <-g.idle:
	case <-g.f.env().Clock.After(groupLast):
	}
}

// send commits what is new.
func (g *groupCommits) send() {
	g.mu.Lock()
	at := g.at
	g.at = nil
	g.mu.Unlock()
	now := g.f.now()
	if now.Sub(g.renewed) >= groupRenew {
		clear(g.sent)
	}
	news := map[string]position{}
	for split, p := range at {
		if was, ok := g.sent[split]; !ok || was != p.offset {
			news[split] = p
		}
	}
	if len(news) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(g.f.ctx, groupLast)
	defer cancel()
	if err := g.f.ask.commitOffsets(ctx, g.group, news); err != nil {
		g.mu.Lock()
		g.err = err
		g.mu.Unlock()
		return
	}
	if len(g.sent) == 0 {
		g.renewed = now
	}
	for split, p := range news {
		g.sent[split] = p.offset
	}
}

// commitOffsets commits offsets to a group that nobody is a member of: a plain
// commit, with no member and generation -1.
func (a *ask) commitOffsets(ctx context.Context, group string, at map[string]position) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	for _, split := range slices.SortedFunc(maps.Keys(at), cmp.Compare[string]) {
		topic, partition, err := parseSplit(split)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(req.Topics, func(t kmsg.OffsetCommitRequestTopic) bool { return t.Topic == topic })
		if i < 0 {
			i = len(req.Topics)
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = topic, at[split].topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = partition, at[split].offset, -1, kmsg.StringPtr("")
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	what := "commit offsets to group " + group
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return a.c.explain(what, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnknownMemberID):
				return fmt.Errorf("%s: somebody else is a member of it: the job needs one of its own (kafka.Group)", what)
			case err != nil:
				return a.c.explain(what, fmt.Errorf("partition %d: %w", p.Partition, err))
			}
		}
	}
	return nil
}
