package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// What a job hasn't read when a topic's retention has run out is deleted all the
// same. The feed follows how far the job's checkpoint is from that: a message may go
// when the newest one of its segment is older than retention.ms, which is no sooner
// than that of its own batch.

// keep is what is known of how long a tap's messages are kept.
type keep struct {
	marks []mark // positions, oldest first; the first is the checkpoint's
	time  time.Duration
	bytes int64  // of the partition; 0: any number
	told  danger // of which an operator was told
}

// mark is a position that a checkpoint may be made at, and the timestamp of the
// batch that follows it.
type mark struct {
	at     int64
	newest int64 // ms; -1: nothing has come yet, or it has no timestamp
}

// mostMarks is more than the epochs that can be open at a time.
const mostMarks = 8

// mark notes where the reader stands at a barrier. newest is of the batch that it
// is in; -1 if it is in none.
func (t *tap) mark(at, newest int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &t.keep
	if n := len(k.marks); n > 0 && k.marks[n-1].at == at {
		return
	}
	for i := 0; newest < 0 && i < len(t.parcels); i++ {
		if b, _, ok := cutBatch(t.parcels[i].raw); ok {
			newest = b.newest
		}
	}
	if len(k.marks) == mostMarks {
		k.marks = slices.Delete(k.marks, 1, 2)
	}
	k.marks = append(k.marks, mark{at, newest})
}

// unread takes in the timestamp of a batch that has come, for positions that
// nothing had followed yet.
func (t *tap) unread(newest int64) {
	for i := range t.keep.marks {
		if m := &t.keep.marks[i]; m.newest < 0 {
			m.newest = newest
		}
	}
}

// saved takes note of where the job's checkpoint stands.
func (f *feed) saved(at map[string]position) {
	for _, t := range f.taps() {
		p, ok := at[splitName(t.topic, t.partition)]
		if !ok {
			continue
		}
		t.mu.Lock()
		for len(t.keep.marks) > 1 && t.keep.marks[0].at < p.offset {
			t.keep.marks = t.keep.marks[1:]
		}
		t.mu.Unlock()
	}
}

// expires is from when on what follows the checkpoint may be deleted; zero: never,
// or it isn't known.
func (t *tap) expires() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &t.keep
	if k.time <= 0 || len(k.marks) == 0 || k.marks[0].newest < 0 || k.marks[0].at >= t.end {
		return time.Time{}
	}
	return time.UnixMilli(k.marks[0].newest).UTC().Add(k.time)
}

// danger is how near a checkpoint is to losing its input.
type danger int

const (
	safe     danger = iota
	near            // a fifth of the retention is left
	imminent        // a twentieth
	lost
)

// judge says how near the tap's checkpoint is to losing its input, and why.
func (t *tap) judge(now time.Time) (danger, string) {
	expires := t.expires()
	t.mu.Lock()
	defer t.mu.Unlock()
	k := &t.keep
	if len(k.marks) == 0 || k.marks[0].at >= t.end {
		return safe, ""
	}
	at := k.marks[0].at
	if t.start > at {
		return lost, fmt.Sprintf("the job's checkpoint stands at offset %d, and the log starts at %d by now: once the job restarts, it will be refused to go on", at, t.start)
	}
	if left := expires.Sub(now); !expires.IsZero() && left < k.time/5 {
		d := near
		if left < k.time/20 {
			d = imminent
		}
		return d, fmt.Sprintf("the job's checkpoint stands at offset %d, and what follows it may be deleted from %s on (retention.ms=%d)", at, expires.Format(time.RFC3339), k.time.Milliseconds())
	}
	if whole := t.end - t.start; k.bytes > 0 && t.start > 0 && at-t.start < whole/5 {
		d := near
		if at-t.start < whole/20 {
			d = imminent
		}
		return d, fmt.Sprintf("the job's checkpoint stands at offset %d, the log holds %d to %d, and its oldest part is deleted whenever it has grown (retention.bytes=%d)", at, t.start, t.end-1, k.bytes)
	}
	return safe, ""
}

// lookEvery is at how many beats the topics' settings are asked for again.
const lookEvery = 30

// watchRetention compares the checkpoint with what is kept, again and again.
// What it can't find out is no reason to stop: the doctor says why it can't.
func (f *feed) watchRetention() {
	for n := 0; f.sleep(f.conf.discover); n++ {
		byTopic := map[string][]*tap{}
		for _, t := range f.taps() {
			byTopic[t.topic] = append(byTopic[t.topic], t)
		}
		topics := slices.Sorted(maps.Keys(byTopic))
		if len(topics) == 0 {
			continue
		}
		if n%lookEvery == 0 {
			f.readRetention(topics, byTopic)
		}
		// A reader that stands still isn't fetched for, and so not told.
		if starts, err := f.adm.ListStartOffsets(f.ctx, topics...); err == nil {
			for _, t := range f.taps() {
				if o, ok := starts.Lookup(t.topic, t.partition); ok && o.Err == nil {
					t.mu.Lock()
					t.start = max(t.start, o.Offset)
					t.mu.Unlock()
				}
			}
		}
		f.tellDanger()
	}
}

// tellDanger warns of what has come nearer.
func (f *feed) tellDanger() {
	now := f.now()
	for _, t := range f.taps() {
		d, why := t.judge(now)
		t.mu.Lock()
		tell := d > t.keep.told
		if tell || d == safe {
			t.keep.told = d
		}
		t.mu.Unlock()
		if tell {
			warn(f.ctx, fmt.Sprintf("topic %s, partition %d: %s; let the job catch up, or raise the topic's retention", t.topic, t.partition, why))
		}
	}
}

// readRetention reads how long the topics keep their messages.
func (f *feed) readRetention(topics []string, byTopic map[string][]*tap) {
	all, err := f.adm.DescribeTopicConfigs(f.ctx, topics...)
	if err != nil {
		return
	}
	for _, rc := range all {
		if rc.Err != nil {
			continue
		}
		keep, bytes := retentionOf(rc)
		for _, t := range byTopic[rc.Name] {
			t.mu.Lock()
			t.keep.time, t.keep.bytes = keep, bytes
			t.mu.Unlock()
		}
	}
}

// retentionOf is how long a topic keeps its messages, and how much of them; 0 for
// any.
func retentionOf(rc kadm.ResourceConfig) (time.Duration, int64) {
	value := map[string]string{}
	for _, c := range rc.Configs {
		value[c.Key] = c.MaybeValue()
	}
	if policy := value["cleanup.policy"]; policy != "" && !strings.Contains(policy, "delete") {
		return 0, 0
	}
	ms, err := strconv.ParseInt(value["retention.ms"], 10, 64)
	if err != nil || ms < 0 || ms > int64(100*365*24*time.Hour/time.Millisecond) {
		ms = 0
	}
	bytes, err := strconv.ParseInt(value["retention.bytes"], 10, 64)
	if err != nil || bytes < 0 {
		bytes = 0
	}
	return time.Duration(ms) * time.Millisecond, bytes
}
