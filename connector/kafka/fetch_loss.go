package kafka

import (
	"context"
	"fmt"

	"github.com/weirstream/weir"
)

// loss is a partition that isn't what was read up to a position, or no longer has
// what would be read there.
type loss struct {
	topic     string
	partition int32
	kind      lossKind
	at        int64  // the position
	start     int64  // of the log, as it is now
	end       int64  // of the log
	had, has  string // clusters or topics
	until     int64  // of a bounded split that can't get there any more
}

type lossKind int

const (
	passed    lossKind = iota // the log starts behind the position
	truncated                 // the log ends before it, or was written anew from before it on
	shortened                 // the log ends before the end of a bounded split
	recreated                 // the topic is another one
	elsewhere                 // so is the cluster
)

// goOn is where reading goes on, if that is allowed: where the log starts, or where
// it ends if what is missing was read.
func (l loss) goOn() int64 {
	switch l.kind {
	case truncated:
		return l.end
	case shortened:
		return min(max(l.at, l.start), l.end)
	}
	return l.start
}

// what says what is missing.
func (l loss) what() string {
	where := fmt.Sprintf("topic %s, partition %d: ", l.topic, l.partition)
	switch l.kind {
	case passed:
		return where + fmt.Sprintf("offsets %d to %d, %d in all, were deleted before they were read: the log starts at %d now, by the topic's retention or because somebody has deleted records",
			l.at, l.start-1, l.start-l.at, l.start)
	case truncated:
		return where + fmt.Sprintf("offsets %d to %d, %d in all, were read and are no longer there: the log was truncated to %d (it starts at %d), because a broker has lost data or a replica that was behind became the leader",
			l.end, l.at-1, l.at-l.end, l.end, l.start)
	case shortened:
		return where + fmt.Sprintf("offsets %d to %d, %d in all, were to be read and are no longer there: the log ends at %d now (it starts at %d)",
			max(l.at, l.end), l.until-1, l.until-max(l.at, l.end), l.end, l.start)
	case recreated:
		return where + fmt.Sprintf("the topic was deleted and created again since it was read up to offset %d: its id was %s and is %s; what the old one held from there on is lost, and the new one holds offsets %d to %d",
			l.at, l.had, l.has, l.start, l.end-1)
	}
	return where + fmt.Sprintf("it was read up to offset %d on another cluster: its id was %s and is %s; offsets mean nothing there, and the topic holds %d to %d",
		l.at, l.had, l.has, l.start, l.end-1)
}

// err refuses to go on.
func (l loss) err() error {
	return fmt.Errorf("%w: %s; to go on at offset %d without what is missing, start the job with --accept-loss (kafka.AcceptLoss)",
		weir.ErrRefused, l.what(), l.goOn())
}

// accept says that reading goes on.
func (l loss) accept(ctx context.Context) {
	warn(ctx, fmt.Sprintf("%s; reading goes on at offset %d, as AcceptLoss says", l.what(), l.goOn()))
}

// lossOf compares where reading is to go on with what is there. last is the id of
// the topic that it is a position of.
func lossOf(topic string, partition int32, p position, b bounds) (loss, bool) {
	l := loss{topic: topic, partition: partition, at: p.offset, start: b.start, end: b.end, until: p.end}
	switch {
	case p.cluster != b.cluster:
		l.kind, l.had, l.has = elsewhere, p.cluster, b.cluster
	case p.topic != b.id:
		l.kind, l.had, l.has = recreated, p.topic.String(), b.id.String()
	case p.end != noEnd && p.offset >= p.end:
		return loss{}, false // nothing more is read of it
	case p.offset < b.start:
		l.kind = passed
	case p.offset > b.end:
		l.kind = truncated
	case p.end != noEnd && p.end > b.end:
		l.kind = shortened
	default:
		return loss{}, false
	}
	return l, true
}
