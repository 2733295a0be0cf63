package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// examineRetention judges whether what the job hasn't read is still there when it
// goes on: in general, by the budget for downtime, and where the checkpoint stands.
func (e *exam) examineRetention(ctx context.Context, t *seenTopic, all map[string]bounds, at map[int32]position) {
	if t.configsErr != nil || len(t.policies()) == 1 && t.policies()[0] == "compact" {
		return
	}
	subject := "topic " + t.name
	age := millis(t.configs["retention.ms"])
	size, _ := t.number("retention.bytes")
	switch {
	case age < e.Downtime:
		e.problem(subject, fmt.Sprintf("keep it for longer, or give a smaller budget (--downtime):\n%s", e.alter(t.name, fmt.Sprintf("retention.ms=%d", (2*e.Downtime).Milliseconds()))),
			"retention.ms=%d (%s): a job that stands still for %s finds a gap", age.Milliseconds(), days(age), days(e.Downtime))
	case age > 100*365*24*time.Hour && size < 0:
		e.ok(subject, "its records are kept for ever")
		return
	case size < 0:
		e.ok(subject, "its records are kept for %s, longer than the job may stand still (%s)", days(age), days(e.Downtime))
	}
	first := map[int32]int64{}
	for name, b := range all {
		if _, p, err := parseSplit(name); err == nil && b.start < b.end {
			first[p] = b.start
		}
	}
	if size >= 0 {
		e.examineSize(ctx, t, size, first)
	}
	e.examineDeadline(ctx, t, age, all, at)
}

// examineSize estimates how long a limit in bytes lasts, at the rate at which the
// partitions have filled so far.
func (e *exam) examineSize(ctx context.Context, t *seenTopic, limit int64, first map[int32]int64) {
	subject := "topic " + t.name
	set := kadm.TopicsSet{}
	set.Add(t.name, t.Partitions.Numbers()...)
	dirs, err := e.adm.DescribeAllLogDirs(ctx, set)
	if err != nil {
		e.unseen(subject, fmt.Sprintf("see how long retention.bytes=%d lasts for topic %s", limit, t.name), err)
		return
	}
	largest := map[int32]int64{}
	for _, broker := range dirs {
		for _, dir := range broker {
			dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
				if p.Topic == t.name {
					largest[p.Partition] = max(largest[p.Partition], p.Size)
				}
			})
		}
	}
	worst, where, now := time.Duration(1<<63-1), int32(-1), e.clock()
	for p, start := range first {
		oldest, ok := e.timeAt(ctx, t, p, start)
		if span := now.Sub(oldest); ok && span > time.Minute && largest[p] > 0 {
			if lasts := time.Duration(float64(span) * float64(limit) / float64(largest[p])); lasts < worst {
				worst, where = lasts, p
			}
		}
	}
	switch {
	case where < 0:
		e.ok(subject, "retention.bytes=%d a partition: how long that lasts can't be told yet", limit)
	case worst < e.Downtime:
		e.problem(subject, "keep more, or give a smaller budget (--downtime):\n"+e.alter(t.name, fmt.Sprintf("retention.bytes=%d", int64(float64(limit)*2*float64(e.Downtime)/float64(worst)))),
			"retention.bytes=%d holds about %s of %s at its rate so far: a job that stands still for %s finds a gap", limit, days(worst.Round(time.Second)), splitName(t.name, where), days(e.Downtime))
	default:
		e.ok(subject, "retention.bytes=%d holds about %s of a partition at the rate so far", limit, days(worst.Round(time.Second)))
	}
}

// examineDeadline says when retention reaches what the checkpoint needs.
func (e *exam) examineDeadline(ctx context.Context, t *seenTopic, age time.Duration, all map[string]bounds, at map[int32]position) {
	if age > 100*365*24*time.Hour {
		return
	}
	var soonest time.Time
	where, now := int32(-1), e.clock()
	for p, pos := range at {
		b, ok := all[splitName(t.name, p)]
		if !ok || b.id != pos.topic || pos.offset < b.start || pos.offset >= b.end {
			continue // it is gone, or there is nothing to be lost
		}
		when, ok := e.timeAt(ctx, t, p, pos.offset)
		if ok && (where < 0 || when.Before(soonest)) {
			soonest, where = when, p
		}
	}
	if where < 0 {
		return
	}
	deadline := soonest.Add(age)
	left := deadline.Sub(now)
	pos := at[where].offset
	name, stamp := splitName(t.name, where), deadline.UTC().Format("2006-01-02T15:04Z")
	more := "run the job, or keep the topic for longer:\n" + e.alter(t.name, fmt.Sprintf("retention.ms=%d", (age+2*e.Downtime).Milliseconds()))
	switch {
	case left <= 0:
		e.problem(name, more, "the checkpoint stands at offset %d, whose record is older than retention allows since %s: it may be deleted at any moment", pos, stamp)
	case left < e.Downtime:
		e.warn(name, more, "the checkpoint stands at offset %d, whose record may be deleted from %s on, in %s", pos, stamp, days(left.Round(time.Second)))
	default:
		e.ok(name, "the checkpoint stands at offset %d, whose record stays until %s at least, for %s", pos, stamp, days(left.Round(time.Minute)))
	}
}

// timeAt is the newest timestamp of the batch at an offset: it isn't deleted before
// that is too old. ok is false where there is none, or it can't be read.
func (e *exam) timeAt(ctx context.Context, t *seenTopic, partition int32, offset int64) (at time.Time, ok bool) {
	p := t.Partitions[partition]
	resp, err := e.fetch(ctx, part{t.name, topicID(t.ID), partition, p.Leader}, offset, 1<<16)
	if err != nil {
		return time.Time{}, false
	}
	for rest := resp.RecordBatches; ; {
		b, more, whole := cutBatch(rest)
		if !whole {
			return time.Time{}, false
		}
		if rest = more; b.last >= offset && b.newest > 0 {
			return time.UnixMilli(b.newest), true
		}
	}
}
